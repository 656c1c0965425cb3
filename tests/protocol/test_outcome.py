"""How a turn ended, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.outcome import (
    CANCELLED_PREFIX,
    INTERRUPTED,
    PARTIAL_TEXT_BYTES,
    STREAM_ENDED,
    TurnReading,
    completed_turn,
    failure_message,
    transport_failed,
    turn_reading,
)
from tests.support.strategies import json_values


@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        ("end_turn", "completed"),
        ("refusal", "refused"),
        ("max_tokens", "truncated"),
        ("max_turn_requests", "truncated"),
        ("cancelled", "cancelled"),
        ("END_TURN", "protocol_error"),
        ("end_turn ", "protocol_error"),
        ("teleported", "protocol_error"),
        ("", "protocol_error"),
    ],
)
def test_stop_reason_decides(word: str, outcome: str) -> None:
    """One word alone is a completed turn; the word itself is kept, known or not."""
    assert turn_reading({"stopReason": word}, None) == TurnReading(outcome, stop_reason=word)  # type: ignore[arg-type]  # a table of words


@pytest.mark.parametrize("result", [None, {}, [], "end_turn", 7, {"stopReason": None}, {"stopReason": ["end_turn"]}])
def test_missing_stop_reason_is_a_protocol_error(result: Any) -> None:
    """An answer that says no word says no outcome."""
    assert turn_reading(result, None) == TurnReading("protocol_error")


@pytest.mark.parametrize(
    ("error", "outcome", "code", "message"),
    [
        ({"code": -32000, "message": "log in"}, "auth_required", -32000, "log in"),
        ({"code": -32800, "message": "gone"}, "cancelled", -32800, "gone"),
        ({"code": -32603, "message": "boom"}, "failed", -32603, "boom"),
        ({"code": 401}, "failed", 401, None),
        ({"code": "-32000", "message": 5}, "failed", None, None),
        ({"code": 2**70, "message": "far"}, "failed", None, "far"),
        ({"code": True}, "failed", None, None),
        ("boom", "failed", None, None),
        ([], "failed", None, None),
        (False, "failed", None, None),
    ],
)
def test_error_decides(error: Any, outcome: str, code: int | None, message: str | None) -> None:
    """Any error ends the turn; two codes say more than that it failed, and words of other types say nothing."""
    reading = turn_reading(None, error)
    assert (reading.outcome, reading.error_code, reading.error_message) == (outcome, code, message)
    assert reading.stop_reason is None


def test_error_wins_over_result() -> None:
    """An answer with both failed."""
    assert turn_reading({"stopReason": "end_turn"}, {"code": 1, "message": "x"}).outcome == "failed"


def test_unstorable_words_are_made_storable() -> None:
    """A stop reason is kept by identity, a message for reading."""
    reading = turn_reading({"stopReason": "\ud800"}, None)
    assert reading.stop_reason is not None
    assert reading.stop_reason.startswith("sha256:")
    assert turn_reading(None, {"code": 1, "message": "a\x00"}) == TurnReading("failed", None, 1, "a\ufffd", lossy=True)


@given(json_values(), json_values())
def test_any_answer_has_an_outcome(result: Any, error: Any) -> None:
    """Nothing raises, and nothing but the one word completes."""
    reading = turn_reading(result, error)
    told = isinstance(result, dict) and result.get("stopReason") == "end_turn" and error is None
    assert (reading.outcome == "completed") == told


def test_completed_turn_joins_its_answers() -> None:
    """All answers are the text, the last one alone the final message; the session is the handle to go on with."""
    reading = turn_reading({"stopReason": "end_turn"}, None)
    assert completed_turn(reading, ["One. ", "Two."], "s") == ("One. Two.", "Two.", "end_turn", "s")


def test_silent_turn_is_complete_and_empty() -> None:
    """A turn of tool calls alone said nothing, and nothing is said for it."""
    assert completed_turn(turn_reading({"stopReason": "end_turn"}, None), [], "s")[:2] == ("", "")


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (turn_reading({"stopReason": "refusal"}, None), ["refused", "stopReason: refusal"]),
        (turn_reading({"stopReason": "max_tokens"}, None), ["before its work was done", "stopReason: max_tokens"]),
        (turn_reading({"stopReason": "max_turn_requests"}, None), ["stopReason: max_turn_requests"]),
        (turn_reading(None, {"code": -32000, "message": "key?"}), ["code -32000: key?", "sign in"]),
        (turn_reading(None, {"code": 7, "message": "boom"}), ["code 7: boom"]),
        (turn_reading(None, {"message": "boom"}), ["no code: boom"]),
        (turn_reading(None, {"code": 7}), ["code 7: no message"]),
        (turn_reading(None, None), ["neither a stop reason nor an error"]),
        (turn_reading({"stopReason": "odd"}, None), ["stopReason: odd"]),
        (STREAM_ENDED, ["closed its output"]),
        (transport_failed("EIO on fd 7"), ["reading the agent's output failed", "EIO on fd 7"]),
        (INTERRUPTED, ["daemon ended"]),
    ],
)
def test_message_names_what_happened(reading: TurnReading, words: list[str]) -> None:
    """Every end is worded apart, in the peer's own words where it has some, without a label for no text."""
    message = failure_message(reading)
    assert all(word in message for word in words)
    assert "partial output" not in message
    assert not message.startswith(CANCELLED_PREFIX)


