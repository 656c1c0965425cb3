"""The scripted agent of `ledgerctl demo`: speaks ACP v1 on its stdin and stdout, and keeps what it heard and said.

What must not be broken here: every line is fixed by the script and answers a line of the client, so that the order of
all frames, in both directions, is the same in every run; and both logs hold the exact bytes, for they are one half of
the truth the ledger is compared with. Standard library only, run as a program.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final

RECEIVED: Final = "agent-received.ndjson"
SENT: Final = "agent-sent.ndjson"

SESSION_ID: Final = "demo-session"
OPTIONS: Final = (
    {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "allow-always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject-once", "name": "Reject once", "kind": "reject_once"},
    {"optionId": "reject-always", "name": "Always reject", "kind": "reject_always"},
)


class Agent:
    """One end of the conversation: answers the lines of one client, one after the other."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO, logs: Path) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._received = (logs / RECEIVED).open("wb", buffering=0)
        self._sent = (logs / SENT).open("wb", buffering=0)

    def serve(self) -> None:
        """Answer until the client closes our stdin."""
        prompts = iter((self._look, self._remove, self._story))
        while (message := self._hear()) is not None:
            method = message.get("method")
            if method == "initialize":
                self._answer(message, _INITIALIZED)
            elif method == "session/new":
                self._answer(message, {"sessionId": SESSION_ID})
            elif method == "session/prompt":
                self._answer(message, {"stopReason": next(prompts)()})
        self._received.close()
        self._sent.close()

    def _look(self) -> str:
        """Turn 1: text, a plan, a read, and an update kind of no revision."""
        self._update("plan", entries=[{"content": "Look into build", "priority": "medium", "status": "in_progress"}])
        self._chunk("The build directory ")
        place = [{"path": "/demo/build/manifest.txt", "line": 1}]
        self._update(
            "tool_call", toolCallId="call_1", title="Read build", kind="read", status="pending", locations=place
        )
        self._update("tool_call_update", toolCallId="call_1", status="completed")
        self._chunk("holds one file, ")
        self._chunk("manifest.txt.")
        self._update("demo_weather", sky="clear")
        return "end_turn"

    def _remove(self) -> str:
        """Turn 2: a question about a tool call, and what follows from its answer."""
        self._update("tool_call", toolCallId="call_2", title="rm -rf build", kind="execute", status="pending")
        call = {"toolCallId": "call_2", "title": "rm -rf build", "kind": "execute"}
        self._send({"id": 0, "method": "session/request_permission", "params": _params(toolCall=call, options=OPTIONS)})
        answer = self._hear() or {}
        chosen = answer.get("result", {}).get("outcome", {}).get("optionId")
        self._update(
            "tool_call_update", toolCallId="call_2", status="failed" if chosen == "reject-once" else "completed"
        )
        self._chunk("I will leave it alone.")
        return "end_turn"

    def _story(self) -> str:
        """Turn 3: one chunk, then nothing until the client cancels."""
        self._chunk("Let me")
        while (message := self._hear()) is not None:
            if message.get("method") == "session/cancel":
                return "cancelled"
        return "end_turn"

    def _chunk(self, text: str) -> None:
        self._update("agent_message_chunk", content={"type": "text", "text": text})

    def _update(self, word: str, /, **fields: Any) -> None:
        self._send({"method": "session/update", "params": _params(update={"sessionUpdate": word, **fields})})

    def _answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        self._send({"id": request["id"], "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        self._sent.write(line)
        self._outgoing.write(line)
        self._outgoing.flush()

    def _hear(self) -> dict[str, Any] | None:
        line = self._incoming.readline()
        self._received.write(line)
        message: dict[str, Any] | None = json.loads(line) if line else None
        return message


def _params(**fields: Any) -> dict[str, Any]:
    return {"sessionId": SESSION_ID, **fields}


_INITIALIZED: Final = {
    "protocolVersion": 1,
    "agentCapabilities": {"loadSession": False},
    "agentInfo": {"name": "demo-agent", "title": "Demo agent", "version": "1.0"},
    "authMethods": [],
}


if __name__ == "__main__":
    Agent(sys.stdin.buffer, sys.stdout.buffer, Path(sys.argv[1])).serve()
