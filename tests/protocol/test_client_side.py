"""What a client reads of an agent's answers and updates, and the reply they join into."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.client_side import (
    ClientLimits,
    Initialized,
    Modes,
    Reply,
    UpdateSeen,
    initialized_of,
    modes_of,
    session_id_of,
    update_seen,
)
from acp_ledger.protocol.envelope import parse
from acp_ledger.protocol.transcript import Transcript
from tests.protocol.wire import result
from tests.support.strategies import JSON_TEXT, json_values


def read(value: Any) -> Any:
    """A result as it is read from its line."""
    return parse(result(0, value)).result


def limited(size: int = 100, segments: int = 100) -> Reply:
    """A reply with these limits."""
    return Reply(ClientLimits(1, 1, response_bytes=size, response_segments=segments))


def whole(text: str) -> str:
    """The text as JSON reads it: a pair of surrogates is one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def admitted(chunks: list[str], size: int, segments: int) -> tuple[list[str], str | None]:
    """What the limits admit, said in the fewest words."""
    for number, text in enumerate(chunks):
        if number + 1 > segments:
            return chunks[:number], "response_segments"
        if len(whole("".join(chunks[:number]) + text).encode("utf-8", "surrogatepass")) > size:
            return chunks[:number], "response_bytes"
    return chunks, None


class TestReply:
    """What joins a reply."""

    @given(
        st.lists(JSON_TEXT.map(whole) | st.sampled_from(["\ud83d", "\ude00", ""])),
        st.integers(1, 60),
        st.integers(1, 9),
    )
    def test_admits_what_the_limits_say(self, chunks: list[str], size: int, segments: int) -> None:
        """Segments before bytes, equal is within, every chunk counts, and nothing joins behind what did not fit."""
        reply = limited(size, segments)
        told = [passed for text in chunks if (passed := reply.admit(None, text)) is not None]
        kept, limit = admitted(chunks, size, segments)
        assert told == ([] if limit is None else [limit])
        assert reply.text == re.sub("[\ud800-\udfff]", "\ufffd", whole("".join(kept)))
        assert reply.segments == len(kept)
        assert reply.admitted_bytes == len(whole("".join(kept)).encode("utf-8", "surrogatepass"))

    @given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), JSON_TEXT.map(whole) | st.none())))
    def test_final_message_is_the_transcripts_last(self, chunks: list[tuple[str | None, str | None]]) -> None:
        """Where one message ends and the next begins is one rule, for the ledger and for the reply."""
        reply, transcript = limited(10_000, 1_000), Transcript()
        for message_id, text in chunks:
            assert reply.admit(message_id, text) is None
            transcript.chunk(1, "agent", message_id, text, 1, 1)
        last = "".join(joined.text for joined in transcript.end(1))
        assert reply.final_message.replace("\x00", "\ufffd") == last
        assert reply.text.endswith(reply.final_message)

    def test_block_that_is_not_text_is_a_segment(self) -> None:
        """An image in an answer has no text and counts all the same."""
        reply = limited(segments=2)
        assert [reply.admit(None, text) for text in (None, "a", "b")] == [None, None, "response_segments"]
        assert (reply.text, reply.segments) == ("a", 2)

    def test_smaller_chunk_behind_the_limit_does_not_join(self) -> None:
        """A reply with a hole would read as one that has none."""
        reply = limited(3)
        assert [reply.admit(None, text) for text in ("ok", "no", "x", "")] == [None, "response_bytes", None, None]
        assert (reply.text, reply.segments, reply.admitted_bytes) == ("ok", 1, 2)

    def test_new_reply_is_empty(self) -> None:
        """Nothing said is nothing, not nobody."""
        reply = limited()
        assert (reply.text, reply.final_message, reply.segments, reply.overflow) == ("", "", 0, None)


