"""Where settings come from: flags, variables and files, merged key by key, each value with its origin.

What must not be broken here: every key of every source is looked at, and one that is not known becomes a problem;
values stay out of every message, for any of them may be a secret.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

PREFIX: Final = "ACP_LEDGER_"
FLAG: Final = "a flag"
_LISTS: Final = ("policy.allow_tool_kinds", "policy.allow_title_prefixes", "policy.rules")


class Gathered(NamedTuple):
    """Everything that was given: known keys as one tree, the origin of each, and what is wrong, a line each."""

    values: dict[str, Any]
    origins: dict[str, str]
    problems: list[str]


class _Layer(NamedTuple):
    """One source: its values as a tree, and the name of each leaf's origin."""

    values: dict[str, Any]
    origins: dict[str, str]


def gather(
    model: type[BaseModel], files: Iterable[Path], overrides: Mapping[str, Any], ignored: frozenset[str]
) -> Gathered:
    """Merge flags over the environment over files, the first file over those after it."""
    problems: list[str] = []
    layers = [_flags(overrides), _environment(os.environ, ignored, problems)]
    layers += [_file(path, problems) for path in files]
    for layer in layers:
        problems += _unknown(layer, model)
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in reversed(layers):
        _merge(merged, layer.values)
        origins |= layer.origins
    return Gathered(_without_unknown(merged, model), origins, problems)


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key there is, dotted, in the order of the model; an agent's name is written `NAME`."""
    for name, field in model.model_fields.items():
        inner = section_of(field.annotation)
        key = f"{prefix}{name}"
        if inner is None:
            yield key
        else:
            yield from keys(inner, f"{key}.NAME." if _is_map(field.annotation) else f"{key}.")


def variable(key: str) -> str:
    """The environment's spelling of a key."""
    return PREFIX + key.upper().replace(".", "__")


def section_of(annotation: object) -> type[BaseModel] | None:
    """The section behind a field's type: the type itself, or what a table of named sections holds."""
    if _is_map(annotation):
        annotation = get_args(annotation)[1]
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _is_map(annotation: object) -> bool:
    return get_origin(annotation) is dict


def _flags(overrides: Mapping[str, Any]) -> _Layer:
    tree: dict[str, Any] = {}
    for key, value in overrides.items():
        if value is not None:
            _merge(tree, _nested(key.split("."), _plain(value)))
    return _Layer(tree, dict.fromkeys(_leaves(tree), FLAG))


def _plain(value: object) -> object:
    if not isinstance(value, dict):
        return str(value) if isinstance(value, os.PathLike) else value
    return {key: _plain(item) for key, item in value.items() if item is not None}


def _environment(environ: Mapping[str, str], ignored: frozenset[str], problems: list[str]) -> _Layer:
    tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in ignored:
            continue
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        value: Any = environ[name]
        if _wants_json(key):
            value = _json(name, value, problems)
        _merge(tree, _nested(key.split("."), value))
        origins |= dict.fromkeys(_leaves(_nested(key.split("."), value)), name)
    return _Layer(tree, origins)


def _wants_json(key: str) -> bool:
    """Lists and tables are given to the environment as JSON."""
    return key.endswith(_LISTS) or (key.startswith("agents.") and key.endswith((".args", ".env")))


def _json(name: str, text: str, problems: list[str]) -> object:
    try:
        return json.loads(text)
    except ValueError:
        problems.append(f'{name}: is not JSON; write it like ["--flag", "value"] or {{"NAME": "value"}}')
        return None


def _file(path: Path, problems: list[str]) -> _Layer:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror}")
        tree = {}
    except UnicodeDecodeError:
        problems.append(f"{path}: is not UTF-8")
        tree = {}
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{path}: is not TOML: {error}")
        tree = {}
    return _Layer(tree, dict.fromkeys(_leaves(tree), str(path)))


def _nested(parts: list[str], value: object) -> dict[str, Any]:
    first, *rest = parts
    return {first: _nested(rest, value) if rest else value}


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        present = into.get(key)
        if isinstance(value, dict):
            fresh: dict[str, Any] = present if isinstance(present, dict) else {}
            into[key] = fresh
            _merge(fresh, value)
        else:
            into[key] = value


def _ends(tree: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The keys of a tree that hold a value, or an empty table."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _ends(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of a tree, its tables' own with them."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        yield f"{prefix}{key}"


def _unknown(layer: _Layer, model: type[BaseModel]) -> Iterator[str]:
    """One line for each key of a source that there is not, with the key that was probably meant."""
    for key in _strangers(layer.values, model):
        origin = layer.origins.get(key, FLAG)
        what = origin if origin.startswith(PREFIX) else f"{origin}: {key}"
        near = _near(key, tuple(keys(model)))
        spelled = [variable(each) for each in near] if origin.startswith(PREFIX) else near
        suggestion = f"; did you mean {' or '.join(spelled)}?" if spelled else ""
        yield f"{what}: there is no such setting{suggestion}"


def _strangers(values: Mapping[str, Any], model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None:
            yield from _ends({name: value}, prefix)
            continue
        inner = section_of(field.annotation)
        if inner is None or not isinstance(value, dict):
            continue
        if not _is_map(field.annotation):
            yield from _strangers(value, inner, f"{prefix}{name}.")
            continue
        for each, table in value.items():
            if isinstance(table, dict):
                yield from _strangers(table, inner, f"{prefix}{name}.{each}.")


def _near(key: str, known: Iterable[str]) -> list[str]:
    """The right key in the wrong table first, then keys spelled alike."""
    leaf = key.rsplit(".", 1)[-1]
    moved = [each for each in known if each.rsplit(".", 1)[-1] == leaf and "." in key]
    return moved[:2] or difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)


def _without_unknown(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """What is left to validate once unknown keys have been told: nothing is reported twice."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None or value is None:
            continue
        inner = section_of(field.annotation)
        if inner is None or not isinstance(value, dict):
            kept[name] = value
        elif _is_map(field.annotation):
            kept[name] = {k: _without_unknown(v, inner) if isinstance(v, dict) else v for k, v in value.items()}
        else:
            kept[name] = _without_unknown(value, inner)
    return kept
