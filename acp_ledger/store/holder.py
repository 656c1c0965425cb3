"""The advisory lock by which one daemon has its identity on a Postgres ledger, and what to do about who holds it.

What must not be broken here: a connection is ended only when it is the caller's own lost one, or when the process that
made it is provably gone from this very machine (its number, and its start time with it). A living daemon is never
robbed of its lock, and nothing is read or written under an identity before its last holder is gone: a COMMIT that was
on its way then is either in the ledger or never will be.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from acp_ledger.errors import LedgerLocked
from acp_ledger.store.faults import driver_error

if TYPE_CHECKING:
    from acp_ledger.store.writer import Writer

LOCK_MILLISECONDS: Final = 1_000
"""How long one statement waits for a lock."""

ATTEMPTS: Final = 4
"""Lock timeouts that another daemon, or a connection just lost, is waited for."""

DEAD_ATTEMPTS: Final = 30
"""Lock timeouts at a start that the server gets to end what a dead daemon left: it cannot be hurried in a flush."""

NAME_BYTES: Final = 63
"""Postgres cuts names of applications to this."""

_LOCK_NOT_AVAILABLE: Final = "55P03"
_NAME: Final = re.compile(r"acp-ledgerd (\d+)@.* (\d+)")

_HOLDER: Final = text(
    "SELECT a.pid, a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
    "WHERE l.locktype = 'advisory' AND l.granted AND (l.classid::bigint << 32 | l.objid::bigint) = :key "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Holder(NamedTuple):
    """Who holds a lock: the server's process, and the name its client gave itself."""

    backend: int
    name: str


def key_of(name: str) -> int:
    """The number of an advisory lock of ours."""
    return int.from_bytes(hashlib.sha256(b"acp-ledger/lock/1\0" + name.encode()).digest()[:8], "big", signed=True)


def application_name() -> str:
    """What our connection is called on the server: process, host, and when the process started, in ticks since boot."""
    pid = os.getpid()
    return _name(pid, _started(pid) or 0)


def _name(pid: int, started: int) -> str:
    before, behind = f"acp-ledgerd {pid}@", f" {started}"
    return before + socket.gethostname()[: NAME_BYTES - len(before) - len(behind)] + behind


def take(writer: Writer, name: str, *, lost: int | None, attempts: int) -> None:
    """Take the lock of a name; it lives as long as the connection.

    Another daemon is waited for `ATTEMPTS` lock timeouts. `lost` is the backend of the caller's own connection before
    this one: it, and what a process left that is gone, is ended on the server and waited for `attempts` long.

    Raises:
        LedgerLocked: Another connection has it.
    """
    number = key_of(name)
    for attempt in itertools.count(1):
        if _locked(writer, number):
            return
        holder = _holder(writer, number)
        left_behind = holder is not None and (holder.backend == lost or _is_gone(holder.name))
        if holder is not None and left_behind:
            _end(writer, holder)
        if attempt >= (attempts if left_behind else ATTEMPTS):
            raise _refusal(holder, left_behind=left_behind)


def _locked(writer: Writer, number: int) -> bool:
    try:
        writer.connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": number})
    except SQLAlchemyError as error:
        if getattr(driver_error(error), "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        return False
    return True


def _holder(writer: Writer, number: int) -> Holder | None:
    row = writer.connection.execute(_HOLDER, {"key": number}).first()
    return None if row is None else Holder(row[0], row[1] or "a program without a name")


def _end(writer: Writer, holder: Holder) -> None:
    """Have the server end a connection; without the right to that it ends by itself, later."""
    with suppress(SQLAlchemyError):
        writer.connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": holder.backend})


def _refusal(holder: Holder | None, *, left_behind: bool) -> LedgerLocked:
    if holder is not None and left_behind:
        return LedgerLocked(
            f"the server has not yet ended what a daemon that is gone left there (backend {holder.backend})",
            hint=f"look at the server's disk, or: psql URL -c 'SELECT pg_terminate_backend({holder.backend})'",
        )
    found = None if holder is None else f"{holder.name.rpartition(' ')[0] or holder.name}, backend {holder.backend}"
    return LedgerLocked(
        f"another daemon ({found or 'unknown'}) writes to this ledger under the same identity",
        hint="stop it, or give this daemon a state directory of its own",
    )


def _is_gone(name: str) -> bool:
    """Whether a connection's name tells of a process of this machine that runs no more."""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    pid, started = map(int, found.groups())
    return name == _name(pid, started) and _started(pid) != started


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it runs no more."""
    try:
        # The name in parentheses may hold anything, parentheses too.
        state, *fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else int(fields[18])
