r"""Bytes into lines.

Only the byte 0x0A ends a line; `\r`, U+2028 and every other byte belong to it, and a blank line is a line. The limit
judges the unfinished line and never the buffer: ten short lines in one read do not trip it. What comes out must not
depend on how the stream was cut into reads.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class Line(NamedTuple):
    """A line without its newline; `terminated` is False for the last bytes of a stream that ended without one."""

    body: bytes
    terminated: bool


class Oversize(NamedTuple):
    """A line past the limit: SHA-256 (hex) of its first `limit` bytes, and how many bytes of it had been read by then.

    `length` counts the newline's line alone, without the newline; where the rest was never read it is a lower bound.
    """

    prefix_digest: str
    length: int


class LineSplitter:
    """Splits a byte stream into lines of at most `limit` bytes, the newline not counted.

    After one line past the limit the splitter has failed for ever: no place in the stream can be trusted any more.
    """

    def __init__(self, limit: int) -> None:
        if limit <= 0:
            raise ValueError(f"a line limit must be over 0 bytes, not {limit}")
        self._limit = limit
        # A bytearray grows in amortised linear time however small the reads are; a list of reads would cost a
        # pointer per byte when a peer sends one byte at a time.
        self._unfinished = bytearray()
        self._failed = False

    @property
    def failed(self) -> bool:
        """Whether a line passed the limit; from then on nothing more comes out."""
        return self._failed

    @property
    def buffered(self) -> int:
        """Bytes of the unfinished line held here."""
        return len(self._unfinished)

    def feed(self, data: bytes) -> list[Line | Oversize]:
        """Take the next bytes; give back every line they finish, and last an `Oversize` where one passed the limit."""
        if self._failed:
            return []
        *finished, rest = data.split(b"\n")
        lines: list[Line | Oversize] = []
        for piece in finished:
            if len(self._unfinished) + len(piece) > self._limit:
                lines.append(self._fail(piece))
                return lines
            lines.append(Line(self._finish(piece), terminated=True))
        if len(self._unfinished) + len(rest) > self._limit:
            lines.append(self._fail(rest))
        else:
            self._unfinished += rest
        return lines

    def finish(self) -> Line | None:
        """Take the end of the stream: the last line, when it came without a newline."""
        if self._failed or not self._unfinished:
            return None
        return Line(self._finish(b""), terminated=False)

    def _finish(self, piece: bytes) -> bytes:
        if not self._unfinished:
            return piece
        self._unfinished += piece
        body = bytes(self._unfinished)
        self._unfinished = bytearray()
        return body

    def _fail(self, piece: bytes) -> Oversize:
        self._failed = True
        digest = hashlib.sha256(self._unfinished)
        digest.update(piece[: self._limit - len(self._unfinished)])
        length = len(self._unfinished) + len(piece)
        self._unfinished = bytearray()
        return Oversize(digest.hexdigest(), length)
