"""A daemon in this process, and an editor that speaks to it as the runner does, byte by byte."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from acp_ledger import handshake
from acp_ledger.daemon.daemon import Daemon, open_daemon
from acp_ledger.settings import Settings, load
from acp_ledger.store import engine
from acp_ledger.store.verify import verify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sqlalchemy import Row

AGENT = Path(__file__).parent.parent / "support/scripted_agent.py"
PATIENCE = 20.0
"""Seconds after which a test that waits has failed; no test waits for a while on purpose."""


def command(*steps: Sequence[Any]) -> tuple[bytes, ...]:
    """The command line of a scripted agent."""
    return tuple(map(os.fsencode, (sys.executable, "-I", str(AGENT), json.dumps(steps))))


def greeting(*steps: Sequence[Any], **fields: Any) -> bytes:
    """What a runner says first, for an agent with this script."""
    fields = {"argv": command(*steps), "cwd": b"/", "env": {b"PATH": os.environb[b"PATH"]}, **fields}
    return handshake.encode_greeting(handshake.Greeting(handshake.PURPOSE_RUN, **fields))


def request(token: str, method: str, **params: Any) -> bytes:
    """A request under an id as it is to be written."""
    return f'{{"jsonrpc":"2.0","id":{token},"method":"{method}","params":{json.dumps(params)}}}\n'.encode()


PROMPT = request("7", "session/prompt", sessionId="s", prompt=[])
CANCEL = b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}\n'
QUESTION = (
    '{"jsonrpc":"2.0","id":1,"method":"session/request_permission",'
    '"params":{"sessionId":"s","toolCall":{"toolCallId":"c"},"options":[]}}'
)

CHUNK = (
    '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'
    '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half a sentence"}}}}'
)
"""A piece of an answer; its message stays open."""


class Heard(NamedTuple):
    """All that came from the daemon until it closed."""

    output: bytes
    errors: bytes
    fatal: str | None
    status: int | None

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of the output as JSON."""
        return [json.loads(line) for line in self.output.splitlines()]


class Editor:
    """The runner's end of a connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._packets = handshake.PacketReader()
        self._output = bytearray()
        self._errors = b""
        self._fatal: str | None = None
        self._status: int | None = None

    @property
    def heard(self) -> bytes:
        """The output that was read so far."""
        return bytes(self._output)

    async def say(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send_all(data)

    async def hear(self, word: bytes) -> bytes:
        """Read until the output holds `word`; gives all of the output so far."""
        with trio.fail_after(PATIENCE):
            while word not in self._output:
                assert await self._read(), (self._output, self._errors, self._fatal)
        return bytes(self._output)

    async def end(self) -> None:
        """Half-close: the editor's end of file."""
        await self.stream.send_eof()

    async def rest(self) -> Heard:
        """Read until the daemon closes."""
        with trio.fail_after(PATIENCE):
            while await self._read():
                pass
        return Heard(bytes(self._output), self._errors, self._fatal, self._status)

    async def _read(self) -> bool:
        try:
            data = await self.stream.receive_some()
        except trio.BrokenResourceError:
            return False
        for kind, payload in self._packets.feed(data):
            if kind == handshake.OUTPUT:
                self._output += payload
            elif kind == handshake.ERROR:
                self._errors += payload
            elif kind == handshake.FATAL:
                self._fatal = payload.decode()
            else:
                self._status = handshake.decode_exit(payload)
        return bool(data)


class Address(NamedTuple):
    """Where a daemon listens, and where its ledger is."""

    path: Path
    url: str

    @asynccontextmanager
    async def editor(self, first: bytes) -> AsyncIterator[Editor]:
        """Connect, and say this first."""
        async with await trio.open_unix_socket(self.path) as stream:
            editor = Editor(stream)
            await editor.say(first)
            yield editor

    async def session(self, *steps: Sequence[Any], say: bytes = b"") -> Heard:
        """Run an agent whose editor says something and then hears all there is."""
        async with self.editor(greeting(*steps) + say) as editor:
            return await editor.rest()

    def rows(self, statement: str) -> Sequence[Row[Any]]:
        """Read the ledger."""
        return rows(self.url, statement)

    def bodies(self, direction: str) -> list[bytes]:
        """The stored lines of a direction, in order."""
        found = self.rows("SELECT body, direction FROM frames ORDER BY transport_id, frame_seq")
        return [bytes(row[0]) for row in found if row.direction == direction]

    def events(self) -> list[str]:
        """The events of the ledger, in order."""
        return [row[0] for row in self.rows("SELECT event FROM transport_events ORDER BY transport_id, frame_seq")]


class House(NamedTuple):
    """A daemon that runs in this process."""

    daemon: Daemon
    address: Address

    @property
    def path(self) -> Path:
        """Where it listens."""
        return self.address.path

    @property
    def url(self) -> str:
        """Where its ledger is."""
        return self.address.url

    def editor(self, first: bytes) -> AbstractAsyncContextManager[Editor]:
        """Connect, and say this first."""
        return self.address.editor(first)

    async def session(self, *steps: Sequence[Any], say: bytes = b"") -> Heard:
        """Run an agent whose editor says something and then hears all there is."""
        return await self.address.session(*steps, say=say)

    async def quiet(self) -> None:
        """Wait until the last connection has ended."""
        with trio.fail_after(PATIENCE):
            await self.daemon.drained()

    def rows(self, statement: str) -> Sequence[Row[Any]]:
        """Read the ledger."""
        return self.address.rows(statement)

    def bodies(self, direction: str) -> list[bytes]:
        """The stored lines of a direction, in order."""
        return self.address.bodies(direction)

    def events(self) -> list[str]:
        """The events of the ledger, in order."""
        return self.address.events()


def rows(url: str, statement: str) -> Sequence[Row[Any]]:
    """Read a ledger with a connection of its own."""
    reader = engine.open_reader(url)
    try:
        with reader.connect() as connection:
            return connection.exec_driver_sql(statement).fetchall()
    finally:
        reader.dispose()


def assert_verified(url: str) -> None:
    """The whole record proves itself, and maps again to what is stored."""
    reader = engine.open_reader(url)
    try:
        with reader.connect() as connection:
            report = verify(connection, full=True)
    finally:
        reader.dispose()
    assert not report.findings, report


def settings(url: str, folder: Path, **more: Any) -> Settings:
    """Settings of a daemon for a test: quick to stop, and with a socket of its own."""
    given = {"database.url": url, "socket.path": str(folder / "s.sock"), "relay.stop_seconds": 1.0}
    return load(None, {**given, **more})


@asynccontextmanager
async def open_house(url: str, folder: Path, **more: Any) -> AsyncIterator[House]:
    """A daemon in this process."""
    chosen = settings(url, folder, **more)
    path = chosen.listen_path()
    assert path is not None
    async with open_daemon(chosen, path, 0o022) as daemon:
        yield House(daemon, Address(path, url))


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def lock(url: str) -> sqlite3.Connection:
    """Hold a SQLite ledger's write lock."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection


async def until(happened: Callable[[], object]) -> None:
    """Wait for something that only the outside world tells: a file, a row, a process."""
    with trio.fail_after(PATIENCE):
        while not happened():  # noqa: ASYNC110  # there is no event for it in this process
            await trio.sleep(0.01)
