"""`ledgerctl editor`: which editors are here, and putting their agents behind the ledger or taking them out again.

What must not be broken here: nothing is written that was not shown and agreed to; without a terminal to ask on, only
`--yes` agrees; and every file that is written has a backup and a line in the journal first.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from acp_ledger import paths
from acp_ledger.ctl.options import Command, Entry, LazyGroup, current_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from acp_ledger.ctl.editor.catalog import Editor
    from acp_ledger.ctl.editor.snippets import Wanted
    from acp_ledger.ctl.editor.survey import Found
    from acp_ledger.ctl.options import Options

_HERE: Final = "acp_ledger.ctl.editor.command"
editor = LazyGroup(
    "editor",
    help="Put an editor's agents behind the ledger, and take them out again.",
    entries={
        "Commands": {
            "list": Entry(f"{_HERE}:list_editors", "The editors, and how many of their agents are recorded"),
            "setup": Entry(f"{_HERE}:setup", "Edit an editor's settings; shows the change and asks first"),
            "undo": Entry(f"{_HERE}:undo", "Take back what setup changed"),
            "print": Entry(f"{_HERE}:print_snippet", "Print what to add to an editor's settings by hand"),
        },
    },
    examples=("ledgerctl editor list", "ledgerctl editor setup zed", "ledgerctl editor print codecompanion"),
)

_COLUMNS: Final = ("editor", "title", "file", "agents", "recorded", "state")


@click.command("list", cls=Command, examples=("ledgerctl editor list", "ledgerctl editor list -o json"))
def list_editors() -> None:
    """List the editors, where their settings are, and how many of their agents run through the ledger.

    Editors with a file were found in this home directory. The others that `setup` can edit have no settings there; the
    rest are configured by code or on a command line, which `print` gives.
    """
    from acp_ledger.ctl.editor.catalog import EDITORS
    from acp_ledger.ctl.editor.survey import survey
    from acp_ledger.ctl.render import Listing, emit

    found = survey(_home(), os.environ)
    rows = [row for each in EDITORS for row in _rows(each, [file for file in found if file.editor == each])]
    narrow = ("editor", "title", "agents", "recorded", "state")
    emit(Listing("editors", _COLUMNS, rows, narrow), current_options())


def _rows(each: Editor, found: list[Found]) -> list[tuple[str | int | None, ...]]:
    if not found:
        state = "no settings found" if each.key else "print only"
        return [(each.name, each.title, None, None, None, state)]
    return [(each.name, each.title, str(one.file), *_figures(one)) for one in found]


def _figures(found: Found) -> tuple[int | None, int | None, str]:
    from acp_ledger.ctl.editor.entries import State

    if found.problem:
        return None, None, f"cannot be read: {found.problem}"
    recorded = sum(entry.state is State.RECORDED for entry in found.entries)
    missed = [entry.name for entry in found.entries if entry.state is not State.RECORDED]
    state = f"not recorded: {', '.join(missed)}" if missed else "recorded" if recorded else "no agents"
    return len(found.entries), recorded, state


def _editors(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Let the shell complete the names of editors."""
    from acp_ledger.ctl.editor.catalog import EDITORS

    return [each.name for each in EDITORS if each.name.startswith(incomplete)]


