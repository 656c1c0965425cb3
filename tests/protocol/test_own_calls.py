"""The calls of a client of its own right: what of the agent's ends one, what counts, and what joins the reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acp_ledger.protocol.client_lines import reply_line, session_load_line
from acp_ledger.protocol.client_side import update_seen
from acp_ledger.protocol.envelope import identity
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TO_CLIENT, Anomaly, Decision, Frame, Overflow, ToolCallStep, TurnEnd
from tests.protocol.wire import (
    ROOMY,
    SESSION,
    Wire,
    ask,
    call,
    chunk,
    ended,
    error,
    note,
    ours,
    prompted,
    question,
    result,
    selected,
    update,
)

PROMPT = 6
"""The number of the prompt that `ours` sends."""

HIDDEN = "hidden-words"

FAULTS: list[tuple[bytes, str]] = [
    (HIDDEN.encode(), "a line that is not JSON"),
    (b'{"a":NaN}', "NaN"),
    (b'{"jsonrpc":"2.0","method":"x"} ' + HIDDEN.encode(), "something follows"),
    (b"\xff{}", "not UTF-8"),
    (b"\xef\xbb\xbf" + ended(2), "byte order mark"),
    (b"[" + ended(2) + b"]", "no JSON object"),
    (json.dumps(HIDDEN).encode(), "no JSON object"),
    (b"7", "no JSON object"),
    (b"{}", "neither a request"),
    (b'{"jsonrpc":"2.0","id":2,"id":3,"result":{}}', "neither a request"),
    (b'{"jsonrpc":"2.0","id":2,"method":"x","result":{}}', "neither a request"),
    (ended(3), "another id than 2"),
    (ended(1), "another id than 2"),
    (ended("2"), "of type string"),
    (ended(None), "of type null"),
    (b'{"jsonrpc":"2.0","error":{"code":1,"message":"hidden-words"}}', "answers no request"),
    (error(None, 1, HIDDEN), "answers no request"),
    (note("session/request_permission", sessionId=SESSION, options=[HIDDEN]), "without an id"),
    (b'{"jsonrpc":"2.0","method":"session/update"}', "`params` is no object"),
    (b'{"jsonrpc":"2.0","method":"session/update","params":["hidden-words"]}', "`params` is no object"),
    (note("session/update", update={"sessionUpdate": HIDDEN}), "`sessionId` is no string"),
    (note("session/update", sessionId=SESSION, update=HIDDEN), "`update` is no object"),
    (note("session/update", sessionId=SESSION, update={"content": HIDDEN}), "`sessionUpdate` is no string"),
]

HARMLESS: list[bytes] = [
    b"",
    b" \t\r",
    chunk("words"),
    chunk("of another session", session="sess-2"),
    update("never heard of"),
    update("plan", entries=[]),
    question(7),
    question(None),
    call(8, "fs/read_text_file", sessionId=SESSION, path="/a"),
    call("x", "_vendor/thing"),
    note("_vendor/note"),
    note("session/cancel"),
    b'{"method":"x"}',
]


def fault_of(wire: Wire) -> str:
    """What ended a call with the last line; nothing is an empty text."""
    return wire.observer.fault or ""


def faults(wire: Wire) -> list[tuple[str | None, int | None]]:
    """What ended calls: the sentence, and the request's number."""
    return [(row.detail, row.related_frame) for row in wire.rows(Anomaly) if row.class_ == "call_failed"]


def outcomes(wire: Wire) -> list[tuple[int, str]]:
    """How turns ended, and under which number."""
    return [(row.frame_seq, row.outcome) for row in wire.rows(TurnEnd)]


