"""Where the values of a JSON line lie, as byte spans, without building them.

What must not be broken here: the walk never raises, never recurses deeper than its plan, and costs at most `budget`
tokens plus a few passes of `memchr` over the line, whatever the bytes are. It trusts nothing: a line that is not JSON
is walked as far as it makes sense and then reported as not `complete`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_BUDGET: Final = 20_000
"""Tokens (brackets and strings) a walk of an unparsed line may cost; about half a microsecond each."""

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_SCALAR: Final = re.compile(rb"[-+.0-9A-Za-z]+")
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_OPEN: Final = frozenset(b"{[")
_MARKS: Final = (b'"', b"{", b"[", b"}", b"]")
_ANY_MARK: Final = re.compile(rb'["{}\[\]]')
_NEAR: Final = 128
_FIRST_WINDOW: Final = 64
_LAST_WINDOW: Final = 1 << 20
_BOM: Final = b"\xef\xbb\xbf"
_LONGEST_KEY: Final = 4096


UNFINISHED: Final = -1
"""The end of a value in which the walk stopped."""


class Plan(NamedTuple):
    """What to look for in a value.

    `members` and `rest` are followed into an object (`rest` under every other key), `each` into an array. `mark` is
    recorded for the value itself; `leaf` is recorded for it only where the walk did not go inside.
    """

    members: Mapping[str, Plan] = {}
    rest: Plan | None = None
    each: Plan | None = None
    mark: str | None = None
    leaf: str | None = None


class Span(NamedTuple):
    """A value that was looked for: its mark and where it lies, `line[start:end]`; `end` may be `UNFINISHED`."""

    mark: str
    start: int
    end: int


class Walk(NamedTuple):
    """What a walk found, in the order of the line; `complete` when the whole line was well enough formed."""

    spans: tuple[Span, ...]
    complete: bool


def walk(line: bytes, plan: Plan, *, budget: int = TOKEN_BUDGET) -> Walk:
    """Walk every value on the line (a line should hold one) and record the spans the plan names."""
    walker = _Walker(line, budget)
    position = walker.space(len(_BOM) if line.startswith(_BOM) else 0)
    try:
        while position < len(line):
            position = walker.space(walker.value(position, plan))
    except _Stopped:
        return Walk(tuple(walker.spans), complete=False)
    return Walk(tuple(walker.spans), complete=True)


def string_end(line: bytes, start: int) -> int:
    """Where the string ends whose first byte after the quote is at `start`: the index of its closing quote, or -1.

    Escaped quotes are masked in windows that double, so that a long text full of them costs no step per quote.
    """
    end = line.find(b'"', start)
    if end <= start or line[end - 1] != _BACKSLASH:
        return end
    window = _FIRST_WINDOW
    while start < len(line):
        piece = line[start : start + window]
        # A window never ends between a backslash and what it escapes.
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = line[start : start + len(piece) + 1]
        if b'"' in piece:
            end = piece.replace(b"\\\\", b"..").replace(b'\\"', b"..").find(b'"')
            if end >= 0:
                return start + end
        start += len(piece)
        window = min(window * 2, _LAST_WINDOW)
    return -1


class _Stopped(Exception):
    """The budget is spent, or the bytes are not JSON."""


class _Walker:
    def __init__(self, line: bytes, budget: int) -> None:
        self.line = line
        self.spans: list[Span] = []
        self._budget = budget
        # The next place of each mark, found again only once it is passed: every byte is looked at once per mark.
        self._next = [-1] * len(_MARKS)

    def space(self, position: int) -> int:
        found = _SPACE.match(self.line, position)
        return found.end() if found else position

    def value(self, start: int, plan: Plan | None) -> int:
        """Walk the value at `start` and give back where it ends."""
        first = self.line[start : start + 1]
        inside = False
        marked = len(self.spans)
        if plan is not None and plan.mark:
            self.spans.append(Span(plan.mark, start, UNFINISHED))
        if plan is not None and first == b"{" and (plan.members or plan.rest):
            end, inside = self._object(start, plan), True
        elif plan is not None and first == b"[" and plan.each:
            end, inside = self._array(start, plan.each), True
        else:
            end = self._skip(start)
        if plan is not None and plan.mark:
            self.spans[marked] = Span(plan.mark, start, end)
        if plan is not None and plan.leaf and not inside:
            self.spans.append(Span(plan.leaf, start, end))
        return end

    def _object(self, start: int, plan: Plan) -> int:
        position = self.space(start + 1)
        if self.line[position : position + 1] == b"}":
            return position + 1
        while True:
            key_end = self._string(position)
            key = _text(self.line[position:key_end])
            position = self.space(key_end)
            self._expect(position, b":")
            position = self.space(self.value(self.space(position + 1), plan.members.get(key, plan.rest)))
            if self.line[position : position + 1] == b"}":
                return position + 1
            self._expect(position, b",")
            position = self.space(position + 1)

    def _array(self, start: int, each: Plan) -> int:
        position = self.space(start + 1)
        if self.line[position : position + 1] == b"]":
            return position + 1
        while True:
            position = self.space(self.value(position, each))
            if self.line[position : position + 1] == b"]":
                return position + 1
            self._expect(position, b",")
            position = self.space(position + 1)

    def _skip(self, start: int) -> int:
        first = self.line[start : start + 1]
        if first == b'"':
            return self._string(start)
        if first in (b"{", b"["):
            return self._container(start)
        self._spend()
        found = _SCALAR.match(self.line, start)
        if found is None:
            raise _Stopped
        return found.end()

    def _container(self, start: int) -> int:
        depth, position = 0, start
        while True:
            position = self._following(position)
            byte = self.line[position]
            if byte == _QUOTE:
                position = self._string(position)
                continue
            self._spend()
            depth += 1 if byte in _OPEN else -1
            position += 1
            if depth == 0:
                return position

    def _following(self, position: int) -> int:
        """Where the next quote or bracket is, from `position` on: near by with one search, else with `memchr`."""
        near = _ANY_MARK.search(self.line, position, position + _NEAR)
        if near is not None:
            return near.start()
        following = self._next
        for mark, place in enumerate(following):
            if place < position:
                found = self.line.find(_MARKS[mark], position)
                following[mark] = found if found >= 0 else len(self.line)
        nearest = min(following)
        if nearest == len(self.line):
            raise _Stopped
        return nearest

    def _string(self, start: int) -> int:
        self._spend()
        self._expect(start, b'"')
        end = string_end(self.line, start + 1)
        if end < 0:
            raise _Stopped
        return end + 1

    def _expect(self, position: int, byte: bytes) -> None:
        if self.line[position : position + 1] != byte:
            raise _Stopped

    def _spend(self) -> None:
        self._budget -= 1
        if self._budget < 0:
            raise _Stopped


def _text(token: bytes) -> str:
    """The key a string token spells; a key too long to be one of ours is no key of ours."""
    if len(token) > _LONGEST_KEY:
        return ""
    if _BACKSLASH not in token:
        return token[1:-1].decode("utf-8", "replace")
    try:
        return str(json.loads(token.decode("utf-8", "replace")))
    except ValueError:
        return ""
