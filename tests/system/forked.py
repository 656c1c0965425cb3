"""A daemon that starts within a blink: its program is loaded once and forked for every start.

What must not be broken here: the process that is killed is the daemon and nothing else; nothing is shared between two
starts but the loaded modules.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.system.installed import PATIENCE, InstalledDaemon

if TYPE_CHECKING:
    from pathlib import Path

NURSERY: Final = """
import os, sys
from acp_ledger.daemon.main import main
import psycopg, sqlalchemy.dialects.postgresql, sqlalchemy.dialects.sqlite
for _word in iter(sys.stdin.readline, ""):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        main(sys.argv[1:])
        os._exit(0)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print('{"event": "daemon.gone", "pid": %d}' % pid, file=sys.stderr, flush=True)
    print("gone", flush=True)
"""


class ForkedDaemon(InstalledDaemon):
    """An `acp-ledgerd` to be killed and started often. `mischief` is code that breaks it, for negative controls."""

    def __init__(self, folder: Path, url: str | None = None, mischief: str = "") -> None:
        super().__init__(folder, url)
        arguments = ["--ledger", self.url, "--socket", str(self.socket), "--log-format", "json"]
        self._nursery = subprocess.Popen(
            [sys.executable, "-c", mischief + NURSERY, *arguments],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._pid: int | None = None
        self._reader = threading.Thread(target=self._listen, args=(self._nursery,), daemon=True)
        self._reader.start()

    def start(self, *_before: str) -> None:
        """Fork it and wait until it lets runners in."""
        self.log.clear()
        self._pid = int(self._say("start"))
        self.wait_for("daemon.ready")

    def _say(self, word: str) -> bytes:
        if self._nursery.stdin is None:
            raise AssertionError("no way to the nursery")
        self._nursery.stdin.write(word.encode() + b"\n")
        return self._told()

    def _told(self) -> bytes:
        if self._nursery.stdout is None:
            raise AssertionError("no way from the nursery")
        return self._nursery.stdout.readline()

    def is_over(self) -> bool:
        """Whether this very daemon is gone; the farewell of the one before it may come late."""
        return super().is_over() or any(f'"daemon.gone", "pid": {self._pid}}}' in line for line in self.log[-1:])

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._pid is None:
            raise AssertionError("the daemon was not started")
        return self._pid

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal and wait until it is gone."""
        if self._pid is not None:
            # A daemon that ended by itself has said why in its log, and whoever waits for it fails with that.
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)
            if self._told() != b"gone\n":
                raise AssertionError("the daemon's parent is gone")
            self._pid = None
        return 0

    def close(self) -> None:
        """End what forks as well."""
        self.end()
        for stream in (self._nursery.stdin, self._nursery.stdout):
            if stream is not None:
                stream.close()
        self._nursery.wait(PATIENCE)
        if self._reader is not None:
            self._reader.join(PATIENCE)
