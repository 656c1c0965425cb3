"""Where the values of a settings file lie: JSON with comments and trailing commas, as byte spans.

What must not be broken here: a file that this cannot read is refused with the place, never read half; and nothing is
re-serialised, for the spans are what edits are cut by. The scanner of `protocol.spans` knows no comments, on purpose:
an agent's line has none.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple, TypeAlias

DEEPEST: Final = 64
"""Nesting beyond which a file is no settings file of an editor."""

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_LINE_COMMENT: Final = re.compile(rb"//[^\r\n]*+")
_BLOCK_COMMENT: Final = re.compile(rb"/\*.*?\*/", re.DOTALL)
_STRING: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
_SCALAR: Final = re.compile(rb"(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null)(?![\w.+-])")

Value: TypeAlias = "str | bytes | list[Value] | dict[str, Value]"
"""A string as its text, a number or word as its token, an array, an object (of a key given twice, the last)."""


class Comment(NamedTuple):
    """A comment, `data[start:end]`, without its newline; `runs_on` when only a newline ends it."""

    start: int
    end: int
    runs_on: bool


class Node(NamedTuple):
    """A value and where it lies, `data[start:end]`; `commas` are the places of the commas behind its parts."""

    start: int
    end: int
    value: Value
    members: tuple[Member, ...] = ()
    items: tuple[Node, ...] = ()
    commas: tuple[int, ...] = ()


class Member(NamedTuple):
    """A key of an object, with its value; `start` is where the key's quote is."""

    key: str
    start: int
    node: Node


class Document(NamedTuple):
    """A file that was read; `root` is None where it holds nothing but space and comments."""

    data: bytes
    root: Node | None
    comments: tuple[Comment, ...]

    def newline(self) -> bytes:
        """The line ending of the file."""
        return b"\r\n" if b"\r\n" in self.data else b"\n"

    def text(self, comment: Comment) -> bytes:
        """Give the bytes of a comment."""
        return self.data[comment.start : comment.end]


class JsoncError(ValueError):
    """The file is not JSON with comments: `what` is wrong, at `line` and `column` (both from 1)."""

    def __init__(self, data: bytes, position: int, what: str) -> None:
        before = data[:position]
        self.what = what
        self.line = before.count(b"\n") + 1
        self.column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        super().__init__(f"line {self.line}, column {self.column}: {what}")


def parse(data: bytes) -> Document:
    """Read a whole file.

    Raises:
        JsoncError: It is no UTF-8, or no JSON even with comments and trailing commas allowed.
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsoncError(data, error.start, "this is not UTF-8") from None
    scanner = _Scanner(data)
    start = scanner.skip(len(_BOM) if data.startswith(_BOM) else 0)
    if start == len(data):
        return Document(data, None, tuple(scanner.comments))
    root = scanner.value(start, 0)
    end = scanner.skip(root.end)
    if end != len(data):
        raise JsoncError(data, end, "nothing may follow the closing bracket")
    return Document(data, root, tuple(scanner.comments))


def find(node: Node, key: str) -> Member | None:
    """Give an object's member; of a key given twice, the last, as editors read it."""
    return next((each for each in reversed(node.members) if each.key == key), None)


def member(node: Node, key: str) -> Member:
    """Give a member that is known to be there.

    Raises:
        LookupError: It is not.
    """
    found = find(node, key)
    if found is None:
        raise LookupError(key)
    return found


def is_repeated(node: Node, key: str) -> bool:
    """Tell whether a key is given more than once."""
    return sum(each.key == key for each in node.members) > 1


class _Scanner:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.comments: list[Comment] = []

    def skip(self, position: int) -> int:
        """Pass over space and comments."""
        while True:
            position = _end(_SPACE, self.data, position)
            runs_on = self.data.startswith(b"//", position)
            if not runs_on and not self.data.startswith(b"/*", position):
                return position
            end = _end(_LINE_COMMENT if runs_on else _BLOCK_COMMENT, self.data, position)
            if end == position:
                raise JsoncError(self.data, position, "this comment is not closed")
            self.comments.append(Comment(position, end, runs_on))
            position = end

    def value(self, start: int, depth: int) -> Node:
        if depth > DEEPEST:
            raise JsoncError(self.data, start, f"this is nested more than {DEEPEST} levels deep")
        first = self.data[start : start + 1]
        if first == b"{":
            return self._object(start, depth)
        if first == b"[":
            return self._array(start, depth)
        if first == b'"':
            text, end = self._string(start)
            return Node(start, end, text)
        end = _end(_SCALAR, self.data, start)
        if end == start:
            raise JsoncError(self.data, start, "a value is expected here" if first else "the file ends too early")
        return Node(start, end, self.data[start:end])

    def _string(self, start: int) -> tuple[str, int]:
        end = _end(_STRING, self.data, start)
        if end == start:
            raise JsoncError(self.data, start, "this string is not closed, or holds what a JSON string must not hold")
        return str(json.loads(self.data[start:end])), end

    def _object(self, start: int, depth: int) -> Node:
        members: list[Member] = []
        commas: list[int] = []
        position = self.skip(start + 1)
        while not self.data.startswith(b"}", position):
            if not self.data.startswith(b'"', position):
                raise JsoncError(self.data, position, 'a key in double quotes or "}" is expected here')
            key, end = self._string(position)
            colon = self.skip(end)
            if not self.data.startswith(b":", colon):
                raise JsoncError(self.data, colon, 'a ":" is expected here')
            node = self.value(self.skip(colon + 1), depth + 1)
            members.append(Member(key, position, node))
            position = self._after(node, commas, b"}")
        value: dict[str, Value] = {each.key: each.node.value for each in members}
        return Node(start, position + 1, value, members=tuple(members), commas=tuple(commas))

    def _array(self, start: int, depth: int) -> Node:
        items: list[Node] = []
        commas: list[int] = []
        position = self.skip(start + 1)
        while not self.data.startswith(b"]", position):
            items.append(self.value(position, depth + 1))
            position = self._after(items[-1], commas, b"]")
        return Node(start, position + 1, [item.value for item in items], items=tuple(items), commas=tuple(commas))

    def _after(self, node: Node, commas: list[int], close: bytes) -> int:
        """Pass over the comma behind a part, if there is one; without one the container must end."""
        position = self.skip(node.end)
        if self.data.startswith(b",", position):
            commas.append(position)
            return self.skip(position + 1)
        if not self.data.startswith(close, position):
            raise JsoncError(self.data, position, f'a "," or "{close.decode()}" is expected here')
        return position


def _end(pattern: re.Pattern[bytes], data: bytes, position: int) -> int:
    found = pattern.match(data, position)
    return found.end() if found else position
