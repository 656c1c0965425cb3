"""An idle line through an installed daemon and an agent that says it again, heard at each end."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from tests.support.peers.find import HERE
from tests.system.installed import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.system.installed import InstalledDaemon


class Echo:
    """A client whose agent says every line again and tells that it heard it."""

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

    def agent_heard(self, seconds: float = PATIENCE) -> bytes | None:
        """The next line the agent heard; None when it hears nothing for so long."""
        return _line(self._told, seconds)

    def client_heard(self, seconds: float = PATIENCE) -> bytes | None:
        """The next line the client heard."""
        return _line(self._out, seconds)

    def pass_line(self, line: bytes) -> None:
        """Say a line and wait until it is back."""
        self.say(line)
        assert self.agent_heard() == line
        assert self.client_heard() == line


def _line(stream: IO[bytes], seconds: float) -> bytes | None:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline().rstrip(b"\n") if selector.select(seconds) else None


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
