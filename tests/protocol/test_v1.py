"""ACP v1, read: every kind of update becomes a step or a name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from acp_ledger.protocol.revisions import MAPPING_VERSION, START, V1, reading_of, version_of, version_text
from acp_ledger.protocol.strict import Number
from acp_ledger.protocol.v1 import (
    REVISION,
    STATE_KINDS,
    STREAMS,
    UPDATE_KINDS,
    Chunk,
    Location,
    NotRecorded,
    Prompted,
    ToolCall,
    block_kinds,
    chunk_of,
    mode_ids,
    step_of,
    target_of,
)
from tests.support.strategies import json_values

STEPS = {"user_message_chunk", "tool_call", "tool_call_update"}


def step(**fields: Any) -> Any:
    """What a `tool_call` with an id says."""
    return step_of({"sessionUpdate": "tool_call", "toolCallId": "c", **fields}, [])


@pytest.mark.parametrize("kind", sorted(set(UPDATE_KINDS) - STEPS))
def test_kind_that_is_no_step_is_named(kind: str) -> None:
    """Whatever is no step is named in the wire's own spelling."""
    update = {"sessionUpdate": kind, "title": "T", "toolCallId": "c", "status": "completed"}
    assert step_of(update, []) == NotRecorded(kind)


def test_kinds_are_the_fourteen_of_the_schema() -> None:
    """Three are steps; the joined streams and the state kinds are among the rest."""
    assert sorted(UPDATE_KINDS) == [
        "agent_message_chunk",
        "agent_thought_chunk",
        "available_commands_update",
        "compaction_summary_chunk",
        "compaction_update",
        "config_option_update",
        "current_mode_update",
        "notice",
        "plan",
        "session_info_update",
        "tool_call",
        "tool_call_update",
        "usage_update",
        "user_message_chunk",
    ]
    assert set(UPDATE_KINDS) >= STEPS
    assert set(STREAMS) <= set(UPDATE_KINDS)
    assert STATE_KINDS - {"state_update"} <= set(UPDATE_KINDS)


@pytest.mark.parametrize("kind", ["state_update", "Tool_Call", "tool_call ", "_x", "", "plan_update", "\u2028"])
def test_unknown_kind_is_named_as_spelled(kind: str) -> None:
    """A kind nobody knows is no failure, and near to a known one is not that one."""
    assert step_of({"sessionUpdate": kind, "toolCallId": "c"}, []) == NotRecorded(kind)


def test_kind_that_cannot_be_kept_is_named_by_its_digest() -> None:
    """The identity rule holds for kinds too."""
    mapped = step_of({"sessionUpdate": "k" * 300}, [])
    assert isinstance(mapped, NotRecorded)
    assert mapped.session_update is not None
    assert mapped.session_update.startswith("sha256:")


@pytest.mark.parametrize(("kind", "wrong"), [(None, []), (7, ["sessionUpdate"]), ([], ["sessionUpdate"])])
def test_missing_kind_has_no_name(kind: Any, wrong: list[str]) -> None:
    """There is nothing to spell."""
    noted: list[str] = []
    assert step_of({"sessionUpdate": kind}, noted) == NotRecorded(None)
    assert noted == wrong


@pytest.mark.parametrize("kind", ["tool_call", "tool_call_update"])
def test_call_without_an_id_is_not_recorded(kind: str) -> None:
    """An id is never invented."""
    assert step_of({"sessionUpdate": kind, "status": "completed"}, []) == NotRecorded(kind)
    assert step_of({"sessionUpdate": kind, "toolCallId": None}, []) == NotRecorded(kind)
    noted: list[str] = []
    assert step_of({"sessionUpdate": kind, "toolCallId": 7}, noted) == NotRecorded(kind)
    assert noted == ["toolCallId"]


def test_empty_id_is_an_id() -> None:
    """Any string the agent chose names a call."""
    assert step(toolCallId="").tool_call_id == ""


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("pending", "pending"),
        ("in_progress", "in_progress"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("cancelled", "pending"),
        ("Completed", "pending"),
        ("", "pending"),
        (None, "pending"),
    ],
)
def test_unknown_status_claims_the_least(said: str | None, status: str) -> None:
    """The agent's word is kept; what it does not say is not claimed."""
    assert (step(status=said).status, step(status=said).status_raw) == (status, said)


def test_call_says_everything_it_names() -> None:
    """Kind, name, title and paths are read; the rest stays in the line."""
    locations = [{"path": "/a", "line": 3}, {"path": "/b"}, {"line": 1}, {"path": "/c\x00", "line": -1}]
    assert step(kind="edit", name="Edit", title="Edit a", status="pending", locations=locations) == ToolCall(
        "c",
        "pending",
        "pending",
        "edit",
        "Edit",
        "Edit a",
        lossy=False,
        locations=(
            Location("/a", 3, lossy=False),
            Location("/b", None, lossy=False),
            Location("/c\ufffd", None, lossy=True),
        ),
    )


