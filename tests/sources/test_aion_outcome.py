"""Behaviours of an interpretation of how a prompt turn ended, each on ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acp_ledger.protocol.outcome import (
    CANCELLED_PREFIX,
    PARTIAL_TEXT_BYTES,
    STREAM_ENDED,
    completed_turn,
    failure_message,
    transport_failed,
    turn_reading,
)
from acp_ledger.protocol.records import TurnEnd
from tests.protocol.wire import chunk, ended, ours, result, update


def reading(word: str) -> Any:
    """The reading of a stop reason."""
    return turn_reading({"stopReason": word}, None)


def failing(code: int, message: str) -> Any:
    """The reading of an error answer."""
    return turn_reading(None, {"code": code, "message": message})


@pytest.mark.parametrize("word", ["refusal", "max_tokens", "max_turn_requests", "cancelled", "done", ""])
def test_ai1_only_end_turn_completes(word: str) -> None:
    """A refused or truncated answer is never told as the real one."""
    assert reading("end_turn").outcome == "completed"
    assert reading(word).outcome != "completed"


def test_ai2_text_comes_from_the_chunks() -> None:
    """The answer itself has none, whatever else it holds."""
    wire = ours()
    wire.agent(chunk("the answer"))
    wire.agent(result(2, {"stopReason": "end_turn", "text": "another"}))
    assert wire.observer.reply.text == "the answer"


def test_ai6_text_is_all_messages_joined_and_the_last_alone_as_it_was_streamed() -> None:
    """Both are there with the answer, and a thought is no message."""
    wire = ours()
    wire.agent(chunk("one ", message_id="a"))
    wire.agent(chunk("two", message_id="b"))
    wire.agent(update("agent_thought_chunk", content={"type": "text", "text": "hm"}))
    wire.agent(chunk(" three", message_id="b"))
    wire.agent(ended(2))
    reply = wire.observer.reply
    assert (reply.text, reply.final_message) == ("one two three", "two three")


def test_ai3_empty_text_of_a_completed_turn_is_honest() -> None:
    """Nothing takes its place."""
    wire = ours()
    wire.agent(ended(2))
    assert (wire.observer.reply.text, wire.rows(TurnEnd)[0].outcome) == ("", "completed")
    assert completed_turn(reading("end_turn"), [], "s").text == ""


def test_ai4_bound_is_on_the_message_and_not_on_the_data() -> None:
    """4,000 bytes ride in a failure; the reply keeps all."""
    assert PARTIAL_TEXT_BYTES == 4_000
    wire = ours()
    wire.agent(chunk("x" * 5_000))
    assert len(wire.observer.reply.text) == 5_000
    assert failure_message(reading("refusal"), wire.observer.reply.text).count("x") == 4_000


def test_ai5_three_ends_are_told_apart() -> None:
    """An answer, an end of output, a failure of reading; the last keeps the reader's words."""
    unreadable = transport_failed("Input/output error")
    outcomes = [reading("end_turn").outcome, STREAM_ENDED.outcome, unreadable.outcome]
    assert outcomes == ["completed", "stream_ended", "transport_failed"]
    assert "Input/output error" in failure_message(unreadable)


def test_ai7_interpretation_is_the_same_beside_an_editor_and_for_ourselves() -> None:
    """One function reads both; what the ledger has is what a caller is told."""
    wire = ours()
    wire.agent(result(2, {"stopReason": "max_tokens"}))
    assert wire.rows(TurnEnd)[0].outcome == reading("max_tokens").outcome == "truncated"


def test_ai8_end_of_output_and_failure_of_reading_are_two_sentences() -> None:
    """Each is worded once; neither claims what did not happen."""
    ended_early, unreadable = failure_message(STREAM_ENDED), failure_message(transport_failed("EIO"))
    assert "closed its output" in ended_early
    assert "reading" not in ended_early
    assert "reading the agent's output failed" in unreadable
    assert "closed" not in unreadable


