"""A terminal with a person at it: a pseudo-terminal that a process is started in, as a login is."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATIENCE: Final = 20.0
ROWS: Final = 33
COLUMNS: Final = 101


class Seat:
    """The person's side of a terminal, and the process that was started in it."""

    def __init__(self, ours: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen = b""
        self._ours = ours

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def see(self, word: bytes) -> bytes:
        """Read until the screen holds a word; gives all that was on it."""
        while word not in self.seen:
            data = self._read()
            assert data, self.seen
            self.seen += data
        return self.seen

    def leave(self) -> tuple[int, bytes]:
        """Read until nobody writes there any more; gives the exit status and all that was on the screen."""
        while data := self._read():
            self.seen += data
        return self.process.wait(PATIENCE), self.seen

    def _read(self) -> bytes:
        readable, _, _ = select.select([self._ours], [], [], PATIENCE)
        assert readable, self.seen
        try:
            return os.read(self._ours, 4096)
        except OSError:
            return b""  # EIO: the last process has closed it


@contextmanager
def seated(command: Sequence[str], before: Callable[[], None] | None = None, **options: Any) -> Iterator[Seat]:
    """Start a process in a session of its own whose terminal is ours; `before` runs in it first."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))

    def sit_down() -> None:
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)
        if before is not None:
            before()

    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, **options}
    process = subprocess.Popen(list(command), start_new_session=True, preexec_fn=sit_down, **streams)  # noqa: PLW1509  # no thread runs here
    os.close(theirs)
    try:
        yield Seat(ours, process)
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(ours)
