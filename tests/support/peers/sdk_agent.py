"""An agent written against the official Python SDK, with one scripted turn per prompt.

`plain` streams two chunks. `tool` announces a call, asks, and reports what was answered. `wait` says one word and goes
on until it is cancelled.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  (the SDK is written for asyncio)
from typing import Any

from acp import (
    PROTOCOL_VERSION,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    run_agent,
    start_tool_call,
    update_agent_message_text,
    update_tool_call,
)
from acp.schema import PermissionOption, ToolCallUpdate


class ScriptedAgent:
    """Answers by the first word of a prompt."""

    def __init__(self) -> None:
        self.client: Any = None
        self.sessions = 0
        self.cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        """Keep the client's side of the connection."""
        self.client = conn

    async def initialize(self, protocol_version: int, **_rest: Any) -> InitializeResponse:
        """Settle on the version the SDK speaks."""
        return InitializeResponse(protocol_version=min(protocol_version, PROTOCOL_VERSION))

    async def new_session(self, cwd: str, **_rest: Any) -> NewSessionResponse:
        """Count sessions from one."""
        self.sessions += 1
        return NewSessionResponse(session_id=f"session-{self.sessions}-{len(cwd)}")

    async def prompt(self, session_id: str, prompt: list[Any], **_rest: Any) -> PromptResponse:
        """Play the turn that the prompt names."""
        turn = {"plain": self._plain, "tool": self._tool, "wait": self._wait}.get(prompt[0].text, self._plain)
        return PromptResponse(stop_reason=await turn(session_id))

    async def _plain(self, session: str) -> Any:
        for word in ("Good ", "morning \u2028 \U0001f600"):
            await self.client.session_update(session, update_agent_message_text(word))
        return "end_turn"

    async def _tool(self, session: str) -> Any:
        await self.client.session_update(session, start_tool_call("call-1", "Edit a file", kind="edit"))
        answer = await self.client.request_permission(
            session_id=session,
            tool_call=ToolCallUpdate(tool_call_id="call-1", title="Edit a file"),
            options=[
                PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
                PermissionOption(option_id="no", name="Reject", kind="reject_once"),
            ],
        )
        allowed = getattr(answer.outcome, "option_id", None) == "yes"
        await self.client.session_update(
            session, update_tool_call("call-1", status="completed" if allowed else "failed")
        )
        return "end_turn"

    async def _wait(self, session: str) -> Any:
        self.cancelled.clear()
        await self.client.session_update(session, update_agent_message_text("waiting"))
        await self.cancelled.wait()
        return "cancelled"

    async def cancel(self, **_rest: Any) -> None:
        """End the waiting turn."""
        self.cancelled.set()


if __name__ == "__main__":
    asyncio.run(run_agent(ScriptedAgent()))  # type: ignore[arg-type]  # the protocol's optional methods are left out
