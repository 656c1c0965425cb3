"""Recordings of real agents, replayed: what is observed is what a plain count over the raw lines gives.

The recordings in `tests/golden` are exact lines of opencode, claude-agent-acp, codex-acp and the examples of the SDKs,
one object per line: the time in seconds, the direction, and the line with bad bytes as surrogate escapes. A recording
named `load` holds two processes, the second of which starts at the second `initialize`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import (
    TO_AGENT,
    TO_CLIENT,
    Anomaly,
    Decision,
    Direction,
    Entry,
    Frame,
    Message,
    PermissionRequest,
    Prompt,
    Session,
    SessionOpening,
    ToolCallStep,
    Turn,
    TurnEnd,
)
from tests.protocol.test_observer import again

GOLDEN: Final = sorted((Path(__file__).parent.parent / "golden").glob("*.jsonl"))
VERSION_1: Final = [path for path in GOLDEN if "-v2-" not in path.stem]

WAYS: Final[dict[str, Direction]] = {"client->agent": TO_AGENT, "agent->client": TO_CLIENT}

Line: TypeAlias = tuple[str, bytes, int]


def processes(path: Path) -> list[list[Line]]:
    """The lines of each process in a recording: direction, bytes, and microseconds."""
    found: list[list[Line]] = []
    two = path.stem.endswith("-load")
    for text in path.read_text(encoding="utf-8").split("\n"):
        if not text:
            continue
        record = json.loads(text)
        body = record["line"].encode("utf-8", "surrogateescape")
        if not found or (two and plain(body).get("method") == "initialize"):
            found.append([])
        found[-1].append((record["dir"], body, round(record["t"] * 1_000_000)))
    return found


def plain(body: bytes) -> dict[str, Any]:
    """The line as the standard library reads it; empty where it is no object."""
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def observed(lines: list[Line]) -> list[Entry]:
    """The entries of a process, closed at the end."""
    observer = Observer()
    entries: list[Entry] = []
    for direction, body, at in lines:
        entries.extend(observer.line(WAYS[direction], body, at))
    entries.extend(observer.event("eof", 1, direction=TO_CLIENT))
    entries.extend(observer.event("closed", 2))
    return entries


class Count:
    """What a recording holds, counted without any part of the product."""

    def __init__(self, lines: list[Line]) -> None:
        self.of: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self._prompts: set[str] = set()
        self._questions: set[str] = set()
        self._loads: dict[str, str] = {}
        for direction, body, _ in lines:
            message = plain(body)
            if direction == "client->agent":
                self._client(message)
            else:
                self._agent(message)
        self.of["end:stream_ended"] += len(self._prompts)
        self.of["decision:unanswered"] += len(self._questions)

    def _client(self, message: dict[str, Any]) -> None:
        key = json.dumps(message.get("id"))
        if message.get("method") == "session/prompt":
            self.of["prompt"] += 1
            self._prompts.add(key)
        elif message.get("method") == "session/load":
            self._loads[key] = message["params"]["sessionId"]
        elif "method" not in message and key in self._questions:
            self._questions.remove(key)
            said = "error" if "error" in message else message["result"]["outcome"]["outcome"]
            self.of[f"decision:{said}"] += 1

    def _agent(self, message: dict[str, Any]) -> None:
        key = json.dumps(message.get("id"))
        if message.get("method") == "session/update":
            self._update(message["params"])
        elif message.get("method") == "session/request_permission":
            self.of["question"] += 1
            self._questions.add(key)
            self.of["step:permission"] += "status" in message["params"].get("toolCall", {})
        elif "method" not in message:
            self._loads.pop(key, None)
            if key in self._prompts:
                self._prompts.remove(key)
                said = "error" if "error" in message else message["result"].get("stopReason")
                self.of[f"end:{said}"] += 1

    def _update(self, params: dict[str, Any]) -> None:
        kind = params["update"]["sessionUpdate"]
        self.kinds[kind] += 1
        conversation = kind.endswith("_chunk") or kind.startswith("tool_call") or kind == "plan"
        if conversation and params["sessionId"] in self._loads.values():
            self.of["replayed"] += 1
        elif kind.startswith("tool_call"):
            self.of["step:update"] += 1
        elif kind.endswith("_chunk"):
            self.of["text"] += len(params["update"]["content"].get("text", "").encode("utf-8", "surrogatepass"))
            self.of["prompt:chunk"] += kind.startswith("user")


def counted(entries: list[Entry]) -> tuple[Counter[str], Counter[str]]:
    """The same figures, from the rows."""
    of: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for entry in entries:
        if isinstance(entry.record, Frame):
            kinds.update([entry.record.session_update] if entry.record.session_update else [])
            of["replayed"] += entry.record.phase == "replay"
        for row in entry.rows:
            of.update(figure(row))
    return of, kinds


def figure(row: object) -> dict[str, int]:
    """What a row counts as."""
    match row:
        case Prompt():
            figure = {"prompt" if row.source == "request" else "prompt:chunk": 1}
        case PermissionRequest():
            figure = {"question": 1}
        case Decision():
            figure = {f"decision:{row.outcome}": 1}
        case ToolCallStep():
            figure = {f"step:{row.source}": 1}
        case TurnEnd():
            word = "stream_ended" if row.outcome == "stream_ended" else row.stop_reason or "error"
            figure = {f"end:{word}": 1}
        case Message():
            figure = {"text": row.text_bytes}
        case _:
            figure = {}
    return figure


def name(path: Path) -> str:
    """The recording's name."""
    return path.stem