class TestFault:
    """Lines with which a call cannot go on."""

    @pytest.mark.parametrize(("line", "words"), FAULTS)
    def test_line_ends_the_call_and_the_turn(self, line: bytes, words: str) -> None:
        """The sentence says what came not what was in it; the turn ends under that line, and the prompt is named."""
        wire = ours()
        frame = wire.agent(line)
        fault = wire.observer.fault
        assert fault is not None
        assert fault.startswith("the agent sent ")
        assert words in fault
        assert HIDDEN not in fault
        assert faults(wire) == [(fault, PROMPT)]
        (end,) = wire.rows(TurnEnd)
        assert (end.frame_seq, end.turn_id, end.outcome, end.error_message) == (7, 1, "protocol_error", fault)
        assert frame.phase == "turn" or frame.method == "session/update"

    @pytest.mark.parametrize("line", [line for line, _ in FAULTS])
    def test_editor_s_connection_goes_on(self, line: bytes) -> None:
        """In a relay nobody's call is ours to end."""
        wire = prompted()
        wire.agent(line)
        assert (wire.observer.fault, faults(wire), outcomes(wire)) == (None, [], [])

    @pytest.mark.parametrize("line", HARMLESS)
    def test_other_lines_end_nothing(self, line: bytes) -> None:
        """Requests are answered, notifications are counted, and a blank line is no message."""
        wire = ours()
        wire.agent(line)
        assert (wire.observer.fault, faults(wire)) == (None, [])
        wire.agent(ended(2))
        assert outcomes(wire) == [(8, "completed")]

    @pytest.mark.parametrize("line", [line for line, _ in FAULTS])
    def test_nothing_ends_where_nothing_runs(self, line: bytes) -> None:
        """Between two calls there is none to fail."""
        wire = ours()
        wire.agent(ended(2))
        wire.agent(line)
        assert (wire.observer.fault, faults(wire)) == (None, [])

    def test_fault_is_of_the_last_line_alone(self) -> None:
        """What ended a call is told once; a further bad line, an event or a line of ours ends nothing."""
        wire = ours()
        wire.agent(b"junk")
        assert fault_of(wire)
        wire.agent(b"junk")
        assert not fault_of(wire)
        ask(wire, 3)
        wire.agent(b"junk")
        assert fault_of(wire)
        wire.event("eof", direction=TO_CLIENT)
        assert not fault_of(wire)
        assert [related for _, related in faults(wire)] == [PROMPT, 9]

    def test_late_answer_ends_nothing_twice(self) -> None:
        """The prompt's own answer may still come when its turn is over; it is recorded, and nobody's fault."""
        wire = ours()
        wire.agent(b"junk")
        frame = wire.agent(ended(2))
        assert (frame.kind, frame.method, wire.observer.fault) == ("response", "session/prompt", None)
        assert outcomes(wire) == [(7, "protocol_error")]

    def test_late_answer_ends_the_next_call(self) -> None:
        """The answer to an older request is not the one that is waited for."""
        wire = ours()
        wire.agent(b"junk")
        ask(wire, 3)
        wire.agent(ended(2))
        assert outcomes(wire) == [(7, "protocol_error"), (9, "protocol_error")]
        assert [related for _, related in faults(wire)] == [PROMPT, 8]

    def test_call_without_a_turn_fails_alone(self) -> None:
        """An `initialize` has no turn to end, and its late answer still settles the version."""
        wire = Wire(client=ROOMY)
        wire.client(call(0, "initialize", protocolVersion=1), origin="daemon")
        wire.agent(b"junk")
        assert wire.observer.fault == "the agent sent a line that is not JSON"
        assert (faults(wire), outcomes(wire)) == ([(wire.observer.fault, 1)], [])
        wire.agent(result(0, {"protocolVersion": 1}))
        assert wire.observer.revision == "acp/v1"

    def test_request_that_was_not_sent_is_no_call(self) -> None:
        """A line that is kept from the agent waits for nothing."""
        wire = Wire(client=ROOMY)
        wire.client(call(0, "initialize", protocolVersion=1), origin="daemon", delivery="withhold")
        wire.agent(b"junk")
        assert wire.observer.fault is None

    def test_line_past_the_line_limit_ends_the_call(self) -> None:
        """It was not read, so nobody knows what it was."""
        wire = ours()
        wire.entries += wire.observer.oversize(TO_CLIENT, 7, length=999, prefix_digest="sha256:00")
        frame = wire.last().record
        assert isinstance(frame, Frame)
        assert "line_bytes" in fault_of(wire)
        assert (frame.turn_id, frame.phase, frame.disposition) == (1, "turn", "observed")
        assert [row.class_ for row in wire.rows(Anomaly)] == ["oversize", "call_failed"]
        assert outcomes(wire) == [(7, "protocol_error")]

    def test_line_past_the_line_limit_between_calls_ends_none(self) -> None:
        """Where no call runs, an anomaly is all."""
        wire = ours()
        wire.agent(ended(2))
        wire.entries += wire.observer.oversize(TO_CLIENT, 8, length=999, prefix_digest="sha256:00")
        assert (wire.observer.fault, faults(wire)) == (None, [])
        frame = wire.last().record
        assert isinstance(frame, Frame)
        assert (frame.session_id, frame.phase, frame.disposition) == (None, "between", "not_recorded")

    def test_line_of_another_session_stays_with_it(self) -> None:
        """A malformed update of one session fails the prompt of another, and is still that session's."""
        wire = ours()
        wire.agent(update("plan", session="sess-2"))
        frame = wire.agent(note("session/update", sessionId="sess-2", update=7))
        (end,) = wire.rows(TurnEnd)
        assert (frame.session_id, frame.turn_id, end.session_id, end.turn_id) == (2, None, 1, 1)


