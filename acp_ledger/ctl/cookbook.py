"""The named questions of `ledgerctl sql --named`: files of SQL, each with its question, its words and its parameters.

What must not be broken here: a value given on the command line is bound, never written into a statement. A file begins
with comments: the question in the first line, its explanation, then a line for each parameter,
`-- param NAME text|time|integer [= DEFAULT]: WORDS`. A statement for both engines follows, or one behind each of
`-- on sqlite` and `-- on postgresql`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from acp_ledger import paths
from acp_ledger.ctl.times import as_rfc3339
from acp_ledger.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHIPPED: Final = Path(__file__).parent.parent / "cookbook"
"""The questions that come with this program."""

Given: TypeAlias = "dict[str, str | int]"

_PARAMETER: Final = re.compile(r"param (\w+) (text|time|integer)(?: = (\S+))?: (.+)")
_ENGINE: Final = re.compile(r"^-- on (sqlite|postgresql)$", re.MULTILINE)
_SOURCE: Final = re.compile(r"\b(?:FROM|JOIN)\s+([a-z_]+)\b(?!\()", re.IGNORECASE)
_COMMON: Final = re.compile(r"\b([a-z_]+)\s+AS\s+\(", re.IGNORECASE)
_LARGEST: Final = 2**63 - 1


class Parameter(NamedTuple):
    """A value that a question takes; one without a default must be given."""

    name: str
    kind: str
    default: str | None
    words: str


class Question(NamedTuple):
    """A named question: `statements` by engine, where both have the same under `any`."""

    name: str
    question: str
    explanation: str
    parameters: tuple[Parameter, ...]
    statements: dict[str, str]

    def statement(self, engine: str) -> str:
        """Give the statement for an engine."""
        return self.statements.get("any") or self.statements[engine]

    @property
    def reads(self) -> str:
        """What its statements read: `views` alone, which any reader may, or `tables` too."""
        text = " ".join(self.statements.values())
        sources = {found[1] for found in _SOURCE.finditer(text)} - {found[1] for found in _COMMON.finditer(text)}
        return "views" if all(name.startswith("audit_") for name in sources) else "tables"


def own_folder() -> Path:
    """Give the folder in which people keep questions of their own; one of the same name replaces ours."""
    return Path(paths.config_files(os.environ, os.getuid())[0]).parent / "queries"


def questions() -> dict[str, Question]:
    """Read every question, ours and the person's own, by name."""
    files = [*sorted(SHIPPED.glob("*.sql")), *sorted(own_folder().glob("*.sql"))]
    return {file.stem: parse(file.stem, file.read_text(encoding="utf-8")) for file in files}


def named(name: str) -> Question:
    """Give the question of a name.

    Raises:
        UsageError: There is none; the nearest names are told.
    """
    known = questions()
    if name in known:
        return known[name]
    import difflib  # only who mistypes needs it

    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(f"there is no question named {name!r}{meant}", hint="ledgerctl sql --list")


def parse(name: str, text: str) -> Question:
    """Read a file; what is no comment at its head is its statement."""
    head, statements = [], text.strip()
    while statements.startswith("--") and _ENGINE.match(statements) is None:
        line, _, statements = statements.partition("\n")
        head.append(line[2:].strip())
        statements = statements.lstrip("\n")
    found = [_PARAMETER.fullmatch(line) for line in head]
    words = [line for line, parameter in zip(head, found, strict=True) if parameter is None]
    parameters = tuple(Parameter(*parameter.groups()) for parameter in found if parameter is not None)
    explanation = " ".join(word for word in words[1:] if word)
    return Question(name, words[0] if words else name, explanation, parameters, _by_engine(statements))


def _by_engine(text: str) -> dict[str, str]:
    first, *parts = _ENGINE.split(text)
    if not parts:
        return {"any": first.strip()}
    return {engine: statement.strip() for engine, statement in zip(parts[::2], parts[1::2], strict=True)}


def pairs(given: Iterable[str]) -> dict[str, str]:
    """Read `K=V`.

    Raises:
        UsageError: A word has no `=`.
    """
    split = [word.partition("=") for word in given]
    for name, equals, value in split:
        if not equals or not name:
            raise UsageError(f"--param {name + equals + value}: it is no NAME=VALUE", hint="--param since=yesterday")
    return {name: value for name, _, value in split}


def bound(question: Question, given: Mapping[str, str]) -> Given:
    """Give the values of a question's parameters: as given, else the defaults.

    Raises:
        UsageError: One is missing, unknown, or no value of its kind.
    """
    known = {parameter.name: parameter for parameter in question.parameters}
    if unknown := sorted(set(given) - set(known)):
        takes = ", ".join(known) or "none"
        raise UsageError(f"{question.name} has no parameter {', '.join(unknown)}", hint=f"its parameters: {takes}")
    values: Given = {}
    for name, parameter in known.items():
        word = given.get(name, parameter.default)
        if word is None:
            raise UsageError(
                f"{question.name} needs {name}: {parameter.words}",
                hint=f"ledgerctl sql --named {question.name} --param {name}=…",
            )
        values[name] = _value(parameter, word)
    return values


def _value(parameter: Parameter, word: str) -> str | int:
    if parameter.kind == "time":
        return as_rfc3339(word)
    if parameter.kind == "text":
        return word
    if re.fullmatch(r"-?\d{1,19}", word) is None or not -_LARGEST <= int(word) <= _LARGEST:
        raise UsageError(f"--param {parameter.name}={word}: it is no whole number", hint=f"{parameter.name}=20")
    return int(word)
