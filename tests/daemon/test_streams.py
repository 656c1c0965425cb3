"""The ends of the pipes: exact bytes, bounded waiting, and nobody's peer in anybody else's way."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from acp_ledger import handshake
from acp_ledger.daemon import committer
from acp_ledger.daemon.committer import Receipt
from acp_ledger.daemon.streams import CHUNK_BYTES, Budget, Descriptor, Hangup, LineReader, Outlet, RunnerOutlet, _wire
from acp_ledger.protocol.records import TO_CLIENT
from tests.daemon.house import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator


def receipt(seq: int, body: bytes, *, terminated: bool = True) -> Receipt:
    """A receipt as the committer makes it."""
    return Receipt(1, seq, TO_CLIENT, body, terminated=terminated, seal=committer._SEAL)


@contextmanager
def pair(kind: type[Outlet] = Outlet, lines: int = 100, size: int = 1 << 30) -> Iterator[tuple[Any, Descriptor]]:
    """An outlet, and the other end of its socket."""
    ours, theirs = socket.socketpair()
    sink, source = Descriptor(ours.detach()), Descriptor(theirs.detach())
    try:
        yield kind(sink, Budget(lines, size)), source
    finally:
        sink.close()
        source.close()


async def read(source: Descriptor, size: int) -> bytes:
    """Read this many bytes."""
    data = b""
    while len(data) < size:
        data += await source.receive_some()
    return data


async def test_lines_that_wait_are_one_write() -> None:
    """Receipts handed over together travel together, each with its newline where it had one."""
    with pair() as (outlet, source):
        outlet.forward(
            [receipt(1, b"one"), receipt(2, b""), receipt(3, b"three\r"), receipt(4, b"end", terminated=False)]
        )
        assert await source.receive_some() == b"one\n\nthree\r\nend"
        assert (outlet.through, outlet.idle) == (4, True)


@given(bodies=st.lists(st.tuples(st.binary(max_size=9), st.booleans()), max_size=6), room=st.integers(1, 7))
def test_pieces_of_lines_join_to_the_lines(bodies: list[tuple[bytes, bool]], room: int) -> None:
    """However a line is cut into writes, its pieces are its bytes and its newline."""
    for body, terminated in bodies:
        one = receipt(1, body, terminated=terminated)
        whole = body + b"\n" * terminated
        sent = b""
        while len(sent) < len(whole):
            piece = _wire(one, len(sent), room)
            assert 0 < len(piece) <= room
            sent += piece
        assert sent == whole


@pytest.mark.parametrize("size", [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES])
async def test_long_line_travels_in_bounded_packets(size: int) -> None:
    """A line of any length reaches the runner in packets within the bound, and whole."""
    with pair(RunnerOutlet) as (outlet, source):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outlet.run)
            outlet.forward([receipt(1, b"x" * size), receipt(2, b"y")])
            outlet.notice()
            packets, got = handshake.PacketReader(), b""
            while not got.endswith(b"y\n"):
                for kind, payload in packets.feed(await source.receive_some()):
                    assert kind == handshake.OUTPUT
                    got += payload
            assert got == b"x" * size + b"\ny\n"
            assert outlet.through == 2
            nursery.cancel_scope.cancel()


async def test_through_counts_whole_lines_alone() -> None:
    """A line of which a part was written is not delivered."""
    with pair() as (outlet, source):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outlet.run)
            outlet.forward([receipt(1, b"x"), receipt(2, b"z" * (4 << 20))])
            outlet.notice()
            await wait_all_tasks_blocked()
            assert outlet.through <= 1
            await read(source, 2 + (4 << 20) + 1)
            assert await outlet.drained(10)
            assert outlet.through == 2
            nursery.cancel_scope.cancel()


async def test_budget_stops_the_reader_until_lines_are_written() -> None:
    """A full budget holds its own reader, and is free again when the peer took the lines."""
    with pair(lines=2) as (outlet, source):
        for seq in (1, 2):
            outlet.budget.take(5)
            assert outlet.budget.full == (seq == 2)
        outlet.forward([receipt(1, b"first"), receipt(2, b"again")])
        outlet.notice()
        assert not outlet.budget.full
        await source.receive_some()


async def test_budget_is_free_when_the_peer_is_gone() -> None:
    """Lines for a peer that left are let go, so that its side does not stop what is still to be recorded."""
    await trio.lowlevel.checkpoint()  # nothing waits here, and the outlet needs Trio all the same
    with pair(lines=1) as (outlet, source):
        source.close()
        outlet.budget.take(4)
        outlet.forward([receipt(1, b"gone")])
        outlet.notice()
        assert outlet.lost.is_set()
        assert not outlet.budget.full
        outlet.budget.take(4)
        outlet.forward([receipt(2, b"gone")])
        outlet.notice()
        assert (outlet.through, outlet.idle, outlet.budget.full) == (0, True, False)


async def test_stderr_never_waits_for_the_runner() -> None:
    """What a runner does not take of its agent's stderr is dropped, and its lines are not."""
    with pair(RunnerOutlet) as (outlet, source):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outlet.run)
            for _ in range(100):
                outlet.stderr(b"e" * 60_000)
            outlet.forward([receipt(1, b"line")])
            packets, kinds = handshake.PacketReader(), []
            while handshake.OUTPUT not in kinds:
                kinds += [kind for kind, _ in packets.feed(await source.receive_some())]
            assert kinds.count(handshake.ERROR) < 100
            nursery.cancel_scope.cancel()


async def test_exit_comes_behind_the_lines() -> None:
    """The exit status is the last a runner hears."""
    with pair(RunnerOutlet) as (outlet, source):
        outlet.forward([receipt(1, b"line")])
        outlet.exit(3)
        data = await source.receive_some()
        assert list(handshake.PacketReader().feed(data)) == [(handshake.OUTPUT, b"line\n"), (handshake.EXIT, b"3")]


@pytest.mark.parametrize("half", [False, True], ids=["closed", "half-closed"])
async def test_hangup_is_seen_behind_unread_bytes(*, half: bool) -> None:
    """A socket closed for good or for writing is noticed although what it sent is still unread."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        hangup = Hangup(ours.fileno())
        async with trio.open_nursery() as nursery:
            theirs.sendall(b"unread")
            nursery.start_soon(hangup.wait)
            await wait_all_tasks_blocked()
            assert nursery.child_tasks
            if half:
                theirs.shutdown(socket.SHUT_WR)
            else:
                theirs.close()
            with trio.fail_after(PATIENCE):
                while nursery.child_tasks:
                    await wait_all_tasks_blocked()
        hangup.close()


async def test_reader_gives_what_was_read_before() -> None:
    """Bytes that came with the greeting are the beginning of the first line."""
    reading, writing = os.pipe()
    source = Descriptor(reading)
    os.write(writing, b"last")
    os.close(writing)
    reader = LineReader(source, 100, b"first\n")
    await reader.readable()
    assert reader.lines() == [(b"first", True)]
    await reader.readable()
    assert reader.lines() == []
    await reader.readable()
    assert reader.lines() == [(b"last", False)]
    with pytest.raises(EOFError):
        reader.lines()
    source.close()
