"""The ends of the pipes: reading a peer's lines, and the only place that writes to a peer.

What must not be broken here:

* `Outlet.forward` takes receipts and nothing else, and sends exactly their bytes, in their order. A receipt is made by
  the committer alone, after the commit; so nothing that is not in the ledger can reach a peer.
* A write that would block never holds anybody up but the receiver's own direction.
* The daemon's own words to the runner (stderr, exit status, refusals) travel beside the lines, never inside one.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from acp_ledger import handshake
from acp_ledger.protocol.framing import LineSplitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_ledger.daemon.committer import Receipt
    from acp_ledger.protocol.framing import Line, Oversize

READ_BYTES: Final = 64 << 10
"""Size of one read: what a pipe holds."""

CHUNK_BYTES: Final = handshake.PACKET_BYTES
"""Receipts that wait are joined to one write of at most this many bytes: one packet."""

STDERR_WAITING_BYTES: Final = 64 << 10
"""Bytes of the agent's stderr that wait for a slow runner; what comes on top is dropped, for an agent never waits."""


class Descriptor:
    """A file descriptor of ours: non-blocking, closed once."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._drained = True  # the last read took all there was

    async def receive_some(self) -> bytes:
        """Read what is there, at least one byte; `b""` at the end.

        Raises:
            OSError: Reading failed.
        """
        while True:
            await self.readable()
            if (data := self.read_now()) is not None:
                return data

    async def readable(self) -> None:
        """Wait until there is something to read, or the end."""
        if self._drained:
            await trio.lowlevel.wait_readable(self.fd)
        else:
            await trio.lowlevel.checkpoint()

    def read_now(self) -> bytes | None:
        """Read what is there; `b""` at the end, None when there is nothing after all.

        Raises:
            OSError: Reading failed.
        """
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            self._drained = True
            return None
        self._drained = len(data) < READ_BYTES
        return data

    def close(self) -> None:
        """Close it; whoever waits for it gets `trio.ClosedResourceError`."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            trio.lowlevel.notify_closing(fd)
            os.close(fd)


class Hangup:
    """Tells that the other end of a socket is closed, also while what it sent before is still unread."""

    def __init__(self, fd: int) -> None:
        self._poll = select.epoll(flags=select.EPOLL_CLOEXEC)
        self._poll.register(fd, select.EPOLLRDHUP)

    async def wait(self) -> None:
        """Return once the peer has closed or half-closed its end."""
        await trio.lowlevel.wait_readable(self._poll.fileno())

    def close(self) -> None:
        """Forget the socket. Call it before the socket itself is closed."""
        trio.lowlevel.notify_closing(self._poll.fileno())
        self._poll.close()


class LineReader:
    """Reads a peer's output as lines; `first` is what was read of it before."""

    def __init__(self, source: Descriptor, limit: int, first: bytes = b"") -> None:
        self._source = source
        self._splitter = LineSplitter(limit)
        self._first = first
        self._ended = False

    @property
    def buffered(self) -> int:
        """Bytes of the unfinished line."""
        return self._splitter.buffered

    async def readable(self) -> None:
        """Wait until there is something to read. Nothing is taken from the peer yet."""
        if not self._first and not self._ended:
            await self._source.readable()

    def lines(self) -> list[Line | Oversize]:
        """The lines of one read, none when it held no whole one; the last one once the peer is through.

        Raises:
            EOFError: There is nothing more.
            OSError: Reading failed.
        """
        if self._ended:
            raise EOFError
        data, self._first = self._first, b""
        found = data or self._source.read_now()
        if found is None:
            return []
        if found:
            return self._splitter.feed(found)
        self._ended = True
        last = self._splitter.finish()
        return [] if last is None else [last]


