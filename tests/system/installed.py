"""The installed programs, started as a user starts them: a daemon on a ledger and a socket of its own, and runners.

What must not be broken here: nothing of the tests' process is shared with them but files, sockets and pipes, and every
wait is for something that happens, with a bound after which the test fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from acp_ledger.store import engine
from acp_ledger.store.verify import Report, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

PROGRAMS: Final = Path(sys.executable).parent
PATIENCE: Final = 60.0
"""Seconds after which something that was waited for is taken not to happen."""


class InstalledDaemon:
    """An `acp-ledgerd`, its log, and what it recorded."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.url = url or f"sqlite:///{folder}/ledger.db"
        self.socket = folder / "ledgerd.sock"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.log: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._heard = threading.Condition()
        self._reader: threading.Thread | None = None

    def start(self, *before: str) -> None:
        """Start it, behind the words of another program where some are given, and wait until it lets runners in."""
        self.log.clear()
        command = [*before, str(PROGRAMS / "acp-ledgerd"), "--ledger", self.url, "--socket", str(self.socket)]
        self.process = subprocess.Popen(
            [*command, "--log-format", "json"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._listen, args=(self.process,), daemon=True)
        self._reader.start()
        self.wait_for("daemon.ready")

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        if process.stderr is None:
            return
        for line in process.stderr:
            with self._heard:
                self.log.append(line.decode(errors="replace"))
                self._heard.notify_all()
        process.stderr.close()
        with self._heard:
            self.log.append("")
            self._heard.notify_all()

    def wait_for(self, event: str, count: int = 1) -> None:
        """Wait until the log tells of an event that many times."""

        def told() -> bool:
            return sum(f'"{event}"' in line for line in self.log) >= count

        with self._heard:
            self._heard.wait_for(lambda: told() or self.is_over(), PATIENCE)
            if not told():
                raise AssertionError(f"no {event} in the daemon's log:\n{''.join(self.log)}")

    def is_over(self) -> bool:
        """Whether it will tell nothing more."""
        return self.log[-1:] == [""]

    @property
    def pid(self) -> int:
        """Its process id."""
        if self.process is None:
            raise AssertionError("the daemon was not started")
        return self.process.pid

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal and wait until it is gone; its status."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        if self._reader is not None:
            self._reader.join(PATIENCE)
        self.process = None
        return status

    def kill(self) -> None:
        """SIGKILL: no farewell of any kind."""
        self.end(signal.SIGKILL)

    def runner(self, command: Sequence[str]) -> list[str]:
        """The command that runs an agent through this daemon."""
        return [str(PROGRAMS / "acp-ledger-run"), "--socket", str(self.socket), "--", *command]

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that reads its ledger."""
        reader = engine.open_reader(self.url)
        try:
            with reader.connect() as connection:
                yield connection
        finally:
            reader.dispose()

    def query(self, statement: str, **values: Any) -> list[Any]:
        """Rows of a question to its ledger."""
        with self.reading() as connection:
            return list(connection.execute(text(statement), values))

    def transports(self) -> list[int]:
        """Ids of its transports, oldest first."""
        return [row[0] for row in self.query("SELECT id FROM transports ORDER BY id")]

    def lines(self, transport_id: int, direction: str) -> bytes:
        """What is committed of a direction, as it is passed on."""
        statement = (
            "SELECT body, terminated FROM frames WHERE transport_id = :id AND direction = :direction"
            " AND delivery = 'forward' ORDER BY frame_seq"
        )
        rows = self.query(statement, id=transport_id, direction=direction)
        return b"".join(bytes(body) + (b"\n" if terminated else b"") for body, terminated in rows)

    def verify(self) -> Report:
        """Verify everything, mapping every line again."""
        with self.reading() as connection:
            return verify(connection, full=True)


@contextmanager
def daemon_at(folder: Path, url: str | None = None, *before: str) -> Iterator[InstalledDaemon]:
    """A running daemon; it is ended when the test is over."""
    daemon = InstalledDaemon(folder, url)
    daemon.start(*before)
    try:
        yield daemon
    finally:
        daemon.end()
