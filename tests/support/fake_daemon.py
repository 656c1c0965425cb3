"""A daemon's end of the socket, small enough to see through, for tests of what runs on the other end.

Run as a program it is a daemon that a runner can start: `python fake_daemon.py SOCKET REPORT` appends one
line of JSON about itself to REPORT, listens on SOCKET, and echoes every run until its first control connection ends it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Self

from acp_ledger import handshake

PATIENCE = 20.0
"""Seconds after which a test that waits for a process has failed."""


class Peer:
    """One accepted connection, its greeting read."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        self.connection = connection
        reader = handshake.GreetingReader()
        greeting = None
        while greeting is None:
            data = connection.recv(65536)
            if not data:
                raise EOFError("the connection ended inside its greeting")
            greeting = reader.feed(data)
        self.greeting = greeting
        self._first = reader.rest

    def read(self) -> bytes:
        """Give some input, or nothing at its end."""
        data, self._first = self._first, b""
        try:
            return data or self.connection.recv(65536)
        except ConnectionResetError:
            return b""  # the runner left with our output unread

    def read_exactly(self, count: int) -> bytes:
        """Give ``count`` bytes of input, or fewer where it ends before."""
        found = bytearray()
        while len(found) < count and (data := self.read()):
            found += data
        self._first = bytes(found[count:])
        return bytes(found[:count])

    def read_to_end(self) -> bytes:
        """Give all input up to its end."""
        found = bytearray()
        while data := self.read():
            found += data
        return bytes(found)

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send one kind of bytes, in as many packets as it takes."""
        for packet in handshake.encode_packets(kind, payload):
            self.connection.sendall(packet)

    def end(self, status: int) -> None:
        """Tell an exit status and close."""
        self.connection.sendall(handshake.encode_exit(status))
        self.connection.close()


class FakeDaemon:
    """A listening socket, and the connections it accepted."""

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.settimeout(PATIENCE)
        self._listener.bind(self.path)
        self._listener.listen(16)
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def accept(self) -> Peer:
        """Wait for the next connection and read its greeting."""
        connection, _ = self._listener.accept()
        self._connections.append(connection)
        return Peer(connection)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False  # what listed them
    return True


def _self_report() -> str:
    held = sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    facts = {"pid": os.getpid(), "ppid": os.getppid(), "sid": os.getsid(0), "cwd": str(Path.cwd())}
    held = [descriptor for descriptor in held if _is_open(descriptor)]
    return json.dumps({**facts, "descriptors": held, "environment": dict(os.environ)}) + "\n"


def main() -> None:
    """Be a daemon that a runner can start."""
    report = _self_report()
    with Path(sys.argv[2]).open("a") as file:
        file.write(report)
    with FakeDaemon(sys.argv[1]) as daemon:
        while (peer := daemon.accept()).greeting.purpose == handshake.PURPOSE_RUN:
            peer.send(handshake.OUTPUT, peer.read_to_end())
            peer.end(0)
    Path(sys.argv[1]).unlink()


if __name__ == "__main__":
    main()