class TestUpdate:
    """What a caller sees of an update."""

    @pytest.mark.parametrize(
        ("update", "kind", "text"),
        [
            ({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}}, None, "a"),
            ({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "b"}}, None, "b"),
            ({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "c"}}, None, "c"),
            ({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": ""}}, None, ""),
            ({"sessionUpdate": "agent_message_chunk"}, None, ""),
            ({"sessionUpdate": "plan", "entries": [{"content": "one"}, {"content": "two"}]}, None, "one\ntwo"),
            ({"sessionUpdate": "plan", "entries": [7, {"content": 8}, {"content": "two"}]}, None, "two"),
            ({"sessionUpdate": "plan", "entries": "x"}, None, ""),
            ({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "T", "content": []}, None, ""),
            ({"sessionUpdate": "never heard of"}, "never heard of", ""),
        ],
    )
    def test_kind_and_text(self, update: dict[str, Any], kind: str | None, text: str) -> None:
        """A chunk has its text, a plan its entries' words, a line each; anything else is its kind, known or not."""
        seen = update_seen({"sessionId": "s", "update": update})
        assert seen == UpdateSeen(kind or update["sessionUpdate"], "s", text)

    @pytest.mark.parametrize(
        "params",
        [
            None,
            [],
            {},
            {"sessionId": "s"},
            {"sessionId": 1, "update": {"sessionUpdate": "plan"}},
            {"update": {"sessionUpdate": "plan"}},
            {"sessionId": "s", "update": []},
            {"sessionId": "s", "update": {}},
            {"sessionId": "s", "update": {"sessionUpdate": None}},
        ],
    )
    def test_malformed_is_none(self, params: Any) -> None:
        """Without a session, an object and a kind there is no update."""
        assert update_seen(params) is None

    @given(json_values())
    def test_any_params_can_be_looked_at(self, value: Any) -> None:
        """Nothing raises, wherever the odd value stands."""
        update_seen(value)
        update_seen({"sessionId": "s", "update": value})
        for kind in ("plan", "agent_message_chunk"):
            seen = update_seen(
                {"sessionId": "s", "update": {"sessionUpdate": kind, "entries": value, "content": value}}
            )
            assert seen is not None


class TestInitialized:
    """An answer to `initialize`."""

    def test_whole_answer_is_kept(self) -> None:
        """Version, capabilities, logins and who the agent says it is; numbers are numbers again."""
        told = {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "embeddedContent": True},
                "sessionCapabilities": {"resume": {}},
                "_meta": {"half": 0.5, "far": "1e999"},
            },
            "authMethods": [{"id": "token"}, {"id": "chat", "name": "ChatGPT"}, {"name": "no id"}, 7],
            "agentInfo": {"name": "ag", "version": "1"},
        }
        line = result(0, told).replace(b'"1e999"', b"1e999")
        seen = initialized_of(parse(line).result)
        assert isinstance(seen, Initialized)
        assert (seen.protocol_version, seen.agent_info) == (1, {"name": "ag", "version": "1"})
        assert seen.auth_methods == (("token", ""), ("chat", "ChatGPT"))
        assert (seen.load_session, seen.resume_session) == (True, True)
        assert json.loads(json.dumps(seen.capabilities, allow_nan=False)) == told["agentCapabilities"]

    def test_bare_answer_advertises_nothing(self) -> None:
        """A version alone is an answer."""
        seen = initialized_of(read({"protocolVersion": 1}))
        assert seen == Initialized(1, {}, (), None)
        assert not any((seen.load_session, seen.resume_session))

    @pytest.mark.parametrize("odd", [None, [], "x", 7, {"promptCapabilities": [], "sessionCapabilities": 1}])
    def test_odd_fields_read_as_absent(self, odd: Any) -> None:
        """What an agent says of itself in another type says nothing."""
        seen = initialized_of(read({"protocolVersion": 1, "agentCapabilities": odd, "authMethods": odd}))
        assert seen is not None
        assert (seen.auth_methods, seen.load_session, seen.resume_session) == ((), False, False)

    @pytest.mark.parametrize("said", [None, [], "x", {}, {"protocolVersion": "1"}, {"protocolVersion": 1.5}])
    def test_answer_without_a_version_is_none(self, said: Any) -> None:
        """Nothing can be spoken with an agent that does not say what it speaks."""
        assert initialized_of(read(said)) is None


class TestSession:
    """An answer that opened a session."""

    def test_modes_and_session_are_kept(self) -> None:
        """The id to go on with, the mode it is in, and the ones there are."""
        modes = {"currentModeId": "plan", "availableModes": [{"id": "plan", "name": "Plan"}, {"id": "act"}, {}]}
        answer = read({"sessionId": "s", "modes": modes})
        assert session_id_of(answer) == "s"
        assert modes_of(answer) == Modes("plan", (("plan", "Plan"), ("act", "")))

    @pytest.mark.parametrize("answer", [None, [], {}, {"sessionId": 7, "modes": None}, {"modes": [1]}])
    def test_answer_without_them_has_none(self, answer: Any) -> None:
        """Nothing is made up for an agent that names none."""
        assert (session_id_of(read(answer)), modes_of(read(answer))) == (None, None)

    def test_odd_modes_are_empty(self) -> None:
        """Modes of other types are modes that say nothing."""
        assert modes_of(read({"modes": {"currentModeId": 1, "availableModes": 2}})) == Modes("", ())
