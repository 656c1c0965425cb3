"""Starts `acp-ledger-run` as an editor would: a process of its own, started like its console script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONSOLE_SCRIPT = (Path(__file__).parents[2] / "deploy" / "acp-ledger-run").read_text()
"""What is installed as `acp-ledger-run`."""

BARE_PATH = "/usr/bin:/bin"
PATIENCE = 20.0


class Runners:
    """Starts runners, and ends those that are left when the test is over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._script = folder / "acp-ledger-run"
        self._script.write_text(CONSOLE_SCRIPT)
        self._started: list[subprocess.Popen[bytes]] = []

    def command(self, *args: str, script: str | None = None) -> list[str]:
        """The command line of a runner; `script` takes the place of the console script."""
        if script is not None and script != self._script.read_text():  # an interpreter may be about to read it
            self._script.write_text(script)
        return [sys.executable, str(self._script), *args]

    def start(self, *args: str, script: str | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start a runner; its streams are pipes and its environment PATH and a HOME of the test's, unless said."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        surroundings = {"env": {"PATH": BARE_PATH, "HOME": str(self.folder)}}
        start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
        process = start(self.command(*args, script=script), **{**streams, **surroundings, **options})
        self._started.append(process)
        return process

    def close(self) -> None:
        """End every runner and close its streams."""
        for process in self._started:
            process.kill()
            process.wait(PATIENCE)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture
def runners(tmp_path: Path) -> Iterator[Runners]:
    """Runners in a folder of the test's own, which is also their HOME."""
    found = Runners(tmp_path)
    yield found
    found.close()
