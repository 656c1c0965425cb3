"""Edits of a settings file as splices: an entry is put in, taken out or changed, and every other byte stays.

What must not be broken here: no comment and no value outside the entry that is meant is touched, and taking out what
was put in gives the bytes that were there before.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acp_ledger.ctl.editor.jsonc import Document, Node

Fresh: TypeAlias = "bytes | list[tuple[str, Fresh]]"
"""A value to be written: a token as it is, or the members of an object."""

_USUAL_INDENT: Final = b"  "
_BLANK: Final = b" \t"


class Splice(NamedTuple):
    """`data[start:end]` becomes `text`."""

    start: int
    end: int
    text: bytes


def apply(data: bytes, splices: Iterable[Splice]) -> bytes:
    """Cut and paste; of two at one place the first comes first."""
    pieces, position = [], 0
    for splice in sorted(splices, key=lambda each: each.start):
        pieces += [data[position : splice.start], splice.text]
        position = splice.end
    return b"".join([*pieces, data[position:]])


def token(text: str) -> bytes:
    """Write a string as JSON."""
    quoted = json.dumps(text, ensure_ascii=False)
    try:
        return quoted.encode()
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def tokens(words: Iterable[str]) -> bytes:
    """Write strings as the inside of a JSON array."""
    return b", ".join(map(token, words))


class Layout(NamedTuple):
    """How a file is laid out: its line ending, and one step of indentation."""

    newline: bytes
    step: bytes

    def write(self, fresh: Fresh, indent: bytes | None) -> bytes:
        """Write a value that starts on a line indented by `indent`, or, with None, on one line."""
        if isinstance(fresh, bytes):
            return fresh
        if not fresh:
            return b"{}"
        if indent is None:
            return b"{ " + b", ".join(token(key) + b": " + self.write(each, None) for key, each in fresh) + b" }"
        deeper = self.newline + indent + self.step
        inside = b",".join(deeper + token(key) + b": " + self.write(each, indent + self.step) for key, each in fresh)
        return b"{" + inside + self.newline + indent + b"}"


def layout(document: Document) -> Layout:
    """See how a file is laid out: the step is the indentation of its first member that begins a line."""
    members = document.root.members if document.root else ()
    steps = (_indent(document.data, member.start) for member in members if _begins_line(document.data, member.start))
    return Layout(document.newline(), next((step for step in steps if step), _USUAL_INDENT))


def add_member(document: Document, owner: Node, key: str, fresh: Fresh) -> bytes:
    """Put a member behind the last one of an object, in the manner of that object."""
    data, style = document.data, layout(document)
    if not owner.members:
        return _add_first(document, owner, key, fresh)
    last = owner.members[-1]
    has_trailing_comma = len(owner.commas) == len(owner.members)
    behind = owner.commas[-1] + 1 if has_trailing_comma else last.node.end
    comma, tail = (b"", b",") if has_trailing_comma else (b",", b"")
    if b"\n" not in data[owner.start : owner.end]:
        text = comma + b" " + token(key) + b": " + style.write(fresh, None) + tail
        return apply(data, [Splice(behind, behind, text)])
    at = _end_of_line(document, behind, owner.end - 1)
    indent = _indent(data, last.start)
    if not _begins_line(data, last.start):
        indent = _indent(data, owner.start) + style.step
    text = style.newline + indent + token(key) + b": " + style.write(fresh, indent) + tail
    if b"\n" not in data[at : owner.end - 1]:
        text += style.newline + _indent(data, owner.start)
    return apply(data, [Splice(behind, behind, comma), Splice(at, at, text)])


def _add_first(document: Document, owner: Node, key: str, fresh: Fresh) -> bytes:
    """Put a member into an object that has none, behind the comments that open it."""
    data, style = document.data, layout(document)
    outer = _indent(data, owner.start)
    text = style.newline + outer + style.step + token(key) + b": " + style.write(fresh, outer + style.step)
    if not data[owner.start + 1 : owner.end - 1].strip():
        return apply(data, [Splice(owner.start + 1, owner.end - 1, text + style.newline + outer)])
    at = _end_of_line(document, owner.start + 1, owner.end - 1)
    closing = b"" if b"\n" in data[at : owner.end - 1] else style.newline + outer
    return apply(data, [Splice(at, at, text + closing)])


def blank_of(document: Document, owner: Node | None) -> bytes:
    """Give the white space of an object that holds nothing else, which adding a member replaces."""
    inside = document.data[owner.start + 1 : owner.end - 1] if owner else b""
    return b"" if inside.strip() else inside


def remove_member(document: Document, owner: Node, key: str, blank: bytes = b"") -> bytes:
    """Take a member out, with the space before it and the comma that only it needed. Comments stay.

    `blank` is what an object holds that has nothing else left.
    """
    data = document.data
    index = max(place for place, member in enumerate(owner.members) if member.key == key)
    member = owner.members[index]
    commas = [owner.commas[index]] if index < len(owner.commas) else []
    start = len(data[: member.start].rstrip())
    splices = [Splice(start, member.node.end, _kept_newline(document, start, (commas or [member.node.end - 1])[0] + 1))]
    splices += [Splice(comma, comma + 1, b"") for comma in commas or list(owner.commas[index - 1 : index])]
    if len(owner.members) == 1 and not _without(data, owner, splices).strip():
        return apply(data, [Splice(owner.start + 1, owner.end - 1, blank)])
    return apply(data, splices)


def _without(data: bytes, owner: Node, splices: Sequence[Splice]) -> bytes:
    """Give what an object would hold after the splices."""
    shifted = [Splice(each.start - owner.start - 1, each.end - owner.start - 1, b"") for each in splices]
    return apply(data[owner.start + 1 : owner.end - 1], shifted)


def line_break_before(document: Document, position: int) -> bytes:
    """Give the newline and indentation in front of a place, nothing where it does not begin its line."""
    if not _begins_line(document.data, position):
        return b""
    return document.newline() + _indent(document.data, position)


def _kept_newline(document: Document, start: int, end: int) -> bytes:
    """Give the newline that must stay, lest a comment in front swallow what follows on the same line."""
    runs_on = any(comment.runs_on and comment.end == start for comment in document.comments)
    following = document.data[end:].lstrip(_BLANK)
    return document.newline() if runs_on and not following.startswith((b"\n", b"\r\n")) else b""


def _indent(data: bytes, position: int) -> bytes:
    """Give the white space that begins the line of a place."""
    line = data[data.rfind(b"\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(_BLANK))]


def _begins_line(data: bytes, position: int) -> bool:
    return not data[data.rfind(b"\n", 0, position) + 1 : position].strip(_BLANK)


def _end_of_line(document: Document, position: int, limit: int) -> int:
    """Give the end of the last comment on the rest of this line, or the place itself where there is none."""
    end = document.data.find(b"\n", position, limit)
    line = limit if end < 0 else end
    return max([position, *(comment.end for comment in document.comments if position <= comment.start < line)])
