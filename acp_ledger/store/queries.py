"""What can be asked of a ledger: the reading side, the same answers on SQLite and Postgres.

What must not be broken here: only SELECT, built with Core or from literal text, never from text of a caller; rows are
frozen; nothing is collected, so that a list of any length is read in flat memory. Order is by transport and number,
never by time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    TableClause,
    Text,
    and_,
    cast,
    column,
    exists,
    func,
    literal_column,
    null,
    select,
    table,
    tuple_,
    union_all,
)

from acp_ledger.protocol.records import TABLE_OF, Event, Frame
from acp_ledger.store.answers import (
    Anomaly,
    Coverage,
    Decision,
    Facts,
    FrameBody,
    Gap,
    LedgerEvent,
    Match,
    Message,
    Moment,
    Session,
    ToolCall,
    Transport,
    Turn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE: Final = 500
"""Rows fetched at a time."""

_Row = TypeVar("_Row", bound=NamedTuple)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows of a list: every field that is not None narrows it.

    `client` is the editor's name for itself; a slash at the end of `cwd` does not matter.
    `since` and `until` are RFC 3339 in UTC as the views write it; a row on the edge of `since` is in, of `until` out.
    `limit` takes the first rows of the order asked for; `reverse` asks for the newest first.
    """

    transport_id: int | None = None
    session_id: int | None = None
    acp_session_id: str | None = None
    agent: str | None = None
    client: str | None = None
    cwd: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None
    reverse: bool = False


EVERYTHING: Final = Filter()


