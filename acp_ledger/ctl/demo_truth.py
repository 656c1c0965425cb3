"""What the demo's script must have left in the ledger, row by row, and the comparison that decides about the demo.

What must not be broken here: the truth is written by hand from the script, never computed by the code it judges; rows
are compared whole and counted, so that a missing, an additional and a different row are all differences. Left out are
only columns that a clock or this machine decides. Numbers of frames are counted from the script's first line.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from acp_ledger.ctl import demo_agent

S, V1, RAW = demo_agent.SESSION_ID, "acp/v1", "acp/unnegotiated"
IN, OUT = "client_to_agent", "agent_to_client"
LOOK: Final = "The build directory holds one file, manifest.txt."
LEAVE: Final = "I will leave it alone."
STORY: Final = "Let me"
REMOVE: Final = "rm -rf build"


class Truth(NamedTuple):
    """The rows a table or view must hold for the demo's transport, in these columns and in this order."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def truth(cwd: str) -> tuple[Truth, ...]:
    """Give everything the script must have left; `cwd` is the directory it was played in."""
    return (
        _transport(),
        _session(cwd),
        _FRAMES,
        _TURNS,
        _CALLS,
        _DECISIONS,
        _OPTIONS,
        _MESSAGES,
        _COVERAGE,
        _TIMELINE,
        *_NONE,
    )


def _transport() -> Truth:
    columns = ("agent", "mode", "protocol_revision", "client", "agent_version", "exit_status", "frames")
    return Truth("audit_transports", columns, (("demo-agent", "relay", V1, "demo-editor", "1.0", 0, 24),))


def _session(cwd: str) -> Truth:
    columns = (
        *("session_id", "acp_session_id", "agent", "origin", "cwd", "protocol_revision", "turns", "tool_calls"),
        *("questions", "allowed", "rejected", "last_outcome", "continues"),
    )
    return Truth("audit_sessions", columns, ((1, S, "demo-agent", "new", cwd, V1, 3, 2, 1, 0, 1, "cancelled", None),))


_FRAME_COLUMNS: Final = (
    *("frame_seq", "protocol_revision", "session_id", "turn_id", "direction", "origin", "delivery", "kind", "method"),
    *("rpc_id", "phase", "session_update", "disposition", "terminated", "body_state"),
)


def _frame(number: int, line: str, *, turn: int | None = None) -> tuple[Any, ...]:
    """Spell a line of the script out as its row: direction, kind, method, id, session update, disposition."""
    way, kind, method, rpc_id, update, disposition = (None if word == "-" else word for word in line.split())
    session = 1 if number >= 4 else None  # noqa: PLR2004  # the session opens with the fourth line
    phase = "setup" if turn is None else "turn"
    revision = RAW if method == "initialize" else V1
    direction = IN if way == "->" else OUT
    start = (number, revision, session, turn, direction, "peer", "forward", kind, method, rpc_id, phase)
    return (*start, update, disposition, 1, "exact")


_FRAMES: Final = Truth(
    "frames",
    _FRAME_COLUMNS,
    (
        _frame(1, "-> request initialize 0 - observed"),
        _frame(2, "<- response initialize 0 - observed"),
        _frame(3, "-> request session/new 1 - observed"),
        _frame(4, "<- response session/new 1 - observed"),
        _frame(5, "-> request session/prompt 2 - observed", turn=1),
        _frame(6, "<- notification session/update - plan not_recorded", turn=1),
        _frame(7, "<- notification session/update - agent_message_chunk not_recorded", turn=1),
        _frame(8, "<- notification session/update - tool_call observed", turn=1),
        _frame(9, "<- notification session/update - tool_call_update observed", turn=1),
        _frame(10, "<- notification session/update - agent_message_chunk not_recorded", turn=1),
        _frame(11, "<- notification session/update - agent_message_chunk not_recorded", turn=1),
        _frame(12, "<- notification session/update - demo_weather not_recorded", turn=1),
        _frame(13, "<- response session/prompt 2 - observed", turn=1),
        _frame(14, "-> request session/prompt 3 - observed", turn=2),
        _frame(15, "<- notification session/update - tool_call observed", turn=2),
        _frame(16, "<- request session/request_permission 0 - observed", turn=2),
        _frame(17, "-> response session/request_permission 0 - observed", turn=2),
        _frame(18, "<- notification session/update - tool_call_update observed", turn=2),
        _frame(19, "<- notification session/update - agent_message_chunk not_recorded", turn=2),
        _frame(20, "<- response session/prompt 3 - observed", turn=2),
        _frame(21, "-> request session/prompt 4 - observed", turn=3),
        _frame(22, "<- notification session/update - agent_message_chunk not_recorded", turn=3),
        _frame(23, "-> notification session/cancel - - not_recorded", turn=3),
        _frame(24, "<- response session/prompt 4 - observed", turn=3),
    ),
)

_TURNS: Final = Truth(
    "audit_turns",
    (
        "turn_id",
        "session_id",
        "acp_session_id",
        "stop_reason",
        "outcome",
        "error_code",
        "tool_calls",
        "questions",
        "text_bytes",
    ),
    (
        (1, 1, S, "end_turn", "completed", None, 1, 0, len(LOOK)),
        (2, 1, S, "end_turn", "completed", None, 1, 1, len(LEAVE)),
        (3, 1, S, "cancelled", "cancelled", None, 0, 0, len(STORY)),
    ),
)

