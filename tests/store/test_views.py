"""The audit views say what the rows say, in the same words on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import text

from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT
from acp_ledger.store import views
from acp_ledger.store.recovery import close_open
from tests.support import seed
from tests.support.seed import START, Seed

if TYPE_CHECKING:
    from acp_ledger.store.ledger import Ledger

COLUMNS: Final = {
    "audit_transports": "transport_id, epoch, agent, mode, host, os_user, label, protocol_revision, client, "
    "agent_version, opened_at, closed_at, close_reason, exit_status, frames",
    "audit_sessions": "transport_id, session_id, acp_session_id, agent, origin, cwd, protocol_revision, first_at, "
    "last_at, turns, tool_calls, questions, allowed, rejected, last_outcome, continues",
    "audit_turns": "transport_id, session_id, turn_id, acp_session_id, started_at, ended_at, stop_reason, outcome, "
    "error_code, tool_calls, questions, text_bytes, protocol_revision",
    "audit_tool_calls": "transport_id, session_id, turn_id, tool_call_id, kind, title, status, status_raw, first_at, "
    "last_at, asked, decision_outcome, decision_effect, decided_by, protocol_revision",
    "audit_decisions": "transport_id, session_id, turn_id, frame_seq, acp_session_id, tool_call_id, tool_kind, detail, "
    "offered_kinds, outcome, option_id, option_kind, offered, effect, decided_by, rule, asked_at, decided_at, "
    "waited_ms, protocol_revision",
    "audit_coverage": "transport_id, session_id, direction, word, recorded_as, count, first_frame_seq, "
    "last_frame_seq, replayed, protocol_revision",
    "audit_timeline": "transport_id, acp_session_id, turn_id, frame_seq, at, step, call, word, detail, "
    "protocol_revision",
    "audit_anomalies": "transport_id, session_id, frame_seq, class, detail, at, protocol_revision",
}
"""The contract; never generated from the code."""


def _rows(ledger: Ledger, view: str, order: str) -> list[dict[str, Any]]:
    query = text(f"SELECT * FROM {view} ORDER BY {order}")  # noqa: S608  # names of ours
    return [dict(row) for row in ledger.reading().execute(query).mappings()]


@pytest.fixture
def told(ledger: Ledger, transport: int) -> int:
    """A transport with the whole conversation, whose end is open."""
    ledger.commit([(transport, seed.conversation())])
    return transport


def _at(number: float) -> str:
    micros = round(START + number * 1_000_000)
    assert START == 1_796_000_000_000_000
    seconds = micros // 1_000_000 - 1_796_000_000 + 20
    return f"2026-11-30T00:53:{seconds:02}.{micros % 1_000_000:06}Z"


def test_columns_are_the_contract(ledger: Ledger) -> None:
    """Names and order of every view's columns are as published, on both engines."""
    found = {name: ", ".join(ledger.reading().exec_driver_sql(f"SELECT * FROM {name}").keys()) for name in COLUMNS}  # noqa: S608  # names of ours
    assert found == COLUMNS
    assert views.view_names() == tuple(COLUMNS)


def test_transport_reads_as_it_ran(ledger: Ledger, told: int) -> None:
    """One row per agent process, open while nobody closed it."""
    (row,) = _rows(ledger, "audit_transports", "transport_id")
    assert row == {
        "transport_id": told,
        "epoch": told,
        "agent": "agent-x",
        "mode": "relay",
        "host": "laptop",
        "os_user": "mia",
        "label": '{"team":"core"}',
        "protocol_revision": "acp/v1",
        "client": "editor",
        "agent_version": "2",
        "opened_at": "2026-11-30T00:53:20.000000Z",
        "closed_at": None,
        "close_reason": None,
        "exit_status": None,
        "frames": 14,
    }


@pytest.mark.parametrize(("fields", "status"), [({"status": 3}, 3), ({"signal": 9}, 137)])
def test_closed_transport_says_how(ledger: Ledger, transport: int, fields: dict[str, int], status: int) -> None:
    """The exit status is the shell's: 128 and the signal for a process that was killed."""
    script = Seed("acp/unnegotiated")
    opened, exited = script.event("opened"), script.event("exited", **fields)
    closed = script.event("closed", close_reason="agent_exited")
    ledger.commit([(transport, [opened, exited, closed, script.event("erased")])])
    (row,) = _rows(ledger, "audit_transports", "transport_id")
    assert (row["exit_status"], row["close_reason"], row["closed_at"]) == (status, "agent_exited", _at(3))
    assert (row["protocol_revision"], row["client"], row["frames"]) == ("acp/unnegotiated", None, 0)


def test_session_sums_up_its_rows(ledger: Ledger, told: int) -> None:
    """Turns, calls, questions and their effects are counted from the rows of that session."""
    (row,) = _rows(ledger, "audit_sessions", "transport_id")
    assert row == {
        "transport_id": told,
        "session_id": 1,
        "acp_session_id": "sess-1",
        "agent": "agent-x",
        "origin": "new",
        "cwd": "/home/mia/src",
        "protocol_revision": "acp/v1",
        "first_at": _at(7),
        "last_at": _at(17),
        "turns": 2,
        "tool_calls": 1,
        "questions": 2,
        "allowed": 0,
        "rejected": 1,
        "last_outcome": "completed",
        "continues": None,
    }


