"""The database itself refuses to change or remove a row; an erasure may blank what is erasable, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import DBAPIError

from acp_ledger.store import tables
from acp_ledger.store.recovery import GapNote, close_open
from tests.support import seed
from tests.support.postgres import ON_POSTGRES

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from acp_ledger.store.ledger import Ledger

TABLES: Final = tables.metadata.sorted_tables


def _name(table: Table) -> str:
    return table.name


@pytest.fixture
def connection(ledger: Ledger) -> Connection:
    """A ledger with rows in many tables."""
    transport = ledger.open_transport(seed.new_transport()).id
    ledger.commit([(transport, seed.conversation())])
    close_open(ledger, transport, event="closed", at=seed.START, close_reason="eof", gap=GapNote("closed", 1, 2, 3))
    return ledger.reading()


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


FILLED: Final = {
    *("ledger", "daemons", "transports", "frames", "transport_events", "sessions", "session_openings", "turns"),
    *("prompts", "tool_call_steps", "permission_requests", "permission_options", "decisions", "turn_ends"),
    *("messages", "gaps"),
}


def test_no_row_can_be_deleted(connection: Connection) -> None:
    """DELETE is refused on every table that has rows."""
    filled = [table for table in TABLES if _count(connection, table)]
    assert {table.name for table in filled} == FILLED
    for table in filled:
        with pytest.raises(DBAPIError, match="only added"):
            connection.execute(delete(table))


def test_no_row_can_be_changed(connection: Connection) -> None:
    """UPDATE of any column that is not erasable is refused on every table."""
    for table in [table for table in TABLES if _count(connection, table)]:
        for column in table.columns:
            if column.name in tables.blankable(table):
                continue
            old = connection.execute(select(column)).scalar()
            value = _other(old)
            with pytest.raises(DBAPIError, match="only added"):
                connection.execute(update(table).values({column.name: value}))


def _other(value: Any) -> Any:
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, bytes):
        return value + b"x"
    return 999_999 if value is None or not isinstance(value, bool) else not value


def test_erasable_text_can_be_blanked_and_not_replaced(connection: Connection) -> None:
    """An erasable column goes to NULL and to nothing else."""
    for table in [table for table in TABLES if _count(connection, table) and table.name != "frames"]:
        for name in tables.blankable(table):
            before = connection.execute(select(table.c[name]).where(table.c[name].is_not(None))).scalar()
            if before is None:
                continue
            with pytest.raises(DBAPIError, match="only added"):
                connection.execute(update(table).where(table.c[name].is_not(None)).values({name: _other(before)}))
            connection.execute(update(table).values({name: None}))
            assert connection.execute(select(table).where(table.c[name].is_not(None))).first() is None
            with pytest.raises(DBAPIError, match="only added"):
                connection.execute(update(table).values({name: before}))


def test_body_is_erased_whole(connection: Connection) -> None:
    """A body goes together with its salt, and the frame says so."""
    c = tables.frames.c
    one = update(tables.frames).where(c.frame_seq == 8)
    refused: list[dict[str, Any]] = [
        {"body": None},
        {"body_state": "erased"},
        {"body": None, "body_state": "erased"},
        {"salt": None, "body_state": "erased"},
        {"body": None, "salt": None, "body_state": "absent"},
        {"body": b"other", "salt": None, "body_state": "erased"},
        {"body": None, "salt": None, "body_state": "erased", "method": "x"},
    ]
    for values in refused:
        with pytest.raises(DBAPIError, match="only added"):
            connection.execute(one.values(values))
    connection.execute(one.values(body=None, salt=None, private_salt=None, body_state="erased"))
    row = connection.execute(select(c.body, c.salt, c.body_state).where(c.frame_seq == 8)).one()
    assert tuple(row) == (None, None, "erased")
    with pytest.raises(DBAPIError, match="only added"):
        connection.execute(one.values(body=b"new"))


@ON_POSTGRES
def test_no_table_can_be_truncated(connection: Connection) -> None:
    """TRUNCATE is refused where there is one."""
    for table in TABLES:
        with pytest.raises(DBAPIError, match="only added"):
            connection.exec_driver_sql(f"TRUNCATE {table.name}")


@ON_POSTGRES
def test_row_cannot_be_moved_or_deleted_in_its_partition(ledger: Ledger, connection: Connection) -> None:
    """Guards hold on the partitions of `frames` themselves."""
    partition = connection.exec_driver_sql("SELECT tableoid::regclass::text FROM frames LIMIT 1").scalar_one()
    assert partition != "frames"
    for statement in (f"DELETE FROM {partition}", f"UPDATE {partition} SET method = 'x'"):  # noqa: S608  # its name
        with pytest.raises(DBAPIError, match="only added"):
            connection.exec_driver_sql(statement)
    assert ledger.durability == "power"