class TestUpdateLimits:
    """What an agent may send, in size and in number."""

    @pytest.mark.parametrize("around", [b"", b" ", b"\r", b"\t \r"])
    def test_size_is_that_of_the_trimmed_line(self, around: bytes) -> None:
        """Equal to the limit is within it, whatever space is around the message."""
        line = update("plan", entries=[])
        for limit, numbered in ((len(line), 1), (len(line) - 1, None)):
            wire = ours(update_bytes=limit)
            frame = wire.agent(around + line + around)
            assert frame.update_sequence == numbered
            assert (wire.observer.fault is None) == (numbered is not None)

    def test_oversize_update_is_kept_and_takes_no_number(self) -> None:
        """The line and what it is evidence for stay; its text joins nothing, the call fails, later updates count on."""
        wire = ours(update_bytes=200)
        big = wire.agent(update("tool_call", toolCallId="c", title="x" * 300))
        assert (big.update_sequence, big.session_update) == (None, "tool_call")
        assert len(wire.rows(ToolCallStep)) == 1
        oversize, failed = wire.rows(Anomaly)
        assert (oversize.class_, failed.class_) == ("oversize", "call_failed")
        assert (oversize.detail or "").startswith("update_bytes: ")
        assert "update_bytes" in fault_of(wire)
        assert wire.agent(chunk("x")).update_sequence == 1
        assert not wire.observer.exhausted

    def test_oversize_chunk_joins_no_message(self) -> None:
        """Nobody was handed its text."""
        wire = ours(update_bytes=200)
        wire.agent(chunk("x" * 300))
        (end,) = wire.rows(TurnEnd)
        assert (end.text_bytes, wire.observer.reply.text) == (0, "")

    def test_count_is_for_life(self) -> None:
        """A count once passed is passed for every later update, in every later turn."""
        wire = ours(update_count=2)
        assert [wire.agent(chunk("x")).update_sequence for _ in range(2)] == [1, 2]
        told = [wire.observer.exhausted]
        wire.agent(ended(2))
        ask(wire, 3)
        assert wire.agent(chunk("x")).update_sequence is None
        told.append(wire.observer.exhausted)
        assert told == [False, True]
        assert outcomes(wire) == [(9, "completed"), (11, "protocol_error")]
        assert wire.agent(chunk("x")).update_sequence is None
        details = [row.detail for row in wire.rows(Anomaly) if row.class_ == "oversize"]
        assert details == ["update_count: 2 allowed"] * 2

    def test_count_is_checked_before_size(self) -> None:
        """An update past both is past the count."""
        wire = ours(update_count=1, update_bytes=200)
        wire.agent(chunk("x"))
        wire.agent(chunk("x" * 300))
        assert "update_count" in fault_of(wire)

    def test_malformed_update_takes_a_number(self) -> None:
        """It was an update, and there is one less to come."""
        wire = ours(update_count=2)
        assert wire.agent(note("session/update", sessionId=SESSION, update=7)).update_sequence == 1
        assert wire.agent(chunk("x")).update_sequence == 2

    def test_editor_s_agent_has_no_limits(self) -> None:
        """In a relay every update has its number."""
        wire = prompted()
        assert wire.agent(chunk("x" * 5_000)).update_sequence == 1
        assert (wire.observer.exhausted, wire.observer.reply.text) == (False, "")


