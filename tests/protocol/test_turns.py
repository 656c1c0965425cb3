"""Turns: where they begin and end, what belongs to them, and what they leave open."""

from __future__ import annotations

from typing import Any

import pytest

from acp_ledger.protocol.records import (
    TO_AGENT,
    TO_CLIENT,
    ClientCall,
    ClientCallEnd,
    Decision,
    Message,
    Prompt,
    ToolCallStep,
    Turn,
    TurnEnd,
)
from tests.protocol.wire import (
    SESSION,
    call,
    chunk,
    ended,
    error,
    note,
    opened,
    prompt,
    prompted,
    question,
    result,
    selected,
    update,
)


class TestTurns:
    """From a prompt to its answer."""

    def test_prompt_opens_a_turn(self) -> None:
        """The prompt's own frame is the turn's first, and its blocks are named by kind."""
        wire = opened()
        blocks = [{"type": "text", "text": "see"}, {"type": "image", "data": ""}, {"text": "no type"}]
        frame = wire.client(call(1, "session/prompt", sessionId=SESSION, prompt=blocks))
        assert (frame.phase, frame.turn_id, frame.disposition) == ("turn", 1, "observed")
        (turn,) = wire.rows(Turn)
        assert (turn.turn_id, turn.session_turn, turn.first_frame, turn.prompt_frame) == (1, 1, 6, 6)
        (row,) = wire.rows(Prompt)
        assert (row.source, row.turn_id, row.detail, row.block_kinds) == ("request", 1, None, '["text","image",null]')

    def test_phase_runs_from_prompt_to_answer(self) -> None:
        """The prompt and its answer are inside the turn; what comes after the answer is between turns."""
        wire = prompted()
        phases = [
            wire.agent(chunk("a")).phase,
            wire.client(note("session/cancel", sessionId=SESSION)).phase,
            wire.agent(ended("p1")).phase,
            wire.agent(update("session_info_update")).phase,
            wire.client(prompt("p2")).phase,
        ]
        assert phases == ["turn", "turn", "turn", "between", "turn"]

    def test_update_after_the_answer_has_no_turn(self) -> None:
        """Agents send updates after a turn's end; they are recorded, between turns."""
        wire = prompted()
        wire.agent(ended("p1"))
        frame = wire.agent(update("tool_call_update", toolCallId="late", status="completed"))
        assert (frame.turn_id, frame.phase) == (None, "between")
        assert [row.turn_id for row in wire.rows(ToolCallStep)] == [None]

    def test_turns_count_within_their_session(self) -> None:
        """A turn has one number in its transport and one in its session."""
        wire = opened()
        for id_, session in ((1, SESSION), (2, "two"), (3, SESSION)):
            wire.client(prompt(id_, session))
            wire.agent(ended(id_))
        assert [(row.turn_id, row.session_turn) for row in wire.rows(Turn)] == [(1, 1), (2, 1), (3, 2)]

    @pytest.mark.parametrize(
        ("answer", "outcome", "stop_reason", "code"),
        [
            (ended("p1"), "completed", "end_turn", None),
            (ended("p1", "refusal"), "refused", "refusal", None),
            (ended("p1", "max_tokens"), "truncated", "max_tokens", None),
            (ended("p1", "cancelled"), "cancelled", "cancelled", None),
            (ended("p1", "teleported"), "protocol_error", "teleported", None),
            (result("p1", {}), "protocol_error", None, None),
            (result("p1", None), "protocol_error", None, None),
            (error("p1", -32800), "cancelled", None, -32800),
            (error("p1", -32000), "auth_required", None, -32000),
            (error("p1", 401), "failed", None, 401),
        ],
    )
    def test_answer_ends_the_turn(self, answer: bytes, outcome: str, stop_reason: str | None, code: int | None) -> None:
        """Result or error, understood or not: an answered prompt is an ended turn."""
        wire = prompted()
        wire.agent(answer)
        (row,) = wire.rows(TurnEnd)
        assert (row.turn_id, row.outcome, row.stop_reason, row.error_code) == (1, outcome, stop_reason, code)

    def test_two_open_prompts_leave_updates_without_a_turn(self) -> None:
        """Nobody can say which of two open prompts an update belongs to; the answers name their own."""
        wire = prompted()
        wire.agent(chunk("one's "))
        wire.client(prompt("p2"))
        unattributed = wire.agent(chunk("whose?"))
        assert (unattributed.turn_id, unattributed.phase) == (None, "turn")
        assert wire.agent(update("tool_call", toolCallId="c", title="T")).turn_id is None
        assert wire.agent(ended("p1")).turn_id == 1
        assert wire.agent(chunk("two's")).turn_id == 2
        assert wire.agent(ended("p2")).turn_id == 2
        assert [(row.turn_id, row.text_bytes) for row in wire.rows(TurnEnd)] == [(1, 12), (2, 5)]

    def test_answer_of_a_second_prompt_may_come_first(self) -> None:
        """Turns end in the order of their answers."""
        wire = prompted()
        wire.client(prompt("p2"))
        wire.agent(ended("p2", "cancelled"))
        wire.agent(ended("p1"))
        assert [row.turn_id for row in wire.rows(TurnEnd)] == [2, 1]

    def test_prompt_that_is_never_answered_ends_with_the_stream(self) -> None:
        """An agent may drop a second prompt for good; the end of its output ends the turn."""
        wire = prompted()
        wire.client(prompt("p2"))
        wire.agent(ended("p1"))
        wire.event("eof", direction=TO_CLIENT)
        assert [(row.turn_id, row.outcome) for row in wire.rows(TurnEnd)] == [(1, "completed"), (2, "stream_ended")]

    def test_live_user_chunk_is_a_prompt_without_a_turn(self) -> None:
        """The user's words may come back as a chunk: evidence of a prompt, and text of a message."""
        wire = opened()
        frame = wire.agent(update("user_message_chunk", content={"type": "text", "text": "do"}, title="A title"))
        assert (frame.disposition, frame.turn_id) == ("observed", None)
        (row,) = wire.rows(Prompt)
        assert (row.source, row.detail, row.block_kinds) == ("chunk", "A title", None)
        assert wire.rows(Turn) == []
        wire.event("closed")
        assert [(row.stream, row.text) for row in wire.rows(Message)] == [("user", "do")]


