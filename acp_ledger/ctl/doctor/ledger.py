"""The ledger: where it lies, whether it opens, whether it keeps what is committed, how big it is.

What must not be broken here: it is opened for reading only, and a ledger that is not there yet is no failure.
"""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_ledger.ctl.doctor.finding import CannotAskError, Finding
from acp_ledger.errors import LedgerError, NoLedger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection
    from sqlalchemy.exc import SQLAlchemyError

    from acp_ledger.ctl.doctor.finding import Case
    from acp_ledger.store.condition import Partitions, Size, Vacuum

FULL_BYTES: Final = 64 << 20
LOW_BYTES: Final = 1 << 30
"""Free space below which one long line may not fit, and below which it is time to look."""

LOG_BYTES: Final = 256 << 20
"""Size of SQLite's write-ahead log that shows that some reader never lets go."""

BIG_BYTES: Final = 100 << 30
"""Size of a Postgres table that its operator should know of."""

PARTITION_DAYS: Final = 60
"""How long before the last partition ends it is told of."""

PASSING: Final = {
    "tmpfs": "is lost when the machine restarts",
    "ramfs": "is lost when the machine restarts",
    "overlay": "is lost with its container",
    "aufs": "is lost with its container",
}
"""Filesystems that commit faithfully, and forget."""


def place(case: Case) -> Iterator[Finding]:
    """The disk under an SQLite ledger: of a kind that keeps what is written, and with room."""
    file = case.url.sqlite_file if case.url is not None else None
    if file is None:
        return
    folder = _existing(file.parent)
    yield _filesystem(folder)
    free = shutil.disk_usage(folder).free
    words = f"{free / (1 << 30):,.1f} GiB free in {folder}"
    mend = f"free some space: df -h {shlex.quote(str(folder))}"
    if free < FULL_BYTES:
        yield Finding("fail", "space", f"the disk is full: {words}", mend)
    else:
        yield Finding("warn", "space", words, mend) if free < LOW_BYTES else Finding("ok", "space", words)


def _existing(folder: Path) -> Path:
    """The nearest folder that is there: a ledger's own is made with it."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _filesystem(folder: Path) -> Finding:
    from acp_ledger.store import files

    kind = files.filesystem(folder)
    if kind is None:
        return Finding("ok", "filesystem", f"the system does not tell what filesystem {folder} is on")
    if kind in files.NETWORK:
        sentence = f"{folder} is on a network filesystem ({kind}), where SQLite cannot keep a ledger safely"
        return Finding("fail", "filesystem", sentence, "put the ledger on a local disk, or use Postgres")
    if kind in PASSING:
        sentence = f"{folder} is on {kind}: a ledger there {PASSING[kind]}"
        return Finding("warn", "filesystem", sentence, "put the ledger on a disk that stays: database.url")
    if kind.startswith("fuse"):
        sentence = f"{folder} is on {kind}, which may not keep what SQLite is told was written"
        return Finding("warn", "filesystem", sentence, "put the ledger on a local disk: database.url")
    return Finding("ok", "filesystem", f"{folder} is on {kind}")


def ledger(case: Case) -> Iterator[Finding]:
    """It opens, it is ours alone, and its schema is one this program may write."""
    from sqlalchemy.exc import SQLAlchemyError

    from acp_ledger.store import files, schema

    if case.url is None:
        return
    try:
        if (file := case.url.sqlite_file) is not None:
            files.check_file(file)
        differences = schema.check(case.url.text)
    except NoLedger as missing:
        yield Finding(
            "warn", "ledger", missing.message, "nothing is wrong: the first session behind acp-ledger-run makes it"
        )
        return
    except LedgerError as fault:
        case.refused.append(fault)
        yield Finding("fail", "ledger", fault.message, fault.hint)
        return
    except SQLAlchemyError as error:
        raise _cannot_ask(error) from error
    for difference in differences:
        yield Finding("fail", "schema", f"the schema differs: {difference}", "ledgerctl db check; ledgerctl db upgrade")
    if not differences:
        yield Finding("ok", "ledger", f"{case.url} opens, schema {schema.HEAD}")
    yield from _open_transports(case)


def _open_transports(case: Case) -> Iterator[Finding]:
    """Transports without an end that no daemon has: of this machine's daemon that died, or of another machine."""
    from acp_ledger.store import queries

    with reading(case) as connection:
        count = 0 if connection is None else queries.open_transports(connection)
    told = case.daemon or {}
    here = len(told.get("transports", ())) if told.get("ledger") == str(case.url) else 0
    if count > here and case.url is not None and not case.url.is_postgres:
        sentence = f"without an end in the ledger, and with no daemon: {count - here} transports"
        yield Finding("warn", "ledger", sentence, "start acp-ledgerd: it closes what an earlier daemon left open")


