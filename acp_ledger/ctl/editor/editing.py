"""One edit of a settings file, from reading to what is said afterwards: `editor setup` and `editor undo`.

What must not be broken here: the order. Read, plan, check, show, ask; then backup, journal, and last the file.
"""

from __future__ import annotations

import difflib
import os
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from acp_ledger.ctl.editor import files, jsonc
from acp_ledger.ctl.editor.catalog import editor_named, files_of
from acp_ledger.ctl.editor.journal import Journal, Record, digest
from acp_ledger.ctl.editor.plans import Plan, is_same_elsewhere, plan_setup
from acp_ledger.ctl.editor.survey import is_there
from acp_ledger.ctl.editor.undoing import renamed, take_back
from acp_ledger.ctl.render import note
from acp_ledger.ctl.text import escape, wants_color
from acp_ledger.errors import ExitCode, LedgerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from acp_ledger.ctl.editor.catalog import Editor
    from acp_ledger.ctl.editor.files import Settings
    from acp_ledger.ctl.editor.plans import Request
    from acp_ledger.ctl.options import Options


class Consent(NamedTuple):
    """How the user is asked: `dry_run` never writes, `yes` does not ask."""

    dry_run: bool
    yes: bool
    options: Options


def editable(name: str) -> Editor:
    """Give an editor whose settings can be edited.

    Raises:
        UsageError: There is none of this name, or its settings are code or a command line.
    """
    editor = editor_named(name)
    if editor.key is None:
        raise UsageError(f"{editor.title} is set up by hand", hint=f"ledgerctl editor print {editor.name}")
    return editor


def settings_file(editor: Editor, home: Path, options: Options) -> Path:
    """Give the editor's settings file: the first that is there, else the usual one. Others that are there are named."""
    places = files_of(editor, home, os.environ)
    there = [place for place in places if is_there(place)]
    for other in there[1:]:
        note(f"{other} is there too; set it up with --file", options)
    return (there or places)[0]


def set_up(editor: Editor, file: Path, request: Request, consent: Consent, undo_command: str) -> int:
    """Put an editor's agents behind the ledger, and give the exit status."""
    settings = files.read(file)
    plan = _planned(settings, editor, lambda content: plan_setup(content, editor, request))
    if not plan.changes:
        _tell(plan, consent.options)
        note("nothing to change" if plan.left else "already set", consent.options)
    elif not _agreed(settings, plan.content, plan, consent):
        return ExitCode.OK if consent.dry_run else ExitCode.FAILED
    else:
        backup = _save(settings, editor, plan)
        saved = "saved." if backup is None else f"saved. backup: {backup}  "
        agreed = " --yes" if consent.yes else ""  # who did not ask then will not be there to answer
        note(f"{saved} undo: {undo_command}{agreed}", consent.options)
        note(f"then {editor.after}, and look: ledgerctl sessions", consent.options)
    return ExitCode.INCOMPLETE if plan.left else ExitCode.OK


def _planned(settings: Settings, editor: Editor, make: Callable[[bytes], Plan]) -> Plan:
    """Make a plan, check it, and give the place of what cannot be read as an error for people."""
    before = settings.content or b""
    try:
        plan = make(before)
        is_sound = is_same_elsewhere(before, plan.content, editor, plan.changes)
    except jsonc.JsoncError as error:
        raise files.EditRefused(
            f"{settings.named}, {error}; nothing was changed",
            hint="mend the file at that place, then try again",
        ) from error
    if not is_sound:
        raise files.EditRefused(
            f"the change to {settings.named} would touch more than our entries, so nothing was changed",
            hint=f"make it by hand: ledgerctl editor print {editor.name}; and report this file's form",
        )
    return plan


def _tell(plan: Plan, options: Options) -> None:
    for line in (*plan.notes, *plan.left):
        note(line, options)


def _agreed(settings: Settings, after: bytes | None, plan: Plan, consent: Consent) -> bool:
    """Show a change and ask for it.

    Raises:
        EditRefused: The file must not be written.
        UsageError: There is nobody to ask.
    """
    sys.stdout.write(show_diff(settings, after, color=wants_color(consent.options.color, sys.stdout)))
    sys.stdout.flush()
    files.check_writable(settings)
    _tell(plan, consent.options)
    if consent.dry_run:
        return False
    if consent.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("nothing was changed, for there is no terminal to ask on", hint="look at it, then add --yes")
    if click.confirm("Apply?", default=False, err=True):
        return True
    note("nothing was changed", consent.options)
    return False


def show_diff(settings: Settings, after: bytes | None, *, color: bool = False) -> str:
    """Write a change as a unified diff; what may steer a terminal is escaped."""
    before, later = (_lines(content or b"") for content in (settings.content, after))
    old = "/dev/null" if settings.content is None else str(settings.named)
    new = "/dev/null" if after is None else str(settings.named)
    shown = [escape(line, keep="\t") for line in difflib.unified_diff(before, later, old, new, lineterm="")]
    return "".join(f"{_painted(line) if color else line}\n" for line in shown)


