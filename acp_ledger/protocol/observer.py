"""One connection, observed: lines and events in, numbered entries out.

What must not be broken here: every line and every event becomes exactly one entry under the next number, whatever is
in it (an `initialize` result that settles the revision brings a second one, `negotiated`); nothing here raises, waits,
or reads a clock; and what comes out follows from the stored bytes and the events alone, for the verifier calls this
same module with them and compares every derived row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acp_ledger.protocol.answers import Maker, Settlement
from acp_ledger.protocol.client_side import ClientLimits, Reply
from acp_ledger.protocol.connection import OTHER_WAY, Connection
from acp_ledger.protocol.draft import ANOMALY_CLASSES as FOLLOWED_CLASSES
from acp_ledger.protocol.draft import Draft, Given
from acp_ledger.protocol.endings import happened
from acp_ledger.protocol.envelope import ANOMALY_CLASSES as LINE_CLASSES
from acp_ledger.protocol.envelope import DEFAULT_PARSE_BYTES, Envelope, identity, parse, projection
from acp_ledger.protocol.own_calls import OwnCalls
from acp_ledger.protocol.reading import read
from acp_ledger.protocol.records import (
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
from acp_ledger.protocol.revisions import reading_of
from acp_ledger.protocol.standing import OpenRequest, Standing, open_requests, standings
from acp_ledger.protocol.transcript import DEFAULT_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import KeysView, Sequence

    from acp_ledger.protocol.envelope import IdKey
    from acp_ledger.protocol.exchange import Request


ANOMALY_CLASSES: Final[dict[str, str]] = {**LINE_CLASSES, **FOLLOWED_CLASSES}
"""Every class of anomaly a row can have, and what it means."""

_NO_CLIENT: Final = ClientLimits(0, 0, 0, 0)


class Observer:
    """The observer of one transport.

    `parse_bytes` and `text_bytes` are limits in bytes, fixed when the transport opens: another value gives other rows.
    `client` are the limits of a transport whose client we are ourselves; None where an editor is.
    """

    def __init__(
        self,
        *,
        parse_bytes: int = DEFAULT_PARSE_BYTES,
        text_bytes: int = DEFAULT_TEXT_BYTES,
        client: ClientLimits | None = None,
    ) -> None:
        self._parse_bytes = parse_bytes
        self._connection = Connection(text_bytes)
        self._own = self._connection.own = None if client is None else OwnCalls(client)
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

    @property
    def fault(self) -> str | None:
        """What ended a call of ours with the line observed last, as a sentence for people; None where nothing did."""
        return None if self._own is None else self._own.fault

    @property
    def exhausted(self) -> bool:
        """Whether an update came past the limit on their count, which counts for the transport's whole life."""
        return self._own is not None and self._own.exhausted

    @property
    def reply(self) -> Reply:
        """What the answer to our newest prompt has admitted; an empty one before the first."""
        return Reply(_NO_CLIENT) if self._own is None else self._own.reply

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
        claimed: str | None = None,
        marks: Sequence[Given] = (),
    ) -> tuple[Entry, ...]:
        """Observe one line, given without its newline, read at `at` (UTC microseconds).

        `envelope` is what `read` gave for it; `rule` is the policy's rule, `operator` the person, it was made for;
        `claimed` the kind that the answering program says its option has.

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
        if self._own is not None:
            self._own.arrives(body, byte_count)
        maker = Maker(origin, rule, operator, claimed)
        settlement = read(self._connection, draft, direction, envelope, maker, delivery)
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
        draft.phase = self._connection.sessions.phase(None)
        if self._own is not None and direction == TO_CLIENT:
            self._own.cut(self._connection, draft)
        draft.given(marks)
        frame = Frame(
            frame_seq=draft.seq,
            protocol_revision=draft.revision,
            session_id=draft.session_id,
            turn_id=draft.turn_id,
            direction=direction,
            origin="peer",
            delivery="withhold",
            kind="opaque",
            method=None,
            rpc_id=None,
            phase=draft.phase,
            update_sequence=None,
            session_update=None,
            disposition="observed" if draft.observed else "not_recorded",
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
        if self._own is not None:
            self._own.fault = None
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
