"""Which editors are found in a home directory, and which of their agents bypass the ledger.

What must not be broken here: nothing is changed, nothing is started, and no settings file, however broken, is an
exception: what cannot be read is told like everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from acp_ledger.ctl.editor import files, jsonc
from acp_ledger.ctl.editor.catalog import EDITORS, agent_of_registry, files_of
from acp_ledger.ctl.editor.entries import Entry, State, entries_of
from acp_ledger.ctl.editor.plans import shell_name, title_of
from acp_ledger.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from acp_ledger.ctl.editor.catalog import Editor


class Found(NamedTuple):
    """A settings file that is there: its agents, or why it cannot be read (`problem`, else empty)."""

    editor: Editor
    file: Path
    entries: tuple[Entry, ...] = ()
    problem: str = ""


class Bypass(NamedTuple):
    """An agent in an editor's settings that the ledger does not see.

    `agent` is the entry's name (empty when the whole file cannot be read), `state` one of `direct`, `registry`,
    `runner gone`, `unreadable`; `reason` says why, as what follows the name in a sentence, and `fix` is the command
    that mends it. An editor's `title` is for people, its name for commands.
    """

    editor: str
    title: str
    file: Path
    agent: str
    state: str
    reason: str
    fix: str


def survey(home: Path, environ: Mapping[str, str]) -> list[Found]:
    """Read every settings file of every editor that can be set up."""
    return [look(editor, file) for editor in EDITORS for file in files_of(editor, home, environ) if is_there(file)]


def is_there(file: Path) -> bool:
    """Tell whether a file is there, or something that keeps us from seeing whether it is."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def look(editor: Editor, file: Path) -> Found:
    """Read one settings file."""
    try:
        content = files.read(file).content or b""
        return Found(editor, file, tuple(entries_of(jsonc.parse(content), editor)))
    except jsonc.JsoncError as error:
        return Found(editor, file, problem=str(error))
    except LedgerError as error:
        return Found(editor, file, problem=error.message)
    except OSError as error:
        return Found(editor, file, problem=error.strerror or str(error))


def bypasses(home: Path, environ: Mapping[str, str]) -> list[Bypass]:
    """Give the agents of the editors in `home` that do not run through `acp-ledger-run`; never raises for a bad file.

    Args:
        home: The home directory whose editors are meant.
        environ: Where `XDG_CONFIG_HOME` may say that editors keep their settings elsewhere.
    """
    return [bypass for found in survey(home, environ) for bypass in _bypasses(found)]


def _bypasses(found: Found) -> list[Bypass]:
    editor = found.editor
    if found.problem:
        fix = f"mend {found.file}, then: ledgerctl editor setup {editor.name}"
        reason = f"cannot be read: {found.problem}"
        return [Bypass(editor.name, editor.title, found.file, "", State.UNREADABLE.value, reason, fix)]
    return [
        Bypass(editor.name, editor.title, found.file, entry.name, entry.state.value, entry.reason, _fix(found, entry))
        for entry in found.entries
        if entry.state is not State.RECORDED
    ]


def _fix(found: Found, entry: Entry) -> str:
    """Give what mends a bypass; an agent that the editor starts itself cannot be mended, but has a recorded twin."""
    setup = f"ledgerctl editor setup {found.editor.name}"
    if entry.state is not State.REGISTRY:
        return setup
    agent = agent_of_registry(entry.name)
    twin = title_of(agent.title if agent else entry.name)
    if any(other.name == twin and other.state is State.RECORDED for other in found.entries):
        return f'use "{twin}" in {found.editor.title} instead'
    # Only of an agent that is known here the command is known too.
    return setup if agent else f"{setup} --agent {shell_name(entry.name)} -- COMMAND"