@pytest.mark.parametrize("path", VERSION_1, ids=name)
def test_rows_agree_with_a_plain_count(path: Path) -> None:
    """Prompts, questions, answers, steps, ends, replays, text and kinds: nothing more and nothing less."""
    for lines in processes(path):
        count = Count(lines)
        of, kinds = counted(observed(lines))
        assert +of == +count.of
        assert kinds == count.kinds


@pytest.mark.parametrize("path", GOLDEN, ids=name)
def test_stored_bytes_give_the_same_entries(path: Path) -> None:
    """What is stored is enough to observe it all again."""
    for lines in processes(path):
        entries = observed(lines)
        assert again(entries) == entries


@pytest.mark.parametrize("path", GOLDEN, ids=name)
def test_every_line_is_one_frame(path: Path) -> None:
    """Lines in order, dense numbers, exact bytes or redacted ones, and one further entry that tells the revision."""
    for lines in processes(path):
        entries = observed(lines)
        assert [entry.record.frame_seq for entry in entries] == list(range(1, len(entries) + 1))
        frames = [entry for entry in entries if isinstance(entry.record, Frame)]
        assert len(frames) == len(lines) == len(entries) - 3
        for entry, (_, body, at) in zip(frames, lines, strict=True):
            assert isinstance(entry.record, Frame)
            assert (entry.record.byte_count, entry.record.received_at) == (len(body), at)
            assert entry.body == body or entry.record.body_state == "redacted"


@pytest.mark.parametrize("path", GOLDEN, ids=name)
def test_every_turn_begins_and_ends_once(path: Path) -> None:
    """At the close nothing is left open."""
    for lines in processes(path):
        rows = [row for entry in observed(lines) for row in entry.rows]
        begun = sorted(row.turn_id for row in rows if isinstance(row, Turn))
        assert begun == sorted(row.turn_id for row in rows if isinstance(row, TurnEnd))
        asked = sorted(row.frame_seq for row in rows if isinstance(row, PermissionRequest))
        assert asked == sorted(row.request_frame for row in rows if isinstance(row, Decision))


def rows_of(recording: str, process: int = 0) -> list[Any]:
    """The rows of a recording's process."""
    (path,) = [path for path in GOLDEN if path.stem == recording]
    return [row for entry in observed(processes(path)[process]) for row in entry.rows]


@pytest.mark.parametrize(
    ("recording", "effects", "ends"),
    [
        ("opencode-shell-reject", ["reject"], ["end_turn"]),
        ("claude22-shell-reject", ["reject"], ["end_turn"]),
        ("codex-shell-reject", ["reject"], ["cancelled"]),
        ("tssdk-shell-reject", ["reject"], ["end_turn"]),
        ("opencode-shell-cancel", ["none"], ["cancelled"]),
        ("claude22-shell-cancel", ["none"], ["cancelled"]),
        ("codex-shell-cancel", ["none"], ["cancelled"]),
        ("tssdk-shell-cancel", ["none"], ["end_turn"]),
        ("opencode-shell-permerror", ["none"], ["end_turn"]),
        ("codex-shell-permerror", ["none"], [None]),
        ("tssdk-plain", ["allow"], ["end_turn"]),
    ],
)
def test_answers_and_ends_are_what_the_peers_said(recording: str, effects: list[str], ends: list[str | None]) -> None:
    """A reject is a reject and an end is the agent's own word, which differs from agent to agent."""
    rows = rows_of(recording)
    assert [row.effect for row in rows if isinstance(row, Decision)] == effects
    assert [row.stop_reason for row in rows if isinstance(row, TurnEnd)] == ends


@pytest.mark.parametrize("agent", ["opencode", "claude22", "codex"])
def test_load_in_a_new_process_is_a_replay(agent: str) -> None:
    """The session's id comes back, its old conversation makes no step, and the new prompt does."""
    first, second = rows_of(f"{agent}-load"), rows_of(f"{agent}-load", 1)
    assert [row.acp_session_id for row in second if isinstance(row, Session)][:1] == [
        row.acp_session_id for row in first if isinstance(row, Session)
    ][:1]
    assert next(row.origin for row in second if isinstance(row, SessionOpening)) == "load"
    assert [row.source for row in second if isinstance(row, Prompt)] == ["request"]


@pytest.mark.parametrize("agent", ["opencode", "claude22", "codex", "tssdk", "pysdk-agent"])
def test_sane_conversations_have_no_anomaly(agent: str) -> None:
    """Colliding ids, two sessions and a reload are normal life."""
    for recording in (f"{agent}-dupid", f"{agent}-load", f"{agent}-two"):
        rows = rows_of(recording)
        assert [row.class_ for row in rows if isinstance(row, Anomaly)] == []


def test_second_version_is_kept_and_read_by_shape() -> None:
    """A live connection of the draft: the question and its answer are read, the updates are named."""
    rows = rows_of("claude22-v2-shell-allow")
    assert [row.tool_kind for row in rows if isinstance(row, PermissionRequest)] == ["execute"]
    assert [row.effect for row in rows if isinstance(row, Decision)] == ["allow"]
    assert [row for row in rows if isinstance(row, ToolCallStep | Message)] == []
    assert {row.protocol_revision for row in rows if isinstance(row, Decision | Turn)} == {"acp/v2"}


def test_raw_separators_stay_in_the_text() -> None:
    """Agents write U+2028 and its like raw inside a line."""
    for agent in ("opencode", "claude22", "codex"):
        text = "".join(row.text for row in rows_of(f"{agent}-unicode") if isinstance(row, Message))
        assert "\u2028" in text
