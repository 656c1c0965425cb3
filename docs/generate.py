"""Makes the pages that repeat what the code says: config.example.toml, half of docs/*.md, and docs/man.

    python -m docs.generate            writes them
    python -m docs.generate --check    says which are not current, and exits with 1

What must not be broken here: a page depends on the code alone, never on the machine or the day, so that a test can
compare. The words are the code's own: a key's description, a command's help, a column's comment.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

import click

from acp_ledger import run, sections, settings, sources
from acp_ledger.ctl.main import root
from acp_ledger.daemon.main import main as daemon
from acp_ledger.errors import MEANINGS
from docs import cookbook, man, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

ROOT: Final = Path(__file__).parent.parent
MADE: Final = "<!-- Made by `python -m docs.generate`; change the code it is made from instead. -->\n"
WIDTH: Final = 100


class Key:
    """A setting as the pages show it."""

    def __init__(self, table: str, name: str, field: FieldInfo) -> None:
        self.name = name
        self.key = f"{table}.{name}"
        self.description = field.description or ""
        self.variable = sources.variable(self.key)
        self.required = field.is_required()
        self.default = None if self.required else field.get_default(call_default_factory=True)
        self.choices = _choices(field.annotation)

    def toml(self) -> str | None:
        """The default as TOML writes it, None where there is none."""
        return None if self.default is None else _toml(self.default)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{}" if not value else "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _choices(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if annotation in {int, float}:
        return "a number above 0"
    if annotation is bool:
        return "`true`, `false`"
    if get_origin(annotation) is tuple:
        return "a list of tables" if sources.section_of(get_args(annotation)[0]) else "a list of text"
    return "a table of text" if get_origin(annotation) is dict else "text"


def _sections() -> Iterator[tuple[str, type[BaseModel], list[Key]]]:
    for name, field in settings.Settings.model_fields.items():
        model = sources.section_of(field.annotation)
        if model is None:
            raise TypeError(f"{name} is no section")
        yield from _section(f"{name}.NAME" if model is sections.AgentSettings else name, model)


def _section(table: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel], list[Key]]]:
    """A section's own keys, then the sections in it."""
    inner = {key: sources.section_of(each.annotation) for key, each in model.model_fields.items()}
    yield table, model, [Key(table, key, each) for key, each in model.model_fields.items() if inner[key] is None]
    for key, section in inner.items():
        if section is not None:
            yield from _section(f"{table}.{key}", section)


def config_example() -> str:
    """A settings file that says what holds without one."""
    lines = [
        "# Settings of acp-ledger. Every key is here with its default, so an empty file means the same as this one.",
        "# Read from ~/.config/acp-ledger/config.toml, then /etc/acp-ledger/config.toml; `--config FILE` replaces both.",
        "# A variable wins over a file, and a flag over both. A key that is not known is an error.",
        "# A connection opens with what stands here at that moment; docs/service.md says what needs a restart.",
        "# Made by `python -m docs.generate` from acp_ledger/sections.py.",
    ]
    for table, model, keys in _sections():
        named = ".NAME" in table
        mark = "# " if named else ""
        lines += ["", "", *_comment(_meaning(model)), f"{mark}[{table.replace('NAME', 'claude')}]"]
        for key in keys:
            value = key.toml()
            off = mark if value is not None else "# "
            lines += ["", *_comment(key.description), f"# Variable: {key.variable}"]
            lines.append(f"{off}{key.name} = {value if value is not None else _sample(key)}")
    return "\n".join(lines) + "\n"


def _sample(key: Key) -> str:
    return _SAMPLES[key.key]


_SAMPLES: Final = {
    "socket.path": '"/run/user/1000/acp-ledger/ledgerd.sock"',
    "agents.NAME.command": '"claude-agent-acp"',
}
"""What stands beside a key that has no default."""


def _meaning(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").replace("\n", " ").replace("  ", " ")


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text.replace("`", ""), WIDTH, initial_indent="# ", subsequent_indent="# ")