def transports(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[Transport]:
    """Agent processes and their connections, oldest first."""
    return _view(connection, Transport, "audit_transports", wanted, order=("transport_id",), time="opened_at")


def sessions(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[Session]:
    """Conversations, in the order in which they were first seen."""
    return _view(connection, Session, "audit_sessions", wanted, order=("transport_id", "session_id"), time="first_at")


def turns(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[Turn]:
    """Prompt turns; of an open one everything about its end is None."""
    return _view(connection, Turn, "audit_turns", wanted, order=("transport_id", "turn_id"), time="started_at")


def tool_calls(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[ToolCall]:
    """Tool calls as they stand after their last step."""
    order = ("transport_id", "session_id", "first_at", "tool_call_id")
    return _view(connection, ToolCall, "audit_tool_calls", wanted, order=order, time="first_at")


def decisions(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[Decision]:
    """Permission questions and what was answered, in the order of the questions."""
    return _view(connection, Decision, "audit_decisions", wanted, order=("transport_id", "frame_seq"), time="asked_at")


def coverage(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[Coverage]:
    """Which words of the wire became what, and which were kept as a line only."""
    order = ("transport_id", "first_frame_seq", "word", "direction", "recorded_as")
    return _view(connection, Coverage, "audit_coverage", wanted, order=order, time=None)


def timeline(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[Moment]:
    """What happened, step by step."""
    return _view(connection, Moment, "audit_timeline", wanted, order=("transport_id", "frame_seq"), time="at")


def anomalies(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[Anomaly]:
    """What an auditor must know about lines and connections."""
    return _view(connection, Anomaly, "audit_anomalies", wanted, order=("transport_id", "frame_seq"), time="at")


def _view(
    connection: Connection, row: type[_Row], name: str, wanted: Filter, *, order: tuple[str, ...], time: str | None
) -> Iterator[_Row]:
    source = source_of(name, row)
    query = select(*source.c).select_from(source)
    query = query.where(*conditions(source, wanted, time)).limit(wanted.limit)
    return stream(connection, row, ordered(query, [source.c[key] for key in order], reverse=wanted.reverse))


def source_of(name: str, row: type[_Row]) -> TableClause:
    """A view or table with the columns of a row type."""
    return table(name, *(column(field.rstrip("_")) for field in row._fields))


def ordered(query: Select[Any], keys: list[Any], *, reverse: bool) -> Select[Any]:
    """The same in the order of keys, or in the other direction."""
    return query.order_by(*(key.desc() if reverse else key.asc() for key in keys))


def stream(connection: Connection, row: type[_Row], query: Any) -> Iterator[_Row]:
    """Rows as they are fetched."""
    with connection.execute(query, execution_options={"yield_per": _PAGE}) as result:
        for values in result:
            yield row._make(values)


_SESSION_KEYS: Final = ("transport_id", "session_id", "acp_session_id", "cwd")
_SESSIONS: Final = table("audit_sessions", *map(column, _SESSION_KEYS))
_TRANSPORTS: Final = table("audit_transports", *map(column, ("transport_id", "agent", "client")))


def conditions(source: TableClause, wanted: Filter, time: str | None) -> list[ColumnElement[bool]]:
    """What a filter asks of a source, `time` being its column that `since` and `until` are about."""
    found: list[ColumnElement[bool]] = []
    if wanted.transport_id is not None:
        found.append(source.c.transport_id == wanted.transport_id)
    if wanted.session_id is not None:
        found.append(_of_session(source, _SESSIONS.c.session_id == wanted.session_id))
    if wanted.acp_session_id is not None:
        found.append(_of_session(source, _SESSIONS.c.acp_session_id == wanted.acp_session_id))
    if wanted.cwd is not None:
        found.append(_of_session(source, func.rtrim(_SESSIONS.c.cwd, "/") == wanted.cwd.rstrip("/")))
    for name, value in (("agent", wanted.agent), ("client", wanted.client)):
        if value is not None:
            found.append(_of_transport(source, name, value))
    if time is not None and wanted.since is not None:
        found.append(source.c[time] >= wanted.since)
    if time is not None and wanted.until is not None:
        found.append(source.c[time] < wanted.until)
    return found


def _of_session(source: TableClause, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Narrow a view to sessions: by the key it has, for one view has the small number and another the agent's word."""
    key = "session_id" if "session_id" in source.c else "acp_session_id"
    if key not in source.c:
        return source.c.transport_id.in_(select(_SESSIONS.c.transport_id).where(condition))
    of = select(_SESSIONS.c.transport_id, _SESSIONS.c[key]).where(condition)
    return tuple_(source.c.transport_id, source.c[key]).in_(of)


def _of_transport(source: TableClause, name: str, value: str) -> ColumnElement[bool]:
    if name in source.c:
        return source.c[name] == value
    return source.c.transport_id.in_(select(_TRANSPORTS.c.transport_id).where(_TRANSPORTS.c[name] == value))


# --- lines and events


_FRAMES: Final = table("frames", column("transport_id"), *map(column, Frame._fields), column("body"))
_EVENTS: Final = table("transport_events", column("transport_id"), *map(column, Event._fields))


def events(
    connection: Connection, wanted: Filter = EVERYTHING, *, after: tuple[int, int] | None = None
) -> Iterator[LedgerEvent]:
    """Lines and events merged, by (`transport_id`, `frame_seq`); `after` is the key of the last row already seen.

    Read page by page: what is committed meanwhile is met. `since` and `until` are not used. With a session the
    events of its transport are left out, for they belong to no session.
    """
    left, key = wanted.limit, after
    while left is None or left > 0:
        page = list(_page(connection, replace(wanted, limit=_PAGE if left is None else min(left, _PAGE)), key))
        yield from page
        if len(page) < _PAGE:
            return
        key = (page[-1].transport_id, page[-1].frame_seq)
        left = None if left is None else left - len(page)


def _page(connection: Connection, wanted: Filter, key: tuple[int, int] | None) -> Iterator[LedgerEvent]:
    halves = [_half(source, wanted, key) for source in _halves(wanted)]
    merged = union_all(*(select(*half.subquery().c) for half in halves)).subquery()
    query = ordered(select(*merged.c), [merged.c.transport_id, merged.c.frame_seq], reverse=wanted.reverse)
    return stream(connection, LedgerEvent, query.limit(wanted.limit))


def _halves(wanted: Filter) -> tuple[TableClause, ...]:
    of_session = any(key is not None for key in (wanted.session_id, wanted.acp_session_id, wanted.cwd))
    return (_FRAMES,) if of_session else (_FRAMES, _EVENTS)


def _half(source: TableClause, wanted: Filter, key: tuple[int, int] | None) -> Select[Any]:
    """One table's share of a page: at most as many rows as the page, so that the merge is of two short lists."""
    position = tuple_(source.c.transport_id, source.c.frame_seq)
    query = select(*(_field(source, name) for name in LedgerEvent._fields)).where(*conditions(source, wanted, None))
    if key is not None:
        nearest = source.c.transport_id <= key[0] if wanted.reverse else source.c.transport_id >= key[0]
        query = query.where(nearest, position < key if wanted.reverse else position > key)
    return ordered(query, [source.c.transport_id, source.c.frame_seq], reverse=wanted.reverse).limit(wanted.limit)


_WORDS: Final = frozenset(
    {"event", "origin", "delivery", "kind", "method", "rpc_id", "phase", "session_update", "disposition", "body_state"}
    | {"close_reason", "detail"}
)


def _field(source: TableClause, name: str) -> ColumnElement[Any]:
    if name == "at" and source is _FRAMES:
        return source.c.received_at.label("at")
    if name in source.c:
        return source.c[name]
    # A bare NULL has no type of its own in one half of a UNION on Postgres.
    return (cast(null(), Text if name in _WORDS else BigInteger)).label(name)


def frame(connection: Connection, transport_id: int, frame_seq: int) -> FrameBody | None:
    """One line with its bytes as stored and every row under its number; None when there is no such line."""
    row = _rows_under(connection, "frames", transport_id, frame_seq)
    if not row:
        return None
    body = row[0].pop("body")
    return FrameBody(row[0], body, _derived(connection, transport_id, frame_seq))


def _derived(connection: Connection, transport_id: int, frame_seq: int) -> tuple[tuple[str, dict[str, Any]], ...]:
    names = [name for kind, name in TABLE_OF.items() if kind not in {Frame, Event}]
    return tuple((name, row) for name in names for row in _rows_under(connection, name, transport_id, frame_seq))


def _rows_under(connection: Connection, name: str, transport_id: int, frame_seq: int) -> list[dict[str, Any]]:
    source = table(name, column("transport_id"), column("frame_seq"))
    query: Select[Any] = select(literal_column("*")).select_from(source)
    query = query.where(source.c.transport_id == transport_id, source.c.frame_seq == frame_seq)
    return [dict(row) for row in connection.execute(query).mappings()]


def messages(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[Message]:
    """Joined messages, by the line that ended them; the last version of a message is the highest."""
    return _rows(connection, Message, "messages", wanted)


def gaps(connection: Connection, wanted: Filter = EVERYTHING) -> Iterator[Gap]:
    """What the record says it does not hold."""
    return _rows(connection, Gap, "gaps", wanted)


def _rows(connection: Connection, row: type[_Row], name: str, wanted: Filter) -> Iterator[_Row]:
    source = source_of(name, row)
    query = select(*source.c).where(*conditions(source, wanted, None)).limit(wanted.limit)
    keys = [source.c.transport_id, source.c.frame_seq, literal_column("ordinal")]
    return stream(connection, row, ordered(query, keys, reverse=wanted.reverse))


def may_read(connection: Connection, name: str) -> bool:
    """Whether this role may read a table; a reader on Postgres has the views alone."""
    if connection.dialect.name == "sqlite":
        return True
    return bool(connection.execute(select(func.has_table_privilege(name, "SELECT"))).scalar_one())


def facts(connection: Connection) -> Facts:
    """What this ledger is and how much it holds. Counts are of this moment."""
    ledger = table("ledger", *map(column, ("ordinal", "ledger_id", "created_at", "schema_revision", "compat")))
    rows = connection.execute(select(*ledger.c).order_by(ledger.c.ordinal)).all()
    return Facts(
        ledger_id=bytes(rows[0].ledger_id).hex(),
        created_at=rows[0].created_at,
        revision=rows[-1].schema_revision,
        compat=rows[-1].compat,
        open_transports=open_transports(connection),
        **{field: _count(connection, name) for field, name in _COUNTED.items()},
    )


_COUNTED: Final = {
    "transports": "transports",
    "sessions": "sessions",
    "turns": "turns",
    "frames": "frames",
    "events": "transport_events",
    "questions": "permission_requests",
    "decisions": "decisions",
    "anomalies": "anomalies",
    "gaps": "gaps",
}


def _count(connection: Connection, name: str) -> int:
    return connection.execute(select(func.count()).select_from(table(name))).scalar_one()


def open_transports(connection: Connection) -> int:
    """How many transports have neither a `closed` nor an `interrupted` event."""
    opened = table("transports", column("id"))
    ended = and_(_EVENTS.c.transport_id == opened.c.id, _EVENTS.c.event.in_(("closed", "interrupted")))
    query = select(func.count()).select_from(opened).where(~exists().where(ended))
    return connection.execute(query).scalar_one()


# --- what an id means


def resolve(connection: Connection, prefix: str, *, limit: int = 20) -> list[Match]:
    """What an id, or the beginning of one, may mean: a transport, a session or a tool call; an exact id wins.

    At most `limit` of each kind. More than one match is for the caller to tell the person.
    """
    found = [
        *_matches(connection, "transport", "transports", "id", prefix, limit),
        *_matches(connection, "session", "sessions", "acp_session_id", prefix, limit),
        *_matches(connection, "tool call", "tool_call_steps", "tool_call_id", prefix, limit),
    ]
    exact = [match for match in found if match.id == prefix]
    return exact or found


def _matches(connection: Connection, kind: str, name: str, key: str, prefix: str, limit: int) -> Iterator[Match]:
    source = table(name, *map(column, (key, "transport_id", "session_id")))
    id_ = cast(source.c[key], Text)
    of_transport = name == "transports"
    fields = (id_, null(), id_) if of_transport else (source.c.transport_id, source.c.session_id, id_)
    # Not LIKE: SQLite's takes upper and lower case for the same.
    query: Select[Any] = select(*fields).where(func.substr(id_, 1, len(prefix)) == prefix).distinct().limit(limit)
    for transport_id, session_id, id_text in connection.execute(query):
        yield Match(kind, int(transport_id), session_id, id_text)
