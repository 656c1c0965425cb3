"""A Unix socket under Trio or asyncio, whichever runs: three operations that are all a client needs.

What must not be broken here: neither library is imported unless it runs, and writing is for one task at a time.
"""

from __future__ import annotations

from contextlib import suppress
from socket import SHUT_WR
from typing import TYPE_CHECKING, Protocol

import sniffio

if TYPE_CHECKING:
    import asyncio  # noqa: TID251  # likewise
    import socket

READ_BYTES = 64 << 10


class Stream(Protocol):
    """A connected socket."""

    async def receive(self) -> bytes:
        """Read what is there; `b""` at the end, however that came."""

    async def send(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            OSError: The other end is gone.
        """

    def half_close(self) -> None:
        """Say no more, at once: the other end sees the end, and may still be read."""

    def close(self) -> None:
        """Close it at once; whoever reads gets the end or an error."""


async def stream_of(connection: socket.socket) -> Stream:
    """Take over a connected socket, in whichever library runs."""
    connection.setblocking(False)  # noqa: FBT003  # positional only
    if sniffio.current_async_library() == "trio":
        return _Trio(connection)
    return await _Asyncio.of(connection)


class _Trio:
    def __init__(self, connection: socket.socket) -> None:
        import trio  # noqa: PLC0415  # only where it runs

        self._trio = trio
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
        self._sending = trio.Lock()

    async def receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_BYTES))
        except (self._trio.BrokenResourceError, self._trio.ClosedResourceError):
            return b""

    async def send(self, data: bytes) -> None:
        async with self._sending:
            try:
                await self._stream.send_all(data)
            except (self._trio.BrokenResourceError, self._trio.ClosedResourceError) as gone:
                raise ConnectionError("the daemon closed the connection") from gone

    def half_close(self) -> None:
        with suppress(OSError):
            self._stream.socket.shutdown(SHUT_WR)

    def close(self) -> None:
        self._stream.socket.close()


class _Asyncio:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sending: asyncio.Lock) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = sending

    @classmethod
    async def of(cls, connection: socket.socket) -> _Asyncio:
        import asyncio  # noqa: PLC0415, TID251  # only where it runs; the daemon alone is Trio's

        reader, writer = await asyncio.open_unix_connection(sock=connection)
        return cls(reader, writer, asyncio.Lock())

    async def receive(self) -> bytes:
        try:
            return await self._reader.read(READ_BYTES)
        except OSError:
            return b""

    async def send(self, data: bytes) -> None:
        async with self._sending:
            self._writer.write(data)
            await self._writer.drain()

    def half_close(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    def close(self) -> None:
        self._writer.transport.abort()
