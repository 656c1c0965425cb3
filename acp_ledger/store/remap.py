"""Maps a transport's lines again, from the bytes as stored, and says where the stored rows differ.

What must not be broken here: the mapping is the very one that wrote the rows, and nothing of the stored rows is given
to it but the bytes and the facts that no line tells. Columns that were given to the ledger from outside are not
compared: their digest covers them.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from acp_ledger.protocol.client_side import ClientLimits
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import (
    TABLE_OF,
    UNNEGOTIATED,
    Anomaly,
    Decision,
    DeliveryMark,
    Entry,
    Event,
    Gap,
    Message,
    TurnEnd,
)
from acp_ledger.protocol.revisions import MAPPING_VERSION
from acp_ledger.store.recovery import REASONS

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


_Difference: TypeAlias = tuple[str, str | None, str | None]


class Remapper:
    """The mapping of one transport, fed number by number.

    `stopped` is the number from which on it could not map, and why; None while it can.
    """

    def __init__(self, transport: Mapping[str, Any]) -> None:
        self.stopped: tuple[int | None, str] | None = None
        self._observer = Observer(**_limits(transport))
        self._awaited: deque[Entry] = deque()
        self._after_gap = False
        self._uncommitted = 0
        self._revision = UNNEGOTIATED
        self._said: dict[int, int] = {}
        version = transport["mapping_version"]
        if version != MAPPING_VERSION:
            self._stop(None, f"it was mapped by version {version!r}; this program has {MAPPING_VERSION!r}")

    def _stop(self, seq: int | None, reason: str) -> None:
        self.stopped = (seq, reason)

    def check(self, number: Numbered, *, erased: bool) -> Iterator[_Difference]:
        """Differences under this number: what differs, what the bytes say, what is stored."""
        record = number.records[0]
        if self.stopped is None and erased:
            self._stop(number.frame_seq, "texts were erased from here on")
        stored: object = record.body
        if self.stopped is None and isinstance(stored, str):
            # A column of bytes takes text on SQLite; its digest is a finding already.
            self._stop(number.frame_seq, "its body is not stored as bytes")
        by_hand = self._is_by_hand(record.record)
        if self.stopped is None and by_hand:
            # What a line was to bring about at the next number had not been committed.
            self._uncommitted += len(self._awaited)
            self._awaited.clear()
        if self.stopped is None and not self._awaited and self._next() != number.frame_seq:
            self._stop(number.frame_seq, "numbers are missing before this one")
        if self.stopped is not None:
            return
        expected = self._expected(record, number.rows)
        if by_hand:
            expected = self._ended_by_hand(expected, record.record)
        yield from _differences(expected, Entry(record.record, number.rows, None))
        self._remember(record.record, number.rows)

    def _next(self) -> int:
        return self._observer.next_seq - self._uncommitted

    def _expected(self, record: Record, rows: tuple[Derived, ...]) -> Entry:
        """What the bytes give. A line that settles a version also gives an event, awaited at the next number."""
        if self._awaited:
            return self._awaited.popleft()
        first, *others = self._fed(record, rows)
        self._awaited.extend(others)
        return first

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

    def _is_by_hand(self, record: Frame | Event) -> bool:
        """Whether this ending was written from the committed rows alone: after a crash, and behind a gap."""
        if not isinstance(record, Event):
            return False
        self._after_gap = self._after_gap or record.event == "gap"
        return record.event in {"gap", "interrupted"} or (self._after_gap and record.event == "closed")

    def _ended_by_hand(self, entry: Entry, stored: Frame | Event) -> Entry:
        """What the committed rows alone can tell of that ending: no open message's text, and the reason of them all."""
        reason = (stored.close_reason or "") if isinstance(stored, Event) else ""
        place: dict[str, Any] = {"frame_seq": stored.frame_seq, "protocol_revision": self._revision}
        rows: list[Derived] = []
        for row in entry.rows:
            if isinstance(row, Decision):
                rows.append(row._replace(outcome_raw=reason, **place))
            elif isinstance(row, TurnEnd):
                said = self._said.get(row.turn_id, 0)
                words = REASONS.get(reason, reason)
                ending = row._replace(outcome="interrupted", error_message=words, text_bytes=said, lossy=False)
                rows.append(ending._replace(**place))
        return entry._replace(record=entry.record._replace(**place), rows=tuple(rows))

    def _remember(self, record: Frame | Event, rows: tuple[Derived, ...]) -> None:
        self._revision = record.protocol_revision
        for row in rows:
            if isinstance(row, Message) and row.stream == "agent" and row.turn_id is not None:
                self._said[row.turn_id] = self._said.get(row.turn_id, 0) + row.text_bytes
            elif isinstance(row, TurnEnd):
                self._said.pop(row.turn_id, None)


def _limits(transport: Mapping[str, Any]) -> dict[str, Any]:
    """The limits that were in force, as far as the mapping depends on them."""
    kept = json.loads(transport["limits"] or "{}")
    limits: dict[str, Any] = {name: int(kept[name]) for name in ("parse_bytes", "text_bytes") if name in kept}
    if transport["mode"] == "client" and all(name in kept for name in ClientLimits._fields):
        limits["client"] = ClientLimits(*(int(kept[name]) for name in ClientLimits._fields))
    return limits


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