class TestEnds:
    """Ends that no answer tells."""

    @pytest.mark.parametrize(
        ("event", "fields", "outcome", "words"),
        [
            ("eof", {"direction": TO_CLIENT}, "stream_ended", None),
            ("read_error", {"direction": TO_CLIENT, "detail": "EIO"}, "transport_failed", "EIO"),
            ("closed", {}, "stream_ended", None),
            ("interrupted", {}, "interrupted", None),
        ],
    )
    def test_event_ends_open_turns(self, event: Any, fields: dict[str, Any], outcome: str, words: str | None) -> None:
        """The end of the agent's output, of reading it, or of the transport ends every open turn, once."""
        wire = prompted()
        wire.client(prompt("p2", "two"))
        entry = wire.event(event, **fields)
        ends = wire.rows(TurnEnd)
        assert [(row.turn_id, row.outcome, row.error_message) for row in ends] == [
            (1, outcome, words),
            (2, outcome, words),
        ]
        assert {row.frame_seq for row in ends} == {entry.record.frame_seq}
        wire.event("closed")
        assert len(wire.rows(TurnEnd)) == 2

    @pytest.mark.parametrize("event", ["eof", "read_error"])
    def test_end_of_the_editor_ends_no_turn(self, event: Any) -> None:
        """The agent goes on, and may still answer."""
        wire = prompted()
        wire.event(event, direction=TO_AGENT)
        wire.event("exited", status=0)
        assert wire.rows(TurnEnd) == []

    def test_line_of_our_own_answers_the_editor(self) -> None:
        """The error the daemon sends for an open prompt ends its turn when nothing else did."""
        wire = prompted()
        wire.agent(error("p1", -32603, "the ledger is full"), origin="daemon")
        (row,) = wire.rows(TurnEnd)
        assert (row.outcome, row.error_code, row.error_message) == ("failed", -32603, "the ledger is full")
        assert wire.observer.open_requests(TO_AGENT) == ()

    def test_turn_ends_once(self) -> None:
        """After the stream ended, our own answer closes the request and not the turn again."""
        wire = prompted()
        wire.event("eof", direction=TO_CLIENT)
        wire.agent(error("p1", -32603), origin="daemon")
        assert [row.outcome for row in wire.rows(TurnEnd)] == ["stream_ended"]
        assert wire.observer.open_requests(TO_AGENT) == ()

    def test_close_leaves_nothing_open(self) -> None:
        """Questions are unanswered, turns ended and messages written, in that order, under the closing event."""
        wire = prompted()
        wire.agent(chunk("half"))
        wire.agent(question(0, title="T"))
        entry = wire.event("closed", close_reason="agent_exited")
        assert [type(row) for row in entry.rows] == [Decision, Message, TurnEnd]
        (decision,) = wire.rows(Decision)
        assert (decision.outcome, decision.effect, decision.decided_by) == ("unanswered", "none", "nobody")
        assert (decision.request_frame, decision.asked_at, decision.decided_at) == (8, 8, None)
        assert decision.detail == "T"
        assert wire.observer.open_requests(TO_CLIENT) == ()

    def test_interruption_writes_no_open_message(self) -> None:
        """After a crash the text that was in memory has no row, and a turn's size counts what was written."""
        wire = prompted()
        wire.agent(chunk("first", message_id="a"))
        wire.agent(chunk("second", message_id="b"))
        wire.agent(question(0))
        entry = wire.event("interrupted")
        assert [type(row) for row in entry.rows] == [Decision, TurnEnd]
        assert [row.text for row in wire.rows(Message)] == ["first"]
        assert [row.text_bytes for row in wire.rows(TurnEnd)] == [5]


