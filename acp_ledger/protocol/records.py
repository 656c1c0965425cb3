"""The rows of the ledger as plain facts: one immutable tuple type per table, in the order of its columns.

What must not be broken here: a field's name is a column's name (a trailing underscore is dropped), the order of the
fields is the order of the columns behind `transport_id`, and every field is in exactly one of the two digests:
`facts`, or, when it is listed in `ERASABLE`, `private`. Fields are only ever added at the end of a new table, for the
digests of rows already written cover the names of their columns.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

Direction: TypeAlias = Literal["agent_to_client", "client_to_agent"]
Origin: TypeAlias = Literal["peer", "daemon", "policy", "operator"]
Delivery: TypeAlias = Literal["forward", "withhold"]
FrameKind: TypeAlias = Literal["request", "notification", "response", "opaque"]
Phase: TypeAlias = Literal["setup", "turn", "between", "replay"]
Disposition: TypeAlias = Literal["observed", "not_recorded"]
BodyState: TypeAlias = Literal["exact", "redacted", "absent", "erased"]
EventKind: TypeAlias = Literal[
    "opened",
    "spawned",
    "negotiated",
    "eof",
    "read_error",
    "exited",
    "clock_step",
    "gap",
    "interrupted",
    "erased",
    "closed",
]
TurnOutcome: TypeAlias = Literal[
    "completed",
    "refused",
    "truncated",
    "cancelled",
    "auth_required",
    "failed",
    "protocol_error",
    "stream_ended",
    "transport_failed",
    "interrupted",
]
DecisionOutcome: TypeAlias = Literal["selected", "cancelled", "error", "malformed", "unanswered"]
Effect: TypeAlias = Literal["allow", "reject", "none", "unknown"]
DecidedBy: TypeAlias = Literal["client", "policy", "operator", "nobody"]

TO_CLIENT: Final = "agent_to_client"
TO_AGENT: Final = "client_to_agent"

UNNEGOTIATED: Final = "acp/unnegotiated"
"""The revision of everything up to and including the `initialize` result that settles one."""

NO_CONNECTION: Final = "acp/none"
"""The revision of rows that belong to no connection."""


class Frame(NamedTuple):
    """One line as it was read; the committer adds digests, salts and the body."""

    frame_seq: int
    protocol_revision: str
    session_id: int | None
    turn_id: int | None
    direction: Direction
    origin: Origin
    delivery: Delivery
    kind: FrameKind
    method: str | None
    rpc_id: str | None
    phase: Phase
    update_sequence: int | None
    session_update: str | None
    disposition: Disposition
    received_at: int
    byte_count: int
    terminated: bool
    body_state: BodyState


class Event(NamedTuple):
    """A fact of a transport that is not a line. Takes its number from the same sequence as frames."""

    frame_seq: int
    protocol_revision: str
    event: EventKind
    at: int
    direction: Direction | None = None
    pid: int | None = None
    start_time: int | None = None
    boot_id: str | None = None
    pgid: int | None = None
    cgroup: str | None = None
    requested_version: str | None = None
    version: str | None = None
    client_name: str | None = None
    client_version: str | None = None
    agent_name: str | None = None
    agent_version: str | None = None
    status: int | None = None
    signal: int | None = None
    stderr_tail: str | None = None
    close_reason: str | None = None
    detail: str | None = None


class Session(NamedTuple):
    """A conversation, at first sight on its transport."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int
    acp_session_id: str


class SessionOpening(NamedTuple):
    """An answered `session/new`, `session/load`, `session/resume` or `session/fork`."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int
    origin: Literal["new", "load", "resume", "fork"]
    request_frame: int
    parent_acp_session_id: str | None
    cwd: str | None
    current_mode: str | None
    modes: str | None
    lossy: bool


class Turn(NamedTuple):
    """A prompt turn. `session_turn` counts from 1 within its session."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int
    turn_id: int
    session_turn: int
    first_frame: int
    prompt_frame: int | None


class Prompt(NamedTuple):
    """What the user asked. `block_kinds` is a JSON array of the content blocks' types, in order."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int | None
    turn_id: int | None
    source: Literal["request", "chunk"]
    detail: str | None
    block_kinds: str | None
    lossy: bool


class ToolCallStep(NamedTuple):
    """An observed step of a tool call; `status` claims the least where the agent's word is unknown or missing."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int
    turn_id: int | None
    tool_call_id: str
    source: Literal["update", "permission"]
    status: str
    status_raw: str | None
    kind: str | None
    tool_name: str | None
    title: str | None
    lossy: bool


class ToolCallLocation(NamedTuple):
    """A path a tool call names."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int
    turn_id: int | None
    tool_call_id: str
    path: str
    line: int | None
    lossy: bool


class PermissionRequest(NamedTuple):
    """A question, whatever became of it."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int | None
    turn_id: int | None
    tool_call_id: str | None
    joined_call_id: str | None
    join_kind: Literal["exact", "inferred", "none"]
    title: str | None
    tool_kind: str | None
    tool_status: str | None
    option_count: int | None
    lossy: bool


