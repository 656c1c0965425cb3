"""systemd's journal, by its native protocol: entries of named fields, so that `journalctl ACP_TRANSPORT_ID=…` works.

What must not be broken here: nobody waits for the journal and nobody fails because of it; a value may hold anything
and stays one value of one field. Format: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SOCKET: Final = "/run/systemd/journal/socket"
VARIABLE: Final = "JOURNAL_STREAM"

_TOO_LARGE: Final = frozenset({errno.EMSGSIZE, errno.ENOBUFS})
_LENGTH: Final = struct.Struct("<Q")
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def is_connected(fd: int, environ: Mapping[str, str]) -> bool:
    """Whether this descriptor leads to the journal: the variable says so, and names it and no earlier one."""
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return environ.get(VARIABLE, "") == f"{found.st_dev}:{found.st_ino}"


def encode(fields: Iterable[tuple[str, str]]) -> bytes:
    """An entry: every field in order; a name may stand there more than once."""
    return b"".join(_field(name.encode("ascii"), value.encode("utf-8", "replace")) for name, value in fields)


def _field(name: bytes, value: bytes) -> bytes:
    if b"\n" not in value:
        return name + b"=" + value + b"\n"
    return name + b"\n" + _LENGTH.pack(len(value)) + value + b"\n"


class Journal:
    """Sends entries to journald at `path`. `dropped` counts those it had no room for."""

    def __init__(self, path: str = SOCKET) -> None:
        self.dropped = 0
        self._path = path

    def send(self, fields: Iterable[tuple[str, str]]) -> bool:
        """Send an entry; False when nobody takes entries there. One there is no room for is dropped and counted."""
        data = encode([*fields, ("ACP_DROPPED", str(self.dropped))] if self.dropped else fields)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to_journal:
                self._send(to_journal, data)
        except BlockingIOError:
            self.dropped += 1
            return True
        except OSError:
            return False
        self.dropped = 0
        return True

    def _send(self, to_journal: socket.socket, data: bytes) -> None:
        try:
            to_journal.sendto(data, self._path)
        except OSError as fault:
            if fault.errno not in _TOO_LARGE:
                raise
            self._send_file(to_journal, data)

    def _send_file(self, to_journal: socket.socket, data: bytes) -> None:
        """What no datagram holds goes as a sealed file in memory, which nobody can change while it is read."""
        file = os.memfd_create("acp-ledgerd", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]).tobytes())
            to_journal.sendmsg([], [rights], 0, self._path)
        finally:
            os.close(file)
