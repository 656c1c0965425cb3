"""What a failed write means: nothing committed and never will be, nothing committed yet, or unknown.

What must not be broken here: an error is never read as "not committed" unless that is certain. SQLite can report a
failed COMMIT whose rows are there after reopening, and a lost reply from Postgres looks the same whether the commit
took place or not. What is not listed as certain is unknown.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from acp_ledger.errors import ExitCode, StoreFault

if TYPE_CHECKING:
    from pathlib import Path

Phase: TypeAlias = Literal["before", "commit"]
"""Whether COMMIT had been sent when the error came."""

MEND_FULL: Final = "free some space on the ledger's disk: df -h LEDGER"
MEND_FULL_SERVER: Final = "free some space on the disk of the Postgres server: df -h"
MEND_LOCKED: Final = "another program holds the ledger's write lock; find it with: fuser -v LEDGER"
MEND_READERS: Final = "end long queries on the ledger; find them with: fuser -v LEDGER"
MEND_RESTART: Final = "look at the disk and the system's log (journalctl -k), then restart acp-ledgerd"
MEND_RIGHTS: Final = "check who owns the ledger and may write to it, and run: ledgerctl status"
MEND_POSTGRES: Final = "check that Postgres is up and that this role may write: psql URL -c 'select 1'"
MEND_POSTGRES_READ: Final = "check that Postgres is up and that this role may connect: psql URL -c 'select 1'"
MEND_ROLE: Final = "give acp-ledgerd the address of a role that may write: ledgerctl db roles"
MEND_NO_LEDGER: Final = (
    "put acp-ledger-run before the agent's command, or start acp-ledgerd; ledgerctl demo is only to look around"
)
MEND_DAEMON: Final = (
    "this is an error in acp-ledgerd; keep the ledger and report it with the output of: ledgerctl status"
)


class CommitRefused(StoreFault):
    """The database refuses these rows and will refuse them again. Nothing of the batch is committed."""


class CommitHeld(StoreFault):
    """Nothing of the batch is committed; the same batch may be tried again later."""


class CommitUnknown(StoreFault):
    """The batch may be committed or not. The connection is given up; `Ledger.settle` finds out."""


class LedgerMoved(CommitUnknown):
    """The file that was written to is no longer the ledger's file: it was deleted, replaced or renamed."""


class LedgerRegressed(CommitHeld):
    """The ledger lacks rows it had acknowledged, or holds others under their numbers. Nothing more is written to it.

    A restored backup, a standby that took over without the last commits, or a second writer.
    """

    exit_code = ExitCode.INTEGRITY


_SQLITE_REFUSED: Final = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG})
_SQLITE_HELD: Final = {
    sqlite3.SQLITE_BUSY: MEND_LOCKED,
    sqlite3.SQLITE_LOCKED: MEND_LOCKED,
    sqlite3.SQLITE_FULL: MEND_FULL,
    sqlite3.SQLITE_READONLY: MEND_RIGHTS,
    sqlite3.SQLITE_CANTOPEN: MEND_RIGHTS,
    sqlite3.SQLITE_PERM: MEND_RIGHTS,
    sqlite3.SQLITE_NOTADB: MEND_RESTART,
    sqlite3.SQLITE_CORRUPT: MEND_RESTART,
    sqlite3.SQLITE_NOMEM: MEND_RESTART,
    sqlite3.SQLITE_SCHEMA: "run: ledgerctl db check",
    sqlite3.SQLITE_ERROR: "run: ledgerctl db check",
}
"""Primary codes after which SQLite has rolled back for certain, whenever they come."""

NOT_ALLOWED: Final = "42501"
"""Postgres's state for a role without the right to what it asked for."""

_POSTGRES_REFUSED: Final = ("22", "23")
"""Data exceptions and broken constraints."""

_POSTGRES_MENDS: Final = {"53100": MEND_FULL_SERVER, NOT_ALLOWED: MEND_ROLE}

_POSTGRES_HELD_AT_COMMIT: Final = ("53100", "40001", "40P01", "25006", "55P03")
"""Answers to COMMIT itself that say it did not take place; the server was alive to say so."""


def for_file(hint: str, file: Path | None) -> str:
    """A hint with the path of the ledger's file, fit for a shell, in the place of the word LEDGER."""
    return hint if file is None else hint.replace("LEDGER", shlex.quote(os.fspath(file)))


def classify(error: BaseException, phase: Phase, file: Path | None = None) -> StoreFault:
    """What an error of the driver means for the batch that was being written to `file`, or to Postgres.

    Bad values are found before any statement is sent (too large a number, a lone surrogate), and are refused.
    """
    if isinstance(error, StoreFault):
        return error
    if isinstance(error, (OverflowError, UnicodeError, ValueError, TypeError)):
        return CommitRefused(f"a value cannot be stored: {_first_line(error)}", hint=MEND_DAEMON)
    if isinstance(error, sqlite3.Error):
        return _classify_sqlite(error, phase, file)
    return _classify_postgres(error, phase)


def _classify_sqlite(error: sqlite3.Error, phase: Phase, file: Path | None) -> StoreFault:
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    words = f"SQLite says {name}: {_first_line(error)}"
    if code is None:
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error).lower():
            return CommitHeld(words, hint=MEND_RESTART)
        return CommitRefused(words, hint=MEND_DAEMON) if phase == "before" else CommitUnknown(words, hint=MEND_RESTART)
    primary = code & 0xFF
    if primary in _SQLITE_REFUSED:
        return CommitRefused(words, hint=MEND_DAEMON)
    if primary in _SQLITE_HELD:
        return CommitHeld(words, hint=for_file(_SQLITE_HELD[primary], file))
    if primary == sqlite3.SQLITE_INTERRUPT and phase == "before":
        return CommitHeld(words, hint=for_file(MEND_LOCKED, file))
    return CommitUnknown(words, hint=MEND_RESTART)


def _classify_postgres(error: BaseException, phase: Phase) -> StoreFault:
    state: str = getattr(error, "sqlstate", None) or ""
    words = f"Postgres says {state or type(error).__name__}: {_first_line(error)}"
    if phase == "before":
        if state.startswith(_POSTGRES_REFUSED) or (not state and _is_data_error(error)):
            return CommitRefused(words, hint=MEND_DAEMON)
        return CommitHeld(words, hint=_POSTGRES_MENDS.get(state, MEND_POSTGRES))
    if state.startswith(_POSTGRES_REFUSED):
        return CommitRefused(words, hint=MEND_DAEMON)
    if state in _POSTGRES_HELD_AT_COMMIT:
        return CommitHeld(words, hint=_POSTGRES_MENDS.get(state, MEND_POSTGRES))
    return CommitUnknown(words, hint=MEND_POSTGRES)


def _is_data_error(error: BaseException) -> bool:
    """Whether psycopg itself refused a value, before the server saw it (a NUL in a text)."""
    return any(kind.__name__ == "DataError" for kind in type(error).__mro__)


def _first_line(error: BaseException) -> str:
    """The driver's words without the statement and its values, which may hold what people wrote."""
    return str(error).partition("\n")[0][:300]


def driver_error(error: Any) -> BaseException:
    """The driver's own error inside one of SQLAlchemy's, or the error itself."""
    inner = getattr(error, "orig", None)
    return inner if isinstance(inner, BaseException) else error
