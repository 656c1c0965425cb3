"""Chunks into messages, with nothing between and nothing lost."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.transcript import OPEN_MESSAGES, Joined, Transcript


def whole(transcript: Transcript) -> Joined:
    """The one message that is open in session 1."""
    (joined,) = transcript.end(1)
    return joined


def said(*texts: str | None, text_bytes: int = 1_000) -> Joined:
    """The message that these chunks make."""
    transcript = Transcript(text_bytes)
    for seq, text in enumerate(texts, 1):
        assert transcript.chunk(1, "agent", None, text, 7, seq) is None
    return whole(transcript)


def test_chunks_are_joined_with_nothing_between() -> None:
    """The text is the chunks', the frames are the first's and the last's, the turn is the first's."""
    joined = said("Good ", "", "morning")
    assert (joined.text, joined.text_bytes, joined.first_frame, joined.last_frame) == ("Good morning", 12, 1, 3)
    assert (joined.turn_id, joined.truncated, joined.lossy, joined.message_id) == (7, False, False, None)


def test_empty_chunk_is_a_message() -> None:
    """An agent that says nothing has said so."""
    joined = said("")
    assert (joined.text, joined.text_bytes) == ("", 0)


def test_other_id_ends_a_message() -> None:
    """The same id is one message, another id is another."""
    transcript = Transcript()
    assert transcript.chunk(1, "agent", "a", "x", None, 1) is None
    assert transcript.chunk(1, "agent", "a", "y", None, 2) is None
    ended = transcript.chunk(1, "agent", "b", "z", None, 3)
    assert ended is not None
    assert (ended.message_id, ended.text, ended.last_frame) == ("a", "xy", 2)
    assert whole(transcript).text == "z"


def test_chunk_without_id_continues() -> None:
    """It belongs to the open message of its stream, whatever that one's id."""
    transcript = Transcript()
    transcript.chunk(1, "agent", "a", "x", None, 1)
    assert transcript.chunk(1, "agent", None, "y", None, 2) is None
    assert whole(transcript).text == "xy"


def test_id_after_none_is_another_message() -> None:
    """A message that began without an id does not get one later."""
    transcript = Transcript()
    transcript.chunk(1, "agent", None, "x", None, 1)
    ended = transcript.chunk(1, "agent", "a", "y", None, 2)
    assert ended is not None
    assert (ended.message_id, ended.text) == (None, "x")


def test_returning_id_points_to_its_first_message() -> None:
    """Both are kept; the second knows where the first ended."""
    transcript = Transcript()
    for seq, message_id in enumerate(("a", "b", "a"), 1):
        transcript.chunk(1, "agent", message_id, "x", None, seq)
    assert whole(transcript).earlier_frame == 1


def test_sessions_and_streams_keep_apart() -> None:
    """One open message each."""
    transcript = Transcript()
    transcript.chunk(2, "agent", "a", "two", None, 1)
    transcript.chunk(1, "agent", "a", "one", None, 2)
    transcript.chunk(1, "thought", "a", "hm", None, 3)
    assert [(one.session_id, one.stream, one.text) for one in transcript.end_all()] == [
        (1, "agent", "one"),
        (1, "thought", "hm"),
        (2, "agent", "two"),
    ]
    assert transcript.end_all() == []


def test_block_that_is_no_text_ends_nothing() -> None:
    """It counts as no bytes, is the last frame of its own message, and opens none."""
    joined = said("a", None, "b")
    assert (joined.text, joined.text_bytes, joined.last_frame) == ("ab", 2, 3)
    assert said("a", None).last_frame == 2
    transcript = Transcript()
    transcript.chunk(1, "agent", None, None, None, 1)
    transcript.chunk(1, "agent", "a", "x", None, 2)
    assert transcript.chunk(1, "agent", "other", None, None, 3) is None
    assert whole(transcript).last_frame == 2


def test_split_character_is_one_again() -> None:
    """Some agents cut a surrogate pair in two chunks; an empty chunk between them changes nothing."""
    joined = said("a\ud83d", "", "\ude00b")
    assert (joined.text, joined.text_bytes, joined.lossy) == ("a\U0001f600b", 6, False)


def test_lone_surrogate_and_nul_are_replaced() -> None:
    """What cannot be stored is replaced, and said to be."""
    joined = said("a\ud83d", "b", "\ude00", "\x00")
    assert (joined.text, joined.lossy) == ("a\ufffdb\ufffd\ufffd", True)


def test_long_text_is_cut_and_counted() -> None:
    """The first bytes are kept, on a character boundary; the rest is counted and never joined again."""
    joined = said("abc", "dé€", "fits", text_bytes=6)
    assert (joined.text, joined.truncated, joined.text_bytes) == ("abcdé", True, 13)


def test_text_of_exactly_the_bound_is_whole() -> None:
    """Equal to the limit is admitted."""
    joined = said("abc", "def", text_bytes=6)
    assert (joined.text, joined.truncated) == ("abcdef", False)


def test_open_messages_share_a_bound() -> None:
    """Many open messages hold no more between them than a few whole ones; ending one makes room."""
    transcript = Transcript(10)
    for session in range(1, OPEN_MESSAGES + 2):
        transcript.chunk(session, "agent", None, "0123456789", None, session)
    (last,) = transcript.end(OPEN_MESSAGES + 1)
    assert (last.text, last.truncated, last.text_bytes) == ("", True, 10)
    assert transcript.end(1)[0].truncated is False
    transcript.chunk(99, "agent", None, "0123456789", None, 99)
    assert transcript.end(99)[0].truncated is False


@given(st.text(), st.lists(st.integers(0, 60)))
def test_cuts_do_not_change_the_text(text: str, cuts: list[int]) -> None:
    """However a text is cut, between the halves of a character too, it is the same message."""
    units = text.encode("utf-16-le")
    points = sorted({2 * cut for cut in cuts if 2 * cut <= len(units)} | {0, len(units)})
    pieces = [units[start:end].decode("utf-16-le", "surrogatepass") for start, end in pairwise(points)]
    joined = said("", *pieces)
    assert joined.text == text.replace("\x00", "\ufffd")
    assert joined.text_bytes == len(text.encode())
    assert joined.lossy == ("\x00" in text)


@given(st.lists(st.text(st.characters(exclude_categories=())), max_size=8), st.integers(1, 20))
def test_kept_text_is_a_prefix_within_the_bound(texts: list[str], bound: int) -> None:
    """Whatever is said, what is kept begins like it and is no longer than the bound allows."""
    joined, unbounded = said("", *texts, text_bytes=bound), said("", *texts, text_bytes=10_000)
    assert joined.text_bytes == unbounded.text_bytes
    assert joined.truncated == (unbounded.text_bytes > bound)
    stored = joined.text.removesuffix("\ufffd")
    assert unbounded.text.startswith(stored)
