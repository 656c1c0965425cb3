"""The scripted client of `ledgerctl demo`: an editor that starts `acp-ledger-run` and speaks ACP v1 with what it runs.

What must not be broken here: the client waits for what it expects before it says the next thing, so that the order of
all frames is the same in every run; it keeps the exact bytes of both directions; and each line it hears is shown to
`witness` before anything else happens, for that is where the demo sees the ledger keep its promise.
"""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final

from acp_ledger.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

PATIENCE: Final = 60.0
"""Seconds after which a conversation that hangs is ended."""

ANSWER: Final = "reject-once"


class DemoError(LedgerError):
    """The demo could not be played, or what it recorded is not what was said."""


@dataclass
class Conversation:
    """What was said and heard on the editor's side, and how the runner ended."""

    sent: list[bytes] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    exit_status: int = -1


@dataclass(frozen=True)
class Recording:
    """A played script: where its ledger is, how to find its rows, and what both peers sent and heard."""

    directory: Path
    url: str
    label: str
    conversation: Conversation
    daemon_pid: int
    witnessed: int

    def agent_log(self, name: str) -> list[bytes]:
        """Give the lines of one of the agent's logs."""
        return (self.directory / name).read_bytes().splitlines()


class Client:
    """One editor: sends requests, answers questions, cancels."""

    def __init__(self, outgoing: IO[bytes], incoming: IO[bytes], witness: Callable[[int, bytes], None]) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._witness = witness
        self._next_id = 0
        self.conversation = Conversation()

    def play(self, cwd: str) -> None:
        """Say the whole script."""
        self._finish(self._request("initialize", protocolVersion=1, clientCapabilities={}, clientInfo=_CLIENT_INFO))
        opened = self._finish(self._request("session/new", cwd=cwd, mcpServers=[]))
        session = str(opened["result"]["sessionId"])
        for text in ("What is in the build directory?", "Remove it.", "Tell me a long story."):
            prompt = [{"type": "text", "text": text}]
            request = self._request("session/prompt", sessionId=session, prompt=prompt)
            if text.startswith("Tell"):
                self._hear()
                self._send({"method": "session/cancel", "params": {"sessionId": session}})
            self._finish(request)

    def _request(self, method: str, **params: Any) -> int:
        request = self._next_id
        self._next_id += 1
        self._send({"id": request, "method": method, "params": params})
        return request

    def _finish(self, request: int) -> dict[str, Any]:
        """Hear lines until the request is answered; questions are answered on the way, with reject."""
        while True:
            message = self._hear()
            if message.get("method") == "session/request_permission":
                outcome = {"outcome": "selected", "optionId": ANSWER}
                self._send({"id": message["id"], "result": {"outcome": outcome}})
            elif "method" not in message and message.get("id") == request:
                return message

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.conversation.sent.append(line)
        self._outgoing.write(line + b"\n")
        self._outgoing.flush()

    def _hear(self) -> dict[str, Any]:
        line = self._incoming.readline()
        if not line.endswith(b"\n"):
            raise DemoError("the agent's output ended before the script did")
        self.conversation.received.append(line[:-1])
        self._witness(len(self.conversation.received), line[:-1])
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise DemoError(f"the agent's side answered with an error: {message['error'].get('message')}")
        return message


_CLIENT_INFO: Final = {"name": "demo-editor", "version": "1.0"}


def converse(
    command: Sequence[str], environ: Mapping[str, str], cwd: str, witness: Callable[[int, bytes], None]
) -> Conversation:
    """Start the runner, play the script through it, close its stdin and wait for it.

    `witness` is called with the number of the line, from 1, and its bytes.

    Raises:
        DemoError: The conversation broke off.
    """
    with subprocess.Popen(  # noqa: S603  # the command is ours
        command, env=dict(environ), cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as runner:
        guard = threading.Timer(PATIENCE, runner.kill)
        guard.start()
        try:
            return _play(runner, cwd, witness)
        finally:
            guard.cancel()
            runner.kill()


def _play(runner: subprocess.Popen[bytes], cwd: str, witness: Callable[[int, bytes], None]) -> Conversation:
    if runner.stdin is None or runner.stdout is None:
        raise TypeError("the runner was started without pipes")
    client = Client(runner.stdin, runner.stdout, witness)
    client.play(cwd)
    runner.stdin.close()
    rest = runner.stdout.read()
    if rest:
        raise DemoError(f"{len(rest)} bytes nobody sent came after the end of the script")
    client.conversation.exit_status = runner.wait()
    return client.conversation
