"""A relay before Postgres that loses a COMMIT, its answer, or everything, when it is told to."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

if TYPE_CHECKING:
    from types import TracebackType

Fault: TypeAlias = Literal["none", "lose_commit", "lose_answer", "swallow"]
"""`lose_commit` cuts both ends before the server hears of it, `lose_answer` after it answered; `swallow` only waits."""


class Proxy:
    """Listens on a port of its own; every connection goes to the server's port."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.fault: Fault = "none"
        self.struck = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for open_socket in (self._listener, *self._sockets):
            _cut(open_socket)
        for thread in self._threads:
            thread.join(10)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args)  # type: ignore[arg-type]  # a callable
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            self._start(self._to_server, client, server)
            self._start(self._to_client, client, server)

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        while data := _read(client):
            if self.fault != "none" and b"COMMIT" in data:
                self.struck.set()
                if self.fault == "swallow":
                    continue
                if self.fault == "lose_commit":
                    break
            if not _write(server, data):
                break
        _cut(client)
        _cut(server)

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        while data := _read(server):
            if self.fault == "lose_answer" and self.struck.is_set():
                break
            if not _write(client, data):
                break
        _cut(client)
        _cut(server)


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


def _write(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _cut(open_socket: socket.socket) -> None:
    with suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
    open_socket.close()