def test_wrong_types_read_as_absent() -> None:
    """Each is named, and the step stands."""
    noted: list[str] = []
    odd = {
        "status": 1,
        "title": [],
        "kind": {},
        "name": 0.5,
        "locations": [7, {"path": 1}, {"path": "/a", "line": "x"}],
    }
    mapped = step_of({"sessionUpdate": "tool_call_update", "toolCallId": "c", **odd}, noted)
    assert mapped == ToolCall(
        "c", "pending", None, None, None, None, lossy=False, locations=(Location("/a", None, lossy=False),)
    )
    assert noted == ["status", "title", "kind", "name", "locations[]", "path", "line"]


def test_null_reads_as_unchanged() -> None:
    """In version 1 null and absent are the same."""
    noted: list[str] = []
    nulls = {"status": None, "title": None, "kind": None, "locations": None, "name": None}
    assert step_of({"sessionUpdate": "tool_call", "toolCallId": "c", **nulls}, noted) == step()
    assert noted == []


def test_user_chunk_is_a_prompt() -> None:
    """The instruction is the evidence; its detail is the update's title."""
    assert step_of({"sessionUpdate": "user_message_chunk", "title": "T\ud800"}, []) == Prompted("T\ufffd", lossy=True)
    assert step_of({"sessionUpdate": "user_message_chunk"}, []) == Prompted(None, lossy=False)


def test_long_title_is_cut_for_reading() -> None:
    """A projection is bounded; the line has the rest."""
    mapped = step(title="t" * 100_000)
    assert mapped.lossy is True
    assert 1_000 < len(mapped.title) < 100_000


@given(json_values())
def test_any_update_is_mapped(value: Any) -> None:
    """Nothing raises and nothing is nothing."""
    fields = value if isinstance(value, dict) else {"update": value}
    for kind in (*UPDATE_KINDS, "unknown"):
        mapped = step_of({**fields, "sessionUpdate": kind}, [])
        assert isinstance(mapped, Prompted | ToolCall | NotRecorded)
    assert isinstance(step_of(fields, []), Prompted | ToolCall | NotRecorded)
    chunk_of(fields, [])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"type": "text", "text": "a"}, "a"),
        ({"type": "text", "text": ""}, ""),
        ({"type": "text"}, None),
        ({"type": "image", "data": "", "text": "alt"}, None),
        ({"text": "no type"}, None),
        ([{"type": "text", "text": "a"}], None),
        ("a", None),
        (None, None),
    ],
)
def test_chunk_text_is_a_text_block(content: Any, text: str | None) -> None:
    """Only a block that says it is text is text."""
    assert chunk_of({"messageId": "m", "content": content}, []) == Chunk("m", text)


def test_lists_of_words_keep_their_order() -> None:
    """Prompts name their blocks and sessions their modes; a missing word is null, a missing list is absent."""
    assert block_kinds({"prompt": [{"type": "text"}, {}, "x", {"type": "_é"}]}, []) == '["text",null,null,"_é"]'
    assert block_kinds({}, []) is None
    assert mode_ids({"availableModes": [{"id": "a"}, {"id": "b"}]}, []) == '["a","b"]'
    assert mode_ids({"availableModes": {}}, []) is None


@pytest.mark.parametrize(
    ("params", "target"),
    [
        ({"path": "/a"}, "/a"),
        ({"command": "ls"}, "ls"),
        ({"command": "ls", "args": []}, "ls"),
        ({"command": "ls", "args": ["-l", "a b", 7]}, "ls -l 'a b'"),
        ({"args": ["-l"]}, None),
        ({"path": 7}, None),
        ({}, None),
    ],
)
def test_target_is_a_path_or_a_command(params: dict[str, Any], target: str | None) -> None:
    """Arguments are quoted, so that the words cannot be mistaken for one another."""
    assert target_of(params, []) == target


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (1, 1),
        (0, 0),
        (65_535, 65_535),
        (Number("1.0"), 1),
        (Number("1e0"), 1),
        (Number("1.5"), None),
        (Number("1e9999999999999999"), None),
        (65_536, None),
        (-1, None),
        (True, None),
        ("1", None),
        (None, None),
        ([1], None),
    ],
)
def test_version_is_a_whole_number(value: Any, version: int | None) -> None:
    """What is no 16-bit number is no version."""
    assert version_of({"protocolVersion": value}) == version


@pytest.mark.parametrize("result", [None, [], "1", 1])
def test_result_that_is_no_object_has_no_version(result: Any) -> None:
    """Nothing raises."""
    assert version_of(result) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), ("2024-11", "2024-11"), (Number("1.5"), "1.5"), (None, None), ([], None), (True, None)],
)
def test_asked_version_is_kept_as_said(value: Any, text: str | None) -> None:
    """A client may ask for anything."""
    assert version_text(value) == text


def test_reading_follows_the_version() -> None:
    """One mapping has a name; everything else is kept under its number."""
    assert reading_of(1) is V1
    assert (V1.revision, V1.mapped) == (REVISION, True) == ("acp/v1", True)
    assert (START.revision, START.step_of) == ("acp/unnegotiated", V1.step_of)
    assert (reading_of(7).revision, reading_of(7).mapped) == ("acp/v7", False)
    assert reading_of(7).step_of({"sessionUpdate": "tool_call", "toolCallId": "c"}, []) == NotRecorded("tool_call")
    assert MAPPING_VERSION.endswith("schema-2.4.0")
