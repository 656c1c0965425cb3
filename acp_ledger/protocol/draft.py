"""The rows a line or an event gives rise to, gathered under its number.

What must not be broken here: every row carries the number, the revision and the ordinal of its table in the order in
which it was added; nothing is added once the entry was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from acp_ledger.protocol.records import Anomaly, DeliveryMark, Derived, Gap, Message, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_ledger.protocol.transcript import Joined

Given: TypeAlias = DeliveryMark | Gap
"""Rows that nobody can derive: they are handed in, and take the number of the entry they are handed in with."""

ANOMALY_CLASSES: Final[dict[str, str]] = {
    "ambiguous_answer": "the line answers, or may answer, a request that cannot be told from others; related: that one",
    "bound_reached": "more of something than is followed; detail: what. The line itself is kept whole",
    "call_failed": "the agent sent what a call of ours cannot go on with; detail: what; related: the call's request",
    "clock_step": "wall clock and monotonic clock drifted apart by more than two seconds",
    "duplicate_id": "a request under the id of one that still waits; related: the first one",
    "initialize_repeated": "a further successful `initialize`: the first one settled the revision, this one nothing",
    "late_answer": "an answer to a request that was answered before; related: the first answer",
    "message_id_reused": "a message under the id of one that had ended; both are kept; related: its last frame",
    "missing_id": "a request of the protocol came without an id, so nothing can answer it; detail: the method",
    "missing_session": "a message of the protocol names no session, so no step is read from it; detail: the method",
    "option_id_repeated": "a question offers the same option id twice; the first offer counts; detail: the id",
    "option_not_offered": "an answer chose an option that its question never offered; related: the question",
    "orphan_response": "an answer to no request that is known to wait",
    "oversize": "a line past the line limit; detail: the digest of the prefix that was read. Or an update past a limit "
    "of ours as a client; detail: which",
    "question_cancelled": "the agent withdrew a question before its answer; related: the question",
    "question_open_at_turn_end": "a turn ended before the answer to a question asked in it; related: the question",
    "unexpected_id": "a notification of the protocol came with an id; it is read as a request of that name",
    "version_unmapped": "the negotiated version has no mapping: updates are kept and named, not read",
    "version_unreadable": "the `initialize` result has no readable integer version, so nothing is settled",
    "wrong_type": "a field of the wrong JSON type reads as absent; detail: the field",
}
"""Every class of anomaly that is found by following a connection; a line's own are in `envelope.ANOMALY_CLASSES`."""


class Draft:
    """What is known so far about one number. The fields are the columns that only the mapping can fill."""

    __slots__ = (
        "_ordinals",
        "at",
        "method",
        "observed",
        "phase",
        "revision",
        "rows",
        "seq",
        "session_id",
        "session_update",
        "turn_id",
        "update_sequence",
        "wrong",
    )

    def __init__(self, seq: int, revision: str, at: int) -> None:
        self.seq = seq
        self.revision = revision
        self.at = at
        self.session_id: int | None = None
        self.turn_id: int | None = None
        self.method: str | None = None
        self.phase: Phase = "setup"
        self.update_sequence: int | None = None
        self.session_update: str | None = None
        self.observed = False
        self.rows: list[Derived] = []
        self.wrong: list[str] = []
        self._ordinals: dict[type, int] = {}

    def ordinal(self, table: type) -> int:
        """The next ordinal of a table under this number, from 0."""
        ordinal = self._ordinals.get(table, 0)
        self._ordinals[table] = ordinal + 1
        return ordinal

    def anomaly(self, class_: str, detail: str | None = None, related: int | None = None) -> None:
        """Add an anomaly of the session and turn this draft is about."""
        ordinal = self.ordinal(Anomaly)
        self.rows.append(
            Anomaly(self.seq, ordinal, self.revision, self.session_id, self.turn_id, class_, detail, related)
        )

    def messages(self, ended: Sequence[Joined]) -> None:
        """Add messages that ended here."""
        for joined in ended:
            self.rows.append(
                Message(
                    frame_seq=self.seq,
                    ordinal=self.ordinal(Message),
                    protocol_revision=self.revision,
                    session_id=joined.session_id,
                    turn_id=joined.turn_id,
                    stream=joined.stream,
                    message_id=joined.message_id,
                    version=1,
                    cleared=False,
                    truncated=joined.truncated,
                    text=joined.text,
                    text_bytes=joined.text_bytes,
                    first_frame=joined.first_frame,
                    last_frame=joined.last_frame,
                    lossy=joined.lossy,
                )
            )
            if joined.earlier_frame is not None:
                self.anomaly("message_id_reused", joined.message_id, joined.earlier_frame)

    def given(self, rows: Sequence[Given]) -> None:
        """Add rows that were handed in, under this number."""
        for row in rows:
            ordinal = self.ordinal(type(row))
            self.rows.append(row._replace(frame_seq=self.seq, ordinal=ordinal, protocol_revision=self.revision))