_CALLS: Final = Truth(
    "audit_tool_calls",
    (
        *("tool_call_id", "session_id", "turn_id", "kind", "title", "status", "status_raw", "asked"),
        *("decision_outcome", "decision_effect", "decided_by", "protocol_revision"),
    ),
    (
        ("call_1", 1, 1, "read", "Read build", "completed", "completed", 0, None, None, None, V1),
        ("call_2", 1, 2, "execute", REMOVE, "failed", "failed", 1, "selected", "reject", "client", V1),
    ),
)

_OFFERED: Final = "allow_once,allow_always,reject_once,reject_always"
_DECISIONS: Final = Truth(
    "audit_decisions",
    (
        *("frame_seq", "session_id", "turn_id", "acp_session_id", "tool_call_id", "tool_kind", "detail"),
        *("offered_kinds", "outcome", "option_id", "option_kind", "offered", "effect", "decided_by", "rule"),
    ),
    (
        (
            *(17, 1, 2, S, "call_2", "execute", REMOVE),
            *(_OFFERED, "selected", "reject-once", "reject_once", 1, "reject", "client", None),
        ),
    ),
)

_OPTIONS: Final = Truth(
    "permission_options",
    ("frame_seq", "ordinal", "option_id", "name", "kind"),
    (
        (16, 0, "allow-once", "Allow once", "allow_once"),
        (16, 1, "allow-always", "Always allow", "allow_always"),
        (16, 2, "reject-once", "Reject once", "reject_once"),
        (16, 3, "reject-always", "Always reject", "reject_always"),
    ),
)

_MESSAGES: Final = Truth(
    "messages",
    (
        "first_frame",
        "last_frame",
        "session_id",
        "turn_id",
        "stream",
        "message_id",
        "version",
        "text",
        "text_bytes",
        "truncated",
    ),
    (
        (7, 11, 1, 1, "agent", None, 1, LOOK, len(LOOK), 0),
        (19, 19, 1, 2, "agent", None, 1, LEAVE, len(LEAVE), 0),
        (22, 22, 1, 3, "agent", None, 1, STORY, len(STORY), 0),
    ),
)

_COVERAGE: Final = Truth(
    "audit_coverage",
    (
        "first_frame_seq",
        "last_frame_seq",
        "session_id",
        "direction",
        "word",
        "recorded_as",
        "count",
        "replayed",
        "protocol_revision",
    ),
    (
        (1, 1, None, IN, "initialize", "step", 1, 0, RAW),
        (2, 2, None, OUT, "initialize", "step", 1, 0, RAW),
        (3, 3, None, IN, "session/new", "step", 1, 0, V1),
        (4, 4, 1, OUT, "session/new", "step", 1, 0, V1),
        (5, 21, 1, IN, "session/prompt", "step", 3, 0, V1),
        (6, 6, 1, OUT, "plan", "frame only", 1, 0, V1),
        (7, 22, 1, OUT, "agent_message_chunk", "text kept", 5, 0, V1),
        (8, 15, 1, OUT, "tool_call", "step", 2, 0, V1),
        (9, 18, 1, OUT, "tool_call_update", "step", 2, 0, V1),
        (12, 12, 1, OUT, "demo_weather", "frame only", 1, 0, V1),
        (13, 24, 1, OUT, "session/prompt", "step", 3, 0, V1),
        (16, 16, 1, OUT, "session/request_permission", "step", 1, 0, V1),
        (17, 17, 1, IN, "session/request_permission", "step", 1, 0, V1),
        (23, 23, 1, IN, "session/cancel", "frame only", 1, 0, V1),
    ),
)

_TIMELINE: Final = Truth(
    "audit_timeline",
    ("frame_seq", "acp_session_id", "turn_id", "step", "call", "word", "detail", "protocol_revision"),
    (
        (5, S, 1, "prompted", None, "request", None, V1),
        (6, S, 1, "not_recorded", None, "plan", None, V1),
        (7, S, 1, "not_recorded", None, "agent_message_chunk", None, V1),
        (8, S, 1, "tool_call", "call_1", "pending", "Read build", V1),
        (9, S, 1, "tool_call", "call_1", "completed", None, V1),
        (10, S, 1, "not_recorded", None, "agent_message_chunk", None, V1),
        (11, S, 1, "not_recorded", None, "agent_message_chunk", None, V1),
        (12, S, 1, "not_recorded", None, "demo_weather", None, V1),
        (13, S, 1, "turn_ended", None, "completed", "end_turn", V1),
        (14, S, 2, "prompted", None, "request", None, V1),
        (15, S, 2, "tool_call", "call_2", "pending", REMOVE, V1),
        (16, S, 2, "question", "call_2", "execute", REMOVE, V1),
        (17, S, 2, "decision", "call_2", "reject", REMOVE, V1),
        (18, S, 2, "tool_call", "call_2", "failed", None, V1),
        (19, S, 2, "not_recorded", None, "agent_message_chunk", None, V1),
        (20, S, 2, "turn_ended", None, "completed", "end_turn", V1),
        (21, S, 3, "prompted", None, "request", None, V1),
        (22, S, 3, "not_recorded", None, "agent_message_chunk", None, V1),
        (23, S, 3, "not_recorded", None, "session/cancel", None, V1),
        (24, S, 3, "turn_ended", None, "cancelled", "cancelled", V1),
    ),
)

_NONE: Final = (
    Truth("audit_anomalies", ("frame_seq", "class", "detail"), ()),
    Truth("gaps", ("frame_seq", "cause", "count"), ()),
)
