"""Maps a transport's lines again, from the bytes as stored, and says where the stored rows differ.

What must not be broken here: the mapping is the very one that wrote the rows, and nothing of the stored rows is given
to it but the bytes and the facts that no line tells. Columns that were given to the ledger from outside are not
compared: their digest covers them.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TABLE_OF, Anomaly, DeliveryMark, Entry, Event, Gap, Message
from acp_ledger.protocol.revisions import MAPPING_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from acp_ledger.protocol.records import Derived, Frame
    from acp_ledger.store.numbers import Numbered, Record

GIVEN_COLUMNS: Final[Mapping[str, frozenset[str]]] = {
    "decisions": frozenset({"rule", "identity", "option_kind_claimed"}),
}
"""Columns that come from whoever answered, not from a line."""

GIVEN_ROWS: Final = (Gap, DeliveryMark)
"""Rows that tell what no line tells."""

_EVENT_INPUTS: Final = Event._fields[4:]
"""The columns of an event that are told to the observer, behind number, revision, kind and time."""


class Remapper:
    """The mapping of one transport, fed number by number.

    `stopped` is the number from which on it could not map, and why; None while it can.
    """

    def __init__(self, transport: Mapping[str, Any]) -> None:
        self.stopped: tuple[int | None, str] | None = None
        self._observer = Observer(**_limits(transport))
        self._awaited: deque[Entry] = deque()
        self._after_gap = False
        version = transport["mapping_version"]
        if version != MAPPING_VERSION:
            self._stop(None, f"it was mapped by version {version!r}; this program has {MAPPING_VERSION!r}")

    def _stop(self, seq: int | None, reason: str) -> None:
        self.stopped = (seq, reason)

    def check(self, number: Numbered, *, erased: bool) -> Iterator[tuple[str, str | None, str | None]]:
        """Differences under this number: what differs, what the bytes say, what is stored."""
        if self.stopped is None and erased:
            self._stop(number.frame_seq, "texts were erased from here on")
        if self.stopped is None and not self._awaited and self._observer.next_seq != number.frame_seq:
            self._stop(number.frame_seq, "numbers are missing before this one")
        if self.stopped is not None:
            return
        record = number.records[0]
        yield from _differences(self._expected(record, number.rows), Entry(record.record, number.rows, None))

    def _expected(self, record: Record, rows: tuple[Derived, ...]) -> Entry:
        """What the bytes give. A line that settles a version gives an event too, which is awaited at the next number."""
        if self._awaited:
            return self._awaited.popleft()
        first, *others = self._fed(record, rows)
        self._awaited.extend(others)
        return self._closed_by_hand(first)

    def _fed(self, record: Record, rows: tuple[Derived, ...]) -> Iterable[Entry]:
        seen = record.record
        if isinstance(seen, Event):
            return self._observer.event(seen.event, seen.at, **{name: getattr(seen, name) for name in _EVENT_INPUTS})
        if record.body is None:
            digest = next((row.detail for row in rows if isinstance(row, Anomaly) and row.class_ == "oversize"), None)
            return self._observer.oversize(
                seen.direction, seen.received_at, length=seen.byte_count, prefix_digest=digest or ""
            )
        return self._observer.line(
            seen.direction,
            record.body,
            seen.received_at,
            terminated=bool(seen.terminated),
            origin=seen.origin,
            delivery=seen.delivery,
            byte_count=len(record.body) if seen.body_state == "exact" else seen.byte_count,
            body_state=seen.body_state,
        )

    def _closed_by_hand(self, entry: Entry) -> Entry:
        """Behind a gap a transport is closed from its committed rows alone, and no row has an open message's text."""
        event = entry.record
        if not isinstance(event, Event):
            return entry
        self._after_gap = self._after_gap or event.event == "gap"
        if self._after_gap and event.event == "closed":
            return entry._replace(rows=tuple(row for row in entry.rows if not isinstance(row, Message)))
        return entry


def _limits(transport: Mapping[str, Any]) -> dict[str, int]:
    """The limits that were in force, as far as the mapping depends on them."""
    kept = json.loads(transport["limits"] or "{}")
    return {name: int(kept[name]) for name in ("parse_bytes", "text_bytes") if name in kept}


_Difference: TypeAlias = tuple[str, str | None, str | None]


def _differences(expected: Entry, stored: Entry) -> Iterator[_Difference]:
    if type(expected.record) is not type(stored.record):
        yield "a line where an event belongs, or an event where a line does", _kind(expected), _kind(stored)
        return
    yield from _columns(expected.record, stored.record)
    mine, theirs = _derived(expected), _derived(stored)
    for key in sorted(mine.keys() | theirs.keys()):
        name = f"{key[0]}[{key[1]}]"
        if key not in theirs:
            yield f"{name} is missing", _row_text(mine[key]), None
        elif key not in mine:
            yield f"{name} does not follow from the line", None, _row_text(theirs[key])
        else:
            yield from _columns(mine[key], theirs[key])


def _kind(entry: Entry) -> str:
    return entry.record.event if isinstance(entry.record, Event) else entry.record.kind


def _derived(entry: Entry) -> dict[tuple[str, int], Derived]:
    return {(TABLE_OF[type(row)], row.ordinal): row for row in entry.rows if not isinstance(row, GIVEN_ROWS)}


def _columns(expected: Frame | Event | Derived, stored: Frame | Event | Derived) -> Iterator[_Difference]:
    if expected == stored:
        return
    table = TABLE_OF[type(expected)]
    given = GIVEN_COLUMNS.get(table, frozenset())
    for name, mine, theirs in zip(expected._fields, expected, stored, strict=True):
        if mine != theirs and name not in given:
            yield f"{table}.{name.rstrip('_')} does not follow from the line", _text(mine), _text(theirs)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _row_text(row: Derived) -> str:
    return json.dumps(row._asdict(), ensure_ascii=False, default=str)
