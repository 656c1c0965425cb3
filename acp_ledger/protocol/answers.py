"""What an answer gives rise to, read against the request it answers.

What must not be broken here: a question has one decision, its first answer; a turn has one end; and only the first
successful `initialize` settles how the connection is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp_ledger.protocol import permission, v1
from acp_ledger.protocol.envelope import Envelope, identity, text_of
from acp_ledger.protocol.outcome import TurnReading, error_words, turn_reading
from acp_ledger.protocol.records import (
    TO_CLIENT,
    ClientCallEnd,
    DecidedBy,
    Decision,
    Origin,
    SessionOpening,
    TurnEnd,
)
from acp_ledger.protocol.requests import Asking, Calling, Initializing, Opening, end_replay
from acp_ledger.protocol.revisions import reading_of, version_of
from acp_ledger.protocol.sessions import OpenTurn, SessionState

if TYPE_CHECKING:
    from acp_ledger.protocol.connection import Connection
    from acp_ledger.protocol.draft import Draft
    from acp_ledger.protocol.exchange import Request

DECIDED_BY: Final[dict[Origin, DecidedBy]] = {
    "peer": "client",
    "policy": "policy",
    "operator": "operator",
    "daemon": "nobody",
}
"""Who decided, by who made the line; a line the daemon made of itself decides nothing."""


class Maker(NamedTuple):
    """Who made a line: by which of the policy's rules, or for which operator; None where neither did.

    `claimed` is the kind that a program says of the option it chose, whatever the offer said of it.
    """

    origin: Origin
    rule: str | None = None
    operator: str | None = None
    claimed: str | None = None


class Reply(NamedTuple):
    """An answer's content: `None` stands for a member that is absent or null."""

    result: Any
    error: Any
    has_result: bool
    ambiguous: bool
    maker: Maker


def reply_of(envelope: Envelope, maker: Maker, *, shared: bool) -> Reply:
    """The content of a response; `shared` says that more than one request waits under its id."""
    return Reply(envelope.result, envelope.error, envelope.has_result, envelope.ambiguous_answer or shared, maker)


class Settlement(NamedTuple):
    """What the first successful `initialize` settled."""

    version: int
    asked: Initializing
    agent_name: str | None
    agent_version: str | None


def answered(connection: Connection, draft: Draft, request: Request, reply: Reply) -> Settlement | None:
    """Add the rows of an answer to that request; with what it settled, where it did."""
    subject = request.subject
    match subject:
        case Asking():
            decide(
                draft,
                request,
                subject,
                permission.decision_of(subject.question, reply.result, reply.error, ambiguous=reply.ambiguous),
                DECIDED_BY[reply.maker.origin],
                reply.maker,
            )
        case OpenTurn():
            _prompt_answered(connection, draft, subject, reply)
        case Opening():
            _opened(connection, draft, request, subject, reply)
        case Calling():
            _call_ended(draft, request, reply)
        case Initializing():
            return _initialized(connection, draft, subject, reply)
        case _:
            pass
    return None


def decide(
    draft: Draft,
    request: Request,
    asking: Asking,
    answer: permission.Answer,
    decided_by: DecidedBy,
    maker: Maker | None = None,
) -> None:
    """Add the decision of a question; one that nobody answered has no time of its own."""
    draft.observed = True
    if answer.offered is False:
        draft.anomaly("option_not_offered", answer.option_id, request.frame_seq)
    draft.rows.append(
        Decision(
            frame_seq=draft.seq,
            ordinal=draft.ordinal(Decision),
            protocol_revision=draft.revision,
            session_id=request.session_id,
            turn_id=request.turn_id,
            request_frame=request.frame_seq,
            outcome=answer.outcome,
            outcome_raw=answer.outcome_raw,
            option_id=answer.option_id,
            option_kind=answer.option_kind,
            option_kind_claimed=identity(maker.claimed) if maker and maker.claimed is not None else None,
            offered=answer.offered,
            effect=answer.effect,
            decided_by=decided_by,
            rule=maker.rule if maker else None,
            identity=maker.operator if maker else None,
            detail=asking.question.title,
            asked_at=asking.asked_at,
            decided_at=None if answer.outcome == "unanswered" else draft.at,
            lossy=asking.question.lossy,
        )
    )


def tell_unoffered(draft: Draft, envelope: Envelope, request: Request) -> None:
    """Say of an answer that the agent will not hear that it chose what its question never offered."""
    if isinstance(request.subject, Asking):
        answer = permission.decision_of(request.subject.question, envelope.result, envelope.error)
        if answer.offered is False:
            draft.anomaly("option_not_offered", answer.option_id, request.frame_seq)


