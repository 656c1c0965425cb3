"""Hypothesis strategies for the wire.

No strategy here knows a limit of the code under test: a generator shaped like the implementation cannot see its bugs.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

JSON_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
"""Any string JSON can spell, lone surrogates and NUL among them."""


def chunked(data: st.SearchStrategy[bytes] | None = None) -> st.SearchStrategy[list[bytes]]:
    """Bytes, cut anywhere into any number of pieces, empty ones among them."""
    return (data if data is not None else st.binary()).flatmap(cut)


def cut(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """These bytes, cut anywhere."""
    points = st.lists(st.integers(0, len(data)), max_size=20).map(sorted)
    return points.map(lambda at: [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])


def streams() -> st.SearchStrategy[bytes]:
    """Bytes rich in what could be taken for the end of a line."""
    piece = st.one_of(
        st.binary(max_size=20),
        st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\x00", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\x0c"]),
        lines(),
    )
    return st.lists(piece, max_size=12).map(b"".join)


def json_values(*, max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Any JSON value."""
    scalar = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        JSON_TEXT,
    )
    return st.recursive(
        scalar,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT | keys(), inner, max_size=4),
        max_leaves=max_leaves,
    )


def keys() -> st.SearchStrategy[str]:
    """Names that mean something on the wire."""
    routing = ["jsonrpc", "id", "method", "params", "result", "error", "sessionId", "update", "sessionUpdate"]
    answers = ["options", "optionId", "kind", "outcome", "stopReason", "toolCallId", "status", "code", "message"]
    secrets = ["mcpServers", "env", "headers", "value", "name", "authMethods", "_meta"]
    return st.sampled_from([*routing, *answers, *secrets])


def ids() -> st.SearchStrategy[Any]:
    """Any value somebody might use as an id."""
    usual: st.SearchStrategy[Any] = st.sampled_from(
        [0, 1, "", "1", None, True, False, 1.0, 1.5, 2**53 + 1, {}, [], "a\u2028b", 'q"\\']
    )
    return st.one_of(usual, st.integers(), JSON_TEXT)


def messages() -> st.SearchStrategy[dict[str, Any]]:
    """Objects that look like messages, sane or not."""
    method = st.sampled_from(
        [
            "initialize",
            "authenticate",
            "session/new",
            "session/update",
            "session/prompt",
            "terminal/create",
            "providers/set",
            "session/request_permission",
            "_vendor/thing",
        ]
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.just("2.0"),
            "id": ids(),
            "method": method | json_values(max_leaves=2),
            "params": json_values(),
            "result": json_values(),
            "error": json_values(),
        },
    )


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> bytes:
    """A spelling of a JSON value: with or without spaces, with or without escapes, with keys repeated or not."""
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()) or _holds_surrogates(value),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\r: ")])),
        indent=None,
    )
    if text.startswith("{") and len(text) > len("{}") and draw(st.booleans()):
        repeat = json.dumps(draw(keys())) + ":" + json.dumps(draw(json_values(max_leaves=3)))
        text = f"{{{repeat},{text[1:]}"
    for word in draw(st.lists(keys() | st.just("session/new"), max_size=2)):
        text = text.replace(f'"{word}"', f'"\\u{ord(word[0]):04x}{word[1:]}"')
    return (draw(st.sampled_from(["", " ", "\t"])) + text + draw(st.sampled_from(["", " ", "\r"]))).encode()


def _holds_surrogates(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def lines() -> st.SearchStrategy[bytes]:
    """Lines as peers might send them: messages, other JSON, and what is none."""
    odd = st.sampled_from(
        [
            b"",
            b"\r",
            b"NaN",
            b'{"id":NaN,"result":{}}',
            b'{"id":1,"result":{}}{"id":2,"result":{}}',
            b"\xef\xbb\xbf{}",
            b"\xff\xfe{\x00}\x00",
            b'{"a":"\xed\xa0\x80"}',
            b'{"jsonrpc":"2.0","id":1,"id":"1","result":{}}',
            b"[" * 1000,
            b"9" * 5000,
            b'{"id":-0,"method":"x"}',
            b'{"id":1e400,"method":"x"}',
            b'["\\ud800"]',
            b'{"a":"\\u0000"}',
            b'{"a":"\x00"}',
        ]
    )
    return st.one_of(messages().flatmap(spelled), json_values().flatmap(spelled), odd, st.binary(max_size=40)).filter(
        lambda line: b"\n" not in line
    )
