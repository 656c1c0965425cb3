"""Connections to the ledger: one that writes, with every setting it relies on read back, and ones that only read.

What must not be broken here: a writer is never handed out unless the database keeps what it commits; a default of a
build or a server is never trusted. There is exactly one read-write connection to a SQLite ledger in one process, and
transactions are our own: the driver begins and ends none. No error text shows a password.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import URL, event, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from acp_ledger.errors import DatabaseRefused, NoLedger
from acp_ledger.store import files
from acp_ledger.store.faults import (
    MEND_FULL,
    MEND_LOCKED,
    MEND_NO_LEDGER,
    MEND_POSTGRES,
    MEND_POSTGRES_READ,
    driver_error,
    for_file,
)
from acp_ledger.store.holder import LOCK_MILLISECONDS, application_name
from acp_ledger.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Engine

Synchronous: TypeAlias = Literal["full", "normal"]

BUSY_SECONDS: Final = 0.05
"""How long SQLite waits for a lock; the committer waits longer, and hears a stop meanwhile."""

CHECKPOINT_PAGES: Final = 16_384
"""Pages (64 MiB) in the write-ahead log at which a commit also copies them into the database."""

LOG_BYTES: Final = 64 * 1024 * 1024
"""Size the write-ahead log is cut back to once it starts over."""

SAFE_SQLITE: Final = (3, 51, 3)
"""The first SQLite without the WAL-reset bug, which needs two connections that write or checkpoint at once."""

STATEMENT_MILLISECONDS: Final = 8_000
CONNECT_SECONDS: Final = 5

ALIVE_MILLISECONDS: Final = 1_000
"""How often the server looks, within a statement, whether we are still there; without that a lock outlives us."""

ALIVE_FROM: Final = 140_000
"""The first version of the server that can look."""

DURABLE_COMMITS: Final = frozenset({"local", "remote_write", "on", "remote_apply"})

_PRAGMAS: Final[tuple[tuple[str, str, object], ...]] = (
    ("journal_mode", "WAL", "wal"),
    ("secure_delete", "ON", 1),
    ("foreign_keys", "ON", 1),
    ("recursive_triggers", "ON", 1),
    ("trusted_schema", "OFF", 0),
    ("journal_size_limit", str(LOG_BYTES), LOG_BYTES),
    ("wal_autocheckpoint", str(CHECKPOINT_PAGES), CHECKPOINT_PAGES),
    ("cache_size", "-16384", -16384),
)
"""Settings of a writer and what they must read back as. `synchronous` comes with the ledger's settings."""


def parse_url(url: str | URL) -> URL:
    """An SQLAlchemy URL of a SQLite file or of Postgres through psycopg.

    Raises:
        DatabaseRefused: It is neither.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise DatabaseRefused("the ledger's URL cannot be read", hint="sqlite:////absolute/path/ledger.db") from error
    backend = parsed.get_backend_name()
    if backend == "postgres" or parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise DatabaseRefused(f"a ledger is kept in SQLite or Postgres, not in {backend}", hint="see [database] url")
    if backend == "sqlite" and (parsed.database or ":memory:") == ":memory:":
        raise DatabaseRefused("a ledger is kept in a file, not in memory", hint="sqlite:////absolute/path/ledger.db")
    return parsed


def sqlite_file(url: str | URL) -> Path | None:
    """The file of a SQLite ledger, None for Postgres."""
    parsed = parse_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def open_writer(url: str | URL, synchronous: Synchronous = "full", *, create: bool = True) -> Writer:
    """Open the connection that writes, and make the SQLite file where it is missing.

    Raises:
        NoLedger: The SQLite file is missing, and `create` is False.
        DatabaseRefused: The database cannot be opened, or does not keep what is committed.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "postgresql":
        return _open_postgres_writer(parsed, synchronous)
    path = Path(parsed.database or "")
    if create:
        files.prepare(path)
    files.refuse_network(path.parent)
    watch = files.FileWatch(path)
    writer = _connected(_engine(parsed, _sqlite_address(path, "rw"), "AUTOCOMMIT"), watch, os.fspath(path))
    try:
        _set_sqlite(writer, synchronous)
        watch.check_database()
    except BaseException:
        writer.close()
        raise
    return writer


def open_reader(url: str | URL) -> Engine:
    """An engine whose connections can only read. Nothing is created, locked or recovered.

    Raises:
        NoLedger: There is no such SQLite file.
        DatabaseRefused: The database cannot be opened.
    """
    parsed = parse_url(url)
    path = sqlite_file(parsed)
    if path is None:
        options = str(parsed.query.get("options", ""))
        # Compiling a view over every partition takes seconds, running it milliseconds.
        read_only = f"{options} -c default_transaction_read_only=on -c jit=off".strip()
        engine = _engine(parsed.update_query_dict({"options": read_only}), None, None, given=parsed)
    else:
        files.refuse_strange(path)
        if not path.exists():
            raise NoLedger(f"there is no ledger at {path}", hint=MEND_NO_LEDGER)
        engine = _engine(parsed, _sqlite_address(path, "ro"), None)
    with engine.connect():
        return engine


def sqlite_warning() -> str | None:
    """What to tell an operator about this SQLite, None when there is nothing."""
    if sqlite3.sqlite_version_info >= SAFE_SQLITE:
        return None
    return (
        f"SQLite {sqlite3.sqlite_version} may corrupt a database that two connections write or checkpoint at once; "
        "let nothing but acp-ledgerd open the ledger for writing"
    )


def _sqlite_address(path: Path, mode: str) -> str:
    return f"file:{quote(os.fspath(path))}?mode={mode}"