def test_ai9_completed_record_has_text_final_message_stop_reason_and_session() -> None:
    """Four things."""
    assert completed_turn(reading("end_turn"), ["a", "b"], "sess") == ("ab", "b", "end_turn", "sess")


def test_ai10_refusal_has_an_outcome_of_its_own() -> None:
    """It is the agent's policy, not a failure of ours."""
    assert reading("refusal").outcome == "refused"
    assert "refused" in failure_message(reading("refusal"))


@pytest.mark.parametrize("word", ["max_tokens", "max_turn_requests"])
def test_ai11_stopping_short_names_its_reason_and_carries_the_partial_text(word: str) -> None:
    """Whoever accepts a part can take it."""
    message = failure_message(reading(word), "half")
    assert word in message
    assert message.endswith("; partial output: half")


@pytest.mark.parametrize("ended_by", [reading("cancelled"), failing(-32800, "gone")])
def test_ai12_every_cancellation_begins_alike(ended_by: Any) -> None:
    """So that it can be told from a failure."""
    assert failure_message(ended_by).startswith(CANCELLED_PREFIX)


def test_ai13_two_codes_have_a_meaning() -> None:
    """-32000 asks for a login, -32800 is a cancellation."""
    assert failing(-32000, "x").outcome == "auth_required"
    assert failing(-32800, "x").outcome == "cancelled"
    assert failing(-32603, "x").outcome == "failed"


def test_ai14_answer_with_neither_result_nor_error_is_a_protocol_error() -> None:
    """A broken frame."""
    assert turn_reading(None, None).outcome == "protocol_error"


def test_ai15_error_is_looked_at_before_the_result_and_null_is_none() -> None:
    """An answer with both failed; `error: null` beside a result counts as absent."""
    assert turn_reading({"stopReason": "end_turn"}, {"code": 1, "message": "x"}).outcome == "failed"
    wire = ours()
    wire.agent(b'{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"},"error":null}')
    assert wire.rows(TurnEnd)[0].outcome == "completed"


@pytest.mark.parametrize("answer", [[], "end_turn", 7, {"stopReason": 3}, {"stop": "end_turn"}])
def test_ai16_result_that_is_no_answer_to_a_prompt_is_named(answer: Any) -> None:
    """The message says what came."""
    told = turn_reading(answer, None)
    written = json.dumps(answer)
    assert told.outcome == "protocol_error"
    assert written in failure_message(told, answer=written)


def test_ai17_login_and_cancellation_keep_code_and_message_and_say_what_to_do() -> None:
    """The login that is needed is named, and how an unattended run gets it."""
    login = failure_message(failing(-32000, "who are you"), logins=["API key"])
    assert all(word in login for word in ("-32000", "who are you", "API key", "environment"))
    cancelled = failure_message(failing(-32800, "stopped"))
    assert all(word in cancelled for word in ("-32800", "stopped"))


def test_ai18_partial_text_has_a_label_and_none_without_text() -> None:
    """A label without text would claim that there was some."""
    assert "partial output" not in failure_message(reading("refusal"), "")
    assert "; partial output: some" in failure_message(reading("refusal"), "some")


def test_ai19_cut_says_how_much_is_shown_and_falls_between_characters() -> None:
    """In bytes, of how many."""
    message = failure_message(reading("refusal"), "x" + "é" * 2_000)
    assert message.endswith("… [truncated for this message: 3999 of 4001 bytes shown]")


def test_ai20_examples_of_the_text_hold_together_on_one_turn() -> None:
    """They repeat the behaviours above: a turn that stopped short has its outcome, its bytes and its text."""
    wire = ours()
    wire.agent(chunk("answer"))
    wire.agent(ended(2, "max_tokens"))
    end = wire.rows(TurnEnd)[0]
    assert (end.outcome, end.text_bytes, wire.observer.reply.text) == ("truncated", 6, "answer")
