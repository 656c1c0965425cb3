"""The scanner: what an editor reads it reads, and what it cannot read it refuses with the place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_ledger.ctl.editor import jsonc

TRIVIA = st.sampled_from(["", " ", "\n", "\t\r\n", ' // a "{[, comment\n', "/* ** / // \n * */", "/**/", "//\n"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value as somebody with a taste for comments and trailing commas may write it."""

    def gap() -> str:
        return draw(TRIVIA)

    def many(parts: list[str], ends: str) -> str:
        tail = draw(st.sampled_from(["", ","])) if parts else ""
        return ends[0] + gap() + (gap() + "," + gap()).join(parts) + gap() + tail + gap() + ends[1]

    if isinstance(value, list):
        return many([draw(written(each)) for each in value], "[]")
    if isinstance(value, dict):
        pairs = [json.dumps(key) + gap() + ":" + gap() + draw(written(each)) for key, each in value.items()]
        return many(pairs, "{}")
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


def plain(value: jsonc.Value) -> Any:
    """What the scanner read, as the standard library gives it."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return json.loads(value) if isinstance(value, bytes) else value


@settings(max_examples=40)
@given(st.data(), JSON)
def test_reads_what_was_written(data: st.DataObject, value: Any) -> None:
    """Comments and trailing commas change nothing of what is read."""
    text = data.draw(TRIVIA) + data.draw(written(value)) + data.draw(TRIVIA)
    document = jsonc.parse(text.encode())
    assert document.root is not None
    assert plain(document.root.value) == value


@settings(max_examples=40)
@given(JSON)
def test_reads_plain_json_as_the_standard_library_does(value: Any) -> None:
    """Every JSON document is one with comments."""
    root = jsonc.parse(json.dumps(value, indent=2).encode()).root
    assert root is not None
    assert plain(root.value) == value


@pytest.mark.parametrize(
    ("content", "place", "what"),
    [
        (b'{\n  "a": 1\n  "b": 2\n}', (3, 3), 'a "," or "}" is expected here'),
        (b'{"a" 1}', (1, 6), 'a ":" is expected here'),
        (b"{a: 1}", (1, 2), 'a key in double quotes or "}" is expected here'),
        (b'{"a": 1,, "b": 2}', (1, 9), 'a key in double quotes or "}" is expected here'),
        (b"[1,,2]", (1, 4), "a value is expected here"),
        (b"{'a': 1}", (1, 2), 'a key in double quotes or "}" is expected here'),
        (b'{"a": "b\nc"}', (1, 7), "this string is not closed, or holds what a JSON string must not hold"),
        (b'{"a": "\\x"}', (1, 7), "this string is not closed, or holds what a JSON string must not hold"),
        (b"{} // end\n{}", (2, 1), "nothing may follow the closing bracket"),
        (b'{"a": 1 /* never', (1, 9), "this comment is not closed"),
        (b'{"\xc3\xa9\xc3\xa9": \xff}', (1, 8), "this is not UTF-8"),
        (b'{"\xc3\xa9\xc3\xa9": nope}', (1, 8), "a value is expected here"),
        (b'{"a": [', (1, 8), "the file ends too early"),
        (b'{"a": 01}', (1, 7), "a value is expected here"),
        (b'{"a": truely}', (1, 7), "a value is expected here"),
        (b"[" * 66, (1, 66), "this is nested more than 64 levels deep"),
    ],
)
def test_refuses_with_the_place(content: bytes, place: tuple[int, int], what: str) -> None:
    """Line and column, in characters, lead to what is wrong."""
    with pytest.raises(jsonc.JsoncError) as caught:
        jsonc.parse(content)
    assert ((caught.value.line, caught.value.column), caught.value.what) == (place, what)


@pytest.mark.parametrize("content", [b"", b"\n", b"// nothing\n", b"\xef\xbb\xbf/* nothing */"])
def test_nothing_is_no_value(content: bytes) -> None:
    """A file of space and comments is read, and holds nothing."""
    assert jsonc.parse(content).root is None


def test_of_a_key_given_twice_the_last_counts() -> None:
    """As in the editors; that it is given twice can be seen."""
    root = jsonc.parse(b'{"a": "x", "b": 1, "a": "y"}').root
    assert root is not None
    assert jsonc.member(root, "a").node.value == "y"
    assert (jsonc.is_repeated(root, "a"), jsonc.is_repeated(root, "b")) == (True, False)
