"""The promise under SIGKILL: whatever reached a peer is in the ledger, and what the ledger holds is whole.

A hundred times on each engine the daemon is killed at a random moment of two busy conversations. What each side had
received by then must be the beginning of what is committed for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.peers.find import HERE
from tests.system.forked import ForkedDaemon
from tests.system.installed import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.installed import InstalledDaemon

pytestmark = pytest.mark.slow

WORKERS = 2
ROUNDS = 50
"""Kills of each worker; a hundred in all."""

PEERS = 2
SEED = int(os.environ.get("ACP_LEDGER_TEST_SEED", "20261130"))

OPENING = (
    {"id": 0, "method": "initialize", "params": {"protocolVersion": 1, "clientCapabilities": {}}},
    {"id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
    {"id": 2, "method": "session/prompt", "params": {"sessionId": "flood", "prompt": [{"type": "text", "text": "go"}]}},
)


def wire(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


class Conversation:
    """A client that answers so many questions, each at once, and both sides' memory of what they received."""

    def __init__(self, daemon: InstalledDaemon, label: str, questions: int = 10**9) -> None:
        self.label = label
        self.heard_by_agent = daemon.folder / f"heard-{label}"
        self.received = bytearray()
        self.busy = threading.Event()
        self._left = questions
        agent = [sys.executable, "-S", "-E", str(HERE / "scripted_agent.py"), "flood", str(self.heard_by_agent)]
        command = daemon.runner(agent)
        command[1:1] = ["--label", f"round={label}"]
        self.runner = subprocess.Popen(
            command,
            env=daemon.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self.thread = threading.Thread(target=self._converse)
        self.thread.start()

    def _converse(self) -> None:
        waiting = b""
        with suppress(BrokenPipeError):
            for message in OPENING:
                self._say(wire(message))
        while data := os.read(self._out, 65536):
            self.received += data
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                with suppress(BrokenPipeError):
                    self._answer(json.loads(line))
        self.busy.set()

    def _answer(self, message: dict[str, Any]) -> None:
        if message.get("method") == "session/request_permission":
            self.busy.set()
            chosen = {"outcome": "selected", "optionId": "no"}
            self._say(wire({"id": message["id"], "result": {"outcome": chosen}}))
            self._left -= 1
            if self._left == 0 and self.runner.stdin is not None:
                self.runner.stdin.close()

    @property
    def _out(self) -> int:
        return self.runner.stdout.fileno() if self.runner.stdout is not None else -1

    def _say(self, line: bytes) -> None:
        if self.runner.stdin is not None and not self.runner.stdin.closed:
            self.runner.stdin.write(line)

    def end(self) -> None:
        """Wait until both sides are gone and have received what they ever will."""
        self.thread.join(PATIENCE)
        self.runner.kill()
        self.runner.wait(PATIENCE)
        for stream in (self.runner.stdin, self.runner.stdout):
            if stream is not None:
                stream.close()

    def relayed(self) -> bytes:
        """What the client received of the relay, which is not what a runner says itself that had nothing to relay."""
        refusal = self.received.count(b"\n") == 1 and b'"message": "acp-ledger: ' in self.received
        return b"" if refusal else bytes(self.received)

    def heard(self) -> bytes:
        """What the agent received; waits for its end."""
        if not self.heard_by_agent.exists():
            return b""
        with self.heard_by_agent.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return file.read()


@dataclass(slots=True)
class Tally:
    """What was found over all rounds."""

    kills: int = 0
    conversations: int = 0
    received: int = 0
    committed_only: int = 0
    """Conversations in which the kill fell between a commit and its delivery."""
    wrong: list[str] = field(default_factory=list)

    def check(self, daemon: InstalledDaemon, conversation: Conversation) -> None:
        """What both sides received is the beginning of what is committed for them."""
        found = daemon.query("SELECT id FROM transports WHERE label LIKE :label", label=f'%"{conversation.label}"%')
        sides = (("agent_to_client", conversation.relayed()), ("client_to_agent", conversation.heard()))
        for direction, received in sides:
            committed = daemon.lines(found[0][0], direction) if found else b""
            self.received += len(received)
            self.committed_only += committed != received
            if not committed.startswith(received):
                self.wrong.append(f"{conversation.label} {direction}: {received[-700:]!r} is not in {len(committed)}")
        self.conversations += 1


def kill_again_and_again(
    folder: Path, url: str | None, seed: int, rounds: int = ROUNDS, mischief: str = ""
) -> tuple[Tally, dict[str, Any]]:
    """One worker: a ledger of its own, killed and started again, and what is in it in the end."""
    chance = random.Random(seed)  # noqa: S311  (which moment, not which secret)
    daemon = ForkedDaemon(folder, url, mischief)
    tally = Tally()
    try:
        daemon.start()
        for number in range(rounds):
            conversations = [Conversation(daemon, f"{seed}-{number}-{peer}") for peer in range(PEERS)]
            if number % 5:
                conversations[0].busy.wait(PATIENCE)
            threading.Event().wait(chance.uniform(0.0, 0.08))
            daemon.kill()
            tally.kills += 1
            for conversation in conversations:
                conversation.end()
            daemon.start()
            for conversation in conversations:
                tally.check(daemon, conversation)
        return tally, what_is_left(daemon)
    finally:
        daemon.close()


def what_is_left(daemon: InstalledDaemon) -> dict[str, Any]:
    """What the ledger says of itself after all kills."""
    answers = (
        "SELECT COUNT(*), COUNT(d.frame_seq) FROM frames f LEFT JOIN decisions d ON d.transport_id = f.transport_id"
        " AND d.frame_seq = f.frame_seq WHERE f.direction = 'client_to_agent' AND f.kind = 'response'"
        " AND f.method = 'session/request_permission'"
    )
    ((answered, decided),) = daemon.query(answers)
    unended = "SELECT COUNT(*) FROM audit_transports WHERE closed_at IS NULL"
    undecided = "SELECT COUNT(*) FROM audit_decisions WHERE outcome = 'open'"
    unfinished = "SELECT COUNT(*) FROM audit_turns WHERE outcome IS NULL"
    return {
        "answers": answered,
        "decided": decided,
        "open": [daemon.query(statement)[0][0] for statement in (unended, undecided, unfinished)],
        "report": daemon.verify(),
    }


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_received_is_a_prefix_of_committed(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A hundred kills: all that was received is recorded, every answer has its decision, and verify is clean."""
    urls = [None] * WORKERS
    if engine == "postgres":
        cluster = request.getfixturevalue("cluster")
        urls = [cluster.create() for _ in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        runs = [
            pool.submit(kill_again_and_again, tmp_path / str(worker), url, SEED + worker)
            for worker, url in enumerate(urls)
        ]
        results = [run.result() for run in runs]
    for tally, left in results:
        assert tally.wrong == []
        assert (tally.kills, tally.conversations) == (ROUNDS, ROUNDS * PEERS)
        assert tally.received > ROUNDS * 1000
        assert left["answers"] == left["decided"] > ROUNDS
        assert left["open"] == [0, 0, 0]
        assert left["report"].findings == ()
        assert left["report"].not_checked == ()
    # The kills hit: between a commit and its delivery there is a moment, and some fell into it.
    assert sum(tally.committed_only for tally, _left in results) > 0


LATE: str = """
from acp_ledger.store.ledger import Ledger
_commit, _kept = Ledger.commit, []
def commit_the_one_before(self, batch):
    _kept.append([(number, list(entries)) for number, entries in batch])
    if len(_kept) > 1:
        _commit(self, _kept.pop(0))
Ledger.commit = commit_the_one_before
"""
"""A daemon that commits a batch when the next one comes, and passes it on at once."""


def test_late_commit_is_noticed(tmp_path: Path) -> None:
    """The negative control: of a daemon that commits a moment too late, kills bring to light what was not recorded."""
    found = False
    for more in range(10):  # a kill hits the moment by chance; what counts is that it is seen when it does
        folder = tmp_path / str(more)
        folder.mkdir()
        tally, _left = kill_again_and_again(folder, None, SEED + more, 4, LATE)
        found = bool(tally.wrong)
        if found:
            break
    assert found
