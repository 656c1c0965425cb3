"""The promise under SIGKILL where the daemon is the client: what agent and caller were told is in the ledger."""

from __future__ import annotations

import fcntl
import random
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger import dialogue, handshake
from tests.support.peers.find import HERE
from tests.system.forked import ForkedDaemon
from tests.system.installed import PATIENCE
from tests.system.test_kill import LATE, SEED, what_is_left

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

ROUNDS = 20


class Conversation:
    """A caller whose agent asks without end, and what both of them were told."""

    def __init__(self, daemon: ForkedDaemon, label: str) -> None:
        self.label = label
        self.heard_by_agent = daemon.folder / f"heard-{label}"
        self.told: list[bytes] = []
        self.busy = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(str(daemon.socket))
        agent = [sys.executable, "-S", "-E", str(HERE / "scripted_agent.py"), "flood", str(self.heard_by_agent)]
        greeting = handshake.Greeting(
            handshake.PURPOSE_CLIENT,
            argv=[word.encode() for word in agent],
            cwd=b"/",
            env={b"PATH": b"/usr/bin:/bin"},
            labels=[(b"round", label.encode())],
        )
        prompt = [{"type": "text", "text": "go"}]
        self._socket.sendall(handshake.encode_greeting(greeting) + dialogue.encode(call="open"))
        self._next = {"opened": dialogue.encode(call="start"), "started": dialogue.encode(call="prompt", blocks=prompt)}
        self.thread = threading.Thread(target=self._converse)
        self.thread.start()

    def _converse(self) -> None:
        reader = dialogue.ObjectReader()
        with suppress(ConnectionError):
            while data := self._socket.recv(65536):
                for event in reader.feed(data):
                    self._hear(event)
        self.busy.set()

    def _hear(self, event: dict[str, Any]) -> None:
        if event["event"] in self._next:
            self._socket.sendall(self._next[event["event"]])
        elif event["event"] in {dialogue.UPDATE, dialogue.DECISION}:
            self.told.append(event["envelope"].encode())
            if len(self.told) > 30:
                self.busy.set()

    def end(self) -> None:
        """Wait until nothing more can be told."""
        self.thread.join(PATIENCE)
        self._socket.close()

    def heard(self) -> bytes:
        """What the agent heard; waits for its end."""
        if not self.heard_by_agent.exists():
            return b""
        with self.heard_by_agent.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return file.read()


def wrong_with(daemon: ForkedDaemon, conversation: Conversation) -> list[str]:
    """What was told and is not committed."""
    found = daemon.query("SELECT id FROM transports WHERE label LIKE :label", label=f'%"{conversation.label}"%')
    to_agent = daemon.lines(found[0][0], "client_to_agent") if found else b""
    from_agent = iter(daemon.lines(found[0][0], "agent_to_client").splitlines()) if found else iter(())
    wrong = [] if to_agent.startswith(conversation.heard()) else ["the agent heard what is not committed"]
    return wrong + [told.decode() for told in conversation.told if told not in from_agent]


def kill_again_and_again(folder: Path, rounds: int, mischief: str = "") -> tuple[list[str], int, dict[str, Any]]:
    """Kill a daemon in mid conversation: what was wrong, how much was told, and what is in the ledger in the end."""
    chance = random.Random(SEED)  # noqa: S311  # which moment, not which secret
    daemon = ForkedDaemon(folder, None, mischief)
    wrong: list[str] = []
    told = 0
    try:
        daemon.start()
        for number in range(rounds):
            conversation = Conversation(daemon, f"client-{number}")
            conversation.busy.wait(PATIENCE)
            threading.Event().wait(chance.uniform(0.0, 0.05))
            daemon.kill()
            conversation.end()
            daemon.start()
            wrong += wrong_with(daemon, conversation)
            told += len(conversation.told)
        return wrong, told, what_is_left(daemon)
    finally:
        daemon.close()


def test_told_is_a_part_of_committed(tmp_path: Path) -> None:
    """What a caller was told and an agent heard is recorded, every answer with its decision, and verify is clean."""
    wrong, told, left = kill_again_and_again(tmp_path, ROUNDS)
    assert wrong == []
    assert told > ROUNDS * 30
    assert left["answers"] == left["decided"] > ROUNDS
    assert left["open"] == [0, 0, 0]
    assert left["report"].findings == ()


def test_late_commit_of_a_clients_lines_is_noticed(tmp_path: Path) -> None:
    """The negative control: of a daemon that commits a moment too late, kills bring to light what was not recorded."""
    wrong: list[str] = []
    for more in range(10):
        if not wrong:
            wrong = kill_again_and_again(tmp_path / str(more), 2, LATE)[0]
    assert wrong
