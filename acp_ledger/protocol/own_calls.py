"""The call that runs where we are the agent's client: what of the agent's ends it, and what joins its reply.

A call is one request of ours, from its line to its answer, or to the first line of the agent with which it cannot go
on. One runs at a time.

What must not be broken here: all of it follows from the stored lines and the limits, so that the verifier finds the
same rows; a call ends once, and a turn with it; and the sentences say what came, never what was in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from acp_ledger.protocol.answers import end_turn
from acp_ledger.protocol.client_side import REPLY_KIND, ClientLimits, Reply, update_fault
from acp_ledger.protocol.outcome import TurnReading
from acp_ledger.protocol.permission import METHOD as PERMISSION
from acp_ledger.protocol.records import TO_AGENT, Delivery, Direction, Overflow
from acp_ledger.protocol.updates import told, update
from acp_ledger.protocol.v1 import chunk_of

if TYPE_CHECKING:
    from acp_ledger.protocol.connection import Connection
    from acp_ledger.protocol.draft import Draft
    from acp_ledger.protocol.envelope import Envelope, IdKey
    from acp_ledger.protocol.sessions import SessionState
    from acp_ledger.protocol.v1 import Fields

_AROUND: Final = b" \t\r\n"
"""What does not count as part of a message: bytes around it on its line."""

_OPAQUE: Final[dict[str, str]] = {
    "invalid_utf8": "a line that is not UTF-8",
    "bom": "a line that starts with a byte order mark",
    "not_json": "a line that is not JSON",
    "constant": "a line with NaN or an Infinity, which JSON does not have",
    "trailing_data": "a line on which something follows the JSON value",
    "not_an_object": "a line that is no JSON object",
    "unparsed": "a line too big to be read whole, of which nobody can say what it is",
}
_UNCLEAR: Final = "a message that is neither a request, a notification nor an answer"


class _Call(NamedTuple):
    """A call that runs, by the id its answer will have and the frame of its request."""

    key: IdKey
    frame_seq: int
    session_id: int | None
    turn_id: int | None
    is_prompt: bool


class OwnCalls:
    """What is followed of our own calls on one connection.

    `fault` is what ended a call with the line observed last, as a sentence; `exhausted` says that an update came past
    the limit on their count; `reply` is what the newest prompt's answer has admitted.
    """

    __slots__ = ("_call", "_limits", "_size", "_wrong", "exhausted", "fault", "reply")

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._call: _Call | None = None
        self._size = 0
        self._wrong: str | None = None
        self.exhausted = False
        self.fault: str | None = None
        self.reply = Reply(limits)

    def arrives(self, body: bytes, byte_count: int) -> None:
        """A line is about to be read; `byte_count` is its length as it came, `body` what is stored of it."""
        self.fault = self._wrong = None
        self._size = byte_count - (len(body) - len(body.strip(_AROUND)))

    def update(
        self, connection: Connection, draft: Draft, envelope: Envelope, session: SessionState | None, delivery: Delivery
    ) -> None:
        """Read an update: one past a limit is named and takes no number, a malformed one takes its number."""
        params: Fields = envelope.params if isinstance(envelope.params, dict) else {}
        passed = self._passed(connection.updates)
        if passed is not None:
            self.exhausted = self.exhausted or connection.updates >= self._limits.update_count
            self._wrong = f"an update past a limit of ours ({passed})"
            draft.anomaly("oversize", passed)
            told(connection, draft, params, session, "withhold")
            return
        update(connection, draft, params, session, delivery)
        fault = update_fault(envelope.params)
        if fault is not None:
            self._wrong = f"a malformed `session/update`: {fault}"
        elif delivery == "forward" and params["update"]["sessionUpdate"] == REPLY_KIND:
            self._join(draft, envelope)

    def _passed(self, updates: int) -> str | None:
        """The limit that an update on this line passes behind so many others, and by what; the count is first."""
        if updates >= self._limits.update_count:
            return f"update_count: {self._limits.update_count} allowed"
        if self._size > self._limits.update_bytes:
            return f"update_bytes: {self._size} bytes, {self._limits.update_bytes} allowed"
        return None

    def _join(self, draft: Draft, envelope: Envelope) -> None:
        """Let a chunk of the prompted session join the reply; what is told again joins nothing."""
        call = self._call
        if call is None or not call.is_prompt or draft.session_id != call.session_id or draft.phase == "replay":
            return
        if envelope.unparsed:
            self._wrong = "a piece of its reply that is too big to be read whole"
            return
        kind = self.reply.admit(*chunk_of(envelope.params["update"], []))
        if kind is None:
            return
        self.reply.overflow = Overflow(
            frame_seq=draft.seq,
            ordinal=draft.ordinal(Overflow),
            protocol_revision=draft.revision,
            session_id=draft.session_id,
            turn_id=draft.turn_id,
            kind=kind,
            admitted_bytes=self.reply.admitted_bytes,
            admitted_segments=self.reply.segments,
            withheld_update_sequence=draft.update_sequence,
        )
        draft.rows.append(self.reply.overflow)

    def judge(
        self, connection: Connection, draft: Draft, direction: Direction, envelope: Envelope, delivery: Delivery
    ) -> None:
        """Begin a call with a request of ours; end the one that runs, by its answer or by a line it cannot survive."""
        if direction == TO_AGENT:
            if envelope.kind == "request" and envelope.id_key is not None and delivery == "forward":
                self._begin(draft, envelope.id_key)
        elif self._call is not None:
            wrong = self._wrong or self._ends(envelope, self._call)
            if wrong is not None:
                self._fail(connection, draft, self._call, wrong)

    def cut(self, connection: Connection, draft: Draft) -> None:
        """A line of the agent passed the line limit, so that nothing more is read."""
        self.fault = None
        if self._call is not None:
            self._fail(connection, draft, self._call, "a line past the line limit (line_bytes)")

    def _begin(self, draft: Draft, key: IdKey) -> None:
        is_prompt = draft.method == "session/prompt"
        if is_prompt:
            self.reply = Reply(self._limits)
        self._call = _Call(key, draft.seq, draft.session_id, draft.turn_id, is_prompt)

    def _ends(self, envelope: Envelope, call: _Call) -> str | None:
        """What is wrong with a line of the agent while a call runs; its answer ends the call, and is not wrong."""
        if envelope.kind == "opaque":
            return None if self._size == 0 else _of_opaque(envelope)
        if envelope.kind == "response":
            if envelope.answers == call.key:
                self._call = None
                return None
            return _of_response(envelope, call.key)
        if envelope.kind == "notification" and envelope.method == PERMISSION:
            return "a permission question without an id, which nothing can answer"
        return None

    def _fail(self, connection: Connection, draft: Draft, call: _Call, wrong: str) -> None:
        self._call = None
        self.fault = f"the agent sent {wrong}"
        named = draft.session_id, draft.turn_id
        draft.session_id, draft.turn_id = call.session_id, call.turn_id
        if named[0] is None:
            draft.phase = connection.sessions.phase(connection.sessions.numbered(call.session_id))
        draft.anomaly("call_failed", self.fault, call.frame_seq)
        turn = connection.sessions.turns.get(call.turn_id or 0)
        if turn is not None:
            end_turn(connection, draft, turn, TurnReading("protocol_error", error_message=self.fault))
        if named[0] is not None:
            draft.session_id, draft.turn_id = named


def _of_opaque(envelope: Envelope) -> str:
    return next((_OPAQUE[class_] for class_, _ in envelope.anomalies if class_ in _OPAQUE), _UNCLEAR)


def _of_response(envelope: Envelope, key: IdKey) -> str:
    if envelope.answers is None:
        return "an error that answers no request"
    if envelope.answers[0] != key[0]:
        return f"an answer whose id is of type {envelope.answers[0]}, where {key[1]} waits for one"
    return f"an answer with another id than {key[1]}, which waits for one"
