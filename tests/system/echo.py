"""An idle line through an installed daemon, with the moment it came at each end, on one clock."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, NamedTuple

from tests.support.peers.find import HERE
from tests.system.installed import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.system.installed import InstalledDaemon


class Passage(NamedTuple):
    """Seconds a line took to the agent, and the same line back to the client."""

    there: float
    back: float


class Echo:
    """A client whose agent says every line again and tells when it heard it."""

    def __init__(self, runner: subprocess.Popen[bytes], told: IO[bytes]) -> None:
        self._runner = runner
        self._told = told

    @property
    def _in(self) -> IO[bytes]:
        assert self._runner.stdin is not None
        return self._runner.stdin

    @property
    def _out(self) -> IO[bytes]:
        assert self._runner.stdout is not None
        return self._runner.stdout

    def say(self, line: bytes) -> None:
        """Say a line to the agent."""
        self._in.write(line + b"\n")

    def agent_heard(self, seconds: float = PATIENCE) -> tuple[float, bytes] | None:
        """The next line the agent heard, and when; None when it hears nothing for so long."""
        if not _readable(self._told, seconds):
            return None
        when, _space, line = self._told.readline().rstrip(b"\n").partition(b" ")
        return int(when) / 1e9, line

    def client_heard(self, seconds: float = PATIENCE) -> tuple[float, bytes] | None:
        """The next line the client heard, and when."""
        if not _readable(self._out, seconds):
            return None
        line = self._out.readline().rstrip(b"\n")
        return time.monotonic(), line

    def pass_line(self, line: bytes) -> Passage:
        """Say a line and wait until it is back."""
        said = time.monotonic()
        self.say(line)
        there, back = self.agent_heard(), self.client_heard()
        assert there is not None
        assert back is not None
        assert there[1] == back[1] == line
        return Passage(there[0] - said, back[0] - there[0])


def _readable(stream: IO[bytes], seconds: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(seconds))


@contextmanager
def echo(daemon: InstalledDaemon, folder: Path) -> Iterator[Echo]:
    """A conversation with an agent that echoes."""
    fifo = folder / "told"
    os.mkfifo(fifo)
    agent = [sys.executable, "-S", "-E", str(HERE / "scripted_agent.py"), "echo", str(fifo)]
    with (
        subprocess.Popen(
            daemon.runner(agent), env=daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        ) as runner,
        # Opening waits for the agent to open its end.
        fifo.open("rb", buffering=0) as told,
    ):
        yield Echo(runner, told)
        assert runner.stdin is not None
        runner.stdin.close()
        runner.wait(PATIENCE)
