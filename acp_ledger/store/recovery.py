"""What a crash or a failed ledger left open is closed by SQL alone, from the rows that are committed.

What must not be broken here: nothing is invented and nothing is guessed. A question without an answer is
`unanswered`, a turn without an end is `interrupted`, and each says why. A message that was still open gets no row. The
rows stand under an event of their own, chained behind what was committed; a transport that has ended is not ended
again; other daemons' transports are not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from sqlalchemy import and_, func, select

from acp_ledger.protocol.records import UNNEGOTIATED, Decision, DeliveryMark, Entry, Event, Gap, TurnEnd
from acp_ledger.store import tables
from acp_ledger.store.batch import ENDINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from acp_ledger.protocol.records import Derived, Direction
    from acp_ledger.store.ledger import Ledger

Ending: TypeAlias = Literal["closed", "interrupted"]

DAEMON_LOST: Final = "daemon_lost"
"""The `close_reason` of a transport whose daemon died."""

REASONS: Final = {
    DAEMON_LOST: "the daemon died before this ended",
    "ledger_failure": "the ledger could not be written before this ended",
}
"""What a turn's end says for a `close_reason`; another reason speaks for itself."""


@dataclass(frozen=True, slots=True)
class GapNote:
    """Lines, or a time, without a commit. `count` is None when nobody can know."""

    cause: Literal["closed", "open", "refused", "terminal", "restart"]
    from_at: int
    to_at: int
    count: int | None = None
    digest: str | None = None


class Process(NamedTuple):
    """An agent's process as it was when it started; all of it must match before anything is ended."""

    pid: int
    start_time: int | None
    boot_id: str | None
    pgid: int | None
    cgroup: str | None


@dataclass(frozen=True, slots=True)
class Recovered:
    """A transport that was closed at a start. `process` may have outlived the daemon; None when it had exited."""

    transport_id: int
    agent: str
    last_frame_seq: int
    questions: int
    turns: int
    process: Process | None


def recover(ledger: Ledger, daemon_id: str, at: int) -> list[Recovered]:
    """Close every transport of this daemon that a crash left open; at a start, before anybody is let in.

    Raises:
        CommitHeld: The ledger cannot be written to now; nothing is half done, call again.
        CommitUnknown: Likewise.
    """
    found = [
        _recovered(ledger, transport_id, agent, at)
        for transport_id, agent in open_transports(ledger.reading(), daemon_id)
    ]
    return [recovered for recovered in found if recovered is not None]


def open_transports(connection: Connection, daemon_id: str) -> list[tuple[int, str]]:
    """Ids and agents of a daemon's transports that have no ending, oldest first."""
    t, e = tables.transports.c, tables.transport_events.c
    ended = select(e.transport_id).where(e.transport_id == t.id, e.event.in_(ENDINGS)).exists()
    query = select(t.id, t.agent).where(t.daemon_id == daemon_id, ~ended).order_by(t.id)
    return [(row.id, row.agent) for row in connection.execute(query)]


def _recovered(ledger: Ledger, transport_id: int, agent: str, at: int) -> Recovered | None:
    process = survivor(ledger.reading(), transport_id)
    gap = terminal_gap(ledger.reading(), transport_id, at)
    entries = close_open(ledger, transport_id, event="interrupted", at=at, close_reason=DAEMON_LOST, gap=gap)
    if not entries:
        return None
    ending = entries[-1]
    questions = sum(isinstance(row, Decision) for row in ending.rows)
    turns = sum(isinstance(row, TurnEnd) for row in ending.rows)
    return Recovered(transport_id, agent, entries[0].record.frame_seq - 1, questions, turns, process)


def survivor(connection: Connection, transport_id: int) -> Process | None:
    """The process of a transport that was started and never seen to exit."""
    e = tables.transport_events.c
    here = e.transport_id == transport_id
    if connection.execute(select(e.frame_seq).where(here, e.event == "exited")).first() is not None:
        return None
    spawned = select(e.pid, e.start_time, e.boot_id, e.pgid, e.cgroup).where(here, e.event == "spawned")
    row = connection.execute(spawned.order_by(e.frame_seq.desc()).limit(1)).first()
    return None if row is None or row.pid is None else Process(*row)


def terminal_gap(connection: Connection, transport_id: int, at: int) -> GapNote | None:
    """The gap of a launch at a terminal, up to `at`: nobody reads what passes there. None for any other transport."""
    t, e = tables.transports.c, tables.transport_events.c
    opened = select(e.at).join(tables.transports, t.id == e.transport_id)
    here = opened.where(t.id == transport_id, t.mode == "terminal", e.event == "opened")
    since = connection.execute(here).scalar()
    return None if since is None else GapNote("terminal", since, max(since, at))


def close_open(
    ledger: Ledger,
    transport_id: int,
    *,
    event: Ending,
    at: int,
    close_reason: str,
    gap: GapNote | None = None,
    detail: str | None = None,
    delivered: Sequence[tuple[Direction, int]] = (),
) -> tuple[Entry, ...]:
    """Append a transport's ending, and before it the gap there was, and commit them together.

    `delivered` says how far each direction was written to its peer, where that is known. Returns what was committed,
    nothing when the transport had ended already.

    Raises:
        CommitHeld, CommitRefused, CommitUnknown: As `Ledger.commit`; calling again is safe after each.
    """
    entries = closing_entries(
        ledger.reading(),
        transport_id,
        event=event,
        at=at,
        close_reason=close_reason,
        gap=gap,
        detail=detail,
        delivered=delivered,
    )
    if entries:
        ledger.commit([(transport_id, entries)])
    return entries


