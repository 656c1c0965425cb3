"""`ledgerctl doctor`: is everything in order, from the programs on PATH to the editor's settings?

What must not be broken here: nothing is written, started for good or mended; every check is made whatever the others
found, with a daemon or without, with a ledger or without; and the report can be pasted, for it shows no secret and no
home directory.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, Final

import click

from acp_ledger.ctl.doctor.finding import CannotAskError, Case, Finding
from acp_ledger.ctl.options import Command, Options, current_options, with_ledger
from acp_ledger.ctl.render import Listing, emit
from acp_ledger.ctl.text import escape, wants_color
from acp_ledger.errors import ExitCode, LedgerError, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_CHECKS: Final = (
    "installation:programs",
    "installation:runner",
    "installation:migrations",
    "installation:home",
    "house:configuration",
    "house:socket",
    "house:daemon",
    "house:service",
    "ledger:place",
    "ledger:ledger",
    "ledger:durability",
    "ledger:size",
    "survivors:survivors",
    "surroundings:clock",
    "surroundings:terminal",
    "editors:editors",
)
"""Every check, in the order of the report: its module in this package, and its name there."""

_COLORS: Final = {"ok": "32", "warn": "33", "fail": "31"}


@click.command(cls=Command, examples=("ledgerctl doctor", "ledgerctl doctor -o json", "ledgerctl doctor -q"))
def doctor() -> int:
    """Check programs, settings, daemon, ledger and editors, and say what mends what is not in order.

    Nothing is changed. Exits with 0 when all is well, with 3 when something should be seen to, and with 1 when
    something does not work. `-q` leaves out what is in order.
    """
    options = current_options()
    found = list(examine(options))
    shown = [finding for finding in found if finding.level != "ok" or not options.quiet]
    if options.output == "table" and options.columns is None:
        _screen(shown, options)
    else:
        emit(Listing("findings", Finding._fields, shown), options)
    return _status(found)


def examine(options: Options) -> Iterator[Finding]:
    """Make every check; one that breaks is a finding of its own."""
    case = _case(options)
    for entry in _CHECKS:
        module, name = entry.split(":")
        check = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        for finding in _checked(check, name, case):
            mend = None if finding.mend is None else _shareable(with_ledger(finding.mend, options))
            # What HOME is is the very question of one check.
            sentence = finding.sentence if finding.check == "home" else _shareable(finding.sentence)
            yield finding._replace(sentence=sentence, mend=mend)


def _checked(check: Callable[[Case], Iterable[Finding]], name: str, case: Case) -> Iterator[Finding]:
    try:
        yield from check(case)
    except LedgerError as fault:
        yield Finding("fail", name, fault.message, fault.hint)
    except CannotAskError as fault:
        yield Finding(
            "warn", name, f"not checked: {fault}", "name a role that may read the tables: ledgerctl doctor -L URL"
        )
    except Exception as fault:  # noqa: BLE001  # a check that breaks must not hide what the others find
        sentence = f"this check could not be made: {type(fault).__name__}: {fault}"
        yield Finding("fail", name, sentence, "report it, with the output of: ledgerctl doctor -o json")


def _case(options: Options) -> Case:
    from acp_ledger import paths
    from acp_ledger.ctl.control import ask
    from acp_ledger.ctl.reading import load_settings

    settings = problem = daemon = silence = socket = None
    try:
        settings = load_settings(options)
    except LedgerError as fault:
        problem = fault
    try:
        named = settings.socket.path if settings is not None else None
        socket = str(named or paths.socket_path(os.environ, os.getuid()))
        daemon = ask(socket, "status")
    except LedgerError as fault:
        silence = fault
    except paths.PathError as fault:
        silence = LedgerError(str(fault), hint="set HOME to your home directory")
    return Case(options, settings, problem, socket, daemon, silence)


def _shareable(text: str) -> str:
    """A text without passwords, and with `~` in the place of the home directory."""
    home = os.environ.get("HOME", "").rstrip("/")
    text = without_secrets(text)
    return re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text) if home.startswith("/") else text


def _screen(found: Iterable[Finding], options: Options) -> None:
    colored = wants_color(options.color, sys.stdout)
    for level, _, sentence, mend in found:
        word = f"\x1b[{_COLORS[level]}m{level:<4}\x1b[0m" if colored else f"{level:<4}"
        sys.stdout.write(f"{word}  {escape(sentence)}\n")
        if mend is not None:
            sys.stdout.write(f"      fix: {escape(mend)}\n")


def _status(found: Iterable[Finding]) -> ExitCode:
    levels = {finding.level for finding in found}
    if "fail" in levels:
        return ExitCode.FAILED
    return ExitCode.INCOMPLETE if "warn" in levels else ExitCode.OK
