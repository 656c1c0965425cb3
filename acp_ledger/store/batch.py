"""A batch of entries as rows of tables: sealed, numbered, and ready to be inserted by one statement per table.

What must not be broken here: an entry's rows go into one transaction with it; numbers are dense behind the head that
is in the database; nothing but `seal` makes a digest. This is the way of every line, so it does little per row.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import insert

from acp_ledger.protocol.records import TABLE_OF, Event, Frame
from acp_ledger.store import chain, tables
from acp_ledger.store.faults import MEND_DAEMON, CommitRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Dialect, Table

    from acp_ledger.protocol.records import Entry

ENDINGS: Final = frozenset({"closed", "interrupted"})
"""Events after which a transport gets no more lines."""


class Head(NamedTuple):
    """Where a transport's sequence stands: its last number (0 before the first) and that number's link."""

    frame_seq: int
    chain: bytes


class Link(NamedTuple):
    """A link that a batch writes, by which its rows are found again."""

    transport_id: int
    frame_seq: int
    chain: bytes


class Prepared(NamedTuple):
    """A batch as rows by table, and the heads it leads to. `ended` are transports that end in it."""

    rows: dict[str, list[tuple[Any, ...]]]
    heads: dict[int, Head]
    ended: frozenset[int] = frozenset()

    def links(self) -> list[Link]:
        """Its links; for the rare commit of which nobody knows what became."""
        return [
            Link(row[0], row[1], row[position])
            for table, position in _CHAIN_AT.items()
            for row in self.rows.get(table, ())
        ]


_CHAIN_AT: Final = {
    table.name: list(table.columns.keys()).index("chain") for table in (tables.frames, tables.transport_events)
}


class Salts:
    """Random bytes, taken from the system a few thousand at a time: one call per salt costs as much as a digest."""

    def __init__(self) -> None:
        self._pool = b""
        self._at = 0

    def __call__(self, size: int) -> bytes:
        """As many fresh random bytes."""
        if self._at + size > len(self._pool):
            self._pool, self._at = os.urandom(4096), 0
        start, self._at = self._at, self._at + size
        return self._pool[start : self._at]


def prepare(
    batch: Sequence[tuple[int, Sequence[Entry]]],
    heads: Mapping[int, Head],
    salts: Callable[[int], bytes] = os.urandom,
) -> Prepared:
    """Seal a batch behind the heads of its transports.

    Raises:
        CommitRefused: A number does not follow its head, or a value has no canonical spelling.
    """
    rows: dict[str, list[tuple[Any, ...]]] = {}
    after: dict[int, Head] = {}
    ended = set()
    for transport_id, entries in batch:
        number, link = after.get(transport_id) or heads[transport_id]
        for entry in entries:
            number += 1
            if entry.record.frame_seq != number:
                raise CommitRefused(
                    f"transport {transport_id}: number {entry.record.frame_seq} does not follow {number - 1}",
                    hint=MEND_DAEMON,
                )
            link = _add(rows, transport_id, entry, link, salts)
            if entry.record.__class__ is Event and entry.record.event in ENDINGS:
                ended.add(transport_id)
        after[transport_id] = Head(number, link)
    return Prepared(rows, after, frozenset(ended))


def _add(
    rows: dict[str, list[tuple[Any, ...]]],
    transport_id: int,
    entry: Entry,
    previous: bytes,
    salts: Callable[[int], bytes],
) -> bytes:
    """Add an entry's rows, sealed; gives its link."""
    record, derived, body = entry
    try:
        commitment, facts, private, private_salt, link, salt = chain.seal(entry, previous, salts)
    except (UnicodeError, TypeError) as error:
        raise CommitRefused(
            f"transport {transport_id}, number {record.frame_seq}: {error}", hint=MEND_DAEMON
        ) from error
    if record.__class__ is Frame:
        row = (transport_id, *record, commitment, facts, private, private_salt, link, salt, body)
    else:
        row = (transport_id, *record, facts, private, private_salt, link)
    rows.setdefault(TABLE_OF[record.__class__], []).append(row)
    for one in derived:
        rows.setdefault(TABLE_OF[one.__class__], []).append((transport_id, *one))
    return link


BLOCK_ROWS: Final = 128
"""Rows that one statement inserts where so many are there: SQLite lets go of the interpreter for every statement."""


class Insert(NamedTuple):
    """The INSERT of a table for one row, and for `BLOCK_ROWS` at once; parameters in the order of its columns."""

    row: str
    block: str


def insert_statements(dialect: Dialect) -> dict[str, Insert]:
    """The INSERT of every table of records, its parameters by position."""
    kind: Any = dialect.__class__
    positional = kind(paramstyle="qmark" if dialect.name == "sqlite" else "format")
    return {table.name: _insert(table, positional) for table in tables.RECORD_TABLES}


def _insert(table: Table, dialect: Dialect) -> Insert:
    names = [column.name for column in table.columns]
    compiled: Any = insert(table).compile(dialect=dialect, column_keys=names)
    if compiled.positiontup != names:
        raise AssertionError(f"the INSERT of {table.name} is not in the order of its columns")
    head, values, row = str(compiled).partition(" VALUES ")
    return Insert(head + values + row, head + values + ", ".join([row] * BLOCK_ROWS))