def _engine(url: URL, address: str | None, isolation: Literal["AUTOCOMMIT"] | None, given: URL | None = None) -> Engine:
    """An engine without a pool whose errors on connecting are for people, who see the URL they gave."""
    arguments: dict[str, Any] = {"poolclass": NullPool, "hide_parameters": True}
    if isolation is not None:
        arguments["isolation_level"] = isolation
    if address is None:
        arguments["use_native_hstore"] = False  # not used here, and asking for it costs a transaction
    try:
        engine = sqlalchemy.create_engine(url, **arguments)
    except (ImportError, NoSuchModuleError) as error:
        raise DatabaseRefused(
            "Postgres needs psycopg, which is not installed",
            hint="pip install 'acp-ledger[postgres]'",
        ) from error

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _record: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        driver = dialect.loaded_dbapi
        if address is not None:
            arguments[:] = [address]
            keywords.update(uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        else:
            keywords.setdefault("connect_timeout", CONNECT_SECONDS)
        try:
            return driver.connect(*arguments, **keywords)
        except driver.Error as error:
            raise _refused(given or url, error, writes=isolation is not None) from error

    return engine


def _refused(url: URL, error: BaseException, *, writes: bool = True) -> DatabaseRefused:
    words = str(driver_error(error)).partition("\n")[0]
    if url.password:
        words = words.replace(str(url.password), "***")
    hint = MEND_POSTGRES if writes else MEND_POSTGRES_READ
    if url.get_backend_name() == "sqlite":
        hint = "see its rights: ls -l " + shlex.quote(str(url.database))
    return DatabaseRefused(f"the database {_shown(url)} cannot be opened: {words}", hint=hint)


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


def _connected(engine: Engine, watch: files.FileWatch | None, where: str) -> Writer:
    try:
        return Writer(engine, watch)
    except SQLAlchemyError as error:
        raise DatabaseRefused(f"{where} cannot be opened: {driver_error(error)}", hint="ledgerctl db check") from error


def _set_sqlite(writer: Writer, synchronous: Synchronous) -> None:
    level = 2 if synchronous == "full" else 1
    wanted = (*_PRAGMAS, ("synchronous", synchronous.upper(), level))
    for name, value, expected in wanted:
        try:
            writer.driver.execute(f"PRAGMA {name}={value}").close()
            found = writer.driver.execute(f"PRAGMA {name}").fetchone()[0]
        except sqlite3.Error as error:
            raise _pragma_fault(writer, name, error) from error
        if found != expected:
            raise DatabaseRefused(
                f"SQLite does not accept {name} = {value}: it reads back as {found!r}",
                hint="put the ledger on a local disk",
            )


def _pragma_fault(writer: Writer, name: str, error: sqlite3.Error) -> DatabaseRefused:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    mend = {
        sqlite3.SQLITE_BUSY: MEND_LOCKED,
        sqlite3.SQLITE_FULL: MEND_FULL,
        sqlite3.SQLITE_NOTADB: "that file is no SQLite database: name another one, or move it away",
    }.get(code, "ledgerctl db check")
    database = str(writer.engine.url.database)
    return DatabaseRefused(f"{database} cannot be used ({name}): {error}", hint=for_file(mend, Path(database)))


def _open_postgres_writer(url: URL, synchronous: Synchronous) -> Writer:
    if synchronous != "full":
        raise DatabaseRefused(
            "synchronous = normal is for SQLite; on Postgres a commit would be lost with the server",
            hint='set [database] synchronous = "full"',
        )
    named = {"application_name": application_name()}
    if "target_session_attrs" not in url.query:
        named["target_session_attrs"] = "read-write"
    writer = _connected(_engine(url.update_query_dict(named), None, "AUTOCOMMIT", given=url), None, _shown(url))
    try:
        _set_postgres(writer)
    except SQLAlchemyError as error:
        writer.close()
        raise _refused(url, error) from error
    except BaseException:
        writer.close()
        raise
    return writer


def _set_postgres(writer: Writer) -> None:
    run = writer.connection.execute
    if _show(writer, "synchronous_commit") not in DURABLE_COMMITS:
        run(text("SET synchronous_commit = on"))
    run(text(f"SET lock_timeout = {LOCK_MILLISECONDS}"))
    run(text(f"SET statement_timeout = {STATEMENT_MILLISECONDS}"))
    if writer.driver.info.server_version >= ALIVE_FROM:
        with suppress(SQLAlchemyError):  # a server on another system than Linux may not be able to
            run(text(f"SET client_connection_check_interval = {ALIVE_MILLISECONDS}"))
    _expect(writer, "synchronous_commit", DURABLE_COMMITS)
    _expect(writer, "fsync", {"on"})
    _expect(writer, "full_page_writes", {"on"})
    _expect(writer, "server_encoding", {"UTF8"})
    _expect(writer, "transaction_read_only", {"off"})


def _show(writer: Writer, name: str) -> str:
    return str(writer.connection.execute(text(f"SHOW {name}")).scalar_one())


def _expect(writer: Writer, name: str, wanted: AbstractSet[str]) -> None:
    if (found := _show(writer, name)) not in wanted:
        raise _setting_fault(name, found, wanted)


def _setting_fault(name: str, found: str, wanted: AbstractSet[str]) -> DatabaseRefused:
    if name == "transaction_read_only":
        return DatabaseRefused(
            "this Postgres is read-only here", hint="name the primary server, and a role that may write"
        )
    return DatabaseRefused(
        f"Postgres runs with {name} = {found}, which does not keep what is committed as it was",
        hint=f"set {name} = {min(wanted)} in postgresql.conf and reload the server",
    )
