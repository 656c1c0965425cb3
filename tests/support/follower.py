"""A real `ledgerctl events -f`, beside the test."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND: Final = (sys.executable, "-m", "acp_ledger.ctl.main", "events", "-f")
PATIENCE: Final = 30_000
"""Milliseconds after which a line that was waited for is taken not to come."""


class Follower:
    """A real `ledgerctl events -f`, whose lines are read as they come."""

    def __init__(self, url: str, *arguments: str, stdout: int = subprocess.PIPE) -> None:
        command = [*COMMAND, "-L", url, *arguments]
        self.process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env={**os.environ, "HOME": "/"})
        self._rest = dict.fromkeys(("stdout", "stderr"), b"")

    def lines(self, count: int, stream: str = "stdout") -> list[str]:
        """Read so many lines."""
        pipe = getattr(self.process, stream)
        while self._rest[stream].count(b"\n") < count:
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            assert poll.poll(PATIENCE), f"only {self._rest[stream]!r}"
            data = os.read(pipe.fileno(), 65_536)
            assert data, f"it ended after {self._rest[stream]!r}"
            self._rest[stream] += data
        *lines, rest = self._rest[stream].split(b"\n", count)
        self._rest[stream] = rest
        return [line.decode() for line in lines]

    def places(self, count: int) -> list[tuple[int, int]]:
        """Read so many rows of the form jsonl, by transport and number."""
        rows = [json.loads(line) for line in self.lines(count)]
        return [(row["transport_id"], row["frame_seq"]) for row in rows]

    def interrupt(self) -> tuple[int, bytes, bytes]:
        """Press Control-C: give the status, and what had not been read."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=PATIENCE / 1000)
        return self.process.returncode, self._rest["stdout"] + (out or b""), self._rest["stderr"] + err.strip()

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def follow() -> Iterator[Any]:
    """Start followers, and end those that are left."""
    started: list[Follower] = []

    def start(url: str, *arguments: str, **options: Any) -> Follower:
        started.append(Follower(url, *arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()