def closing_entries(
    connection: Connection,
    transport_id: int,
    *,
    event: Ending,
    at: int,
    close_reason: str,
    gap: GapNote | None = None,
    detail: str | None = None,
    delivered: Sequence[tuple[Direction, int]] = (),
) -> tuple[Entry, ...]:
    """The entries that end a transport, from its committed rows; none when it has ended."""
    stand = _stand(connection, transport_id)
    if stand.ended:
        return ()
    number, revision = stand.frame_seq + 1, stand.revision
    entries: list[Entry] = []
    if gap is not None:
        record = Event(number, revision, "gap", at)
        row = Gap(number, 0, revision, gap.cause, gap.from_at, gap.to_at, gap.count, gap.digest)
        entries.append(Entry(record, (row,), None))
        number += 1
    rows: tuple[Derived, ...] = (
        *_unanswered(connection, transport_id, number, revision, close_reason),
        *_unended(connection, transport_id, number, revision, close_reason),
        *(DeliveryMark(number, n, revision, way, through) for n, (way, through) in enumerate(delivered)),
    )
    record = Event(number, revision, event, at, close_reason=close_reason, detail=detail)
    entries.append(Entry(record, rows, None))
    return tuple(entries)


class _Stand(NamedTuple):
    """Where a transport stands: its last number, the revision in force there, and whether it has ended."""

    frame_seq: int
    revision: str
    ended: bool


def _stand(connection: Connection, transport_id: int) -> _Stand:
    frame_seq, revision = 0, UNNEGOTIATED
    for table in (tables.frames, tables.transport_events):
        c = table.c
        last = select(c.frame_seq, c.protocol_revision).where(c.transport_id == transport_id)
        row = connection.execute(last.order_by(c.frame_seq.desc()).limit(1)).first()
        if row is not None and row.frame_seq > frame_seq:
            frame_seq, revision = row
    e = tables.transport_events.c
    ending = select(e.frame_seq).where(e.transport_id == transport_id, e.event.in_(ENDINGS)).limit(1)
    return _Stand(frame_seq, revision, connection.execute(ending).first() is not None)


def _unanswered(
    connection: Connection, transport_id: int, number: int, revision: str, close_reason: str
) -> list[Decision]:
    """A decision for each question that has none."""
    q, d, f = tables.permission_requests.c, tables.decisions.c, tables.frames.c
    answered = select(d.frame_seq).where(d.transport_id == q.transport_id, d.request_frame == q.frame_seq).exists()
    query = (
        select(q.frame_seq, q.session_id, q.turn_id, q.title, q.lossy, f.received_at)
        .join(tables.frames, and_(f.transport_id == q.transport_id, f.frame_seq == q.frame_seq))
        .where(q.transport_id == transport_id, ~answered)
        .order_by(q.frame_seq, q.ordinal)
    )
    return [
        Decision(
            frame_seq=number,
            ordinal=ordinal,
            protocol_revision=revision,
            session_id=row.session_id,
            turn_id=row.turn_id,
            request_frame=row.frame_seq,
            outcome="unanswered",
            outcome_raw=close_reason,
            option_id=None,
            option_kind=None,
            option_kind_claimed=None,
            offered=None,
            effect="none",
            decided_by="nobody",
            rule=None,
            identity=None,
            detail=row.title,
            asked_at=row.received_at,
            decided_at=None,
            lossy=bool(row.lossy),
        )
        for ordinal, row in enumerate(connection.execute(query))
    ]


def _unended(connection: Connection, transport_id: int, number: int, revision: str, close_reason: str) -> list[TurnEnd]:
    """An end for each turn that has none. Its text is that of the messages that were written."""
    t, e, m = tables.turns.c, tables.turn_ends.c, tables.messages.c
    ended = select(e.frame_seq).where(e.transport_id == t.transport_id, e.turn_id == t.turn_id).exists()
    said = (
        select(func.coalesce(func.sum(m.text_bytes), 0))
        .where(
            m.transport_id == t.transport_id, m.turn_id == t.turn_id, m.stream == "agent", m.frame_seq >= t.frame_seq
        )
        .scalar_subquery()
    )
    query = select(t.session_id, t.turn_id, said.label("text_bytes")).where(t.transport_id == transport_id, ~ended)
    reason = REASONS.get(close_reason, close_reason)
    return [
        TurnEnd(
            frame_seq=number,
            ordinal=ordinal,
            protocol_revision=revision,
            session_id=row.session_id,
            turn_id=row.turn_id,
            stop_reason=None,
            outcome="interrupted",
            error_code=None,
            error_message=reason,
            text_bytes=int(row.text_bytes),
            lossy=False,
        )
        for ordinal, row in enumerate(connection.execute(query.order_by(t.frame_seq, t.ordinal)))
    ]
