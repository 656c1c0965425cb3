"""One connection, observed: lines and events in, numbered entries out.

What must not be broken here: every line and every event becomes exactly one entry under the next number, whatever is
in it (an `initialize` result that settles the revision brings a second one, `negotiated`); nothing here raises, waits,
or reads a clock; and what comes out follows from the stored bytes and the events alone, for the verifier calls this
same module with them and compares every derived row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acp_ledger.protocol.answers import Maker, Settlement, answered, reply_of, tell_unoffered
from acp_ledger.protocol.connection import OTHER_WAY, Connection
from acp_ledger.protocol.draft import ANOMALY_CLASSES as FOLLOWED_CLASSES
from acp_ledger.protocol.draft import Draft, Given
from acp_ledger.protocol.endings import happened
from acp_ledger.protocol.envelope import ANOMALY_CLASSES as LINE_CLASSES
from acp_ledger.protocol.envelope import DEFAULT_PARSE_BYTES, Envelope, id_key, identity, parse, projection, text_of
from acp_ledger.protocol.exchange import ANOMALY_OF_ASKED, ANOMALY_OF_VERDICT, Asked, Match, Request
from acp_ledger.protocol.records import (
    TO_AGENT,
    TO_CLIENT,
    BodyState,
    Delivery,
    Direction,
    Entry,
    Event,
    EventKind,
    Frame,
    Origin,
)
from acp_ledger.protocol.redaction import redact
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
from acp_ledger.protocol.revisions import reading_of
from acp_ledger.protocol.standing import OpenRequest, Standing, open_requests, standings
from acp_ledger.protocol.transcript import DEFAULT_TEXT_BYTES
from acp_ledger.protocol.updates import update

if TYPE_CHECKING:
    from collections.abc import KeysView, Sequence

    from acp_ledger.protocol.envelope import IdKey
    from acp_ledger.protocol.sessions import SessionState
    from acp_ledger.protocol.v1 import Fields


ANOMALY_CLASSES: Final[dict[str, str]] = {**LINE_CLASSES, **FOLLOWED_CLASSES}
"""Every class of anomaly a row can have, and what it means."""


class Observer:
    """The observer of one transport.

    `parse_bytes` and `text_bytes` are limits in bytes, fixed when the transport opens: another value gives other rows.
    """

    def __init__(self, *, parse_bytes: int = DEFAULT_PARSE_BYTES, text_bytes: int = DEFAULT_TEXT_BYTES) -> None:
        self._parse_bytes = parse_bytes
        self._connection = Connection(text_bytes)
        self._seq = 0

    @property
    def next_seq(self) -> int:
        """The number the next entry takes."""
        return self._seq + 1

    @property
    def revision(self) -> str:
        """The protocol revision the next line is read under."""
        return self._connection.reading.revision

    @property
    def sessions(self) -> KeysView[str]:
        """The agent's ids of the sessions seen so far, in order."""
        return self._connection.sessions.ids

    def open_requests(self, direction: Direction) -> tuple[OpenRequest, ...]:
        """The requests sent in that direction that wait for their answer, in the order of asking."""
        return open_requests(self._connection, direction)

    def read(self, body: bytes) -> Envelope:
        """What a line says, for whoever has to judge it before it is observed: nothing changes."""
        return parse(body, parse_bytes=self._parse_bytes)

    def waiting(self, direction: Direction, key: IdKey) -> Request | None:
        """The request sent in that direction that an answer under this id would belong to."""
        return self._connection.asked[direction].peek(key)

    def is_settled_here(self, direction: Direction, key: IdKey) -> bool:
        """Whether the last request sent in that direction under this id was answered by a line of our own."""
        exchange = self._connection.asked[direction]
        return exchange.peek(key) is None and exchange.is_settled_here(key)

    def standings(self) -> list[Standing]:
        """How every session stands now."""
        return standings(self._connection)

    def is_open(self, turn_id: int) -> bool:
        """Whether that turn has not ended."""
        return turn_id in self._connection.sessions.turns

    def is_cancelled(self, acp_session_id: str) -> bool:
        """Whether a turn is open in this session that its editor has cancelled."""
        return self._connection.sessions.is_cancelled(acp_session_id)

    def line(
        self,
        direction: Direction,
        body: bytes,
        at: int,
        *,
        envelope: Envelope | None = None,
        terminated: bool = True,
        origin: Origin = "peer",
        delivery: Delivery = "forward",
        byte_count: int | None = None,
        body_state: BodyState | None = None,
        rule: str | None = None,
        operator: str | None = None,
        marks: Sequence[Given] = (),
    ) -> tuple[Entry, ...]:
        """Observe one line, given without its newline, read at `at` (UTC microseconds).

        `envelope` is what `read` gave for it; `rule` is the policy's rule, `operator` the person, it was made for.

        A line that was stored before comes with its `body_state` and its `byte_count`, the length it was read with:
        it is mapped as it is. A line without a `body_state` is searched for secrets first.
        """
        if envelope is None:
            envelope = parse(body, parse_bytes=self._parse_bytes)
        if byte_count is None:
            byte_count = len(body)
        if body_state is None:
            body, body_state, envelope = self._kept(direction, body, envelope)
        draft = self._draft(at)
        settlement = self._read(draft, direction, envelope, Maker(origin, rule, operator), delivery)
        for class_, detail in envelope.anomalies:
            draft.anomaly(class_, detail)
        if draft.wrong:
            for field in dict.fromkeys(draft.wrong):
                draft.anomaly("wrong_type", field)
        if marks:
            draft.given(marks)
        frame = Frame(
            draft.seq,
            draft.revision,
            draft.session_id,
            draft.turn_id,
            direction,
            origin,
            delivery,
            envelope.kind,
            draft.method,
            None if envelope.id_token is None or envelope.kind == "opaque" else identity(envelope.id_token),
            draft.phase,
            draft.update_sequence,
            draft.session_update,
            "observed" if draft.observed else "not_recorded",
            at,
            byte_count,
            terminated,
            body_state,
        )
        entry = Entry(frame, tuple(draft.rows), body)
        return (entry,) if settlement is None else (entry, self._negotiated(settlement, at))

    def oversize(
        self, direction: Direction, at: int, *, length: int, prefix_digest: str, marks: Sequence[Given] = ()
    ) -> tuple[Entry, ...]:
        """Observe a line past the line limit: its length so far, and the digest of the prefix that was read.

        Its body is absent and it is withheld, for it ends its transport.
        """
        draft = self._draft(at)
        draft.anomaly("oversize", prefix_digest)
        draft.given(marks)
        frame = Frame(
            frame_seq=draft.seq,
            protocol_revision=draft.revision,
            session_id=None,
            turn_id=None,
            direction=direction,
            origin="peer",
            delivery="withhold",
            kind="opaque",
            method=None,
            rpc_id=None,
            phase=self._connection.sessions.phase(None),
            update_sequence=None,
            session_update=None,
            disposition="not_recorded",
            received_at=at,
            byte_count=length,
            terminated=False,
            body_state="absent",
        )
        return (Entry(frame, tuple(draft.rows), None),)

    def event(self, kind: EventKind, at: int, *, marks: Sequence[Given] = (), **fields: Any) -> tuple[Entry, ...]:
        """Observe an event at `at` (UTC microseconds), with the columns of `records.Event` that it tells.

        `negotiated` is not given: it comes by itself behind the line that settles the revision.
        """
        draft = self._draft(at)
        # Words of the system (a file's name, an agent's stderr) may hold what no database takes.
        told: dict[str, Any] = {
            name: projection(value)[0] if isinstance(value, str) else value for name, value in fields.items()
        }
        event = Event(draft.seq, draft.revision, kind, at, **told)
        happened(self._connection, draft, event)
        draft.given(marks)
        return (Entry(event, tuple(draft.rows), None),)

    def _draft(self, at: int) -> Draft:
        self._seq += 1
        return Draft(self._seq, self._connection.reading.revision, at)

    def _kept(self, direction: Direction, body: bytes, envelope: Envelope) -> tuple[bytes, BodyState, Envelope]:
        """The line as it is stored, without secrets, and as it is read then."""
        key = envelope.answers
        request = None if key is None else self._connection.asked[OTHER_WAY[direction]].peek(key)
        kept = redact(body, envelope, None if request is None else request.method)
        return (body, "exact", envelope) if kept is body else (kept, "redacted", self.read(kept))

    def _negotiated(self, settled: Settlement, at: int) -> Entry:
        """Read the connection from here on as was settled, and tell so."""
        self._connection.settled = True
        self._connection.reading = reading_of(settled.version)
        draft = self._draft(at)
        event = Event(
            draft.seq,
            draft.revision,
            "negotiated",
            at,
            requested_version=settled.asked.version,
            version=str(settled.version),
            client_name=settled.asked.client_name,
            client_version=settled.asked.client_version,
            agent_name=settled.agent_name,
            agent_version=settled.agent_version,
        )
        return Entry(event, (), None)

    def _read(
        self, draft: Draft, direction: Direction, envelope: Envelope, maker: Maker, delivery: Delivery
    ) -> Settlement | None:
        if envelope.kind == "response":
            return self._read_answer(draft, direction, envelope, maker, delivery)
        if envelope.kind == "opaque":
            self._read_opaque(draft, direction, envelope)
        else:
            self._read_call(draft, direction, envelope, delivery)
        return None

    def _read_call(self, draft: Draft, direction: Direction, envelope: Envelope, delivery: Delivery) -> None:
        """A request or a notification."""
        connection = self._connection
        method = envelope.method or ""
        draft.method = identity(method)
        params: Fields = envelope.params if isinstance(envelope.params, dict) else {}
        if params is not envelope.params and envelope.params is not None and is_known(direction, method):
            draft.wrong.append("params")
        is_update = direction == TO_CLIENT and method == "session/update"
        session = self._session(draft, params, update=is_update)
        if session is None and "sessionId" not in params and method in SESSION_METHODS:
            draft.anomaly("missing_session", method)
        if envelope.kind == "request":
            if delivery == "withhold" and self._is_taken(draft, direction, envelope):
                return
            if is_notification(method):
                draft.anomaly("unexpected_id", method)
                self._notified(direction, method, session)
            arrival = Arrival(method, params, session, delivery == "forward", envelope.parsed)
            subject = requested(connection, draft, direction, arrival)
            self._await_answer(draft, direction, envelope, subject, session)
        elif is_update:
            update(connection, draft, params, session, delivery)
        elif method == WITHDRAWAL:
            self._withdraw(draft, direction, params)
        else:
            self._notified(direction, method, session)
            if is_request(direction, method):
                draft.anomaly("missing_id", method)

    def _notified(self, direction: Direction, method: str, session: SessionState | None) -> None:
        if method == CANCEL and direction == TO_AGENT and session is not None:
            session.cancel()

    def _is_taken(self, draft: Draft, direction: Direction, envelope: Envelope) -> bool:
        """Whether another request waits under the id of one that nobody will hear: it takes nothing of its place."""
        first = None if envelope.id_key is None else self._connection.asked[direction].peek(envelope.id_key)
        if first is not None:
            draft.anomaly("duplicate_id", None, first.frame_seq)
        return first is not None

    def _withdraw(self, draft: Draft, direction: Direction, params: Fields) -> None:
        """A sender no longer wants an answer to a request of its own; it may get one all the same."""
        if "requestId" not in params:
            return
        request = self._connection.asked[direction].peek(id_key(params["requestId"]))
        if request is None:
            return
        self._about(draft, request)
        if isinstance(request.subject, Asking):
            draft.anomaly("question_cancelled", None, request.frame_seq)

    def _session(self, draft: Draft, params: Fields, *, update: bool) -> SessionState | None:
        """The session a frame names, with what it says about phase and turn."""
        sessions = self._connection.sessions
        named = text_of(params, "sessionId", draft.wrong)
        session = None if named is None else sessions.see(named, draft, update=update)
        if session is not None:
            draft.session_id = session.number
            if len(session.turns) == 1:
                draft.turn_id = session.turns[0].turn_id
        draft.phase = sessions.phase(session)
        return session

    def _await_answer(
        self,
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
            asked, first = self._connection.asked[direction].ask(envelope.id_key, request)
        if asked == "untracked":
            abandoned(self._connection, subject, session)
        anomaly = ANOMALY_OF_ASKED[asked]
        if anomaly is not None:
            draft.anomaly(anomaly, "waiting requests" if asked == "untracked" else None, first)

    def _read_answer(
        self, draft: Draft, direction: Direction, envelope: Envelope, maker: Maker, delivery: Delivery
    ) -> Settlement | None:
        """A response. One that is withheld settles nothing: the answer that is heard instead will."""
        connection = self._connection
        exchange = connection.asked[OTHER_WAY[direction]]
        key = envelope.answers
        request = None if key is None else exchange.peek(key)
        if request is not None:
            draft.method = request.method
            self._about(draft, request)
            if delivery == "withhold":
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

    def _about(self, draft: Draft, request: Request) -> None:
        """A line that names a request is about what that request was about."""
        sessions = self._connection.sessions
        draft.session_id, draft.turn_id = request.session_id, request.turn_id
        draft.phase = sessions.phase(sessions.numbered(request.session_id))

    def _read_opaque(self, draft: Draft, direction: Direction, envelope: Envelope) -> None:
        """A line nobody can classify, so it has no method and no id; every question it may have answered is named."""
        draft.phase = self._connection.sessions.phase(None)
        exchange = self._connection.asked[OTHER_WAY[direction]]
        for key in envelope.possible_answers:
            request = exchange.peek(key)
            if request is not None and isinstance(request.subject, Asking):
                draft.anomaly("ambiguous_answer", None, request.frame_seq)