def _prompt_answered(connection: Connection, draft: Draft, turn: OpenTurn, reply: Reply) -> None:
    # A turn may have ended before, with the agent's output; the answer then is a line we made.
    if not turn.ended and (reply.error is not None or connection.reading.ends_turn(reply.result)):
        end_turn(connection, draft, turn, turn_reading(reply.result, reply.error))


def end_turn(connection: Connection, draft: Draft, turn: OpenTurn, reading: TurnReading) -> None:
    """End a turn: its messages, the questions it leaves open, and the end itself.

    `text_bytes` is the size of the agent's messages that were written for this turn up to and including this number.
    """
    draft.observed = True
    session = turn.session
    draft.session_id, draft.turn_id = session.number, turn.turn_id
    connection.write_messages(draft, connection.transcript.end(session.number))
    connection.sessions.end_turn(turn)
    _flag_open_questions(connection, draft, turn)
    draft.rows.append(
        TurnEnd(
            frame_seq=draft.seq,
            ordinal=draft.ordinal(TurnEnd),
            protocol_revision=draft.revision,
            session_id=session.number,
            turn_id=turn.turn_id,
            stop_reason=reading.stop_reason,
            outcome=reading.outcome,
            error_code=reading.error_code,
            error_message=reading.error_message,
            text_bytes=turn.text_bytes,
            lossy=reading.lossy,
        )
    )


def _flag_open_questions(connection: Connection, draft: Draft, turn: OpenTurn) -> None:
    for request in connection.asked[TO_CLIENT].waiting():
        if not isinstance(request.subject, Asking) or request.session_id != turn.session.number:
            continue
        # A question asked while several turns were open belongs to the last of them that ends.
        unattributed = request.turn_id is None and request.subject.in_turn and not turn.session.turns
        if request.turn_id == turn.turn_id or unattributed:
            draft.anomaly("question_open_at_turn_end", related=request.frame_seq)


def _opened(connection: Connection, draft: Draft, request: Request, opening: Opening, reply: Reply) -> None:
    asked_for = connection.sessions.numbered(request.session_id)
    session = _session_opened(connection, draft, opening, asked_for, reply)
    if opening.replaying:
        end_replay(connection, opening, asked_for, session)
    if session is None:
        return
    draft.observed = True
    connection.sessions.opened = True
    result = reply.result if isinstance(reply.result, dict) else {}
    modes = v1.fields_of(result, "modes", draft.wrong)
    draft.rows.append(
        SessionOpening(
            frame_seq=draft.seq,
            ordinal=draft.ordinal(SessionOpening),
            protocol_revision=draft.revision,
            session_id=session.number,
            origin=opening.origin,
            request_frame=request.frame_seq,
            parent_acp_session_id=opening.parent,
            cwd=opening.cwd,
            current_mode=v1.word(modes, "currentModeId", draft.wrong),
            modes=v1.mode_ids(modes, draft.wrong),
            lossy=opening.lossy,
        )
    )


def _session_opened(
    connection: Connection, draft: Draft, opening: Opening, asked_for: SessionState | None, reply: Reply
) -> SessionState | None:
    """The session that an answer opened: a new one by the id in the result, an old one by the id that was asked for."""
    if reply.error is not None or not reply.has_result:
        return None
    if reply.result is not None and not isinstance(reply.result, dict):
        draft.wrong.append("result")
    if opening.origin in ("load", "resume"):
        return asked_for
    named = text_of(reply.result, "sessionId", draft.wrong)
    session = None if named is None else connection.sessions.see(named, draft)
    if session is not None:
        draft.session_id, draft.turn_id = session.number, None
    return session


def _call_ended(draft: Draft, request: Request, reply: Reply) -> None:
    draft.observed = True
    failed = reply.error is not None
    draft.rows.append(
        ClientCallEnd(
            frame_seq=draft.seq,
            ordinal=draft.ordinal(ClientCallEnd),
            protocol_revision=draft.revision,
            session_id=request.session_id,
            turn_id=request.turn_id,
            request_frame=request.frame_seq,
            answer="error" if failed else "result" if reply.has_result else "malformed",
            error_code=error_words(reply.error)[0] if failed else None,
        )
    )


def _initialized(connection: Connection, draft: Draft, asked: Initializing, reply: Reply) -> Settlement | None:
    draft.observed = True
    if reply.error is not None:
        return None
    version = version_of(reply.result)
    if version is None:
        draft.anomaly("version_unreadable")
        return None
    if connection.settled:
        draft.anomaly("initialize_repeated", str(version))
        return None
    if not reading_of(version).mapped:
        draft.anomaly("version_unmapped", str(version))
    # The draft of version 2 calls the same object `info`.
    info = v1.fields_of(reply.result, "agentInfo" if "agentInfo" in reply.result else "info", draft.wrong)
    return Settlement(version, asked, v1.word(info, "name", draft.wrong), v1.word(info, "version", draft.wrong))