@pytest.mark.parametrize(("origin", "agent", "continues"), [
    ("load", "agent-x", True),
    ("resume", "agent-x", True),
    ("new", "agent-x", False),
    ("fork", "agent-x", False),
    ("load", "agent-y", False),
])  # fmt: skip
def test_loaded_session_continues_an_earlier_one(
    ledger: Ledger,
    told: int,
    origin: str,
    agent: str,
    continues: bool,  # noqa: FBT001  # a parameter of the table
) -> None:
    """A session is continued where the same agent loaded or resumed the same id; equal ids alone mean nothing."""
    later = ledger.open_transport(seed.new_transport(agent=agent)).id
    ledger.commit([(later, seed.opening_entries(Seed(), origin))])
    row = _rows(ledger, "audit_sessions", "transport_id")[1]
    assert row["continues"] == (told if continues else None)


def test_turn_counts_what_happened_in_it(ledger: Ledger, told: int) -> None:
    """An ended turn has its reason and outcome, an open one neither."""
    first, second = _rows(ledger, "audit_turns", "turn_id")
    assert first == {
        "transport_id": told,
        "session_id": 1,
        "turn_id": 1,
        "acp_session_id": "sess-1",
        "started_at": _at(8),
        "ended_at": _at(15),
        "stop_reason": "end_turn",
        "outcome": "completed",
        "error_code": None,
        "tool_calls": 1,
        "questions": 1,
        "text_bytes": 5,
        "protocol_revision": "acp/v1",
    }
    assert (second["ended_at"], second["outcome"], second["tool_calls"], second["questions"]) == (None, None, 0, 1)


def test_tool_call_reads_as_its_last_word(ledger: Ledger, told: int) -> None:
    """A call shows the last status its agent named, and what became of the question about it."""
    assert _rows(ledger, "audit_tool_calls", "tool_call_id") == [
        {
            "transport_id": told,
            "session_id": 1,
            "turn_id": 1,
            "tool_call_id": "call-1",
            "kind": "execute",
            "title": "Run ls",
            "status": "failed",
            "status_raw": "failed",
            "first_at": _at(9),
            "last_at": _at(12),
            "asked": 1,
            "decision_outcome": "selected",
            "decision_effect": "reject",
            "decided_by": "client",
            "protocol_revision": "acp/v1",
        }
    ]


@pytest.mark.parametrize(("said", "status", "raw"), [
    ([None], "pending", None),
    ([None, "in_progress", None], "in_progress", "in_progress"),
    (["completed", None], "completed", "completed"),
    (["in_progress", "glowing"], "pending", "glowing"),
])  # fmt: skip
def test_status_is_the_last_one_that_was_named(
    ledger: Ledger, transport: int, said: list[str | None], status: str, raw: str | None
) -> None:
    """An update without a status changes none, and a word nobody knows reads pending."""
    script = Seed()
    ledger.commit([(transport, [script.update("tool_call_update", seed.step("", word)) for word in said])])
    (row,) = _rows(ledger, "audit_tool_calls", "tool_call_id")
    assert (row["status"], row["status_raw"], row["tool_call_id"], row["asked"]) == (status, raw, "", 0)


def test_two_steps_in_one_frame_read_as_the_later(ledger: Ledger, transport: int) -> None:
    """Steps of one call in one frame count in their order, and stay one call."""
    ledger.commit([(transport, [Seed().update("x", seed.step("c", "pending"), seed.step("c", "completed"))])])
    (row,) = _rows(ledger, "audit_tool_calls", "tool_call_id")
    assert row["status"] == "completed"


def test_decision_shows_question_and_answer(ledger: Ledger, told: int) -> None:
    """A decided question stands at its answer's number, an open one at its own, and claims no effect."""
    decided, waiting = _rows(ledger, "audit_decisions", "frame_seq")
    assert decided == {
        "transport_id": told,
        "session_id": 1,
        "turn_id": 1,
        "frame_seq": 11,
        "acp_session_id": "sess-1",
        "tool_call_id": "call-1",
        "tool_kind": "execute",
        "detail": "Run ls",
        "offered_kinds": "allow_once,reject_once",
        "outcome": "selected",
        "option_id": "no",
        "option_kind": "reject_once",
        "offered": 1,
        "effect": "reject",
        "decided_by": "client",
        "rule": None,
        "asked_at": _at(10),
        "decided_at": _at(12.5),
        "waited_ms": 2500,
        "protocol_revision": "acp/v1",
    }
    shown = ("frame_seq", "outcome", "effect", "decided_by", "asked_at", "decided_at", "waited_ms", "offered_kinds")
    assert [waiting[name] for name in shown] == [17, "open", None, None, _at(17), None, None, "allow_once"]


