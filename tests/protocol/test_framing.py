"""Framing: what comes out depends on the bytes, never on how they were cut into reads."""

from __future__ import annotations

import hashlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.framing import Line, LineSplitter, Oversize
from tests.support.strategies import chunked, cut, streams


def split(pieces: list[bytes], limit: int) -> list[Line | Oversize]:
    """Everything that comes out of a stream that arrives in these reads."""
    splitter = LineSplitter(limit)
    out = [item for piece in pieces for item in splitter.feed(piece)]
    last = splitter.finish()
    return out if last is None else [*out, last]


def judged(items: list[Line | Oversize]) -> list[Line | str]:
    """The same without the length of an oversize line, which grows with the read that passed the limit."""
    return [item.prefix_digest if isinstance(item, Oversize) else item for item in items]


@given(chunked(streams()))
def test_lines_rejoin_to_stream(pieces: list[bytes]) -> None:
    """Every byte that came in comes out, in order, and only newlines were taken away."""
    whole = b"".join(pieces)
    out = split(pieces, limit=len(whole) + 1)
    assert b"".join(item.body + b"\n" * item.terminated for item in out if isinstance(item, Line)) == whole


@given(streams(), st.integers(1, 60), st.data())
def test_cuts_change_nothing(whole: bytes, limit: int, data: st.DataObject) -> None:
    """However a stream is cut into reads, the same lines come out and the same line passes the limit."""
    assert judged(split(data.draw(cut(whole)), limit)) == judged(split([whole], limit))


@given(chunked(streams()), st.integers(1, 60))
def test_lines_match_plain_split(pieces: list[bytes], limit: int) -> None:
    """The lines are those of a plain split on the newline byte, up to the first that is over the limit."""
    *finished, rest = b"".join(pieces).split(b"\n")
    expected: list[Line | str] = []
    for body, terminated in [*((body, True) for body in finished), *([(rest, False)] if rest else [])]:
        if len(body) > limit:
            expected.append(hashlib.sha256(body[:limit]).hexdigest())
            break
        expected.append(Line(body, terminated))
    assert judged(split(pieces, limit)) == expected


@pytest.mark.parametrize(
    ("stream", "bodies"),
    [
        pytest.param(b"a\r\nb\n", [b"a\r", b"b"], id="carriage return is kept"),
        pytest.param(b"\n\n", [b"", b""], id="blank lines are lines"),
        pytest.param(
            "a\u2028b\u0085c\x0bd\x0ce\x1cf\n".encode(), ["a\u2028b\u0085c\x0bd\x0ce\x1cf".encode()], id="U+2028"
        ),
        pytest.param(b"a\x00b\n", [b"a\x00b"], id="NUL"),
        pytest.param(b"\xff\xfe\xed\xa0\x80\n", [b"\xff\xfe\xed\xa0\x80"], id="bad UTF-8"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_newline_alone_splits(stream: bytes, bodies: list[bytes]) -> None:
    """Nothing but the newline byte ends a line."""
    assert split([stream], 100) == [Line(body, terminated=True) for body in bodies]


def test_last_line_is_marked() -> None:
    """A stream that ends without a newline gives its last bytes as a line that says so."""
    assert split([b"a\nb"], 10) == [Line(b"a", terminated=True), Line(b"b", terminated=False)]


def test_limit_ignores_buffer() -> None:
    """Many short lines in one read do not trip a limit that none of them passes."""
    splitter = LineSplitter(11)
    assert splitter.feed(b"ten bytes..\n" * 10) == [Line(b"ten bytes..", terminated=True)] * 10
    assert not splitter.failed


@pytest.mark.parametrize("terminated", [True, False])
def test_limit_admits_equal(terminated: bool) -> None:  # noqa: FBT001  # a parameter of the table above
    """A line as long as the limit passes; its newline does not count."""
    assert split([b"12345" + b"\n" * terminated], 5) == [Line(b"12345", terminated)]


def test_oversize_leaves_digest() -> None:
    """Of a line past the limit the digest of its admitted prefix and the length seen are left, and lines before it."""
    splitter = LineSplitter(5)
    out = splitter.feed(b"ok\n123456\nmore\n")
    assert out == [Line(b"ok", terminated=True), Oversize(hashlib.sha256(b"12345").hexdigest(), 6)]
    assert splitter.failed


def test_oversize_fails_for_ever() -> None:
    """After a line past the limit nothing comes out, whatever arrives, and nothing is held."""
    splitter = LineSplitter(3)
    assert [type(item) for item in splitter.feed(b"12") + splitter.feed(b"34")] == [Oversize]
    assert splitter.feed(b"\nok\n") == []
    assert splitter.finish() is None
    assert splitter.buffered == 0


def test_unfinished_line_is_bounded() -> None:
    """A line that never ends is held up to the limit and not a byte further."""
    splitter = LineSplitter(1000)
    held = 0
    for _ in range(5000):
        splitter.feed(b"x")
        held = max(held, splitter.buffered)
    assert (held, splitter.failed) == (1000, True)


def test_long_line_is_linear() -> None:
    """A long line that arrives in small reads is not looked at again with each of them."""
    piece = b"x" * 4096
    splitter = LineSplitter(1 << 30)
    start = time.process_time()
    for _ in range(8192):
        splitter.feed(piece)
    assert splitter.feed(b"\n") == [Line(piece * 8192, terminated=True)]
    # 0.1 s; looking at 16 MiB with each of 8192 reads would take over half a minute.
    assert time.process_time() - start < 5


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_must_be_positive(limit: int) -> None:
    """A splitter that could admit no line is refused where it is made."""
    with pytest.raises(ValueError, match="limit"):
        LineSplitter(limit)
