"""What was committed since the last look, for whoever watches a ledger while it is written.

What must not be broken here: a committed row is given once and none is left out. The ledger has no number of its own,
so the place reached is one of every open transport; and a new transport is looked for behind the last one of its own
daemon, for the clocks that ids are made from differ between machines.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import ScalarSelect, TableClause, column, exists, func, select, table, text

from acp_ledger.errors import StoreFault
from acp_ledger.store import queries

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from acp_ledger.store.answers import LedgerEvent
    from acp_ledger.store.queries import Filter

PAGE: Final = 500
"""Rows of one transport given at a time."""

THOROUGH: Final = 20
"""Every so many looks the last transport of each daemon is asked for, not just the newest of all."""

_TRANSPORTS: Final = table("transports", column("id"), column("daemon_id"), column("agent"))
_FRAMES: Final = table("frames", column("transport_id"), column("frame_seq"))
_EVENTS: Final = table("transport_events", column("transport_id"), column("frame_seq"), column("event"))
_ENDS: Final = ("closed", "interrupted")


class AnotherLedger(StoreFault):
    """What is at the ledger's place now is not the ledger that was followed."""


class Head(NamedTuple):
    """The last number of a transport, and whether its end is among the numbers."""

    transport_id: int
    number: int
    ended: bool


class Fresh(NamedTuple):
    """Rows that were not given before, by their time, each transport's own in its order; `more` are waiting."""

    rows: tuple[LedgerEvent, ...]
    more: bool


@dataclass(slots=True)
class Place:
    """How far a ledger was followed: `reached` of every transport that has not ended, `newest` of every daemon."""

    wanted: Filter
    ledger_id: bytes
    newest: dict[str, int]
    reached: dict[int, int]
    version: int | None = None
    looks: int = 0

    def seen(self, row: LedgerEvent) -> None:
        """Take note of a row that was given by other means."""
        self.reached[row.transport_id] = max(row.frame_seq, self.reached.get(row.transport_id, 0))


def start(connection: Connection, wanted: Filter) -> Place:
    """Begin behind everything that is committed now."""
    newest = _newest(connection)
    reached = {head.transport_id: head.number for head in _heads(connection, wanted, ~_ended())}
    return Place(wanted, _ledger_id(connection), newest, reached)


def resume(connection: Connection, place: Place) -> None:
    """Go on over a new connection.

    Raises:
        AnotherLedger: It leads to another ledger.
    """
    if _ledger_id(connection) != place.ledger_id:
        raise AnotherLedger(
            "another ledger has taken the place of the one that was followed",
            hint="begin anew with it: ledgerctl events -f",
        )
    place.version = None


def changed(connection: Connection, place: Place) -> bool:
    """Tell whether anything may have been committed since the last time this was asked; on Postgres always.

    SQLite knows without reading the file, so an idle ledger costs next to nothing.
    """
    if connection.dialect.name != "sqlite":
        return True
    version = connection.execute(text("PRAGMA data_version")).scalar_one()
    known, place.version = place.version, version
    return bool(version != known)


def fresh(connection: Connection, place: Place) -> Fresh:
    """Give what was committed behind the place, and move it there; at most `PAGE` rows of each transport."""
    for transport in _opened(connection, place):
        place.reached.setdefault(transport, 0)
    found, more = [], False
    for head in _heads(connection, place.wanted, _TRANSPORTS.c.id.in_(place.reached)):
        if head.number > place.reached[head.transport_id]:
            rows = _rows(connection, place, head)
            found.append(rows)
            more = more or len(rows) == PAGE
        if head.ended and place.reached[head.transport_id] >= head.number:
            del place.reached[head.transport_id]
    # Whoever follows for weeks must not hold a transaction open: it would keep the server from cleaning up.
    connection.rollback()
    return Fresh(tuple(heapq.merge(*found, key=lambda row: row.at)), more)


def _rows(connection: Connection, place: Place, head: Head) -> list[LedgerEvent]:
    """Read behind the place; where fewer than a page match, everything up to the head was met."""
    key = (head.transport_id, place.reached[head.transport_id])
    wanted = replace(place.wanted, transport_id=head.transport_id, limit=PAGE)
    rows = list(queries.events(connection, wanted, after=key))
    last = rows[-1].frame_seq if rows else 0
    place.reached[head.transport_id] = last if len(rows) == PAGE else max(last, head.number)
    return rows


def _opened(connection: Connection, place: Place) -> list[int]:
    """Give the transports that were opened since the last look, and remember the last one of each daemon."""
    place.looks += 1
    found = []
    for daemon in _busy(connection, place):
        rows = connection.execute(
            select(_TRANSPORTS.c.id, _TRANSPORTS.c.agent)
            .where(_TRANSPORTS.c.daemon_id == daemon, _TRANSPORTS.c.id > place.newest.get(daemon, 0))
            .order_by(_TRANSPORTS.c.id)
        ).all()
        place.newest[daemon] = rows[-1].id
        found += [row.id for row in rows if _is_wanted(place.wanted, row.id, row.agent)]
    return found


def _busy(connection: Connection, place: Place) -> list[str]:
    """Name the daemons that opened a transport: quickly those of the very newest, now and then all of them."""
    if place.looks % THOROUGH:
        newest = max(place.newest.values(), default=0)
        query = select(_TRANSPORTS.c.daemon_id).where(_TRANSPORTS.c.id > newest).distinct()
        return list(connection.execute(query).scalars())
    return [daemon for daemon, last in _newest(connection).items() if last > place.newest.get(daemon, 0)]


def _newest(connection: Connection) -> dict[str, int]:
    daemon = _TRANSPORTS.c.daemon_id
    rows = connection.execute(select(daemon, func.max(_TRANSPORTS.c.id)).group_by(daemon))
    return {of: last for of, last in rows}  # noqa: C416  # rows are typed as tuples, which dict() cannot see


def _is_wanted(wanted: Filter, transport: int, agent: str) -> bool:
    return wanted.transport_id in {None, transport} and wanted.agent in {None, agent}


def _heads(connection: Connection, wanted: Filter, condition: ColumnElement[bool]) -> list[Head]:
    """Give the heads of transports; by primary key, whatever the ledger's size."""
    columns = (*(_last(source).label(source.name) for source in (_FRAMES, _EVENTS)), _ended().label("ended"))
    rows = connection.execute(select(_TRANSPORTS.c.id, _TRANSPORTS.c.agent, *columns).where(condition)).all()
    return [
        Head(row.id, max(row.frames or 0, row.transport_events or 0), ended=bool(row.ended))
        for row in rows
        if _is_wanted(wanted, row.id, row.agent)
    ]


def _last(source: TableClause) -> ScalarSelect[Any]:
    numbers = select(func.max(source.c.frame_seq)).where(source.c.transport_id == _TRANSPORTS.c.id)
    return numbers.correlate(_TRANSPORTS).scalar_subquery()


def _ended() -> ColumnElement[bool]:
    return exists().where(_EVENTS.c.transport_id == _TRANSPORTS.c.id, _EVENTS.c.event.in_(_ENDS)).correlate(_TRANSPORTS)


def _ledger_id(connection: Connection) -> bytes:
    ledger = table("ledger", column("ledger_id"))
    return bytes(connection.execute(select(ledger.c.ledger_id).limit(1)).scalar_one())
