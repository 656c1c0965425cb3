"""The grammar all commands share: global options before or after the command, examples in every help, lazy groups.

What must not be broken here: nothing heavier than click is imported, or `ledgerctl --version` and completion slow down
for everybody, and a global option means the same wherever it stands; the one nearest to the command counts.
"""

from __future__ import annotations

import importlib
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STORE: Final = "acp_ledger.ctl.options"
FORMATS: Final = ("table", "json", "jsonl", "csv")


@dataclass(frozen=True)
class Options:
    """What the global options say, defaults filled in."""

    config: str | None = None
    ledger: str | None = None
    output: str = "table"
    columns: str | None = None
    quiet: bool = False
    verbose: bool = False
    utc: bool = False
    color: str = "auto"
    pager: bool = True


def current_options() -> Options:
    """Give the global options of the command that is running."""
    return options_of(click.get_current_context())


def options_of(context: click.Context) -> Options:
    """Give the global options as typed anywhere on this command line."""
    return Options(**context.find_root().meta.get(_STORE, {}))


def with_ledger(command: str, options: Options) -> str:
    """Give a command for a hint, with the settings and the ledger that this run was told to use.

    They go right behind `ledgerctl`, so that whatever follows (a pipe, a word of explanation) stays as it is; a command
    that names a ledger already is left alone.
    """
    given = [("--config", options.config), ("-L", options.ledger)]
    flags = "".join(f" {flag} {shlex.quote(value)}" for flag, value in given if value)
    if re.search(r"(^|\s)(-L|--ledger|--config)(\s|=)", command):
        return command
    return re.sub(
        r"\bledgerctl(?= (?!demo\b|editor\b|config\b|completion\b)[a-z])", lambda found: found[0] + flags, command
    )


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a global option that was typed; commands are parsed after their groups, so the nearest one stays."""
    name = str(parameter.name)
    if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        context.find_root().meta.setdefault(_STORE, {})[name] = value


def _global(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_remember, **attributes)


def _files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the names of files."""
    return [CompletionItem(incomplete, type="file")]


def global_options(formats: Sequence[str] = FORMATS) -> list[click.Parameter]:
    """Make the options that every command takes."""
    return [
        _global("--config", metavar="FILE", shell_complete=_files, help="Read this configuration file."),
        _global(
            *("-L", "--ledger"),
            metavar="URL",
            shell_complete=_files,
            help="Read this ledger: a database URL, or the path of an SQLite file.",
        ),
        _global("-o", "--output", type=click.Choice(formats), help="Form of the data on stdout."),
        _global("--columns", metavar="A,B", help="Show these columns; `help` lists them."),
        _global("-q", "--quiet", is_flag=True, help="Leave out the notes on stderr."),
        _global("-v", "--verbose", is_flag=True, help="Show where an error came from."),
        _global("--utc", is_flag=True, help="Show UTC on a terminal instead of local time."),
        _global("--color", type=click.Choice(("auto", "always", "never")), help="When to colour."),
        _global("--no-pager", "pager", flag_value=False, is_flag=True, help="Never page."),
    ]


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    with formatter.section("Examples"):
        for example in examples:
            formatter.write_text(example)


def _write_options(
    context: click.Context,
    formatter: click.HelpFormatter,
    parameters: Sequence[click.Parameter],
    heading: str,
) -> None:
    records = [record for parameter in parameters if (record := parameter.get_help_record(context)) is not None]
    if records:
        with formatter.section(heading):
            formatter.write_dl(records)


class Command(click.Command):
    """A command with examples that also takes the global options."""

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), formats: Sequence[str] = FORMATS, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.own = list(self.params)
        self.params = [*self.params, *global_options(formats)]
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, purpose, examples, own options and one line on the global ones."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        _write_examples(formatter, self.examples)
        _write_options(ctx, formatter, self.own, "Options")
        formatter.write_paragraph()
        formatter.write_text("Global options (-o, -L, --columns, …) are allowed here too: ledgerctl --help")


class Entry(NamedTuple):
    """Where a command is to be found, and its line in the group's help; so help needs no import."""

    target: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def __init__(
        self,
        *args: Any,
        entries: Mapping[str, Mapping[str, Entry]],
        examples: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = entries
        self.examples = tuple(examples)
        self.entries = {name: entry for section in entries.values() for name, entry in section.items()}
        self.own = list(self.params)
        self.params = [*self.params, *global_options()]
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
        # click looks here for the nearest name when a command is mistyped.
        self.commands = dict.fromkeys(self.entries, click.Command(None))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of the help."""
        del ctx
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is no such name."""
        del ctx
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, attribute = entry.target.split(":")
        found = getattr(importlib.import_module(module), attribute)
        if not isinstance(found, click.Command):
            raise TypeError(f"{entry.target} is no command")
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands from the table, and options as any command does; nothing is imported."""
        names = [
            CompletionItem(name, help=entry.summary.replace(",", ";"))  # fish takes a comma for the end
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, purpose, examples, the commands by section, and the options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        _write_examples(formatter, self.examples)
        for section, entries in self.sections.items():
            with formatter.section(section):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])
        _write_options(ctx, formatter, self.get_params(ctx), "Options")