def config_page() -> str:
    """Every key as a table, for reading."""
    lines = [
        "# Settings",
        "",
        MADE,
        "After this page you can set anything that can be set, in a file, by a variable or by a flag.",
        "",
        "A flag wins over the environment, that over `~/.config/acp-ledger/config.toml`, that over",
        "`/etc/acp-ledger/config.toml`; values are merged key by key, and `--config FILE` takes the place of both files.",
        "Defaults need no file. A key that is not known is an error, in a file and in the environment, and all errors are",
        "told at once. Lists and tables are given to the environment as JSON. A leading `~/` is your home directory:",
        "`HOME`, else your passwd entry. `XDG_*` is not consulted, so that an editor that hands on `PATH` alone finds the",
        "same ledger. A connection opens with what stands in the files at that moment; [what needs a restart](service.md) is",
        "named by `ledgerctl status`. A complete file with every default: [config.example.toml](../config.example.toml). What a policy does",
        "with a question: [a policy that answers](policy.md).",
    ]
    for table, model, keys in _sections():
        lines += ["", f"## `[{table}]`", "", _meaning(model), "", "| key | default | values | meaning |"]
        lines += ["|---|---|---|---|"]
        for key in keys:
            default = f"`{key.toml()}`" if key.default is not None else ("required" if key.required else "not set")
            default = "as `[policy]`" if model is sections.AgentPolicySettings else default
            lines.append(f"| `{key.name}` | {default} | {key.choices} | {key.description} |")
    names = ", ".join(f"`{name}`" for name in sorted(settings.IGNORED_VARIABLES))
    lines += [
        "",
        "## Variables",
        "",
        "A key's variable is `ACP_LEDGER_`, its table, `__`, its name: `limits.line_bytes` is",
        f"`{sources.variable('limits.line_bytes')}`. These begin alike, are no settings, and are ignored:",
        f"{names}.",
    ]
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """Every command with its help, as typed `--help` shows it, and the exit codes."""
    lines = [
        "# Commands",
        "",
        MADE,
        "After this page you can call every command. `ledgerctl` is also installed as `acp-ledgerctl`. The same is in",
        "`man ledgerctl`, `man acp-ledger-run` and `man acp-ledgerd`; settings are in `man acp-ledger.toml`, the views in",
        "`man acp-ledger-schema`. `man` finds them beside every folder of programs that is on `PATH`.",
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()),
        "",
        "`acp-ledger-run` exits with the agent's own status, 128 + N after signal N; with 126 or 127 as `env` does where",
        "the agent cannot be started; with 69 where no daemon could be reached or started.",
        "",
        "`ledgerctl` and `ledgerctl db` without a command write their help to stderr and exit with 2, as programs made",
        "with click do; with `--help` they write it to stdout and exit with 0.",
    ]
    lines += ["", "## `acp-ledger-run`", "", "```text", run.HELP.rstrip(), "```"]
    for path, command in [(("acp-ledgerd",), daemon), *commands(root, ("ledgerctl",))]:
        lines += ["", f"## `{' '.join(path)}`", "", "```text", help_of(command, path), "```"]
    return "\n".join(lines) + "\n"


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command under one, itself first, with the words it is called by."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from commands(found, (*path, name))


def help_of(command: click.Command, path: tuple[str, ...]) -> str:
    """A command's help, as `--help` shows it on a wide terminal without colours."""
    parent: click.Context | None = None
    for name in path[:-1]:
        parent = click.Context(click.Group(name), info_name=name, parent=parent)
    shape = {**command.context_settings, "terminal_width": WIDTH}
    context = command.context_class(command, info_name=path[-1], parent=parent, **shape)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def _ledgerctl() -> str:
    titled = [man.Titled(" ".join(path), help_of(command, path)) for path, command in commands(root, ("ledgerctl",))]
    codes = {str(code.value): meaning for code, meaning in MEANINGS.items()}
    return man.command_page("ledgerctl.1", "ledgerctl [OPTIONS] COMMAND [ARGS]...", titled, codes)


def _daemon() -> str:
    titled = [man.Titled("", help_of(daemon, ("acp-ledgerd",)))]
    codes = {str(code.value): meaning for code, meaning in MEANINGS.items()}
    return man.command_page("acp-ledgerd.8", "acp-ledgerd [OPTIONS]", titled, codes)


def _runner() -> str:
    statuses = {
        "0 to 125": "The agent's own status.",
        "126, 127": "The agent cannot be started, as env(1) says it.",
        "128+N": "The agent was ended by signal N.",
        "69": "No daemon could be reached or started, so the agent was not.",
    }
    return man.command_page("acp-ledger-run.1", run.USAGE, [man.Titled("", run.HELP)], statuses)


def _settings() -> str:
    chapters = [
        (f"[{table}]", _meaning(model), {key.name: _told(key) for key in keys}) for table, model, keys in _sections()
    ]
    opening = (
        "TOML, in tables and keys. An empty file means the same as none. A key that is not known is an error; variables"
        " named ACP_LEDGER_TABLE__KEY win over files, and flags over both."
    )
    return man.list_page("acp-ledger.toml.5", opening, chapters)


def _told(key: Key) -> str:
    default = key.toml()
    return f"{key.description} Default: {default if default is not None else 'not set'}."


PAGES: Final[dict[str, Callable[[], str]]] = {
    "config.example.toml": config_example,
    "docs/config.md": config_page,
    "docs/cli.md": cli_page,
    "docs/schema.md": lambda: schema.page(MADE),
    "docs/sql-cookbook.md": lambda: cookbook.page(MADE),
    "docs/man/ledgerctl.1": _ledgerctl,
    "docs/man/acp-ledgerd.8": _daemon,
    "docs/man/acp-ledger-run.1": _runner,
    "docs/man/acp-ledger.toml.5": _settings,
    "docs/man/acp-ledger-schema.7": lambda: man.list_page("acp-ledger-schema.7", schema.MANUAL, schema.chapters()),
}


def main() -> int:
    """Write the pages, or say which differ."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page is not current")
    check = parser.parse_args().check
    stale = [name for name, page in PAGES.items() if _text(name) != page()]
    for name in stale:
        sys.stdout.write(f"{name} {'is not current' if check else 'written'}\n")
        if not check:
            (ROOT / name).parent.mkdir(exist_ok=True)
            (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
    return 1 if check and stale else 0


def _text(name: str) -> str | None:
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