class Budget:
    """How much of one direction may wait, in lines and bytes, between reading it and having written it on.

    A line is always admitted while there is room, however long it is: so one that is larger than the budget passes
    alone. Once it is full its reader waits until half of it is free: reading and committing share one interpreter,
    and are both faster when they take turns than when they quarrel over every line.
    """

    def __init__(self, lines: int, size: int) -> None:
        self._lines = lines
        self._bytes = size
        self._half = (lines // 2, size // 2)
        self._waiting = trio.lowlevel.ParkingLot()

    def take(self, size: int) -> None:
        """Count a line that was read."""
        self._lines -= 1
        self._bytes -= size

    def give(self, lines: int, size: int) -> None:
        """Count lines that were written on, or will never be."""
        self._lines += lines
        self._bytes += size
        if self._lines > self._half[0] and self._bytes > self._half[1]:
            self._waiting.unpark_all()

    @property
    def full(self) -> bool:
        """Whether the reader must wait."""
        return self._lines <= 0 or self._bytes <= 0

    async def room(self) -> None:
        """Wait until there is room."""
        while self.full:
            await self._waiting.park()


class Outlet:
    """The way to one peer. `through` is the `frame_seq` of the last line written whole, `written` counts bytes.

    Lines come from the writer's thread, everything else from Trio's: a lock is held while anything is written, and
    while the sink is closed, for a descriptor's number may be another's afterwards. Trio's own objects are touched in
    Trio's thread alone, by `notice`.
    """

    def __init__(self, sink: Descriptor, budget: Budget) -> None:
        self.budget = budget
        self.through = 0
        self.written = 0
        self.lost = trio.Event()
        self._sink = sink
        self._lock = threading.Lock()
        self._gone = False
        self._stalled = False
        self._waiting: deque[Receipt | bytes] = deque()
        self._sent = 0  # bytes of the first waiting receipt that are in a chunk already
        self._chunk = memoryview(b"")
        self._whole: list[tuple[int, int]] = []  # (frame_seq, bytes) of the receipts that end in the chunk
        self._freed: list[int] = []  # bytes of each line that is off our hands
        self._stall = trio.lowlevel.ParkingLot()
        self._progress = trio.lowlevel.ParkingLot()

    @property
    def idle(self) -> bool:
        """Whether nothing waits, or nothing can be written any more."""
        return not self._waiting and not self._chunk

    def forward(self, receipts: Sequence[Receipt]) -> None:
        """Send committed lines, at once as far as the peer takes them; `run` sends the rest.

        Lines for a peer that is gone are let go: they are in the ledger, and `through` says they were not delivered.
        """
        self._send(receipts)

    def notice(self) -> None:
        """In Trio's thread: tell whoever waits what was sent, or that the peer is gone."""
        with self._lock:
            freed, self._freed = self._freed, []
        if freed:
            self.budget.give(len(freed), sum(freed))
        if self._gone:
            self.lost.set()
        if self._stalled:
            self._stall.unpark_all()
        self._progress.unpark_all()

    async def run(self) -> None:
        """Send, as the peer takes it, what could not be sent at once."""
        while True:
            while not self._stalled:
                await self._stall.park()
            try:
                await trio.lowlevel.wait_writable(self._sink.fd)
            except trio.ClosedResourceError:
                return
            with self._lock:
                self._stalled = False
                self._send_on()
            self.notice()

    async def drained(self, patience: float) -> bool:
        """Wait until nothing waits; give up (False) when the peer took nothing for `patience` seconds."""
        while not self.idle:
            with trio.move_on_after(patience) as scope:
                await self._progress.park()
            if scope.cancelled_caught:
                return False
        return not self._gone

    async def reached(self, frame_seq: int) -> None:
        """Wait until that line was written whole, or the peer is gone."""
        while self.through < frame_seq and not self._gone:
            await self._progress.park()

    def close(self) -> None:
        """Close the peer's input. What still waits is let go."""
        with self._lock:
            self._lose()
            self._sink.close()
        self.notice()

    def _encode(self, data: bytes) -> bytes:
        return data

    def _send(self, items: Sequence[Receipt | bytes]) -> None:
        with self._lock:
            self._waiting.extend(items)
            if self._gone:
                self._lose()
            elif not self._stalled:  # otherwise `run` waits for the peer, and goes on by itself
                self._send_on()

    def _send_on(self) -> None:
        """Write until there is nothing left or the peer takes no more."""
        try:
            while self._chunk or self._next_chunk():
                count = os.write(self._sink.fd, self._chunk)
                self.written += count
                self._chunk = self._chunk[count:]
                if not self._chunk:
                    self._chunk_written()
        except BlockingIOError:
            self._stalled = True
        except OSError:  # the peer closed its end; its process tells how it ended
            self._lose()

    def _next_chunk(self) -> bool:
        parts: list[bytes] = []
        room = CHUNK_BYTES
        while room and self._waiting:
            first = self._waiting[0]
            if isinstance(first, bytes):
                if parts:
                    break
                self._waiting.popleft()
                self._chunk = memoryview(first)
                return True
            part = _wire(first, self._sent, room)
            parts.append(part)
            room -= len(part)
            self._sent += len(part)
            if self._sent == len(first.body) + first.terminated:
                self._whole.append((first.frame_seq, len(first.body)))
                self._waiting.popleft()
                self._sent = 0
        self._chunk = memoryview(self._encode(b"".join(parts)))
        return bool(parts)

    def _chunk_written(self) -> None:
        if self._whole:
            self.through = self._whole[-1][0]
            self._freed += [size for _, size in self._whole]
            self._whole.clear()

    def _lose(self) -> None:
        self._freed += [len(item.body) for item in self._waiting if not isinstance(item, bytes)]
        self._freed += [size for _, size in self._whole]
        self._waiting.clear()
        self._whole.clear()
        self._chunk = memoryview(b"")
        self._sent = 0
        self._stalled = False
        self._gone = True


class RunnerOutlet(Outlet):
    """The way to the editor: lines travel in packets, and the daemon's own words beside them."""

    def __init__(self, sink: Descriptor, budget: Budget) -> None:
        super().__init__(sink, budget)
        self._stderr_waiting = 0

    def stderr(self, data: bytes) -> None:
        """Pass on the agent's stderr, as far as the runner takes it."""
        if self.idle:
            self._stderr_waiting = 0
        self._stderr_waiting += len(data)
        if self._stderr_waiting <= STDERR_WAITING_BYTES:
            self._say(b"".join(handshake.encode_packets(handshake.ERROR, data)))

    def unrecorded(self, line: bytes) -> None:
        """Send an error of our own that the ledger cannot take: only when it cannot take anything."""
        self._say(b"".join(handshake.encode_packets(handshake.OUTPUT, line + b"\n")))

    def exit(self, status: int) -> None:
        """Tell the runner what to exit with. Nothing may follow."""
        self._say(handshake.encode_exit(status))

    def refuse(self, sentence: str, status: int) -> None:
        """Tell the runner why this run cannot be, or cannot go on, and what to exit with. Nothing may follow."""
        self._say(handshake.encode_fatal(sentence, status))

    def _say(self, packet: bytes) -> None:
        if packet:
            self._send((packet,))
            self.notice()

    def _encode(self, data: bytes) -> bytes:
        return b"".join(handshake.encode_packets(handshake.OUTPUT, data))


async def reply(sink: Descriptor, answer: bytes) -> None:
    """Answer a control request; whoever asked and left gets nothing.

    Raises:
        OSError: It left.
    """
    while answer:
        await trio.lowlevel.wait_writable(sink.fd)
        answer = answer[os.write(sink.fd, answer) :]


def _wire(receipt: Receipt, start: int, room: int) -> bytes:
    """At most `room` of a line's bytes on the wire from `start` on: its body, then its newline where it had one."""
    part = receipt.body if not start and len(receipt.body) < room else receipt.body[start : start + room]
    if receipt.terminated and start + len(part) == len(receipt.body) and len(part) < room:
        return part + b"\n"
    return part
