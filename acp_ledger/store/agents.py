"""The agent processes of a ledger: what ran, for whom, for how long, and how it ended.

What must not be broken here: a process without an end in the ledger is shown without one, for the ledger alone cannot
know whether it lives. Every subquery goes by a primary key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import case, column, func, select, table

from acp_ledger.store.answers import AgentRun, Transport
from acp_ledger.store.queries import EVERYTHING, conditions, ordered, source_of, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, ScalarSelect, Select, TableClause

    from acp_ledger.store.queries import Filter

_RUNS: Final = source_of("audit_transports", Transport)
_EVENT_COLUMNS: Final = ("transport_id", "frame_seq", "event", "at", "pid", "signal", "stderr_tail", "agent_name")
_EVENTS: Final = table("transport_events", *map(column, _EVENT_COLUMNS))
_FRAMES: Final = table("frames", *map(column, ("transport_id", "frame_seq", "received_at")))
_SESSIONS: Final = table("sessions", column("transport_id"))
_TURNS: Final = table("turns", column("transport_id"))


def agents(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[AgentRun]:
    """Agent processes, oldest first; `since` and `until` are about when they were started."""
    query = select(
        *_RUNS.c,
        _last_at().label("last_at"),
        _count(_SESSIONS).label("sessions"),
        _count(_TURNS).label("turns"),
        _of_event("spawned", "pid").label("pid"),
        _of_event("exited", "signal").label("signal"),
        _of_event("exited", "stderr_tail").label("stderr_tail"),
        _of_event("negotiated", "agent_name").label("reported_name"),
    )
    query = query.where(*conditions(_RUNS, wanted, "opened_at")).limit(wanted.limit)
    return stream(connection, AgentRun, ordered(query, [_RUNS.c.transport_id], reverse=wanted.reverse))


def _count(source: TableClause) -> ScalarSelect[int]:
    return _of_run(select(func.count()).select_from(source), source)


def _of_event(event: str, name: str) -> ScalarSelect[Any]:
    rows = select(_EVENTS.c[name]).where(_EVENTS.c.event == event).order_by(_EVENTS.c.frame_seq).limit(1)
    return _of_run(rows, _EVENTS)


def _last_at() -> ColumnElement[int]:
    """The time of the last line or event, whichever is later."""
    line, event = (
        _of_run(select(source.c[time]).order_by(source.c.frame_seq.desc()).limit(1), source)
        for source, time in ((_FRAMES, "received_at"), (_EVENTS, "at"))
    )
    return case((line > event, line), else_=event)


def _of_run(query: Select[Any], source: TableClause) -> ScalarSelect[Any]:
    return query.where(source.c.transport_id == _RUNS.c.transport_id).correlate(_RUNS).scalar_subquery()
