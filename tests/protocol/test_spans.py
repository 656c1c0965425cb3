"""Byte spans: a walk finds values where they lie, and no bytes make it raise or run away."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.spans import UNFINISHED, Plan, Span, string_end, walk
from tests.support.strategies import JSON_TEXT, json_values, lines, spelled

EVERYTHING = Plan(mark="1", rest=Plan(mark="2", rest=Plan(mark="3"), each=Plan(mark="3")), each=Plan(mark="2"))


@given(json_values(), st.data())
def test_spans_are_the_values(value: Any, data: st.DataObject) -> None:
    """Each span holds the text of exactly one value, whatever the spelling, and the first holds them all."""
    line = data.draw(spelled(value))
    found = walk(line, EVERYTHING)
    assert found.complete
    spelt = [json.loads(line[span.start : span.end]) for span in found.spans]
    assert spelt[0] == json.loads(line)
    assert [span.mark for span in found.spans].count("2") == members(json.loads(line, object_pairs_hook=Members))


class Members(list[Any]):
    """An object as the list of its values, the repeated ones too."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(value for _, value in pairs)


def members(value: Any) -> int:
    """How many members or elements a container has."""
    return len(value) if isinstance(value, list) else 0


@given(lines() | st.binary(), st.integers(0, 50))
def test_walk_never_raises(line: bytes, budget: int) -> None:
    """Any bytes under any budget give a walk, whose finished spans lie on the line in order."""
    starts = [0]
    for span in walk(line, EVERYTHING, budget=budget).spans:
        assert starts[-1] <= span.start
        assert span.end == UNFINISHED or span.start < span.end <= len(line)
        starts.append(span.start)


@given(JSON_TEXT, st.binary(max_size=200), st.integers(0, 300))
def test_string_end_is_the_closing_quote(text: str, after: bytes, escapes: int) -> None:
    """A string ends at its first quote that no backslash escapes, wherever windows of the search fall."""
    token = json.dumps(text + '\\"' * escapes + "\\" * (escapes % 7)).encode()
    assert string_end(token + after, 1) == len(token) - 1
    assert string_end(token[:-1], 1) == -1


@pytest.mark.parametrize("filling", [b"\\\\", b'\\"', b'\\\\\\"', b'\\\\\\\\\\"', b'\\na\\"'])
@pytest.mark.parametrize("shift", range(8))
def test_string_end_survives_window_edges(filling: bytes, shift: int) -> None:
    """An escape that lies across the edge of a window is read as one escape."""
    token = b'"' + b"x" * shift + filling * 5000 + b'"'
    assert string_end(token + b',"next":1', 1) == len(token) - 1


def test_plan_goes_where_it_says() -> None:
    """Members are found by name however it is spelled, `rest` is every other one, `leaf` only what was not entered."""
    line = b'{"a":{"x":1},"\\u0062":[2,{"y":3}],"c":4,"b":5}'
    plan = Plan(
        members={"a": Plan(leaf="leaf"), "b": Plan(each=Plan(leaf="leaf", members={"y": Plan(mark="y")}), leaf="leaf")}
    )
    found = [(span.mark, line[span.start : span.end]) for span in walk(line, plan).spans]
    assert found == [("leaf", b'{"x":1}'), ("leaf", b"2"), ("y", b"3"), ("leaf", b"5")]


def test_stopped_walk_keeps_what_it_found() -> None:
    """A walk that runs out of budget says so, with the values it finished and those it was in."""
    line = b'{"a":1,"b":[' + b"[]," * 100 + b'[]],"c":2}'
    plan = Plan(members={name: Plan(mark=name) for name in "abc"})
    found = walk(line, plan, budget=50)
    assert (found.spans, found.complete) == ((Span("a", 5, 6), Span("b", 11, UNFINISHED)), False)
    assert [span.mark for span in walk(line, plan).spans] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"[" * (32 << 20), id="nest"),
        pytest.param(b'{"a":' * (6 << 20), id="nest of objects"),
        pytest.param(b"[" + b"[]," * (10 << 20) + b"1]", id="siblings"),
        pytest.param(b"[[" + b"1," * (16 << 20) + b"1]]", id="numbers"),
        pytest.param(b'["' + b'\\"' * (16 << 20) + b'"]', id="escaped quotes"),
        pytest.param(b"[" + b" " * (32 << 20) + b"1]", id="spaces"),
        pytest.param(b"[[" + (b"[" + b"1" * 200 + b"],") * (160 << 10) + b"1]]", id="far apart"),
        pytest.param(b'[""' + b',""' * (10 << 20) + b"]", id="empty strings"),
    ],
)
def test_walk_is_bounded(line: bytes) -> None:
    """32 MiB of the worst costs a bounded time, where a step per token would take half a minute."""
    start = time.process_time()
    walk(line, Plan(each=Plan(mark="each", members={"id": Plan(mark="id")})))
    # Usually 10 to 150 ms; the machine may be busy.
    assert time.process_time() - start < 2