class TestMessages:
    """Messages and the turns they belong to."""

    def test_message_ends_with_its_turn(self) -> None:
        """The answer's own entry holds the message."""
        wire = prompted()
        wire.agent(chunk("Good "))
        wire.agent(chunk("morning"))
        wire.agent(ended("p1"))
        (row,) = wire.rows(Message)
        assert (row.frame_seq, row.text, row.first_frame, row.last_frame) == (9, "Good morning", 7, 8)
        assert (row.stream, row.turn_id, row.version, row.cleared) == ("agent", 1, 1, False)
        assert [end.text_bytes for end in wire.rows(TurnEnd)] == [12]

    def test_greeting_is_not_part_of_the_turn(self) -> None:
        """Text before any prompt belongs to no turn, and a turn's text does not continue it."""
        wire = opened()
        wire.agent(chunk("Welcome"))
        wire.client(prompt("p1"))
        wire.agent(chunk("Done"))
        wire.agent(ended("p1"))
        assert [(row.turn_id, row.text) for row in wire.rows(Message)] == [(None, "Welcome"), (1, "Done")]
        assert [row.text_bytes for row in wire.rows(TurnEnd)] == [4]

    def test_streams_do_not_end_each_other(self) -> None:
        """A thought between two chunks of an answer leaves the answer one message."""
        wire = prompted()
        wire.agent(chunk("to"))
        wire.agent(chunk("hm", kind="agent"))
        wire.agent(update("agent_thought_chunk", content={"type": "text", "text": "think"}))
        wire.agent(chunk("gether"))
        wire.agent(ended("p1"))
        assert [(row.stream, row.text) for row in wire.rows(Message)] == [("agent", "tohmgether"), ("thought", "think")]

    def test_thoughts_are_no_text_of_the_turn(self) -> None:
        """A turn's size is that of the agent's answers."""
        wire = prompted()
        wire.agent(update("agent_thought_chunk", content={"type": "text", "text": "think"}))
        wire.agent(ended("p1"))
        assert [row.text_bytes for row in wire.rows(TurnEnd)] == [0]

    def test_withheld_chunk_joins_nothing(self) -> None:
        """What never reached the editor is no part of what it was told."""
        wire = prompted()
        wire.agent(chunk("told"))
        wire.agent(chunk(" kept back"), delivery="withhold")
        wire.agent(ended("p1"))
        assert [row.text for row in wire.rows(Message)] == ["told"]

    def test_reused_message_id_is_told(self) -> None:
        """An id that comes back after its message had ended is a message of its own, with a finger on the first."""
        wire = prompted()
        for text, message_id in (("a", "m1"), ("b", "m2"), ("c", "m1")):
            wire.agent(chunk(text, message_id=message_id))
        wire.agent(ended("p1"))
        assert [(row.message_id, row.text) for row in wire.rows(Message)] == [("m1", "a"), ("m2", "b"), ("m1", "c")]
        assert wire.anomalies() == [("message_id_reused", 7)]


