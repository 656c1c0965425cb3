"""A caller of client mode, as the Python API and `ledgerctl prompt` are one, and agents for it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from acp_ledger import dialogue, handshake
from tests.daemon.house import PATIENCE, House, command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

OPENING: Sequence[Sequence[Any]] = (
    ("answer", "initialize", {"protocolVersion": 1}),
    ("answer", "session/new", {"sessionId": "s"}),
    ("wait", "session/prompt"),
)
"""What an agent does up to the first prompt."""

END = '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'
"""The answer to the first prompt."""

ASK = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": "q",
        "method": "session/request_permission",
        "params": {
            "sessionId": "s",
            "toolCall": {"toolCallId": "c", "title": "rm -r build", "kind": "execute", "status": "pending"},
            "options": [
                {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
                {"optionId": "no", "name": "Reject", "kind": "reject_once"},
            ],
        },
    }
)


def chunk(text: str) -> str:
    """A piece of the answer."""
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})


class Caller:
    """The caller's end of a connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._objects = dialogue.ObjectReader()
        self._heard: list[dict[str, Any]] = []

    async def say(self, **fields: Any) -> None:
        """Say something."""
        await self.stream.send_all(dialogue.encode(**fields))

    async def hear(self) -> dict[str, Any] | None:
        """The next event; None when the daemon closed."""
        with trio.fail_after(PATIENCE):
            while not self._heard:
                data = await self.stream.receive_some()
                if not data:
                    return None
                self._heard += self._objects.feed(data)
        return self._heard.pop(0)

    async def until(self, *events: str) -> dict[str, Any]:
        """Read up to one of these events; what comes before is not looked at."""
        while (event := await self.hear()) is not None:
            if event["event"] in events:
                return event
        raise AssertionError(f"the daemon closed before it told any of {events}")

    async def reply(self, event: dict[str, Any], **fields: Any) -> None:
        """Reply to an event."""
        await self.say(reply=event["event"], number=event["number"], **fields)

    async def start(self) -> dict[str, Any]:
        """Open a session."""
        await self.say(call="start")
        return await self.until("started", "failed")

    async def prompt(self, text: str = "go") -> None:
        """Begin a prompt."""
        await self.say(call="prompt", blocks=[{"type": "text", "text": text}])

    async def ended(self) -> dict[str, Any]:
        """The end of the prompt that runs."""
        return await self.until("done", "failed")


@asynccontextmanager
async def caller(house: House, *steps: Sequence[Any], **terms: Any) -> AsyncIterator[Caller]:
    """A caller with an agent of this script; the agent runs when the caller has read `opened`."""
    env = {b"PATH": b"/usr/bin:/bin"}
    greeting = handshake.Greeting(handshake.PURPOSE_CLIENT, argv=command(*steps), cwd=b"/", env=env)
    async with await trio.open_unix_socket(house.path) as stream:
        await stream.send_all(handshake.encode_greeting(greeting))
        found = Caller(stream)
        await found.say(call="open", **terms)
        yield found


@asynccontextmanager
async def prompted(house: House, *steps: Sequence[Any], **terms: Any) -> AsyncIterator[Caller]:
    """A caller whose agent has its first prompt, and then does these steps."""
    async with caller(house, *OPENING, *steps, **terms) as found:
        assert (await found.start())["event"] == "started"
        await found.prompt()
        yield found


def collecting(folder: Path) -> tuple[Path, tuple[str, str]]:
    """The file in which an agent keeps all that it still hears, and the step that does so."""
    path = folder / "heard"
    return path, ("collect", str(path))
