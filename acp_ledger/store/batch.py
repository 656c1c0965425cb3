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
    is_frame: bool
    chain: bytes


class Prepared(NamedTuple):
    """A batch as rows by table, the heads it leads to, and its links. `ended` are transports that end in it."""

    rows: dict[str, list[tuple[Any, ...]]]
    heads: dict[int, Head]
    links: list[Link]
    ended: frozenset[int]


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
    links: list[Link] = []
    ended = set()
    for transport_id, entries in batch:
        head = after.get(transport_id) or heads[transport_id]
        for entry in entries:
            if entry.record.frame_seq != head.frame_seq + 1:
                raise CommitRefused(
                    f"transport {transport_id}: number {entry.record.frame_seq} does not follow {head.frame_seq}",
                    hint=MEND_DAEMON,
                )
            head = _add(rows, links, transport_id, entry, head.chain, salts)
            if entry.record.__class__ is Event and entry.record.event in ENDINGS:
                ended.add(transport_id)
        after[transport_id] = head
    return Prepared(rows, after, links, frozenset(ended))


def _add(
    rows: dict[str, list[tuple[Any, ...]]],
    links: list[Link],
    transport_id: int,
    entry: Entry,
    previous: bytes,
    salts: Callable[[int], bytes],
) -> Head:
    record = entry.record
    try:
        sealed = chain.seal(entry, previous, salts)
    except (UnicodeError, TypeError) as error:
        raise CommitRefused(
            f"transport {transport_id}, number {record.frame_seq}: {error}", hint=MEND_DAEMON
        ) from error
    is_frame = record.__class__ is Frame
    if is_frame:
        digests = (*sealed[:5], sealed.salt, entry.body)
        rows.setdefault("frames", []).append((transport_id, *record, *digests))
    else:
        rows.setdefault("transport_events", []).append((transport_id, *record, *sealed[1:5]))
    for row in entry.rows:
        rows.setdefault(TABLE_OF[row.__class__], []).append((transport_id, *row))
    links.append(Link(transport_id, record.frame_seq, is_frame, sealed.chain))
    return Head(record.frame_seq, sealed.chain)


def insert_statements(dialect: Dialect) -> dict[str, str]:
    """The INSERT of every table of records, its parameters by position in the order of its columns."""
    kind: Any = dialect.__class__
    positional = kind(paramstyle="qmark" if dialect.name == "sqlite" else "format")
    return {table.name: _insert(table, positional) for table in tables.RECORD_TABLES}


def _insert(table: Table, dialect: Dialect) -> str:
    names = [column.name for column in table.columns]
    compiled: Any = insert(table).compile(dialect=dialect, column_keys=names)
    if compiled.positiontup != names:
        raise AssertionError(f"the INSERT of {table.name} is not in the order of its columns")
    return str(compiled)
