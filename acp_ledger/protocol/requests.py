"""What a request or a notification gives rise to, by its direction and its method.

What must not be broken here: a method these tables do not list is named and nothing else; what a request was about is
kept beside it until its answer comes, for answers name neither method nor session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from acp_ledger.protocol import permission, v1
from acp_ledger.protocol.connection import Connection
from acp_ledger.protocol.draft import Draft
from acp_ledger.protocol.envelope import identity, text_of
from acp_ledger.protocol.records import (
    TO_AGENT,
    TO_CLIENT,
    ClientCall,
    Direction,
    PermissionOption,
    PermissionRequest,
    Prompt,
)
from acp_ledger.protocol.revisions import version_text
from acp_ledger.protocol.sessions import OpenTurn, SessionState
from acp_ledger.protocol.text import shown
from acp_ledger.protocol.updates import tool_call_step

if TYPE_CHECKING:
    from acp_ledger.protocol.calls import Join
    from acp_ledger.protocol.v1 import Fields


class Asking(NamedTuple):
    """A question that waits: what its answer is read against. `in_turn` says that a turn was open when it was asked."""

    question: permission.Question
    asked_at: int
    in_turn: bool


class Opening(NamedTuple):
    """A session that was asked for. `replaying` says that the answer ends a replay."""

    origin: Literal["new", "load", "resume", "fork"]
    cwd: str | None
    lossy: bool
    parent: str | None
    replaying: bool


class Initializing(NamedTuple):
    """An `initialize` that waits."""

    version: str | None
    client_name: str | None
    client_version: str | None


class Calling(NamedTuple):
    """A client call that waits for its end."""


Subject: TypeAlias = Asking | Opening | Initializing | Calling | OpenTurn


class Arrival(NamedTuple):
    """A request as it arrived. `forwarded` is False for a line kept from its receiver, `parsed` for one too big."""

    method: str
    params: Fields
    session: SessionState | None
    forwarded: bool
    parsed: bool


_OPTION_WEIGHT: Final = 256

Handler: TypeAlias = Callable[[Connection, Draft, Arrival], Subject | None]


def requested(connection: Connection, draft: Draft, direction: Direction, arrival: Arrival) -> Subject | None:
    """Add the rows of a request, and give back what its answer will be read against."""
    handler = _HANDLERS.get((direction, arrival.method))
    if handler is not None:
        return handler(connection, draft, arrival)
    if is_request(direction, arrival.method):
        return _client_call(connection, draft, arrival)
    return None


def is_request(direction: Direction, method: str) -> bool:
    """Whether the protocol makes this method a request in this direction."""
    return (direction, method) in _HANDLERS or (
        direction == TO_CLIENT and method.startswith(v1.CLIENT_CALLS) and method not in _NOTIFICATIONS
    )


def is_known(direction: Direction, method: str) -> bool:
    """Whether something is read from the params of this method, so that they have to be an object."""
    return method in SESSION_METHODS or is_request(direction, method)


def is_notification(method: str) -> bool:
    """Whether the protocol makes this method a notification."""
    return method in _NOTIFICATIONS


SESSION_METHODS: Final = frozenset({"session/prompt", permission.METHOD, "session/update"})
"""Methods that mean nothing without the session they name."""

CANCEL: Final = "session/cancel"
"""By which an editor stops a turn."""

WITHDRAWAL: Final = "$/cancel_request"
"""By which a sender says that it no longer wants an answer to a request of its own."""

_NOTIFICATIONS: Final = frozenset({"session/update", CANCEL, WITHDRAWAL, "elicitation/complete"})


def _initialize(_connection: Connection, draft: Draft, arrival: Arrival) -> Subject:
    draft.observed = True
    # The draft of version 2 calls the same object `info`.
    info = v1.fields_of(arrival.params, "clientInfo" if "clientInfo" in arrival.params else "info", draft.wrong)
    return Initializing(
        version_text(arrival.params.get("protocolVersion")),
        v1.word(info, "name", draft.wrong),
        v1.word(info, "version", draft.wrong),
    )


def _opening(connection: Connection, draft: Draft, arrival: Arrival) -> Subject:
    draft.observed = True
    cwd, lossy = shown(text_of(arrival.params, "cwd", draft.wrong))
    replaying = False
    if arrival.method == "session/load" and arrival.session is not None and arrival.forwarded:
        arrival.session.loads += 1
        replaying = True
    if arrival.method == "session/fork" and arrival.forwarded:
        connection.sessions.fork_asked()
        replaying = True
    parent = v1.word(arrival.params, "sessionId", draft.wrong) if arrival.method == "session/fork" else None
    return Opening(_ORIGINS[arrival.method], cwd, lossy, parent, replaying)


_ORIGINS: Final[dict[str, Literal["new", "load", "resume", "fork"]]] = {
    "session/new": "new",
    "session/load": "load",
    "session/resume": "resume",
    "session/fork": "fork",
}


def _prompt(connection: Connection, draft: Draft, arrival: Arrival) -> Subject | None:
    draft.observed = True
    session = arrival.session
    turn = None
    draft.turn_id = None
    if session is not None:
        if not session.turns:
            # Text that belongs to no turn, a greeting say, is not continued by the turn's own.
            connection.write_messages(draft, connection.transcript.end(session.number))
        turn = connection.sessions.begin_turn(session, draft)
        draft.phase = "turn" if turn is not None else draft.phase
    draft.rows.append(
        Prompt(
            frame_seq=draft.seq,
            ordinal=draft.ordinal(Prompt),
            protocol_revision=draft.revision,
            session_id=draft.session_id,
            turn_id=draft.turn_id,
            source="request",
            detail=None,
            block_kinds=v1.block_kinds(arrival.params, draft.wrong),
            lossy=False,
        )
    )
    return turn


def _ask_permission(connection: Connection, draft: Draft, arrival: Arrival) -> Subject:
    draft.observed = True
    question = permission.question_of(arrival.params, draft.wrong)
    if not arrival.parsed:
        question = permission.unread_offers(question)
    session = arrival.session
    if not connection.reading.mapped:
        question = question._replace(call=None)  # a step is for a mapping to read
    joined, kind = _joined_call(connection, question, session)
    draft.rows.append(
        PermissionRequest(
            frame_seq=draft.seq,
            ordinal=draft.ordinal(PermissionRequest),
            protocol_revision=draft.revision,
            session_id=draft.session_id,
            turn_id=draft.turn_id,
            tool_call_id=question.tool_call_id,
            joined_call_id=joined,
            join_kind=kind,
            title=question.title,
            tool_kind=question.tool_kind,
            tool_status=question.tool_status,
            option_count=question.option_count,
            lossy=question.lossy,
        )
    )
    _offers(draft, question)
    if session is not None and question.call is not None:
        tool_call_step(connection, draft, question.call, session, "permission")
    return Asking(_kept(question), draft.at, session is not None and bool(session.turns))


def _kept(question: permission.Question) -> permission.Question:
    """The question without what its answer is not read against."""
    options = question.options
    if options is not None:
        options = tuple(option._replace(name=None) for option in options)
    return question._replace(call=None, options=options)


def _joined_call(connection: Connection, question: permission.Question, session: SessionState | None) -> Join:
    if session is None:
        return None, "none"
    join = connection.calls.join(session.number, question.tool_call_id, question.title)
    if join[1] == "none" and question.call is not None:
        return question.tool_call_id, "exact"  # the question itself is the first step of its call
    return join


def _offers(draft: Draft, question: permission.Question) -> None:
    seen: set[str] = set()
    for option_id, name, kind, lossy in question.options or ():
        draft.rows.append(
            PermissionOption(
                draft.seq,
                draft.ordinal(PermissionOption),
                draft.revision,
                draft.session_id,
                draft.turn_id,
                option_id,
                name,
                kind,
                lossy,
            )
        )
        if option_id is None:
            continue
        if option_id in seen:
            draft.anomaly("option_id_repeated", option_id)
        seen.add(option_id)


def _client_call(_connection: Connection, draft: Draft, arrival: Arrival) -> Subject:
    draft.observed = True
    target, lossy = shown(v1.target_of(arrival.params, draft.wrong))
    draft.rows.append(
        ClientCall(
            frame_seq=draft.seq,
            ordinal=draft.ordinal(ClientCall),
            protocol_revision=draft.revision,
            session_id=draft.session_id,
            turn_id=draft.turn_id,
            method=identity(arrival.method),
            target=target,
            lossy=lossy,
        )
    )
    return Calling()


_HANDLERS: Final[dict[tuple[Direction, str], Handler]] = {
    (TO_AGENT, "initialize"): _initialize,
    (TO_AGENT, "session/new"): _opening,
    (TO_AGENT, "session/load"): _opening,
    (TO_AGENT, "session/resume"): _opening,
    (TO_AGENT, "session/fork"): _opening,
    (TO_AGENT, "session/prompt"): _prompt,
    (TO_CLIENT, permission.METHOD): _ask_permission,
}


def abandoned(connection: Connection, subject: Subject | None, session: SessionState | None) -> None:
    """Forget a request that cannot wait: a replay that no answer would end has not begun."""
    if isinstance(subject, Opening) and subject.replaying:
        end_replay(connection, subject, session, None)


def end_replay(
    connection: Connection, opening: Opening, asked_for: SessionState | None, opened: SessionState | None
) -> None:
    """End the replay that an opening began, with the session it opened."""
    if opening.origin == "fork":
        connection.sessions.fork_answered(opened)
    elif asked_for is not None:
        asked_for.loads -= 1


def weight_of(subject: Subject | None) -> int:
    """How many characters a waiting request keeps, for the bound on them all."""
    match subject:
        case Asking(question=question):
            offered = sum(len(option.option_id or "") + len(option.kind or "") for option in question.options or ())
            return len(question.title or "") + offered + _OPTION_WEIGHT * len(question.options or ())
        case Opening(cwd=cwd):
            return len(cwd or "")
        case _:
            return 0