def durability(case: Case) -> Iterator[Finding]:
    """What is committed is kept: the database's settings, read back, and the daemon's own."""
    from acp_ledger.store import condition, engine

    with reading(case) as connection:
        unsafe = list(condition.unsafe_settings(connection)) if connection is not None else None
    for name, found, wanted in unsafe or ():
        sentence = f"the database runs with {name} = {found}, under which what is committed may be lost"
        mend = f"set {name} = {wanted} in postgresql.conf and reload the server"
        if name == "journal_mode":
            mend = "stop what changed it; acp-ledgerd sets it back at its next start"
        yield Finding("fail", "durability", sentence, mend)
    if case.daemon is not None and case.daemon.get("durability") == "process":
        sentence = "a power cut may lose the last moments: the daemon runs with synchronous = normal"
        yield Finding("warn", "durability", sentence, 'set [database] synchronous = "full" and restart acp-ledgerd')
    elif unsafe == []:
        yield Finding("ok", "durability", "the database keeps what is committed, its settings read back")
    is_sqlite = case.url is not None and not case.url.is_postgres
    if is_sqlite and (words := engine.sqlite_warning()) is not None:
        yield Finding("ok", "durability", words)


def size(case: Case) -> Iterator[Finding]:
    """How big the ledger is, and on Postgres how long its partitions last and whether it is vacuumed."""
    from acp_ledger.store import condition

    if case.url is not None and (file := case.url.sqlite_file) is not None:
        yield from _sqlite_size(file)
        return
    with reading(case) as connection:
        if connection is None:
            return
        parts, sizes = condition.partitions(connection), condition.sizes(connection)
        vacuum = condition.vacuum(connection)
    yield from _tables(sizes)
    if parts is not None:
        yield partition_finding(parts, datetime.now(UTC))
    if vacuum is not None:
        yield from vacuum_findings(vacuum)


def _tables(sizes: list[Size]) -> Iterator[Finding]:
    total = sum(each.size for each in sizes)
    yield Finding("ok", "size", f"the ledger has {total / (1 << 20):,.0f} MiB")
    for table, count in sizes:
        if count > BIG_BYTES:
            sentence = f"the table {table} has {count / (1 << 30):,.0f} GiB"
            yield Finding(
                "warn", "size", sentence, "see that the server has room for as much again; see docs/operations.md"
            )


def partition_finding(parts: Partitions, now: datetime) -> Finding:
    """What is to be said of the partitions of `frames` at that moment."""
    mend = "extend them, as the ledger's owner: ledgerctl db upgrade"
    if parts.end is None:
        return Finding("warn", "partitions", "the table frames has no monthly partitions", mend)
    if parts.default_used:
        return Finding("warn", "partitions", "lines lie outside of every month, in the default partition", mend)
    if parts.end - now < timedelta(days=PARTITION_DAYS):
        return Finding("warn", "partitions", f"the partitions of frames end on {parts.end:%Y-%m-%d}", mend)
    return Finding("ok", "partitions", f"the partitions of frames reach to {parts.end:%Y-%m-%d}")


def vacuum_findings(vacuum: Vacuum) -> Iterator[Finding]:
    """What is to be said of how Postgres looks after its tables."""
    if not vacuum.on:
        sentence = "autovacuum is off: plans of queries get bad, and in the end the server stops taking rows"
        yield Finding("warn", "vacuum", sentence, "set autovacuum = on and track_counts = on in postgresql.conf")
    for table, rows in vacuum.late:
        sentence = f"autovacuum is late: {table} has {rows:,} rows that came after the last one"
        yield Finding("warn", "vacuum", sentence, f"psql URL -c 'VACUUM (ANALYZE) {table}', as the ledger's owner")
    if vacuum.on and not vacuum.late:
        yield Finding("ok", "vacuum", "autovacuum keeps up")


@contextmanager
def reading(case: Case) -> Iterator[Connection | None]:
    """The ledger, open for reading; None where there is none to be read, which another check tells.

    Raises:
        CannotAskError: The database refused a question.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from acp_ledger.store import engine, schema

    if case.url is None or case.refused:
        yield None
        return
    try:
        reader = engine.open_reader(case.url.text)
    except LedgerError as fault:
        case.refused.append(fault)
        yield None
        return
    try:
        with reader.connect() as connection:
            yield connection if schema.current(connection) else None
    except SQLAlchemyError as error:
        raise _cannot_ask(error) from error
    finally:
        reader.dispose()


def _cannot_ask(error: SQLAlchemyError) -> CannotAskError:
    from acp_ledger.store.faults import driver_error

    return CannotAskError(str(driver_error(error)).partition("\n")[0])


def _sqlite_size(file: Path) -> Iterator[Finding]:
    try:
        size, log = file.stat().st_size, Path(f"{file}-wal")
        waiting = log.stat().st_size if log.exists() else 0
    except OSError:
        return  # there is none yet, or it cannot be read, which is told
    yield Finding("ok", "size", f"the ledger has {size / (1 << 20):,.1f} MiB, its write-ahead log {waiting >> 20} MiB")
    if waiting > LOG_BYTES:
        mend = f"find who holds the ledger open: fuser -v {shlex.quote(os.fspath(file))}"
        yield Finding("warn", "size", "the write-ahead log grows: some reader never lets go of the ledger", mend)