class TestClientCalls:
    """What the agent asks of its editor besides permission."""

    @pytest.mark.parametrize(
        ("method", "params", "target"),
        [
            ("fs/read_text_file", {"path": "/a b"}, "/a b"),
            ("fs/write_text_file", {"path": "/a", "content": "x"}, "/a"),
            ("terminal/create", {"command": "npm test"}, "npm test"),
            ("terminal/create", {"command": "sh", "args": ["-c", "rm -rf 'x'"]}, "sh -c 'rm -rf '\"'\"'x'\"'\"''"),
            ("terminal/output", {"terminalId": "t"}, None),
            ("elicitation/create", {"message": "name?", "mode": "form"}, None),
        ],
    )
    def test_call_and_its_end(self, method: str, params: dict[str, Any], target: str | None) -> None:
        """A call is recorded with what it is about, its end with how it was answered."""
        wire = prompted()
        assert wire.agent(call(0, method, sessionId=SESSION, **params)).disposition == "observed"
        assert wire.client(result(0, None)).disposition == "observed"
        (row,) = wire.rows(ClientCall)
        assert (row.method, row.target, row.turn_id) == (method, target, 1)
        (end,) = wire.rows(ClientCallEnd)
        assert (end.request_frame, end.answer, end.error_code) == (7, "result", None)

    def test_failed_call_keeps_its_code(self) -> None:
        """A refusal of the editor is an end like any other."""
        wire = prompted()
        wire.agent(call(0, "fs/read_text_file", sessionId=SESSION, path="/a"))
        wire.client(error(0, -32002))
        assert [(row.answer, row.error_code) for row in wire.rows(ClientCallEnd)] == [("error", -32002)]

    def test_notification_is_no_call(self) -> None:
        """`elicitation/complete` asks for nothing."""
        wire = prompted()
        wire.agent(note("elicitation/complete", elicitationId="e"))
        assert wire.rows(ClientCall) == []
        assert wire.anomalies() == []

    def test_editor_calls_are_none(self) -> None:
        """The same words in the other direction are not the agent's."""
        wire = prompted()
        wire.client(call(0, "terminal/cancel", sessionId=SESSION))
        assert wire.rows(ClientCall) == []


