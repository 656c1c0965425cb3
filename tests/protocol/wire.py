"""A connection with its lines fed by hand, for tests of what is observed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from acp_ledger.protocol.client_lines import initialize_line, prompt_line, session_new_line
from acp_ledger.protocol.client_side import ClientLimits
from acp_ledger.protocol.content import Text
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, Anomaly, Frame

if TYPE_CHECKING:
    from acp_ledger.protocol.records import Direction, Entry, EventKind

SESSION = "sess-1"

Row = TypeVar("Row")


def call(id_: object, method: str, **params: Any) -> bytes:
    """A request."""
    return _line(id=id_, method=method, params=params)


def note(method: str, **params: Any) -> bytes:
    """A notification."""
    return _line(method=method, params=params)


def result(id_: object, value: Any) -> bytes:
    """An answer."""
    return _line(id=id_, result=value)


def error(id_: object, code: int, message: str = "no") -> bytes:
    """An answer that failed."""
    return _line(id=id_, error={"code": code, "message": message})


def update(word: str, session: str = SESSION, **fields: Any) -> bytes:
    """A session update."""
    return note("session/update", sessionId=session, update={"sessionUpdate": word, **fields})


def chunk(text: str, *, session: str = SESSION, kind: str = "agent", message_id: str | None = None) -> bytes:
    """A piece of a message."""
    named = {} if message_id is None else {"messageId": message_id}
    return update(f"{kind}_message_chunk", session, content={"type": "text", "text": text}, **named)


def prompt(id_: object, session: str = SESSION, text: str = "go on") -> bytes:
    """A prompt."""
    return call(id_, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])


def question(id_: object, call_id: str = "call-1", session: str = SESSION, **tool_call: Any) -> bytes:
    """A permission question with two answers on offer."""
    offers = [offer("yes", "allow_once"), offer("no", "reject_once")]
    asked = {"toolCallId": call_id, **tool_call}
    return call(id_, "session/request_permission", sessionId=session, toolCall=asked, options=offers)


def offer(option_id: Any, kind: Any) -> dict[str, Any]:
    """An answer on offer."""
    return {"optionId": option_id, "name": "a name", "kind": kind}


def selected(id_: object, option_id: str) -> bytes:
    """An answer to a question."""
    return result(id_, {"outcome": {"outcome": "selected", "optionId": option_id}})


def ended(id_: object, stop_reason: str = "end_turn") -> bytes:
    """The answer to a prompt."""
    return result(id_, {"stopReason": stop_reason})


def _line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


class Wire:
    """An observer and everything it gave."""

    def __init__(self, **limits: Any) -> None:
        self.observer = Observer(**limits)
        self.entries: list[Entry] = []

    def client(self, line: bytes, **given: Any) -> Frame:
        """A line of the editor."""
        return self.line(TO_AGENT, line, **given)

    def agent(self, line: bytes, **given: Any) -> Frame:
        """A line of the agent."""
        return self.line(TO_CLIENT, line, **given)

    def line(self, direction: Direction, line: bytes, **given: Any) -> Frame:
        """A line, read at the microsecond of its number; its frame."""
        entries = self.observer.line(direction, line, self.observer.next_seq, **given)
        self.entries.extend(entries)
        frame = entries[0].record
        assert isinstance(frame, Frame)
        return frame

    def event(self, kind: EventKind, **fields: Any) -> Entry:
        """An event."""
        (entry,) = self.observer.event(kind, self.observer.next_seq, **fields)
        self.entries.append(entry)
        return entry

    def rows(self, table: type[Row]) -> list[Row]:
        """Every row of a table so far."""
        return [row for entry in self.entries for row in entry.rows if isinstance(row, table)]

    def last(self) -> Entry:
        """The last entry."""
        return self.entries[-1]

    def anomalies(self) -> list[tuple[str, int | None]]:
        """Every anomaly's class, with the frame it points to."""
        return [(row.class_, row.related_frame) for row in self.rows(Anomaly)]


def negotiated(version: Any = 1, **limits: Any) -> Wire:
    """A connection that has settled its version."""
    wire = Wire(**limits)
    wire.client(call("init", "initialize", protocolVersion=version, clientInfo={"name": "ed", "version": "2"}))
    wire.agent(result("init", {"protocolVersion": version, "agentInfo": {"name": "ag", "version": "3"}}))
    return wire


def opened(version: Any = 1, session: str = SESSION, **limits: Any) -> Wire:
    """A connection with a session: entries 1 to 5."""
    wire = negotiated(version, **limits)
    wire.client(call("new", "session/new", cwd="/src", mcpServers=[]))
    wire.agent(result("new", {"sessionId": session}))
    return wire


def prompted(version: Any = 1, **limits: Any) -> Wire:
    """A connection with a turn: entries 1 to 6."""
    wire = opened(version, SESSION, **limits)
    wire.client(prompt("p1"))
    return wire


ROOMY = ClientLimits(update_bytes=10_000, update_count=1_000, response_bytes=10_000, response_segments=1_000)
"""Limits of a client that nothing here comes near."""


def ours(text: str = "go on", **limits: int) -> Wire:
    """A connection whose client we are, with a turn; the ids of our requests are 0, 1 and 2. Entries 1 to 6."""
    wire = Wire(client=ROOMY._replace(**limits))
    wire.client(initialize_line(0, "us", "Us", "1"), origin="daemon")
    wire.agent(result(0, {"protocolVersion": 1}))
    wire.client(session_new_line(1, "/src", []), origin="daemon")
    wire.agent(result(1, {"sessionId": SESSION}))
    ask(wire, 2, text)
    return wire


def ask(wire: Wire, id_: int, text: str = "go on", session: str = SESSION) -> Frame:
    """Prompt a session of ours."""
    return wire.client(prompt_line(id_, session, [Text(text).to_json()]), origin="daemon")
