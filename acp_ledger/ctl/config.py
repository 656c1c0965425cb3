"""`ledgerctl config`: which settings hold, where each comes from, and whether they can be used.

What must not be broken here: what is shown is what the daemon would read, and no secret of it: an address without its
password, of an agent's variables the names alone.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from acp_ledger.ctl.options import Command, Entry, LazyGroup, current_options
from acp_ledger.ctl.reading import settings_of
from acp_ledger.ctl.render import Listing, emit, note
from acp_ledger.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.ctl.options import Options
    from acp_ledger.ctl.render import Row
    from acp_ledger.settings import Settings

MASK: Final = "***"
_HERE: Final = "acp_ledger.ctl.config"
_TABLE: Final = re.compile(r"\[([^\[\]]+)\]\s*(?:#.*)?")
_KEY: Final = re.compile(r"([^=#\s]+)\s*=")

config = LazyGroup(
    "config",
    help="Look at the settings: what they are, where they come from, whether they can be used.",
    entries={
        "Commands": {
            "show": Entry(f"{_HERE}:show", "Show every setting, and with --origin where its value comes from"),
            "check": Entry(f"{_HERE}:check", "Tell every problem of a settings file, with the key that was meant"),
            "path": Entry(f"{_HERE}:path", "Show the settings files that are looked for, and which are there"),
        },
    },
    examples=("ledgerctl config show --origin", "ledgerctl config check ./config.toml", "ledgerctl config path"),
)


@click.command(
    cls=Command,
    examples=(
        "ledgerctl config show",
        "ledgerctl config show --origin",
        "ledgerctl config show --origin -o jsonl | jq 'select(.origin != \"the default\")'",
    ),
)
@click.option("--origin", is_flag=True, help="Show where each value comes from: a flag, a variable, a file, a default.")
def show(origin: bool) -> None:  # noqa: FBT001  # click passes flags by name
    """Show every setting with the value that counts, as acp-ledgerd would read it here.

    Passwords and the values of an agent's variables are shown as ***.
    """
    options = current_options()
    settings = settings_of(options)
    columns = ("key", "value", "origin") if origin else ("key", "value")
    rows = [(key, value, _origin(settings, key))[: len(columns)] for key, value in values(settings)]
    emit(Listing("settings", columns, rows), options)


def values(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Every key with the value that counts, as text and without secrets; None where nothing is set."""
    for section, table in settings:
        if section == "agents":
            for name, agent in table.items():
                yield from _keys(f"agents.{name}", agent)
        else:
            yield from _keys(section, table)


def _keys(prefix: str, table: Any) -> Iterator[tuple[str, str | None]]:
    from pydantic import BaseModel

    for name, value in table:
        key = f"{prefix}.{name}"
        if isinstance(value, BaseModel):
            # A table of an agent's own stands over the one for all agents: only what was given in it counts.
            yield from _keys(key, [(each, item) for each, item in value if each in value.model_fields_set])
            continue
        shown = dict.fromkeys(value, MASK) if prefix.startswith("agents.") and name == "env" else value
        # Where nothing is set the path that is used is what people look for.
        yield key, _default_socket() if key == "socket.path" and value is None else _text(shown)


def _default_socket() -> str:
    from acp_ledger import paths

    return paths.socket_path(os.environ, os.getuid())


def _text(value: Any) -> str | None:
    """Write a value as people read it: text as it is, lists and tables as JSON."""
    from acp_ledger.errors import without_secrets

    if value is None:
        return None
    plain = _plain(value)
    if isinstance(plain, bool | int | float | list | dict):
        plain = json.dumps(plain, ensure_ascii=False)
    return without_secrets(str(plain))


def _plain(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return {name: _plain(item) for name, item in value}
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _origin(settings: Settings, key: str) -> str:
    """Where a value comes from, with the line of the file where that can be told."""
    origin = settings.origin(key)
    line = line_of(Path(origin), key) if origin.startswith("/") else None
    return origin if line is None else f"{origin}:{line}"


def line_of(file: Path, key: str) -> int | None:
    """The line of a settings file that sets a key, from 1; None where that is not plain to see."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found, table = [], ""
    for number, line in enumerate(map(str.strip, lines), 1):
        if heading := _TABLE.fullmatch(line):
            table = re.sub(r"[\s\"']", "", heading[1]) + "."
        elif (named := _KEY.match(line)) and table + named[1].replace('"', "") == key:
            found.append(number)
    return found[0] if len(found) == 1 else None


@click.command(
    cls=Command,
    examples=("ledgerctl config check", "ledgerctl config check ./config.toml", "ledgerctl config check -o json"),
)
@click.argument("file", required=False)
def check(file: str | None) -> int:
    """Check the settings, or FILE in the place of the usual ones, and tell every problem at once.

    The environment counts too, as it does for acp-ledgerd. Exits with 2 when a setting cannot be used, and with 3 when
    they can, but should not be left so.
    """
    options = current_options()
    named = file or options.config
    problems = _problems(Path(named) if named else None)
    emit(Listing("problems", ("severity", "problem", "hint"), problems), options)
    if any(problem[0] == "error" for problem in problems):
        return ExitCode.USAGE
    note("the settings can be used", options)
    return ExitCode.INCOMPLETE if problems else ExitCode.OK


def _problems(file: Path | None) -> list[Row]:
    """Every problem: `error` where the settings cannot be used, `warning` where they can."""
    from acp_ledger.settings import EXPOSED, load

    try:
        settings = load(file)
    except ConfigError as fault:
        return [("error", line, fault.hint) for line in fault.message.splitlines()]
    found: list[Row] = []
    if (exposed := settings.exposed_file()) is not None:
        found.append(("warning", f"{exposed}: {EXPOSED}", f"chmod 600 {shlex.quote(os.fspath(exposed))}"))
    if settings.listen_path() is None:
        found.append(("warning", _NO_SOCKET, "set ACP_LEDGER_SOCKET__PATH too, or name the ledger in the file"))
    return found


_NO_SOCKET: Final = (
    "ACP_LEDGER_DATABASE__URL: a daemon whose ledger comes from the environment needs a socket of its own"
)


@click.command(cls=Command, examples=("ledgerctl config path", "ledgerctl config path -o jsonl"))
def path() -> None:
    """Show the settings files that are looked for, the one that counts more first, and what became of each.

    Both are read where both are there, and merged key by key.
    """
    options = current_options()
    emit(Listing("files", ("file", "state"), [(file, _state(Path(file))) for file in looked_for(options)]), options)


def looked_for(options: Options) -> tuple[str, ...]:
    """The settings files of this run, the one that counts more first."""
    from acp_ledger import paths

    return (options.config,) if options.config else paths.config_files(os.environ, os.getuid())


def _state(file: Path) -> str:
    try:
        with file.open("rb"):
            return "read"
    except FileNotFoundError:
        return "not there"
    except OSError as fault:
        return f"cannot be read: {fault.strerror}"
