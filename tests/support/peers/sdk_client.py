"""A client written against the official Python SDK: three turns, then what it saw as one JSON line.

`sdk_client.py allow|reject FOLDER COMMAND [ARG…]` starts COMMAND as its agent, in FOLDER.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  (the SDK is written for asyncio)
import json
import sys
from typing import Any

from acp import PROTOCOL_VERSION, RequestPermissionResponse, spawn_agent_process, text_block
from acp.schema import AllowedOutcome


class ScriptedClient:
    """Answers every question the same way and writes down what it was told."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.seen: list[list[Any]] = []
        self.waiting = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        """Nothing is asked of the agent from here."""

    async def request_permission(self, tool_call: Any, options: list[Any], **_rest: Any) -> RequestPermissionResponse:
        """Take the first option of the wanted kind."""
        chosen = next(option for option in options if option.kind.startswith(self.answer))
        self.seen.append(["question", tool_call.tool_call_id, chosen.option_id])
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id))

    async def session_update(self, update: Any, **_rest: Any) -> None:
        """Write the update down."""
        text = getattr(getattr(update, "content", None), "text", None)
        self.seen.append([update.session_update, text or getattr(update, "status", None)])
        if text == "waiting":
            self.waiting.set()


async def play(answer: str, folder: str, command: list[str]) -> dict[str, Any]:
    """A plain turn, a turn with a question, a turn that is cancelled."""
    client = ScriptedClient(answer)
    async with spawn_agent_process(client, *command, cwd=folder) as (agent, process):  # type: ignore[arg-type]  # as the agent
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        session = (await agent.new_session(cwd=folder, mcp_servers=[])).session_id
        turns = [await agent.prompt(session_id=session, prompt=[text_block(word)]) for word in ("plain", "tool")]
        stops = [turn.stop_reason for turn in turns]
        last = asyncio.create_task(agent.prompt(session_id=session, prompt=[text_block("wait")]))
        await client.waiting.wait()
        await agent.cancel(session_id=session)
        stops.append((await last).stop_reason)
    return {"session": session, "stops": stops, "seen": client.seen, "status": process.returncode}


if __name__ == "__main__":
    outcome = asyncio.run(play(sys.argv[1], sys.argv[2], sys.argv[3:]))
    sys.stdout.write(json.dumps(outcome, sort_keys=True) + "\n")
