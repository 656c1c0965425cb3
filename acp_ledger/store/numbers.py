"""A transport's rows read back number by number, as they were committed.

What must not be broken here: nothing is left out, neither a row whose number has no line nor a line and an event that
share one, and memory holds one chunk however long the transport is.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import select, type_coerce
from sqlalchemy.types import NullType

from acp_ledger.protocol.records import TABLE_OF, Derived, Event, Frame
from acp_ledger.store import tables
from acp_ledger.store.chain import ZERO, Sealed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, Select, Table

CHUNK_NUMBERS: Final = 2_000
CHUNK_BYTES: Final = 8 * 1024 * 1024
"""A chunk ends at the first of both; a longer line is a chunk of its own."""

FIRST: Final = -(2**63)
LAST: Final = 2**63 - 1


class Record(NamedTuple):
    """A line or an event with what the committer added."""

    record: Frame | Event
    digests: Sealed
    body: bytes | None


class Numbered(NamedTuple):
    """Everything under one number: one record when all is well, and the rows it gave rise to."""

    frame_seq: int
    records: tuple[Record, ...]
    rows: tuple[Derived, ...]


_DERIVED: Final[tuple[tuple[Any, Table], ...]] = tuple(
    (kind, tables.metadata.tables[name])
    for kind, name in TABLE_OF.items()
    if name not in {"frames", "transport_events"}
)


def _columns(table: Table, names: tuple[str, ...]) -> list[ColumnElement[Any]]:
    """Columns without a type: what is stored is what is digested, and a boolean somebody made 5 must not read as 1."""
    return [type_coerce(table.c[name.rstrip("_")], NullType()) for name in names]


_FRAME: Final = _columns(tables.frames, Frame._fields)
_FRAME_DIGESTS: Final = _columns(tables.frames, (*Sealed._fields, "body"))
_EVENT: Final = _columns(tables.transport_events, Event._fields)
_EVENT_DIGESTS: Final = _columns(tables.transport_events, ("facts", "private", "private_salt", "chain"))
_DERIVED_COLUMNS: Final = tuple((kind, table, _columns(table, kind._fields)) for kind, table in _DERIVED)


def walk(connection: Connection, transport_id: int) -> Iterator[Numbered]:
    """Everything under a transport, in the order of its numbers."""
    first = FIRST
    while first <= LAST:
        last = _end_of_chunk(connection, transport_id, first)
        yield from _chunk(connection, transport_id, first, last)
        first = last + 1


def _end_of_chunk(connection: Connection, transport_id: int, first: int) -> int:
    table = tables.frames
    query = select(table.c.frame_seq, table.c.byte_count).where(table.c.transport_id == transport_id)
    query = query.where(table.c.frame_seq >= first).order_by(table.c.frame_seq).limit(CHUNK_NUMBERS)
    size, count, last = 0, 0, LAST
    for frame_seq, byte_count in connection.execute(query):
        size += byte_count
        if count and size > CHUNK_BYTES:
            return last
        count, last = count + 1, frame_seq
    return last if count == CHUNK_NUMBERS else LAST


def _chunk(connection: Connection, transport_id: int, first: int, last: int) -> Iterator[Numbered]:
    records: defaultdict[int, list[Record]] = defaultdict(list)
    rows: defaultdict[int, list[Derived]] = defaultdict(list)
    for record in _records(connection, transport_id, first, last):
        records[record.record.frame_seq].append(record)
    for kind, table, columns in _DERIVED_COLUMNS:
        make = kind._make
        for values in _read(connection, _between(table, columns, transport_id, first, last)):
            rows[values[0]].append(make(values))
    for number in sorted(records.keys() | rows.keys()):
        yield Numbered(number, tuple(records.pop(number, ())), tuple(rows.pop(number, ())))


def _records(connection: Connection, transport_id: int, first: int, last: int) -> Iterator[Record]:
    split = len(_FRAME)
    query = _between(tables.frames, [*_FRAME, *_FRAME_DIGESTS], transport_id, first, last)
    for values in _read(connection, query):
        yield Record(Frame._make(values[:split]), Sealed._make(values[split:-1]), values[-1])
    split = len(_EVENT)
    query = _between(tables.transport_events, [*_EVENT, *_EVENT_DIGESTS], transport_id, first, last)
    for values in _read(connection, query):
        yield Record(Event._make(values[:split]), Sealed._make((ZERO, *values[split:], None)), None)


def _between(table: Table, columns: list[ColumnElement[Any]], transport_id: int, first: int, last: int) -> Select[Any]:
    query = select(*columns).where(table.c.transport_id == transport_id, table.c.frame_seq.between(first, last))
    return query.order_by(*table.primary_key.columns)


def _read(connection: Connection, query: Select[Any]) -> list[tuple[Any, ...]]:
    """Rows of a chunk. Text that is no UTF-8 was never written by us: it is read all the same, to be reported."""
    try:
        return _fetched(connection, query)
    except sqlite3.OperationalError as error:
        driver: Any = connection.connection.driver_connection
        if "decode" not in str(error):
            raise
        driver.text_factory = _undecodable
        return _fetched(connection, query)


def _fetched(connection: Connection, query: Select[Any]) -> list[tuple[Any, ...]]:
    """The driver's own tuples: columns have no type here, so a result object per row would do nothing but cost time."""
    with connection.execute(query) as result:
        return list(result.cursor.fetchall())


def _undecodable(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
