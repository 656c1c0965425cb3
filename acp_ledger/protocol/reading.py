"""One line, read: what it says about sessions, turns, questions and answers, as rows of a draft.

What must not be broken here: a line of any shape is read, and nothing here raises; an answer is read against the
request it answers and no other; a line that is withheld changes nothing that the peer who never hears it would know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_ledger.protocol.answers import Maker, Settlement, answered, reply_of, tell_unoffered
from acp_ledger.protocol.connection import OTHER_WAY, Connection
from acp_ledger.protocol.envelope import Envelope, id_key, identity, text_of
from acp_ledger.protocol.exchange import ANOMALY_OF_ASKED, ANOMALY_OF_VERDICT, Asked, Match, Request
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, Delivery, Direction
from acp_ledger.protocol.requests import (
    CANCEL,
    SESSION_METHODS,
    WITHDRAWAL,
    Arrival,
    Asking,
    Subject,
    abandoned,
    is_known,
    is_notification,
    is_request,
    requested,
    weight_of,
)
from acp_ledger.protocol.updates import update

if TYPE_CHECKING:
    from acp_ledger.protocol.draft import Draft
    from acp_ledger.protocol.sessions import SessionState
    from acp_ledger.protocol.v1 import Fields


def read(
    connection: Connection, draft: Draft, direction: Direction, envelope: Envelope, maker: Maker, delivery: Delivery
) -> Settlement | None:
    """Read one line; with what it settled, where it is the `initialize` result that does."""
    settlement: Settlement | None = None
    if envelope.kind == "response":
        settlement = _answer(connection, draft, direction, envelope, maker, delivery)
    elif envelope.kind == "opaque":
        _opaque(connection, draft, direction, envelope)
    else:
        _call(connection, draft, direction, envelope, delivery)
    if connection.own is not None:
        connection.own.judge(connection, draft, direction, envelope, delivery)
    for class_, detail in envelope.anomalies:
        draft.anomaly(class_, detail)
    if draft.wrong:
        for field in dict.fromkeys(draft.wrong):
            draft.anomaly("wrong_type", field)
    return settlement


def _call(connection: Connection, draft: Draft, direction: Direction, envelope: Envelope, delivery: Delivery) -> None:
    """A request or a notification."""
    method = envelope.method or ""
    draft.method = identity(method)
    params: Fields = envelope.params if isinstance(envelope.params, dict) else {}
    if params is not envelope.params and envelope.params is not None and is_known(direction, method):
        draft.wrong.append("params")
    is_update = direction == TO_CLIENT and method == "session/update"
    session = _session(connection, draft, params, update=is_update)
    if session is None and "sessionId" not in params and method in SESSION_METHODS:
        draft.anomaly("missing_session", method)
    if envelope.kind == "request":
        if delivery == "withhold" and _is_taken(connection, draft, direction, envelope):
            return
        if is_notification(method):
            draft.anomaly("unexpected_id", method)
            _notified(direction, method, session)
        arrival = Arrival(method, params, session, delivery == "forward", envelope.parsed)
        subject = requested(connection, draft, direction, arrival)
        _await_answer(connection, draft, direction, envelope, subject, session)
    elif is_update:
        if connection.own is None:
            update(connection, draft, params, session, delivery)
        else:
            connection.own.update(connection, draft, envelope, session, delivery)
    elif method == WITHDRAWAL:
        _withdraw(connection, draft, direction, params)
    else:
        _notified(direction, method, session)
        if is_request(direction, method):
            draft.anomaly("missing_id", method)


def _notified(direction: Direction, method: str, session: SessionState | None) -> None:
    if method == CANCEL and direction == TO_AGENT and session is not None:
        session.cancel()


def _is_taken(connection: Connection, draft: Draft, direction: Direction, envelope: Envelope) -> bool:
    """Whether another request waits under the id of one that nobody will hear: it takes nothing of its place."""
    first = None if envelope.id_key is None else connection.asked[direction].peek(envelope.id_key)
    if first is not None:
        draft.anomaly("duplicate_id", None, first.frame_seq)
    return first is not None


def _withdraw(connection: Connection, draft: Draft, direction: Direction, params: Fields) -> None:
    """A sender no longer wants an answer to a request of its own; it may get one all the same."""
    if "requestId" not in params:
        return
    request = connection.asked[direction].peek(id_key(params["requestId"]))
    if request is None:
        return
    _about(connection, draft, request)
    if isinstance(request.subject, Asking):
        draft.anomaly("question_cancelled", None, request.frame_seq)


def _session(connection: Connection, draft: Draft, params: Fields, *, update: bool) -> SessionState | None:
    """The session a frame names, with what it says about phase and turn."""
    sessions = connection.sessions
    named = text_of(params, "sessionId", draft.wrong)
    session = None if named is None else sessions.see(named, draft, update=update)
    if session is not None:
        draft.session_id = session.number
        if len(session.turns) == 1:
            draft.turn_id = session.turns[0].turn_id
    draft.phase = sessions.phase(session)
    return session


def _await_answer(
    connection: Connection,
    draft: Draft,
    direction: Direction,
    envelope: Envelope,
    subject: Subject | None,
    session: SessionState | None,
) -> None:
    request = Request(
        id_token=envelope.id_token or "",
        method=draft.method or "",
        frame_seq=draft.seq,
        session_id=draft.session_id,
        turn_id=draft.turn_id,
        subject=subject,
        weight=weight_of(subject),
    )
    asked: Asked = "untracked"
    first: int | None = None
    if envelope.id_key is not None:
        asked, first = connection.asked[direction].ask(envelope.id_key, request)
    if asked == "untracked":
        abandoned(connection, subject, session)
    anomaly = ANOMALY_OF_ASKED[asked]
    if anomaly is not None:
        draft.anomaly(anomaly, "waiting requests" if asked == "untracked" else None, first)


def _answer(
    connection: Connection, draft: Draft, direction: Direction, envelope: Envelope, maker: Maker, delivery: Delivery
) -> Settlement | None:
    """A response. One that is withheld settles nothing: the answer that is heard instead will.

    Where we are the client nothing is said instead: what we would have answered stays the decision.
    """
    exchange = connection.asked[OTHER_WAY[direction]]
    key = envelope.answers
    request = None if key is None else exchange.peek(key)
    if request is not None:
        draft.method = request.method
        _about(connection, draft, request)
        if delivery == "withhold" and (connection.own is None or direction == TO_CLIENT):
            tell_unoffered(draft, envelope, request)
            return None
    else:
        draft.phase = connection.sessions.phase(None)
    match = Match("orphan") if key is None else exchange.answer(key, draft.seq, ours=maker.origin != "peer")
    anomaly = ANOMALY_OF_VERDICT[match.verdict]
    # An error without an id was told by the envelope, and one of ours has none where nobody knows it.
    if anomaly is not None and envelope.has_id and not (key is None and maker.origin != "peer"):
        draft.anomaly(anomaly, None, match.related)
    if match.request is None:
        return None
    if envelope.error is not None and not isinstance(envelope.error, dict):
        draft.wrong.append("error")
    return answered(connection, draft, match.request, reply_of(envelope, maker, shared=match.verdict == "shared"))


def _about(connection: Connection, draft: Draft, request: Request) -> None:
    """A line that names a request is about what that request was about."""
    sessions = connection.sessions
    draft.session_id, draft.turn_id = request.session_id, request.turn_id
    draft.phase = sessions.phase(sessions.numbered(request.session_id))


def _opaque(connection: Connection, draft: Draft, direction: Direction, envelope: Envelope) -> None:
    """A line nobody can classify, so it has no method and no id; every question it may have answered is named."""
    draft.phase = connection.sessions.phase(None)
    exchange = connection.asked[OTHER_WAY[direction]]
    for key in envelope.possible_answers:
        request = exchange.peek(key)
        if request is not None and isinstance(request.subject, Asking):
            draft.anomaly("ambiguous_answer", None, request.frame_seq)
