"""Ledgers for tests of `ledgerctl`: lines by hand, observed and committed as the daemon would."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT
from acp_ledger.protocol.revisions import MAPPING_VERSION
from acp_ledger.store.ledger import Daemon, Ledger, NewTransport

if TYPE_CHECKING:
    from acp_ledger.protocol.records import Direction, Entry

START: Final = 1_796_000_000_000_000
"""UTC microseconds of the first line: 2026-11-30T00:53:20Z."""

DAEMON: Final = Daemon("00000000-0000-4000-8000-000000000001", "laptop", 1000)

HOSTILE: Final = "\x1b]0;owned\x07\x1b[2Jrm\r\u202e -rf\u2028\x9b31m\ud800\U000e0041"
"""A title that would clear the screen, rename the window, run backwards and hide."""

SCARY: Final = HOSTILE.replace("\ud800", "")
"""The same as a name of this machine's, which the daemon has made text of."""

FORMULA: Final = "=cmd|' /C calc'!A0"
PLAIN: Final = "sess-plain-0001"
WILD: Final = "sess-wild-\x1b[2J\x1b[31m0002"

OFFERS: Final = (
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
)


def _line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def _update(session: str, word: str, /, **fields: Any) -> bytes:
    return _line(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": word, **fields}})


def _ask(id_: int, session: str, call: str, title: str) -> bytes:
    tool_call = {"toolCallId": call, "title": title, "kind": "execute"}
    params = {"sessionId": session, "toolCall": tool_call, "options": OFFERS}
    return _line(id=id_, method="session/request_permission", params=params)


def _answer(id_: int, option: str) -> bytes:
    return _line(id=id_, result={"outcome": {"outcome": "selected", "optionId": option}})


def _prompt(id_: int, session: str) -> bytes:
    return _line(id=id_, method="session/prompt", params={"sessionId": session, "prompt": []})


def _opening(session: str) -> list[tuple[Direction, bytes]]:
    return [
        (TO_AGENT, _line(id=0, method="initialize", params={"protocolVersion": 1, "clientInfo": {"name": "ed"}})),
        (TO_CLIENT, _line(id=0, result={"protocolVersion": 1, "agentInfo": {"name": "a", "version": "1"}})),
        (TO_AGENT, _line(id=1, method="session/new", params={"cwd": "/src", "mcpServers": []})),
        (TO_CLIENT, _line(id=1, result={"sessionId": session})),
    ]


def plain_lines() -> list[tuple[Direction, bytes]]:
    """A session that went well: a turn with text and an allowed call, and one that stopped short."""
    return [
        *_opening(PLAIN),
        (TO_AGENT, _prompt(2, PLAIN)),
        (TO_CLIENT, _update(PLAIN, "agent_message_chunk", content={"type": "text", "text": "Good morning"})),
        (
            TO_CLIENT,
            _update(PLAIN, "tool_call", toolCallId="call-one", title="npm test", kind="execute", status="queued"),
        ),
        (TO_CLIENT, _ask(0, PLAIN, "call-one", "npm test")),
        (TO_AGENT, _answer(0, "yes")),
        (TO_CLIENT, _line(id=2, result={"stopReason": "end_turn"})),
        (TO_AGENT, _prompt(3, PLAIN)),
        (TO_CLIENT, _line(id=3, result={"stopReason": "max_tokens"})),
    ]


def wild_lines() -> list[tuple[Direction, bytes]]:
    """A session written to harm whoever reads it: hostile titles, an answer never offered, an open question."""
    return [
        *_opening(WILD),
        (TO_AGENT, _prompt(2, WILD)),
        (TO_CLIENT, _update(WILD, "tool_call", toolCallId="call-two", title=HOSTILE, kind="\x1b[5mexecute")),
        (TO_CLIENT, _ask(0, WILD, "call-two", HOSTILE)),
        (TO_AGENT, _answer(0, "never-offered")),
        (TO_CLIENT, _update(WILD, "agent_message_chunk", content={"type": "text", "text": HOSTILE})),
        (TO_CLIENT, _update(WILD, "\x1b[31mkind\u202e")),
        (TO_CLIENT, b"\x1b[2J no json \xff\x00"),
        (TO_CLIENT, _line(id=2, result={"stopReason": "max_tokens\x1b[2J"})),
        (TO_AGENT, _prompt(3, WILD)),
        (TO_CLIENT, _ask(1, WILD, "call-three", FORMULA)),
    ]


def entries(lines: list[tuple[Direction, bytes]], *, closed: bool) -> list[Entry]:
    """Observe lines a millisecond apart, between the events of a transport."""
    observer = Observer()
    found = [
        *observer.event("opened", START),
        *observer.event("spawned", START, pid=7, start_time=1, boot_id="b", pgid=7),
    ]
    for direction, body in lines:
        found += observer.line(direction, body, START + observer.next_seq * 1_000)
    if closed:
        found += observer.event("exited", START + 10**6, status=0)
        found += observer.event("closed", START + 10**6, close_reason="editor_ended")
    return found


def seed(url: str) -> None:
    """Fill a new ledger with a closed transport that went well and an open one that is hostile."""
    ledger = Ledger.open(url, DAEMON, at=START)
    try:
        for agent, lines, closed in (("calm", plain_lines(), True), ("wild", wild_lines(), False)):
            new = NewTransport(
                opened_at=START,
                mode="relay",
                agent=agent,
                argv=[agent, SCARY],
                cwd=f"/home/{SCARY}",
                mapping_version=MAPPING_VERSION,
                label={"who": SCARY},
            )
            transport = ledger.open_transport(new)
            ledger.commit([(transport.id, entries(lines, closed=closed))])
    finally:
        ledger.close()
