"""The schema's revision: who may write to it, and how it is made and upgraded.

What must not be broken here: the daemon never changes a schema that exists, it makes a missing one; an upgrade is one
transaction under the instance lock, and ends with a row in `ledger` for each revision it applied.
"""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import metadata as packages
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import insert, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError

from acp_ledger.errors import DatabaseRefused, NoLedger, SchemaDiffers
from acp_ledger.protocol.records import NO_CONNECTION
from acp_ledger.store import engine, guards, holder, partitions, rights, tables
from acp_ledger.store.faults import MEND_NO_LEDGER, MEND_ROLE, NOT_ALLOWED, driver_error
from acp_ledger.store.files import InstanceLock
from acp_ledger.store.files import prepare as prepare_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import URL, Connection

    from acp_ledger.store.writer import Writer

HEAD: Final = "0001"
"""The revision this program writes; a test compares it with the newest file of migrations."""

HINT_UPGRADE: Final = "ledgerctl db upgrade"
HINT_CREATE: Final = "ledgerctl db create"
HINT_PROGRAM: Final = "upgrade this program: pip install --upgrade acp-ledger"

MIGRATION_LOCK: Final = "migration"


class SchemaState(NamedTuple):
    """What a ledger says of itself. `compat` is the oldest revision a program may know and still write."""

    revision: str
    compat: str
    ledger_id: bytes
    created_at: int


class Migration(NamedTuple):
    """A revision as it was applied; times are UTC microseconds."""

    revision: str
    compat: str
    created_at: int
    software: str


