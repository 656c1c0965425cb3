"""The routing scan: what a line too big to parse still tells, at a bounded price."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.envelope import parse
from acp_ledger.protocol.routing import scan
from tests.support.strategies import lines

MIB = 1 << 20


@given(lines() | st.binary(), st.integers(0, 40))
def test_scan_never_raises(line: bytes, budget: int) -> None:
    """Any bytes under any budget give a routing, and what it calls an id is on the line."""
    found = scan(line, budget=budget)
    assert found == scan(line, budget=budget)
    assert found.id_token is None or found.id_token in line.decode("utf-8", "replace")


def test_id_after_huge_string_is_found() -> None:
    """An id behind 32 MiB of text is found, for the text is one token."""
    text = b'import os\\n\\tprint(\\"x\\")\\\\' * (MIB // 2)
    line = (
        b'{"jsonrpc":"2.0","method":"fs/write_text_file","params":{"content":"'
        + text
        + b'","sessionId":"s"},"id":"a1"}'
    )
    found = scan(line)
    assert found.complete
    assert found.skeleton == {
        "jsonrpc": "2.0",
        "method": "fs/write_text_file",
        "params": {"sessionId": "s"},
        "id": "a1",
    }
    envelope = parse(line)
    assert (envelope.kind, envelope.id_token, envelope.id_key) == ("request", '"a1"', ("string", "a1"))


@pytest.mark.parametrize(
    ("line", "skeleton"),
    [
        (b'{"id":7,"result":{"stopReason":"end_turn"}}', {"id": 7, "result": {"stopReason": "end_turn"}}),
        (b'{"params":{"sessionId":"s"}}', {"params": {"sessionId": "s"}}),
        (
            b'{"params":{"update":{"sessionUpdate":"tool_call","content":[{"sessionUpdate":"no"}],"toolCallId":"c"}}}',
            {"params": {"update": {"sessionUpdate": "tool_call", "toolCallId": "c"}}},
        ),
        (
            b'{"params":{"toolCall":{"toolCallId":"c"},"options":[1,2]}}',
            {"params": {"toolCall": {"toolCallId": "c"}, "options": []}},
        ),
        (b'{"id":1,"error":{"code":-32000,"message":"x"}}', {"id": 1, "error": {"code": -32000}}),
        (b'{"id":1,"error":null,"result":null}', {"id": 1, "error": None, "result": None}),
        (b'{"params":[{"sessionId":"s"}],"method":["x"]}', {"params": [], "method": []}),
        (b'{"a":{"id":1,"method":"no"},"\\u0069d":2}', {"id": 2}),
        (b'[{"id":1}]', {}),
        (b'"id"', {}),
        (b"", {}),
    ],
)
def test_words_are_found_in_their_place(line: bytes, skeleton: dict[str, Any]) -> None:
    """Routing words are read where they mean something, and nowhere else."""
    found = scan(line)
    assert (found.skeleton, found.complete) == (skeleton, True)


def test_unfinished_scan_is_opaque() -> None:
    """Where the scan gives up nothing is concluded, but what was seen is kept, and the question it may answer named."""
    line = b'{"jsonrpc":"2.0","id":5,"result":{"stopReason":"end_turn","x":' + b"[" * (5 * MIB)
    envelope = parse(line)
    assert (envelope.kind, envelope.answers, envelope.possible_answers) == ("opaque", None, (("number", "5"),))
    assert envelope.anomalies == (("unparsed", "bytes, unfinished"),)
    assert envelope.result == {"stopReason": "end_turn"}


def test_overlong_word_reads_as_absent() -> None:
    """A routing word of megabytes is no word; an id of megabytes is there, and answers nothing."""
    envelope = parse(b'{"jsonrpc":"2.0","id":"' + b"i" * MIB + b'","method":"' + b"m" * MIB + b'"}', parse_bytes=MIB)
    assert (envelope.has_id, envelope.id_key, envelope.method, envelope.answers) == (True, None, None, None)
    assert envelope.kind == "opaque"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"[" * (64 * MIB), id="brackets"),
        pytest.param(b'{"params":' * (6 * MIB), id="objects"),
        pytest.param(b'{"jsonrpc":"2.0","method":"session/update","params":' + b"[" * (63 * MIB), id="params"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":[' + b"{}," * (20 * MIB) + b"{}]}", id="siblings"),
    ],
)
def test_nest_costs_little(line: bytes) -> None:
    """64 MiB of brackets are given up on at once, and never parsed."""
    start = time.process_time()
    assert parse(line).unparsed
    # 20 to 30 ms on an idle core; reading all of it would take half a minute.
    assert time.process_time() - start < 1