@pytest.mark.parametrize(
    "reading", [turn_reading({"stopReason": "cancelled"}, None), turn_reading(None, {"code": -32800, "message": "x"})]
)
def test_cancellation_starts_with_the_constant(reading: TurnReading) -> None:
    """Callers can tell a cancellation from a failure by how it begins."""
    message = failure_message(reading, "half")
    assert message.startswith(CANCELLED_PREFIX)
    assert message.endswith("; partial output: half")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("{}" + "x" * 5_000, "(neither a stop reason nor an error: {}xxx"),
        ("null", "(neither a stop reason nor an error: null)"),
        ('["end_turn"]', '(its result is of type array, not an object: ["end_turn"])'),
        ('"end_turn"', '(its result is of type string, not an object: "end_turn")'),
        ("1.5", "(its result is of type number, not an object: 1.5)"),
        ("false", "(its result is of type boolean, not an object: false)"),
    ],
)
def test_unreadable_answer_is_shown(answer: str, words: str) -> None:
    """A result without an outcome is told by its type, where that is wrong, and as it came, as far as it fits."""
    message = failure_message(turn_reading(None, None), answer=answer)
    assert words in message
    assert len(message) < 1_000


def test_answer_is_told_of_an_unreadable_one_alone() -> None:
    """What was refused, say, was read: the answer says nothing more."""
    assert "stopReason" not in failure_message(STREAM_ENDED, answer='{"stopReason":"x"}')


def test_demanded_login_says_which_and_what_an_unattended_run_needs() -> None:
    """Nobody can sign in while nobody is there: the agent's logins are named, and where credentials go."""
    demand = turn_reading(None, {"code": -32000, "message": "who?"})
    message = failure_message(demand, "half", logins=["ChatGPT", "api-key"])
    assert "code -32000: who?" in message
    assert "; its logins are: ChatGPT, api-key." in message
    assert "unattended" in message
    assert "environment" in message
    assert message.endswith("; partial output: half")
    assert "logins are" not in failure_message(demand)


def test_many_logins_are_bounded() -> None:
    """A message stays one that a person reads, whatever an agent calls its logins."""
    message = failure_message(turn_reading(None, {"code": -32000}), logins=["x" * 500] * 40)
    assert "and 32 more" in message
    assert len(message) < 1_500


def test_logins_are_named_where_one_is_demanded_alone() -> None:
    """An end of another kind has nothing to do with signing in."""
    assert "ChatGPT" not in failure_message(STREAM_ENDED, logins=["ChatGPT"])


def test_line_that_ended_the_call_is_told() -> None:
    """A turn without an answer that can be read is told by what came instead."""
    broken = TurnReading("protocol_error", error_message="the agent sent a line that is not JSON")
    assert failure_message(broken, "half").endswith(": the agent sent a line that is not JSON; partial output: half")


def test_partial_text_of_exactly_the_bound_is_whole() -> None:
    """Equal to the limit is told whole."""
    message = failure_message(STREAM_ENDED, "x" * PARTIAL_TEXT_BYTES)
    assert message.endswith("x" * PARTIAL_TEXT_BYTES)


def test_longer_partial_text_is_cut_and_says_so() -> None:
    """The cut falls between characters, and the numbers are bytes."""
    message = failure_message(STREAM_ENDED, "x" + "é" * PARTIAL_TEXT_BYTES)
    size, total = PARTIAL_TEXT_BYTES - 1, 1 + 2 * PARTIAL_TEXT_BYTES
    assert message.endswith(f"é… [truncated for this message: {size} of {total} bytes shown]")
    assert f"; partial output: x{'é' * ((size - 1) // 2)}…" in message


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_any_partial_text_can_be_told(text: str) -> None:
    """A message is always text that can be written."""
    assert failure_message(STREAM_ENDED, text * 300).encode()