def _lines(content: bytes) -> list[str]:
    lines = content.decode("utf-8", "replace").split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def _painted(line: str) -> str:
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return click.style(line, fg=colors[line[0]]) if line[:1] in colors else line


def _save(settings: Settings, editor: Editor, plan: Plan) -> Path | None:
    """Back up, note, write; give the backup. Where the file cannot be written, nothing is left behind."""
    backup = files.back_up(settings)
    before = None if settings.content is None else digest(settings.content)
    name = None if backup is None else str(backup)
    record = Record(str(settings.path), before, digest(plan.content), name, plan.changes)
    journal = Journal(os.environ)
    journal.add(editor.name, record)
    with _else_removed(backup):
        try:
            files.replace(settings, plan.content)
        except BaseException:
            journal.withdraw(editor.name, record)
            raise
    return backup


@contextmanager
def _else_removed(backup: Path | None) -> Iterator[None]:
    """Remove a backup of a change that does not come about."""
    try:
        yield
    except BaseException:
        if backup is not None:
            backup.unlink()
        raise


class _Undone(NamedTuple):
    """What an undo makes of a file: its content (None: no file), whether to the byte, the backups that served."""

    content: bytes | None
    exact: bool
    served: tuple[Path, ...]
    left: tuple[str, ...]


def undo(editor: Editor, file: Path | None, consent: Consent, environ: Mapping[str, str]) -> int:
    """Take back every setup of a file that was not taken back yet, and give the exit status."""
    journal = Journal(environ)
    for path in [file] if file is not None else journal.files(editor.name):
        return _undo(editor, files.read(path), journal, consent)
    raise _nothing(editor, None)


def _nothing(editor: Editor, path: Path | None) -> LedgerError:
    where = f" in {path}" if path else ""
    return LedgerError(
        f"there is no setup of {editor.title} to undo{where}",
        hint="an entry made by hand is taken back by hand: drop acp-ledger-run and its words up to --",
    )


def _undo(editor: Editor, settings: Settings, journal: Journal, consent: Consent) -> int:
    records = journal.open_records(editor.name, settings.path)
    if not records:
        raise _nothing(editor, settings.named)
    undone = _without(settings, editor, records)
    if undone.content == settings.content:
        for line in undone.left:
            note(line, consent.options)
        note("nothing was changed" if undone.left else "nothing of ours is there any more", consent.options)
    else:
        exactly = "this makes it what it was before, to the byte"
        how = exactly if undone.exact else "changed since; only our part is taken out"
        plan = _plan_of(undone, f"{settings.named}: {how}")
        if not _agreed(settings, undone.content, plan, consent):
            return ExitCode.OK if consent.dry_run else ExitCode.FAILED
        _restore(settings, undone, consent.options)
    if not consent.dry_run:
        journal.close(editor.name, settings.path)
    return ExitCode.INCOMPLETE if undone.left else ExitCode.OK


def _plan_of(undone: _Undone, word: str) -> Plan:
    return Plan(undone.content or b"", notes=(word,), left=undone.left)


def _without(settings: Settings, editor: Editor, records: list[Record]) -> _Undone:
    """Take records back, the last first: by the backup where the file is as that setup left it, else by the changes."""
    undone = _Undone(settings.content, exact=True, served=(), left=())
    for record in reversed(records):
        if undone.content is None or digest(undone.content) == record.before:
            continue  # that setup was never finished
        backup = _backup_of(record) if digest(undone.content) == record.after else None
        if backup is not None:
            undone = undone._replace(content=backup.content, served=(*undone.served, *backup.files))
            continue
        now = settings._replace(content=undone.content)
        plan = _planned(now, editor, partial(take_back, editor=editor, changes=record.changes))
        undone = undone._replace(content=plan.content, exact=False, left=(*undone.left, *plan.left))
    if undone.exact or settings.content is None or undone.content is None:
        return undone
    changes = [change for record in records for change in record.changes]
    return undone._replace(left=(*undone.left, *renamed(settings.content, undone.content, editor, changes)))


class _Backup(NamedTuple):
    content: bytes | None
    files: tuple[Path, ...]


def _backup_of(record: Record) -> _Backup | None:
    """Give what a record's file was before, None where its backup is gone or is not what it was."""
    if record.before is None:
        return _Backup(None, ())
    if record.backup is None:
        return None
    try:
        content = Path(record.backup).read_bytes()
    except OSError:
        return None
    return _Backup(content, (Path(record.backup),)) if digest(content) == record.before else None


def _restore(settings: Settings, undone: _Undone, options: Options) -> None:
    """Write what an undo makes; the backups that came back to life are removed, any other content is backed up."""
    backup = None if undone.exact else files.back_up(settings)
    with _else_removed(backup):
        if undone.content is None:
            files.remove(settings)
        else:
            files.replace(settings, undone.content)
    if undone.exact:
        for served in undone.served:
            served.unlink(missing_ok=True)
    note("undone." if backup is None else f"undone. backup: {backup}", options)
