"""JSON is read soon where it can be, and always alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol import strict
from acp_ledger.protocol.strict import NotStrict, Number, Repeated

ODD_TOKENS = (
    *("0", "-0", "1.0", "1e5", "-1E-400", "0.1", "1e400", "-1", "18446744073709551616", "9" * 40, "9" * 41, "1" * 700),
    *('""', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0041"', '"\\/"', '"\\u001B"', '"\x7f"', '"\u2028"', '"\\u0000"'),
    *("true", "null", "NaN", "-Infinity", "{}", "[]", "[1,]", '{"a":1,"a":2}', '{"a":{"b":1,"b":1}}', "01", "1.", "+1"),
)
"""Tokens that readers of JSON are known to differ on, beside plain ones."""

_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def _lines(draw: st.DrawFn) -> bytes:
    """A line as some writer may put it: JSON in many spellings, with odd tokens in it, now and then broken."""
    token = draw(st.sampled_from(ODD_TOKENS))
    spaced, ascii_only = draw(st.booleans()), draw(st.booleans())
    separators = (", ", ": ") if spaced else (",", ":")
    text = json.dumps(draw(_plain), ensure_ascii=ascii_only, separators=separators)
    line = draw(st.sampled_from((text, token, f'{{"a":{text},"b":{token}}}', f"[{token},{text}]", f" {text}\t")))
    raw = line.encode("utf-8", "surrogatepass")
    at = draw(st.integers(0, len(raw)))
    return raw[:at] + draw(st.sampled_from((b"", b"", b"", b"\xff", b"\x00", b'"', b"}", b"\xef\xbb\xbf"))) + raw[at:]


def _heard(read: Any, line: bytes) -> Any:
    """What a reader says of a line, with the types of all that is in it."""
    try:
        value, repeated = read(line)
    except NotStrict as error:
        return error.args
    return _typed(value), repeated


def _typed(value: Any) -> Any:
    if isinstance(value, Repeated):
        return "repeated", [(key, _typed(item)) for key, item in value.pairs]
    if isinstance(value, dict):
        return "object", [(key, _typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return "array", [_typed(item) for item in value]
    return type(value).__name__, value


@given(_lines())
def test_soon_and_slowly_are_alike(line: bytes) -> None:
    """Whatever is on a line, the fast way to read it gives what the reference gives, or leaves it to that."""
    assert _heard(strict.read, line) == _heard(strict.reference, line)


@pytest.mark.parametrize("token", ODD_TOKENS)
def test_odd_token_is_read_as_by_the_reference(token: str) -> None:
    """Each spelling that readers differ on is read in one way."""
    line = f'{{"id":{token}}}'.encode("utf-8", "surrogatepass")
    assert _heard(strict.read, line) == _heard(strict.reference, line)


@pytest.mark.parametrize(("token", "kept"), [("1.0", "1.0"), ("-0", "-0"), ("9" * 41, "9" * 41), ("1e400", "1e400")])
def test_number_keeps_its_spelling(token: str, kept: str) -> None:
    """A number that no int gives back is kept as it was written."""
    value, _ = strict.read(f"[{token}]".encode())
    assert value == [Number(kept)]
    assert type(value[0]) is Number


def test_plain_line_is_read_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line as most writers spell it never meets the slow reader."""
    monkeypatch.delattr(strict, "reference")
    line = '{"jsonrpc":"2.0","id":1,"params":{"text":"a\\n\\"é\\u001b","list":[true,null,-5,{}]}}'.encode()
    assert strict.read(line)[0]["params"] == {"text": 'a\n"é\x1b', "list": [True, None, -5, {}]}
