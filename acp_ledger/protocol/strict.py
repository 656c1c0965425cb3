"""JSON, read so that nothing is lost and nothing is guessed.

What must not be broken here: whatever this reads, every conforming reader reads alike, or the difference is reported.
`reference` says what is right; a faster reader goes before it, on the lines alone on which the two cannot differ.
Whether a line is too big to read is decided from its bytes alone (`size_fault`), before parsing, so that another
machine decides the same; numbers keep the text they were written in wherever a Python number would not give it back.
Reported details are our own words: the standard library's messages differ between its versions.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

NODE_BOUND: Final = 65_536
"""The most values a line may hold and still be parsed: members and elements, counted outside strings."""

DEPTH_BOUND: Final = 128
"""The most brackets that may be open at once in a line that is parsed."""

INTEGER_DIGITS: Final = 40
"""Integers written in more characters stay text: turning 5,000 digits into a number takes quadratic time."""

UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
"""What a JSON string can hold and a text column cannot: NUL and lone surrogates."""

_STEP: Final = bytes.maketrans(b"{[}]", b"\x02\x02\x00\x00")
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_INTEGER: Final = b"0" * (INTEGER_DIGITS + 1)
_NOT_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"{[}]")))

StrictFault: TypeAlias = Literal["invalid_utf8", "bom", "blank", "not_json", "constant", "trailing_data"]


class Number(NamedTuple):
    """A number that no Python int gives back as it was written: fractions, exponents, `-0`, very long integers."""

    literal: str


class NotStrict(ValueError):
    """The line is not one strict JSON value: a class word, and a detail in our own words."""

    def __init__(self, fault: StrictFault, detail: str | None = None) -> None:
        super().__init__(fault, detail)
        self.fault: StrictFault = fault
        self.detail = detail


class Repeated(dict[str, Any]):
    """An object in which a key occurs more than once; as a mapping it holds the last value of each."""

    pairs: list[tuple[str, Any]]
    """Every member as written."""

    def repeats(self) -> list[str]:
        """The keys that occur more than once, in the order of their second occurrence."""
        seen: set[str] = set()
        found: dict[str, None] = {}
        for key, _ in self.pairs:
            if key in seen:
                found[key] = None
            seen.add(key)
        return list(found)

    def every(self, key: str) -> list[Any]:
        """All values of that key, in order."""
        return [value for name, value in self.pairs if name == key]


class _RepeatedKeyError(Exception):
    """The quick reader met a repeated key; the careful one reads the line again."""


def size_fault(line: bytes, parse_bytes: int) -> str | None:
    """Why the line is too big to parse (`bytes`, `nodes` or `depth`), or None.

    The first counts bound the exact ones from above, so most lines cost two passes of a byte count.
    """
    if len(line) > parse_bytes:
        return "bytes"
    brackets = line.count(b"{") + line.count(b"[")
    if brackets <= DEPTH_BOUND and (len(line) <= NODE_BOUND or brackets + line.count(b",") <= NODE_BOUND):
        return None
    outside = _outside_strings(line)
    if outside.count(b"{") + outside.count(b"[") + outside.count(b",") > NODE_BOUND:
        return "nodes"
    steps = outside.translate(_STEP, _NOT_BRACKETS)
    if max(accumulate((step - 1 for step in steps), initial=0)) > DEPTH_BOUND:
        return "depth"
    return None


def _outside_strings(line: bytes) -> bytes:
    # Exact for every prefix of the line that is JSON, which is as far as a parser gets.
    return b"".join(line.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def read(line: bytes) -> tuple[Any, bool]:
    """The one JSON value on the line, and whether a key is repeated anywhere in it.

    Objects are dicts (`Repeated` where a key is), integers `int` as far as that is exact and cheap, other numbers
    `Number`. The caller has asked `size_fault` first.

    Raises:
        NotStrict: the line is not one strict JSON value.
    """
    # A line that a fast reader's value spells again byte for byte holds one way of reading it alone: no repeated key,
    # no number written otherwise, nothing beside the value. Most lines are written so; all others are read with care.
    try:
        value = _read_fast(line)
        if _spell(value) == line and _LONG_INTEGER not in line.translate(_ZEROS):
            return value, False
    except (ValueError, RecursionError, msgspec.MsgspecError):
        pass  # the reference says what is wrong with it
    return reference(line)


def reference(line: bytes) -> tuple[Any, bool]:
    """What `read` gives, by the standard library alone: the reader that says what is right."""
    try:
        text = line.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise NotStrict("invalid_utf8", f"byte {error.start}") from error
    try:
        return _decode(_QUICK, text), False
    except _RepeatedKeyError:
        return _decode(_CAREFUL, text), True


def _decode(decoder: json.JSONDecoder, text: str) -> Any:
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        raise NotStrict("blank")
    if text.startswith("\ufeff"):
        raise NotStrict("bom")
    try:
        value, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise NotStrict("not_json") from error
    if end != len(text) and text[end:].strip(" \t\r\n"):
        raise NotStrict("trailing_data", f"from character {end}")
    return value


def _integer(literal: str) -> int | Number:
    if len(literal) > INTEGER_DIGITS or literal == "-0":
        return Number(literal)
    return int(literal)


def _constant(name: str) -> Any:
    raise NotStrict("constant", name)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RepeatedKeyError
    return made


def _careful_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    repeated = Repeated(made)
    repeated.pairs = pairs
    return repeated


_QUICK: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=Number, parse_constant=_constant
)
_CAREFUL: Final = json.JSONDecoder(
    object_pairs_hook=_careful_object, parse_int=_integer, parse_float=Number, parse_constant=_constant
)
_read_fast: Final = msgspec.json.Decoder(float_hook=Number).decode
_spell: Final = msgspec.json.Encoder().encode
