"""The rows that questions to a ledger are answered with.

What must not be broken here: a type's fields are the columns of its audit view, in the order of the contract; a column
whose name is a word of Python has a trailing underscore.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Transport(NamedTuple):
    """A row of `audit_transports`: an agent process and its connection."""

    transport_id: int
    epoch: int
    agent: str | None
    mode: str
    host: str | None
    os_user: str | None
    label: str | None
    protocol_revision: str
    client: str | None
    agent_version: str | None
    opened_at: str
    closed_at: str | None
    close_reason: str | None
    exit_status: int | None
    frames: int


class AgentRun(NamedTuple):
    """An agent process: a row of `audit_transports`, and what became of it.

    `last_at` is the time of its last line or event, in UTC microseconds; `reported_name` the name it gives itself.
    """

    transport_id: int
    epoch: int
    agent: str | None
    mode: str
    host: str | None
    os_user: str | None
    label: str | None
    protocol_revision: str
    client: str | None
    agent_version: str | None
    opened_at: str
    closed_at: str | None
    close_reason: str | None
    exit_status: int | None
    frames: int
    last_at: int
    sessions: int
    turns: int
    pid: int | None
    signal: int | None
    stderr_tail: str | None
    reported_name: str | None


class Session(NamedTuple):
    """A row of `audit_sessions`: a conversation on one transport."""

    transport_id: int
    session_id: int
    acp_session_id: str
    agent: str | None
    origin: str | None
    cwd: str | None
    protocol_revision: str
    first_at: str
    last_at: str
    turns: int
    tool_calls: int
    questions: int
    allowed: int
    rejected: int
    last_outcome: str | None
    continues: int | None


class Turn(NamedTuple):
    """A row of `audit_turns`."""

    transport_id: int
    session_id: int
    turn_id: int
    acp_session_id: str
    started_at: str
    ended_at: str | None
    stop_reason: str | None
    outcome: str | None
    error_code: int | None
    tool_calls: int
    questions: int
    text_bytes: int | None
    protocol_revision: str


class ToolCall(NamedTuple):
    """A row of `audit_tool_calls`."""

    transport_id: int
    session_id: int
    turn_id: int | None
    tool_call_id: str
    kind: str | None
    title: str | None
    status: str
    status_raw: str | None
    first_at: str
    last_at: str
    asked: int
    decision_outcome: str | None
    decision_effect: str | None
    decided_by: str | None
    protocol_revision: str


class Decision(NamedTuple):
    """A row of `audit_decisions`: a question and its answer."""

    transport_id: int
    session_id: int | None
    turn_id: int | None
    frame_seq: int
    acp_session_id: str | None
    tool_call_id: str | None
    tool_kind: str | None
    detail: str | None
    offered_kinds: str | None
    outcome: str
    option_id: str | None
    option_kind: str | None
    offered: int | None
    effect: str | None
    decided_by: str | None
    rule: str | None
    asked_at: str
    decided_at: str | None
    waited_ms: int | None
    protocol_revision: str


class Coverage(NamedTuple):
    """A row of `audit_coverage`: what was done with one word of the wire."""

    transport_id: int
    session_id: int | None
    direction: str
    word: str
    recorded_as: str
    count: int  # type: ignore[assignment]  # the column is called so
    first_frame_seq: int
    last_frame_seq: int
    replayed: int
    protocol_revision: str


class Moment(NamedTuple):
    """A row of `audit_timeline`."""

    transport_id: int
    acp_session_id: str | None
    turn_id: int | None
    frame_seq: int
    at: str
    step: str
    call: str | None
    word: str | None
    detail: str | None
    protocol_revision: str


class Anomaly(NamedTuple):
    """A row of `audit_anomalies`. `class_` is the view's column `class`."""

    transport_id: int
    session_id: int | None
    frame_seq: int
    class_: str
    detail: str | None
    at: str
    protocol_revision: str


class LedgerEvent(NamedTuple):
    """A line, or a fact of a transport that is not one, in the order of their numbers.

    `event` is NULL for a line; of an event `kind` is NULL and `detail` has its words. `at` is UTC microseconds.
    """

    transport_id: int
    frame_seq: int
    at: int
    event: str | None
    direction: str | None
    origin: str | None
    delivery: str | None
    kind: str | None
    method: str | None
    rpc_id: str | None
    session_id: int | None
    turn_id: int | None
    phase: str | None
    session_update: str | None
    disposition: str | None
    byte_count: int | None
    body_state: str | None
    status: int | None
    signal: int | None
    close_reason: str | None
    detail: str | None
    protocol_revision: str


class FrameBody(NamedTuple):
    """One line whole: its row as the ledger has it, its bytes as stored, and every row under its number."""

    row: dict[str, Any]
    body: bytes | None
    derived: tuple[tuple[str, dict[str, Any]], ...]


class Message(NamedTuple):
    """A joined message. `at` is the microsecond of the line that ended it."""

    transport_id: int
    frame_seq: int
    session_id: int
    turn_id: int | None
    stream: str
    message_id: str | None
    version: int
    cleared: bool
    truncated: bool
    text: str | None
    text_bytes: int
    first_frame: int
    last_frame: int
    protocol_revision: str


class Gap(NamedTuple):
    """A time, or a number of lines, without a commit. Times are UTC microseconds."""

    transport_id: int
    frame_seq: int
    cause: str
    from_at: int
    to_at: int
    count: int | None  # type: ignore[assignment]  # the column is called so
    digest: str | None
    protocol_revision: str


class Facts(NamedTuple):
    """What a ledger is and how much it holds; `open_transports` have neither a closed nor an interrupted event."""

    ledger_id: str
    created_at: int
    compat: str
    revision: str
    transports: int
    open_transports: int
    sessions: int
    turns: int
    frames: int
    events: int
    questions: int
    decisions: int
    anomalies: int
    gaps: int


class Match(NamedTuple):
    """What an id, or the beginning of one, means. `kind` is `transport`, `session` or `tool call`."""

    kind: str
    transport_id: int
    session_id: int | None
    id: str
