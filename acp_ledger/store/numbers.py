"""A transport's rows read back number by number, as they were committed.

What must not be broken here: nothing is left out, neither a row whose number has no line nor a line and an event that
share one, and memory holds one chunk however long the transport is.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, func, select, type_coerce
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


def _between(table: Table, columns: list[ColumnElement[Any]]) -> Select[Any]:
    """The rows of a chunk. Made once: making it takes longer than running it."""
    here = table.c.transport_id == bindparam("transport_id")
    query = select(*columns).where(here, table.c.frame_seq.between(bindparam("first"), bindparam("last")))
    return query.order_by(*table.primary_key.columns)


_FRAMES: Final = _between(tables.frames, _columns(tables.frames, (*Frame._fields, *Sealed._fields, "body")))
_EVENTS: Final = _between(
    tables.transport_events,
    _columns(tables.transport_events, (*Event._fields, "facts", "private", "private_salt", "chain")),
)
_ROWS: Final = tuple((kind, _between(table, _columns(table, kind._fields))) for kind, table in _DERIVED)
_SIZES: Final = (
    select(tables.frames.c.frame_seq, func.coalesce(func.length(tables.frames.c.body), 0))
    .where(tables.frames.c.transport_id == bindparam("transport_id"), tables.frames.c.frame_seq >= bindparam("first"))
    .order_by(tables.frames.c.frame_seq)
    .limit(bindparam("limit"))
)


def walk(connection: Connection, transport_id: int) -> Iterator[Numbered]:
    """Everything under a transport, in the order of its numbers."""
    first = FIRST
    while first <= LAST:
        last = _end_of_chunk(connection, transport_id, first)
        yield from _chunk(connection, transport_id, first, last)
        first = last + 1


def _end_of_chunk(connection: Connection, transport_id: int, first: int) -> int:
    size, count, last = 0, 0, LAST
    wanted = {"transport_id": transport_id, "first": first, "limit": CHUNK_NUMBERS}
    for frame_seq, length in connection.execute(_SIZES, wanted):
        size += length
        if count and size > CHUNK_BYTES:
            return last
        count, last = count + 1, frame_seq
    return last if count == CHUNK_NUMBERS else LAST


def _chunk(connection: Connection, transport_id: int, first: int, last: int) -> Iterator[Numbered]:
    records: defaultdict[int, list[Record]] = defaultdict(list)
    rows: defaultdict[int, list[Derived]] = defaultdict(list)
    chunk = {"transport_id": transport_id, "first": first, "last": last}
    for record in _records(connection, chunk):
        records[record.record.frame_seq].append(record)
    for kind, query in _ROWS:
        make = kind._make
        for values in _read(connection, query, chunk):
            rows[values[0]].append(make(values))
    for number in sorted(records.keys() | rows.keys()):
        yield Numbered(number, tuple(records.pop(number, ())), tuple(rows.pop(number, ())))


def _records(connection: Connection, chunk: dict[str, int]) -> Iterator[Record]:
    split = len(Frame._fields)
    for values in _read(connection, _FRAMES, chunk):
        yield Record(Frame._make(values[:split]), Sealed._make(values[split:-1]), values[-1])
    split = len(Event._fields)
    for values in _read(connection, _EVENTS, chunk):
        yield Record(Event._make(values[:split]), Sealed._make((ZERO, *values[split:], None)), None)


def _read(connection: Connection, query: Select[Any], chunk: dict[str, int]) -> list[tuple[Any, ...]]:
    """Rows of a chunk. Text that is no UTF-8 was never written by us: it is read all the same, to be reported."""
    try:
        return _fetched(connection, query, chunk)
    except sqlite3.OperationalError as error:
        driver: Any = connection.connection.driver_connection
        if "decode" not in str(error):
            raise
        driver.text_factory = _undecodable
        return _fetched(connection, query, chunk)


def _fetched(connection: Connection, query: Select[Any], chunk: dict[str, int]) -> list[tuple[Any, ...]]:
    """The driver's own tuples: columns have no type here, so a result object per row would do nothing but cost time."""
    with connection.execute(query, chunk) as result:
        return list(result.cursor.fetchall())


def _undecodable(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