def _editing(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of all that edit."""
    command = click.option("--yes", is_flag=True, help="Do not ask.")(command)
    command = click.option("--dry-run", is_flag=True, help="Show the change and make none.")(command)
    return click.option("--file", type=Path, help="The settings file, where it is not the usual one.")(command)


def _choosing(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command the options that choose an agent."""
    command = click.argument("command", nargs=-1, type=click.UNPROCESSED)(command)
    command = click.option("--runner", metavar="PATH", help="The acp-ledger-run to name, where another is meant.")(
        command
    )
    command = click.option("--title", metavar="TITLE", help="The agent's name in the editor.")(command)
    return click.option(
        "--agent", metavar="NAME", help="The agent's name in the record; COMMAND may be left out for known ones."
    )(command)


@click.command(
    cls=Command,
    examples=(
        "ledgerctl editor setup zed",
        "ledgerctl editor setup zed --only Goose --dry-run",
        "ledgerctl editor setup jetbrains --agent claude",
        "ledgerctl editor setup vscode --agent mine -- /opt/mine/agent --acp",
    ),
)
@click.argument("name", metavar="EDITOR", shell_complete=_editors)
@_choosing
@click.option("--only", multiple=True, metavar="NAME", help="Set up this agent alone; may be given several times.")
@_editing
def setup(
    name: str,
    agent: str | None,
    title: str | None,
    runner: str | None,
    command: tuple[str, ...],
    only: tuple[str, ...],
    file: Path | None,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Put the agents in the settings of EDITOR (zed, jetbrains, vscode) behind the ledger.

    An agent with a command of its own gets acp-ledger-run put before it. One that the editor starts itself, out of a
    registry, is left as it is and gets a recorded agent beside it. With --agent or COMMAND, that agent is added.
    Everything else in the file stays as it is, to the byte. Exits with 3 when an agent stays unrecorded.
    """
    from acp_ledger.ctl.editor import editing
    from acp_ledger.ctl.editor.catalog import chosen_runner, find_runner
    from acp_ledger.ctl.editor.plans import Request
    from acp_ledger.errors import UsageError

    options = current_options()
    chosen = editing.editable(name)
    path = find_runner(os.environ) if runner is None else chosen_runner(runner)
    request = Request(path, str(_home()), only)
    is_new = bool(agent or command)
    if (is_new and only) or (title and not is_new):
        raise UsageError(
            "--only chooses among the agents that are there; --agent, COMMAND and --title are for a new one"
        )
    if is_new:
        wanted = _wanted(options, path, agent, title, command)
        request = request._replace(title=wanted.title, words=wanted.words[1:])
    where = file or editing.settings_file(chosen, _home(), options)
    consent = editing.Consent(dry_run=dry_run, yes=yes, options=options)
    return editing.set_up(chosen, where, request, consent, f"ledgerctl editor undo {name}{_flag(file)}")


def _flag(file: Path | None) -> str:
    return "" if file is None else f" --file {shlex.quote(str(file))}"


@click.command(
    cls=Command,
    examples=("ledgerctl editor undo zed", "ledgerctl editor undo jetbrains --dry-run"),
)
@click.argument("name", metavar="EDITOR", shell_complete=_editors)
@_editing
def undo(name: str, file: Path | None, *, dry_run: bool, yes: bool) -> int:
    """Take back what `setup` changed in the settings of EDITOR.

    A file that nobody changed since becomes what it was, to the byte. From one that was changed only our part is taken
    out, and an entry of ours that somebody changed into something else is left and named; then it exits with 3.
    """
    from acp_ledger.ctl.editor import editing

    consent = editing.Consent(dry_run=dry_run, yes=yes, options=current_options())
    chosen = editing.editable(name)
    return editing.undo(chosen, file, consent, os.environ)


@click.command(
    "print",
    cls=Command,
    examples=(
        "ledgerctl editor print acpx",
        "ledgerctl editor print codecompanion --agent gemini",
        "ledgerctl editor print toad --agent mine -- /opt/mine/agent --acp",
    ),
)
@click.argument("name", metavar="EDITOR", shell_complete=_editors)
@_choosing
def print_snippet(
    name: str, agent: str | None, title: str | None, runner: str | None, command: tuple[str, ...]
) -> None:
    """Print what puts an agent behind the ledger in EDITOR, ready to be pasted: claude, unless another is named.

    EDITOR is one of zed, jetbrains, vscode, codecompanion, avante, agent-shell, toad, acpx, marimo.
    """
    from acp_ledger.ctl.editor.catalog import editor_named, find_runner
    from acp_ledger.ctl.editor.snippets import snippet
    from acp_ledger.ctl.render import note

    options = current_options()
    chosen = editor_named(name)
    path = str(Path(runner).absolute()) if runner else find_runner(os.environ)
    wanted = _wanted(options, path, agent, title, command)
    _check_printable(wanted)
    sys.stdout.write(snippet(chosen, wanted))
    note(f"goes into {chosen.where}", options)


def _check_printable(wanted: Wanted) -> None:
    """Refuse what cannot be shown as it is: escaped, a snippet would be another one.

    Raises:
        UsageError: A word holds a character that steers a terminal, or hides.
    """
    from acp_ledger.ctl.text import is_hidden
    from acp_ledger.errors import UsageError

    for word in (wanted.title, *wanted.words):
        if any(map(is_hidden, word)):
            raise UsageError(f"{word} holds a character that is not printed", hint="put the command into a script")


def _wanted(options: Options, runner: str, agent: str | None, title: str | None, command: tuple[str, ...]) -> Wanted:
    """Work out which agent is meant: its command as given, else that of the settings, else the known one.

    Raises:
        UsageError: No command is given, and none is known.
    """
    from acp_ledger.ctl.editor.catalog import agent_named
    from acp_ledger.ctl.editor.entries import program_of
    from acp_ledger.ctl.editor.plans import title_of
    from acp_ledger.ctl.editor.snippets import Wanted
    from acp_ledger.errors import UsageError

    name = agent or (program_of(command[0]) if command else "claude")
    known = agent_named(name)
    words = ("--", *command)
    if not command and agent and _is_configured(options, agent):
        words = ()
    elif not command:
        if known is None:
            raise UsageError(
                f"no command is known for an agent named {name}",
                hint=f"give it: --agent {name} -- COMMAND, or set it as [agents.{name}] in config.toml",
            )
        words = ("--", *known.command)
    default = title_of(known.title if known and not command else name)
    return Wanted(name, title or default, (runner, "--agent", name, *words))


def _is_configured(options: Options, agent: str) -> bool:
    from acp_ledger.ctl.reading import settings_of  # slow, and needed for --agent alone

    return agent in settings_of(options).agents


def _home() -> Path:
    return Path(paths.home(os.environ, os.getuid()))