class TestIds:
    """Answers and the requests they belong to."""

    def test_same_id_lives_in_both_directions(self) -> None:
        """Both sides count from zero."""
        wire = opened()
        wire.client(prompt(0))
        wire.agent(question(0))
        wire.client(selected(0, "yes"))
        wire.agent(ended(0))
        assert [row.outcome for row in wire.rows(Decision)] == ["selected"]
        assert [row.outcome for row in wire.rows(TurnEnd)] == ["completed"]
        assert wire.anomalies() == []

    def test_agent_cannot_answer_its_own_question(self) -> None:
        """An answer belongs to a request of the other side."""
        wire = prompted()
        wire.agent(question(7))
        wire.agent(selected(7, "yes"))
        assert wire.rows(Decision) == []
        assert wire.anomalies() == [("orphan_response", None)]

    @pytest.mark.parametrize(("asked", "echoed"), [(1, b"1.0"), (100, b"1e2"), ("é", b'"\\u00e9"')])
    def test_equal_ids_meet_however_they_are_written(self, asked: object, echoed: bytes) -> None:
        """An id is known by its value."""
        wire = opened()
        wire.client(prompt(asked))
        wire.agent(b'{"jsonrpc":"2.0","id":' + echoed + b',"result":{"stopReason":"end_turn"}}')
        assert len(wire.rows(TurnEnd)) == 1

    @pytest.mark.parametrize(("asked", "echoed"), [(1, "1"), (2**53 + 1, 2**53), (0, None), (0, False), ("", None)])
    def test_other_ids_do_not_meet(self, asked: object, echoed: object) -> None:
        """An id of another type or value answers nothing."""
        wire = opened()
        wire.client(prompt(asked))
        wire.agent(ended(echoed))
        assert wire.rows(TurnEnd) == []
        assert ("orphan_response", None) in wire.anomalies()

    def test_second_answer_is_late(self) -> None:
        """The first answer counts; the second points to it."""
        wire = prompted()
        wire.agent(question(0))
        wire.client(selected(0, "no"))
        wire.client(selected(0, "yes"))
        assert [row.effect for row in wire.rows(Decision)] == ["reject"]
        assert wire.anomalies() == [("late_answer", 8)]

    def test_reused_id_is_a_new_request(self) -> None:
        """After its answer an id is free again."""
        wire = opened()
        for _ in range(2):
            wire.client(prompt(0))
            wire.agent(ended(0))
        assert len(wire.rows(TurnEnd)) == 2
        assert wire.anomalies() == []

    def test_error_without_an_id_answers_nothing(self) -> None:
        """Agents answer unreadable lines that way; no request is touched by it."""
        wire = prompted()
        wire.agent(b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}')
        wire.agent(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}')
        assert wire.rows(TurnEnd) == []
        assert wire.anomalies() == [("no_id", None), ("orphan_response", None)]

    def test_answer_without_content_ends_what_it_answers(self) -> None:
        """Under an id somebody waits for, neither result nor error is a protocol error, and no approval."""
        wire = prompted()
        wire.agent(question("q"))
        wire.client(b'{"jsonrpc":"2.0","id":"q"}')
        wire.agent(b'{"jsonrpc":"2.0","id":"p1"}')
        (decision,) = wire.rows(Decision)
        assert (decision.outcome, decision.effect) == ("malformed", "unknown")
        (end,) = wire.rows(TurnEnd)
        assert (end.outcome, end.stop_reason) == ("protocol_error", None)
        assert [class_ for class_, _ in wire.anomalies()] == ["shapeless", "shapeless"]

    def test_duplicate_id_is_told_and_answered_in_order(self) -> None:
        """Two prompts under one id: the first keeps its place, and both answers are told as ambiguous."""
        wire = prompted()
        wire.client(prompt("p1"))
        wire.agent(ended("p1"))
        wire.agent(ended("p1", "cancelled"))
        assert [(row.turn_id, row.outcome) for row in wire.rows(TurnEnd)] == [(1, "completed"), (2, "cancelled")]
        assert wire.anomalies() == [("duplicate_id", 6), ("ambiguous_answer", 7), ("ambiguous_answer", 6)]

    def test_withheld_answer_answers_nothing(self) -> None:
        """The editor's answer was kept back; what the agent heard instead is the decision."""
        wire = prompted()
        wire.agent(question(0))
        frame = wire.client(selected(0, "maybe"), delivery="withhold")
        assert (frame.method, frame.turn_id, frame.disposition) == ("session/request_permission", 1, "not_recorded")
        wire.client(result(0, {"outcome": {"outcome": "cancelled"}}), origin="policy")
        (row,) = wire.rows(Decision)
        assert (row.frame_seq, row.outcome, row.decided_by) == (9, "cancelled", "policy")

    def test_error_beside_a_result_wins(self) -> None:
        """A null error counts as absent."""
        wire = prompted()
        wire.client(prompt("p2"))
        body = b'{"jsonrpc":"2.0","id":"p1","result":{"stopReason":"end_turn"},"error":{"code":-32603,"message":"x"}}'
        wire.agent(body)
        wire.agent(b'{"jsonrpc":"2.0","id":"p2","result":{"stopReason":"end_turn"},"error":null}')
        assert [row.outcome for row in wire.rows(TurnEnd)] == ["failed", "completed"]
        assert ("null_error", None) in wire.anomalies()


def test_bound_on_waiting_requests_is_told() -> None:
    """A request that cannot wait is recorded and relayed; its answer is an orphan, and a load opens no window."""
    wire = opened()
    for number in range(4_096):
        wire.client(call(number, "_slow/request"))
    wire.client(call("one more", "session/load", sessionId="s", cwd="/", mcpServers=[]))
    assert wire.anomalies() == [("bound_reached", None)]
    assert wire.agent(chunk("live", session="s")).phase == "between"
    wire.agent(result("one more", None))
    assert wire.anomalies()[1:] == [("orphan_response", None)]