class PermissionOption(NamedTuple):
    """An answer on offer, in the order of the offer."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int | None
    turn_id: int | None
    option_id: str | None
    name: str | None
    kind: str | None
    lossy: bool


class Decision(NamedTuple):
    """A question's first answer, or that none came before its transport ended."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int | None
    turn_id: int | None
    request_frame: int
    outcome: DecisionOutcome
    outcome_raw: str | None
    option_id: str | None
    option_kind: str | None
    option_kind_claimed: str | None
    offered: bool | None
    effect: Effect
    decided_by: DecidedBy
    rule: str | None
    identity: str | None
    detail: str | None
    asked_at: int
    decided_at: int | None
    lossy: bool


class TurnEnd(NamedTuple):
    """How a turn ended, in the agent's own word and in ours."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int
    turn_id: int
    stop_reason: str | None
    outcome: TurnOutcome
    error_code: int | None
    error_message: str | None
    text_bytes: int
    lossy: bool


class Message(NamedTuple):
    """A version of a message, its chunks joined with nothing between."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int
    turn_id: int | None
    stream: Literal["agent", "thought", "user"]
    message_id: str | None
    version: int
    cleared: bool
    truncated: bool
    text: str
    text_bytes: int
    first_frame: int
    last_frame: int
    lossy: bool


class ClientCall(NamedTuple):
    """A request of the agent to the editor other than a permission question; `target` is its path or command."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int | None
    turn_id: int | None
    method: str
    target: str | None
    lossy: bool


class ClientCallEnd(NamedTuple):
    """How the editor answered such a request."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int | None
    turn_id: int | None
    request_frame: int
    answer: Literal["result", "error", "malformed"]
    error_code: int | None


class Overflow(NamedTuple):
    """A reply stopped at a limit."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int | None
    turn_id: int | None
    kind: str
    admitted_bytes: int
    admitted_segments: int
    withheld_update_sequence: int | None


class Anomaly(NamedTuple):
    """A thing an auditor must know; `related_frame` is the other frame that shows it."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    session_id: int | None
    turn_id: int | None
    class_: str
    detail: str | None
    related_frame: int | None


class Gap(NamedTuple):
    """A time, or a number of lines, without a commit."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    cause: Literal["closed", "open", "refused", "terminal", "restart"]
    from_at: int
    to_at: int
    count: int | None  # type: ignore[assignment]  # the column is called so, and nobody counts the values of a row
    digest: str | None


class DeliveryMark(NamedTuple):
    """Everything of this direction up to `through_frame_seq` was written to the peer."""

    frame_seq: int
    ordinal: int
    protocol_revision: str
    direction: Direction
    through_frame_seq: int


Derived: TypeAlias = (
    Session
    | SessionOpening
    | Turn
    | Prompt
    | ToolCallStep
    | ToolCallLocation
    | PermissionRequest
    | PermissionOption
    | Decision
    | TurnEnd
    | Message
    | ClientCall
    | ClientCallEnd
    | Overflow
    | Anomaly
    | Gap
    | DeliveryMark
)
"""A row under the number of a frame or an event."""

TABLE_OF: Final[dict[type, str]] = {
    Frame: "frames",
    Event: "transport_events",
    Session: "sessions",
    SessionOpening: "session_openings",
    Turn: "turns",
    Prompt: "prompts",
    ToolCallStep: "tool_call_steps",
    ToolCallLocation: "tool_call_locations",
    PermissionRequest: "permission_requests",
    PermissionOption: "permission_options",
    Decision: "decisions",
    TurnEnd: "turn_ends",
    Message: "messages",
    ClientCall: "client_calls",
    ClientCallEnd: "client_call_ends",
    Overflow: "overflows",
    Anomaly: "anomalies",
    Gap: "gaps",
    DeliveryMark: "deliveries",
}

ERASABLE: Final[dict[str, frozenset[str]]] = {
    "transports": frozenset({"argv", "cwd", "label"}),
    "transport_events": frozenset({"stderr_tail", "detail"}),
    "session_openings": frozenset({"cwd"}),
    "prompts": frozenset({"detail"}),
    "tool_call_steps": frozenset({"title"}),
    "tool_call_locations": frozenset({"path"}),
    "permission_requests": frozenset({"title"}),
    "permission_options": frozenset({"name"}),
    "decisions": frozenset({"detail"}),
    "turn_ends": frozenset({"error_message"}),
    "messages": frozenset({"text"}),
    "client_calls": frozenset({"target"}),
    "anomalies": frozenset({"detail"}),
}
"""Columns an erasure blanks. Their digest is `private`, salted; all other columns are under `facts`."""


class Entry(NamedTuple):
    """A numbered record with every row it gives rise to: the unit that is committed whole or not at all.

    `body` is the line as it will be stored, without its newline: redacted where `record.body_state` says so, None
    for an event and for an absent body.
    """

    record: Frame | Event
    rows: tuple[Derived, ...]
    body: bytes | None