def scripts() -> Path:
    """The folder of the migrations: inside the package in a wheel, beside it in a checkout.

    Raises:
        DatabaseRefused: Neither is there.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise DatabaseRefused(
        "this installation has no migrations", hint="install it again: pip install --force-reinstall acp-ledger"
    )


def current(connection: Connection) -> SchemaState | None:
    """The state of the ledger behind a connection, None when there is none.

    Raises:
        SchemaDiffers: There are tables, but they are no ledger's, or a ledger's that was never finished.
    """
    names = set(inspect(connection).get_table_names())
    if "alembic_version" not in names:
        if not names & {"frames", "ledger"}:
            return None
        raise SchemaDiffers("this database has tables of other programs' making", hint="use a database of its own")
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is None:
        return None
    newest = select(tables.ledger).order_by(tables.ledger.c.ordinal.desc()).limit(1)
    row = connection.execute(newest).mappings().first()
    if row is None:
        raise SchemaDiffers("this ledger was never finished", hint=HINT_UPGRADE)
    return SchemaState(str(revision), row["compat"], bytes(row["ledger_id"]), row["created_at"])


def history(connection: Connection) -> list[Migration]:
    """Every revision that was applied, oldest first."""
    c = tables.ledger.c
    rows = connection.execute(select(c.schema_revision, c.compat, c.created_at, c.software).order_by(c.ordinal))
    return [Migration(*row) for row in rows]


def refuse_other(state: SchemaState) -> None:
    """Refuse a schema this program must not write to.

    Raises:
        SchemaDiffers: It is older, or newer and no longer compatible.
    """
    if state.revision < HEAD:
        raise SchemaDiffers(
            f"the ledger's schema is at {state.revision}, this program writes {HEAD}", hint=HINT_UPGRADE
        )
    if state.revision > HEAD and state.compat > HEAD:
        raise SchemaDiffers(
            f"the ledger's schema is at {state.revision} and may be written from {state.compat} on; "
            f"this program knows {HEAD}",
            hint=HINT_PROGRAM,
        )


def prepare(writer: Writer) -> SchemaState:
    """For the daemon: make a missing schema, refuse another, and give the state.

    Raises:
        SchemaDiffers: The schema is not one this program may write to; nothing was changed.
    """
    try:
        state = current(writer.connection) or create_if_missing(writer)
    except SQLAlchemyError as error:
        words = str(driver_error(error)).partition("\n")[0]
        hint = MEND_ROLE if getattr(driver_error(error), "sqlstate", None) == NOT_ALLOWED else "ledgerctl db check"
        raise DatabaseRefused(f"the ledger's schema cannot be read: {words}", hint=hint) from error
    refuse_other(state)
    return state


def create_if_missing(writer: Writer) -> SchemaState:
    """Make the schema in an empty database; one that is there stays as it is.

    Raises:
        DatabaseRefused: This role may not.
    """
    with _Migrating(writer, HINT_CREATE):
        if (state := current(writer.connection)) is None:
            rights.become_owner(writer.connection, HINT_CREATE)
            _run(writer)
            state = current(writer.connection)
    if state is None:
        raise SchemaDiffers("the schema was made and is not there", hint="ledgerctl db check")
    return state


def create(url: str | URL) -> bool:
    """Make a ledger where there is none, for `ledgerctl db create`; whether there was none.

    Raises:
        DatabaseRefused: This role may not, or the database does not keep what it commits.
        LedgerLocked: A daemon has the ledger open.
        SchemaDiffers: What is there is no ledger this program may write to.
    """
    with ExitStack() as stack:
        if (path := engine.sqlite_file(url)) is not None:
            prepare_file(path)
            stack.enter_context(InstanceLock(path))
        writer = engine.open_writer(url)
        stack.callback(writer.close)
        before = current(writer.connection)
        prepare(writer)
        return before is None


def check(url: str | URL) -> list[str]:
    """What differs between the schema of a ledger and this program's, one line each; for `ledgerctl db check`.

    Raises:
        NoLedger: There is none.
        SchemaDiffers: The daemon would refuse it.
    """
    reader = engine.open_reader(url)
    try:
        with reader.connect() as connection:
            refuse_other(_existing(connection, url))
            return _differences(connection)
    finally:
        reader.dispose()


def _existing(connection: Connection, url: str | URL) -> SchemaState:
    if (state := current(connection)) is None:
        shown = engine.parse_url(url).render_as_string(hide_password=True)
        raise NoLedger(f"there is no ledger in {shown}", hint=MEND_NO_LEDGER)
    return state


def _differences(connection: Connection) -> list[str]:
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415  # costs 40 ms, and only this command compares
    from alembic.migration import MigrationContext  # noqa: PLC0415  # likewise

    options = {"compare_type": True, "include_name": is_ours}
    found = compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata)
    missing = set(guards.names(connection.dialect.name)) - guards.present(connection)
    return [str(difference) for difference in found] + [f"missing: {name}" for name in sorted(missing)]


def upgrade(url: str | URL) -> list[str]:
    """Apply every revision that is missing and extend the partitions; the revisions that were applied.

    Raises:
        LedgerLocked: A daemon has the ledger open.
        NoLedger: There is none.
        SchemaDiffers: It is newer than this program.
    """
    with ExitStack() as stack:
        if (path := engine.sqlite_file(url)) is not None and path.exists():
            stack.enter_context(InstanceLock(path))
        writer = engine.open_writer(url, create=False)
        stack.callback(writer.close)
        with _Migrating(writer):
            state = _existing(writer.connection, url)
            if state.revision > HEAD:
                refuse_other(state._replace(compat=state.revision))
            rights.become_owner(writer.connection, HINT_UPGRADE)
            before = len(history(writer.connection))
            _run(writer)
            return [step.revision for step in history(writer.connection)[before:]]


class _Migrating:
    """One transaction that alone changes the schema; nothing stays of one that fails."""

    def __init__(self, writer: Writer, command: str = HINT_UPGRADE) -> None:
        self._writer = writer
        self._command = command

    def __enter__(self) -> None:
        writer = self._writer
        try:
            if not writer.is_sqlite:
                writer.driver.execute("SET statement_timeout = 0")
            writer.begin()
            if not writer.is_sqlite:
                key = holder.key_of(MIGRATION_LOCK)
                writer.connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
        except Exception as error:
            raise _not_changed(error, self._command) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        writer = self._writer
        if error is None:
            try:
                writer.commit()
                writer.check_file()
                if not writer.is_sqlite:
                    writer.driver.execute(f"SET statement_timeout = {engine.STATEMENT_MILLISECONDS}")
            except Exception as failure:
                raise _not_changed(failure, self._command) from failure
            return
        writer.rollback()
        if isinstance(error, SQLAlchemyError):
            raise _not_changed(error, self._command) from error


def _not_changed(error: BaseException, command: str) -> DatabaseRefused:
    words = str(driver_error(error)).partition("\n")[0]
    hint = f"mend that and run: {command}"
    if getattr(driver_error(error), "sqlstate", None) == NOT_ALLOWED:
        hint = f"run it as the owner of the schema: {command} -L postgresql://OWNER@HOST/DATABASE"
    return DatabaseRefused(f"the schema was not changed: {words}", hint=hint)


def _run(writer: Writer, folder: Path | None = None) -> None:
    """Apply the revisions of a folder that are missing; whoever calls has begun the transaction."""
    from alembic import command  # noqa: PLC0415  # costs 100 ms, and only a schema that changes needs it
    from alembic.config import Config  # noqa: PLC0415  # likewise

    config = Config(attributes={"connection": writer.connection})
    config.set_main_option("script_location", str(folder or scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")


def is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Whether a table of the database is one to compare; partitions and Alembic's own are not."""
    return kind != "table" or name in tables.metadata.tables


def after_migrations(connection: Connection, applied: Sequence[tuple[str, str]]) -> None:
    """Called by migrations/env.py behind the last revision: guards, views, partitions and the `ledger` rows.

    `applied` has each revision with its `COMPAT`, in order.
    """
    guards.make_guards(connection)
    partitions.make(connection, datetime.now(UTC))
    rights.give(connection)
    known = connection.execute(select(tables.ledger.c.ledger_id, tables.ledger.c.ordinal)).all()
    ledger_id = bytes(known[0][0]) if known else secrets.token_bytes(16)
    first = 1 + max((ordinal for _, ordinal in known), default=-1)
    for ordinal, (revision, compat) in enumerate(applied, first):
        row = {
            "ordinal": ordinal,
            "protocol_revision": NO_CONNECTION,
            "ledger_id": ledger_id,
            "created_at": time.time_ns() // 1000,
            "schema_revision": revision,
            "compat": compat,
            "software": f"acp-ledger {packages.version('acp-ledger')}",
        }
        connection.execute(insert(tables.ledger), row)