def test_unanswered_question_is_no_longer_open(ledger: Ledger, told: int) -> None:
    """When its transport has ended, a question nobody answered says so, and still claims nothing."""
    close_open(ledger, told, event="interrupted", at=START + 20_000_000, close_reason="daemon_lost")
    row = _rows(ledger, "audit_decisions", "frame_seq")[1]
    assert (row["outcome"], row["effect"], row["decided_by"]) == ("unanswered", "none", "nobody")
    assert (row["frame_seq"], row["decided_at"], row["waited_ms"]) == (18, None, None)
    turn = _rows(ledger, "audit_turns", "turn_id")[1]
    assert (turn["outcome"], turn["ended_at"]) == ("interrupted", _at(20))


def test_coverage_names_every_frame_once(ledger: Ledger, told: int) -> None:
    """Each word is a step, text that was kept, or a frame alone; the counts add up to the frames."""
    rows = _rows(ledger, "audit_coverage", "first_frame_seq")
    assert sum(row["count"] for row in rows) == 14
    found = {(row["direction"], row["word"]): row for row in rows}
    assert {key[1]: row["recorded_as"] for key, row in found.items() if row["session_id"] is not None} == {
        "session/new": "step",
        "session/prompt": "step",
        "tool_call": "step",
        "tool_call_update": "step",
        "session/request_permission": "step",
        "agent_message_chunk": "text kept",
        "weird_update": "frame only",
    }
    prompts = found[TO_AGENT, "session/prompt"]
    assert (prompts["count"], prompts["first_frame_seq"], prompts["last_frame_seq"]) == (2, 8, 16)
    assert prompts["transport_id"] == told


def test_replayed_text_is_not_called_kept(ledger: Ledger, transport: int) -> None:
    """What an agent told again is counted as replayed, and only live text is kept."""
    script = Seed()
    again = [script.update("agent_message_chunk", turn=None, phase="replay") for _ in range(3)]
    live = [script.update("agent_message_chunk"), script.update("agent_message_chunk")]
    opaque = script.frame(TO_CLIENT, kind="opaque", method=None, session_id=None, phase="between")
    unmapped = Seed("acp/v7", script.next).update("agent_message_chunk")
    ledger.commit([(transport, [*again, *live, opaque, unmapped])])
    rows = _rows(ledger, "audit_coverage", "first_frame_seq")
    assert [(row["word"], row["recorded_as"], row["count"], row["replayed"]) for row in rows] == [
        ("agent_message_chunk", "frame only", 3, 3),
        ("agent_message_chunk", "text kept", 2, 0),
        ("opaque", "frame only", 1, 0),
        ("agent_message_chunk", "frame only", 1, 0),
    ]


def test_timeline_tells_the_story(ledger: Ledger, told: int) -> None:
    """Steps in the order they were read, each with its word."""
    close_open(ledger, told, event="interrupted", at=START + 20_000_000, close_reason="daemon_lost")
    rows = [row for row in _rows(ledger, "audit_timeline", "frame_seq, step") if row["frame_seq"] > 7]
    assert [(row["frame_seq"], row["step"], row["call"], row["word"], row["detail"]) for row in rows] == [
        (8, "prompted", None, "request", None),
        (9, "tool_call", "call-1", "pending", "Run ls"),
        (10, "question", "call-1", "execute", "Run ls"),
        (11, "decision", "call-1", "reject", "Run ls"),
        (12, "tool_call", "call-1", "failed", None),
        (13, "not_recorded", None, "agent_message_chunk", None),
        (14, "not_recorded", None, "weird_update", None),
        (15, "turn_ended", None, "completed", "end_turn"),
        (16, "prompted", None, "request", None),
        (17, "question", None, "execute", "Run ls"),
        (18, "decision", None, "unanswered", "Run ls"),
        (18, "turn_ended", None, "interrupted", "the daemon died before this ended"),
    ]
    assert [row["at"] for row in rows[-2:]] == [_at(20), _at(20)]
    assert {row["acp_session_id"] for row in rows} == {"sess-1"}


def test_anomaly_of_an_event_has_its_time(ledger: Ledger, transport: int) -> None:
    """Anomalies come from frames and from events, and both say when."""
    script = Seed()
    entries = [
        script.event("clock_step", seed.anomaly("clock_step")),
        script.update("x", seed.anomaly("orphan", session_id=1)),
    ]
    ledger.commit([(transport, entries)])
    rows = _rows(ledger, "audit_anomalies", "frame_seq")
    assert [(row["class"], row["at"], row["session_id"]) for row in rows] == [
        ("clock_step", _at(1), None),
        ("orphan", _at(2), 1),
    ]


def test_time_has_six_digits(ledger: Ledger) -> None:
    """Microseconds are written out, zeros too, so that texts sort as times do."""
    ledger.open_transport(seed.new_transport(opened_at=START + 7))
    (row,) = _rows(ledger, "audit_transports", "transport_id")
    assert row["opened_at"] == "2026-11-30T00:53:20.000007Z"
