"""A socket that takes datagrams as journald and a service manager do, and what was in them."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from types import TracebackType

PATIENCE: Final = 20.0
ROOM: Final = 1 << 20


class Sender(NamedTuple):
    """Who sent a datagram, in the kernel's word."""

    pid: int
    uid: int
    gid: int


class Datagrams:
    """Listens at `address`, a path or bytes that begin with NUL."""

    def __init__(self, address: str | bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(address)
        self.socket.settimeout(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def receive(self) -> tuple[bytes, Sender, int | None]:
        """The next datagram, who sent it, and the descriptor that came with it."""
        data, ancillary, _, _ = self.socket.recvmsg(ROOM, 1024)
        sender, fd = Sender(0, 0, 0), None
        for _, kind, payload in ancillary:
            if kind == socket.SCM_CREDENTIALS:
                sender = Sender(*struct.unpack("3i", payload))
            elif kind == socket.SCM_RIGHTS:
                (fd,) = struct.unpack("i", payload)
        return data, sender, fd

    def entry(self) -> list[tuple[str, str]]:
        """The next entry of a journal."""
        data, _, fd = self.receive()
        if fd is not None:
            data = _whole(fd)
        return decoded(data)

    def words(self) -> dict[str, str]:
        """The next words to a service manager."""
        data, _, _ = self.receive()
        return dict(line.split("=", 1) for line in data.decode().splitlines())

    def waiting(self) -> list[dict[str, str]]:
        """The words that have come already."""
        self.socket.settimeout(0)
        found = []
        try:
            while True:
                found.append(self.words())
        except BlockingIOError:
            return found
        finally:
            self.socket.settimeout(PATIENCE)


def decoded(data: bytes) -> list[tuple[str, str]]:
    """Read an entry as journald does, field by field."""
    fields = []
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            length = struct.unpack_from("<Q", rest)[0]
            value, rest = rest[8 : 8 + length], rest[8 + length + 1 :]
        fields.append((name.decode("ascii"), value.decode()))
        data = rest
    return fields


def _whole(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        return file.read()