class TestReply:
    """What joins the reply of a prompt, and what stops it."""

    def test_chunks_of_the_agent_join(self) -> None:
        """The agent's words, and no thought, no plan and no words of the user."""
        wire = ours()
        wire.agent(chunk("One. ", message_id="a"))
        wire.agent(update("agent_thought_chunk", content={"type": "text", "text": "hm"}))
        wire.agent(chunk("user", kind="user"))
        wire.agent(update("plan", entries=[{"content": "inspect"}]))
        wire.agent(chunk("Two.", message_id="b"))
        reply = wire.observer.reply
        assert (reply.text, reply.final_message, reply.segments) == ("One. Two.", "Two.", 2)

    def test_other_times_and_sessions_join_nothing(self) -> None:
        """Before a prompt, behind its end and in another session there is no reply to join."""
        wire = Wire(client=ROOMY)
        wire.agent(chunk("before"))
        assert wire.observer.reply.text == ""
        wire = ours()
        wire.agent(chunk("other", session="sess-2"))
        wire.agent(chunk("reply"))
        wire.agent(ended(2))
        wire.agent(chunk("behind"))
        assert wire.observer.reply.text == "reply"

    def test_withheld_chunk_joins_nothing(self) -> None:
        """What nobody is handed is no part of what they read."""
        wire = ours()
        wire.agent(chunk("x"), delivery="withhold")
        assert wire.observer.reply.segments == 0

    def test_conversation_told_again_neither_joins_nor_counts(self) -> None:
        """Chunks of a loaded session are old, also while a prompt already runs in it."""
        wire = Wire(client=ROOMY._replace(response_segments=1))
        wire.client(session_load_line(0, SESSION, "/src", []), origin="daemon")
        ask(wire, 1)
        wire.agent(chunk("old"))
        wire.agent(chunk("older"))
        reply = wire.observer.reply
        assert (reply.text, reply.segments, wire.rows(Overflow)) == ("", 0, [])

    @pytest.mark.parametrize(
        ("wire", "kind"),
        [(ours(response_bytes=3), "response_bytes"), (ours(response_segments=1), "response_segments")],
        ids=["bytes", "segments"],
    )
    def test_chunk_past_a_limit_is_told_once(self, wire: Wire, kind: str) -> None:
        """What was admitted, and the update that was not; the call goes on to its answer, and no chunk joins again."""
        for text in ("ok", "no", "x"):
            wire.agent(chunk(text))
        (row,) = wire.rows(Overflow)
        assert (row.frame_seq, row.ordinal, row.session_id, row.turn_id) == (8, 0, 1, 1)
        assert (row.kind, row.admitted_bytes, row.admitted_segments, row.withheld_update_sequence) == (kind, 2, 1, 2)
        assert wire.observer.reply.overflow == row
        assert wire.observer.fault is None
        wire.agent(ended(2, "cancelled"))
        assert (wire.observer.reply.text, outcomes(wire)) == ("ok", [(10, "cancelled")])

    def test_limits_begin_again_at_each_prompt(self) -> None:
        """A reply that overflowed says nothing about the next."""
        wire = ours(response_segments=1)
        wire.agent(chunk("a"))
        wire.agent(chunk("b"))
        wire.agent(ended(2))
        ask(wire, 3)
        wire.agent(chunk("c"))
        reply = wire.observer.reply
        assert (reply.text, reply.overflow) == ("c", None)
        assert len(wire.rows(Overflow)) == 1

    def test_chunk_too_big_to_parse_fails_the_call(self) -> None:
        """Its text is not known, and a reply without it would read as one that is whole."""
        wire = Wire(client=ROOMY, parse_bytes=300)
        wire.client(call(0, "session/prompt", sessionId=SESSION, prompt=[]), origin="daemon")
        wire.agent(chunk("x" * 400))
        assert "too big" in fault_of(wire)
        assert wire.observer.reply.segments == 0

    def test_other_update_too_big_to_parse_fails_nothing(self) -> None:
        """A long diff is kept whole in its line; the reply lacks nothing for it."""
        wire = Wire(client=ROOMY, parse_bytes=300)
        wire.client(call(0, "session/prompt", sessionId=SESSION, prompt=[]), origin="daemon")
        wire.agent(update("tool_call", toolCallId="c", title="x" * 400))
        assert wire.observer.fault is None


class TestAnswers:
    """Answers to the agent's questions."""

    def test_withheld_answer_is_the_decision(self) -> None:
        """One that is too long to be sent was decided all the same."""
        wire = ours()
        wire.agent(question(7))
        wire.client(reply_line("7", "selected", "no"), origin="policy", delivery="withhold")
        (row,) = wire.rows(Decision)
        assert (row.outcome, row.option_id, row.effect, row.decided_by) == ("selected", "no", "reject", "policy")

    def test_withheld_answer_of_an_editor_decides_nothing(self) -> None:
        """There another is heard in its place."""
        wire = prompted()
        wire.agent(question(7))
        wire.client(selected(7, "no"), delivery="withhold")
        assert wire.rows(Decision) == []

    @pytest.mark.parametrize("claimed", [None, "allow_always", "", "\ud800"])
    def test_claimed_kind_is_kept_apart(self, claimed: str | None) -> None:
        """The kind of an option is what its offer says; what a program says of it stands beside it."""
        wire = ours()
        wire.agent(question(7))
        wire.client(reply_line("7", "selected", "no"), origin="peer", claimed=claimed)
        (row,) = wire.rows(Decision)
        assert (row.option_kind, row.decided_by) == ("reject_once", "client")
        assert row.option_kind_claimed == (None if claimed is None else identity(claimed))


@pytest.mark.parametrize("params", [None, [], {"sessionId": 1}, {"sessionId": "s", "update": {"sessionUpdate": "x"}}])
def test_update_is_malformed_for_the_call_and_the_caller_alike(params: Any) -> None:
    """What a caller cannot be shown fails the call, and nothing else does."""
    wire = ours()
    wire.agent(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode())
    assert (wire.observer.fault is None) == (update_seen(params) is not None)


def test_relay_has_an_empty_reply() -> None:
    """Whoever asks is told nothing was said to us."""
    observer = Observer()
    assert (observer.reply.text, observer.fault, observer.exhausted) == ("", None, False)
