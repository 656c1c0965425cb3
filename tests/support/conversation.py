"""A short conversation with one of everything, as lines, for tests of what is stored and read back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.protocol.records import Direction, Entry

START: Final = 1_796_000_000_000_000
"""UTC microseconds of the first line."""

SESSION: Final = "sess-\u00e9"


def call(id_: object, method: str, **params: Any) -> bytes:
    """A request."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}, ensure_ascii=False).encode()


def note(method: str, **params: Any) -> bytes:
    """A notification."""
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}, ensure_ascii=False).encode()


def result(id_: object, **value: Any) -> bytes:
    """An answer."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "result": value}).encode()


def update(word: str, session: str = SESSION, **fields: Any) -> bytes:
    """A session update."""
    return note("session/update", sessionId=session, update={"sessionUpdate": word, **fields})


def say(text: str, kind: str = "agent_message_chunk") -> bytes:
    """A chunk of text."""
    return update(kind, content={"type": "text", "text": text})


def question(id_: object, call_id: str, session: str = SESSION) -> bytes:
    """A permission question with two answers on offer."""
    offers = [
        {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
        {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    ]
    tool_call = {"toolCallId": call_id, "title": "Edit main.py"}
    return call(id_, "session/request_permission", sessionId=session, toolCall=tool_call, options=offers)


def answer(id_: object, option: str) -> bytes:
    """An answer to it."""
    return result(id_, outcome={"outcome": "selected", "optionId": option})


OPENING: Final[tuple[tuple[Direction, bytes], ...]] = (
    (TO_AGENT, call(0, "initialize", protocolVersion=1, clientInfo={"name": "editor", "version": "1"})),
    (TO_CLIENT, result(0, protocolVersion=1, agentInfo={"name": "agent", "version": "2"}, agentCapabilities={})),
    (
        TO_AGENT,
        call(
            1,
            "session/new",
            cwd="/home/mia/src",
            mcpServers=[
                {"name": "m", "command": "m", "args": [], "env": [{"name": "TOKEN", "value": "s3cret-canary"}]}
            ],
        ),
    ),
    (TO_CLIENT, result(1, sessionId=SESSION)),
)

TURN: Final[tuple[tuple[Direction, bytes], ...]] = (
    (TO_AGENT, call(2, "session/prompt", sessionId=SESSION, prompt=[{"type": "text", "text": "Please"}])),
    (TO_CLIENT, say("thinking", "agent_thought_chunk")),
    (
        TO_CLIENT,
        update(
            "tool_call", toolCallId="c1", title="Edit main.py", kind="edit", locations=[{"path": "/a.py", "line": 3}]
        ),
    ),
    (TO_CLIENT, question(0, "c1")),
    (TO_AGENT, answer(0, "no")),
    (TO_CLIENT, update("tool_call_update", toolCallId="c1", status="failed")),
    (TO_CLIENT, update("plan", entries=[])),
    (TO_CLIENT, call(1, "fs/read_text_file", sessionId=SESSION, path="/home/mia/src/a.py")),
    (TO_AGENT, result(1, content="text")),
    (TO_CLIENT, say("Good ")),
    (TO_CLIENT, say("morning")),
    (TO_CLIENT, b'{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'),
    (TO_CLIENT, b"not json \xff\x00"),
    (TO_CLIENT, b""),
)


def observed(observer: Observer, lines: tuple[tuple[Direction, bytes], ...] = (*OPENING, *TURN)) -> Iterator[Entry]:
    """The entries of those lines, a millisecond apart."""
    for direction, body in lines:
        yield from observer.line(direction, body, START + observer.next_seq * 1000)


def whole(*, close: bool = True) -> list[Entry]:
    """The entries of a whole transport, from `opened` to `closed`."""
    observer = Observer()
    at = START
    entries = [
        *observer.event("opened", at),
        *observer.event("spawned", at, pid=4321, start_time=99, boot_id="boot", pgid=4321),
        *observed(observer),
        *observer.event("eof", at + 10**6, direction=TO_CLIENT),
        *observer.event("exited", at + 10**6, status=0, stderr_tail="a warning"),
    ]
    if close:
        entries += observer.event("closed", at + 2 * 10**6, close_reason="agent_exited")
    return entries
