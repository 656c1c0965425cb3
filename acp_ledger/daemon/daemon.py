"""The daemon, assembled: ledger, committer, door and relays, and the order in which they start and stop.

What must not be broken here: this is the one place that opens the ledger, a socket and a writer thread; it reads from
top to bottom as the order of starting, and the way back is the order of stopping. Nobody is let in before what an
earlier daemon left open is closed, and the ledger is closed last.
"""

from __future__ import annotations

import os
import socket
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from acp_ledger import dialogue, handshake, logs, paths
from acp_ledger.daemon import activation, ending, serving, survivors
from acp_ledger.daemon.agent import Children
from acp_ledger.daemon.caller import Caller
from acp_ledger.daemon.client import Client
from acp_ledger.daemon.clock import wall_microseconds
from acp_ledger.daemon.committer import Committer
from acp_ledger.daemon.control import Door, listening, refuse
from acp_ledger.daemon.desk import Desk
from acp_ledger.daemon.installation import identify
from acp_ledger.daemon.notify import Manager
from acp_ledger.daemon.opening import Peer, client_of, command_of, policy_of, transport_of
from acp_ledger.daemon.relay import Relay
from acp_ledger.daemon.reloading import Source, reloaded
from acp_ledger.daemon.service import Service, describe
from acp_ledger.daemon.terminal import Terminal
from acp_ledger.daemon.terms import terms_of
from acp_ledger.daemon.transport import House, Rules, Transport
from acp_ledger.daemon.writer import writer_thread
from acp_ledger.errors import DaemonUnreachable, LedgerError, PeerFault, UsageError
from acp_ledger.store import schema
from acp_ledger.store.ledger import Ledger
from acp_ledger.store.recovery import recover

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from acp_ledger.daemon.agent import Command
    from acp_ledger.daemon.streams import Descriptor
    from acp_ledger.handshake import Greeting
    from acp_ledger.settings import Settings

DRAIN_SECONDS: Final = 5.0
"""How long a stopping daemon tries to write what failed transports are owed; the next start writes it otherwise."""

ENDING_SECONDS: Final = 15.0
"""What the end of a connection may take beside `relay.stop_seconds`."""

PATIENCES: Final = 4
"""How often `relay.stop_seconds` may pass in it: for the agent, and for each time an editor is waited for."""


class Daemon:
    """A running daemon. `stop` begins its end, a second one hurries it."""

    def __init__(
        self, settings: Settings, ledger: Ledger, house: House, service: Service, source: Source | None = None
    ) -> None:
        self.stopped = house.stopping
        self._service = service
        self._trouble: str | None = None
        self._settings = settings
        self._source = source
        self._ledger = ledger
        self._house = house
        self._relays: dict[int, tuple[Transport, str]] = {}
        self._terminals: dict[int, tuple[Terminal, str]] = {}
        self._desk = Desk(self._relays, self._terminals, self._gone)
        self._started_at = wall_microseconds()
        self._left = trio.lowlevel.ParkingLot()
        self._log = logs.get_logger()

    def stop(self) -> None:
        """Stop accepting, end the agents, write what is queued; called again, do so without waiting for anybody."""
        if self.stopped.is_set():
            self._house.hurry.set()
            return
        self.stopped.set()
        patience = max((relay.rules.stop_seconds for relay, _ in self._relays.values()), default=0.0)
        self._service.stopping(PATIENCES * patience + ENDING_SECONDS, self.sentence())

    def reload(self) -> None:
        """Read the settings again, for connections that open from now on. What cannot be used changes nothing."""
        if self._source is not None:
            self._service.reloading()
            self._read_again(self._source)
            self._service.reloaded(self.sentence())

    def _look(self) -> None:
        """A connection opens: it is to have the settings as they stand in the files now."""
        if self._source is not None and self._source.changed():
            self._read_again(self._source)
            self._service.changed()

    def _read_again(self, source: Source) -> None:
        try:
            new = reloaded(self._settings, source.read())
        except LedgerError as fault:
            self._log.error(logs.CONFIG_REFUSED, error=fault.message, hint=fault.hint)
            self._trouble = f"SETTINGS NOT RELOADED: {fault.message}"
        else:
            self._settings = new.settings
            self._house = replace(self._house, rules=_rules(new.settings))
            told = self._log.warning if new.restart else self._log.info
            told(logs.CONFIG_RELOADED, changed=new.changed, restart=new.restart)
            logs.configure(form=new.settings.log.format, level=new.settings.log.level)
            self._trouble = f"restart to change {', '.join(new.restart)}" if new.restart else None

    def sentence(self) -> str:
        """What it is doing, in a line."""
        committer = self._house.committer.statistics()
        transports = len(self._relays) + len(self._terminals)
        return describe(transports, committer, stopping=self.stopped.is_set(), trouble=self._trouble)

    async def run(self, greeting: Greeting, peer: Peer, runner: Descriptor, first: bytes) -> None:
        """Serve a runner from its greeting to its end."""
        if greeting.purpose == handshake.PURPOSE_CLIENT:
            await self._be_client(greeting, peer, Caller(runner, first))
            return
        try:
            self._admit()
            command = command_of(greeting, self._settings)
            policy = policy_of(greeting, self._settings)
            new = transport_of(greeting, command, peer, self._settings, wall_microseconds())
            opened = await self._house.committer.open(new)
        except LedgerError as fault:
            self._log.warning(logs.RUNNER_DISCONNECTED, pid=peer.pid, error=fault.message)
            status = handshake.EXIT_USAGE if isinstance(fault, UsageError) else handshake.EXIT_UNAVAILABLE
            refuse(runner, f"acp-ledger: {fault}", status)
            return
        self._log.info(logs.TRANSPORT_OPENED, transport_id=opened.id, pid=peer.pid)
        if greeting.purpose == handshake.PURPOSE_TERMINAL:
            await self._launch(Terminal(self._house, opened.id, runner, peer.pid), opened.id, new.agent, command)
            return
        relay = Relay(self._house, opened.id, runner, first, policy)
        with self._open(relay, new.agent):
            await ending.live(relay, command)

    async def _be_client(self, greeting: Greeting, peer: Peer, caller: Caller) -> None:
        """Be an agent's client for a caller, from its greeting to its end."""
        try:
            self._admit()
            terms = terms_of(await caller.opening(), self._settings, policy_of(greeting, self._settings))
            command = command_of(greeting, self._settings)
            new = client_of(greeting, command, peer, terms, self._settings, wall_microseconds())
            opened = await self._house.committer.open(new)
        except LedgerError as fault:
            self._log.warning(logs.RUNNER_DISCONNECTED, pid=peer.pid, error=fault.message)
            await caller.tell("refused", error=fault.message, hint=fault.hint, status=int(fault.exit_code))
            return
        self._log.info(logs.TRANSPORT_OPENED, transport_id=opened.id, pid=peer.pid)
        client = Client(self._house, opened.id, opened.epoch, os.fsdecode(command.cwd), terms)
        with self._open(client, new.agent):
            await serving.live(client, caller, command)

    def _admit(self) -> None:
        """Let a connection in, with the settings as they are now."""
        if self.stopped.is_set():
            raise DaemonUnreachable("acp-ledgerd is stopping", hint="Try again in a moment.")
        self._look()

    @contextmanager
    def _open(self, transport: Transport, agent: str) -> Iterator[None]:
        """A connection is open, and those who ask are told so."""
        self._relays[transport.transport_id] = transport, agent
        self._service.changed()
        try:
            yield
        finally:
            del self._relays[transport.transport_id]
            self._left.unpark_all()
            self._service.changed()

    async def _launch(self, terminal: Terminal, transport_id: int, agent: str, command: Command) -> None:
        self._terminals[transport_id] = terminal, agent
        self._service.changed()
        try:
            await terminal.live(command)
        finally:
            del self._terminals[transport_id]
            self._left.unpark_all()
            self._service.changed()

    async def _gone(self, transport_id: int) -> None:
        """Wait until that connection has ended."""
        while transport_id in self._relays:
            await self._left.park()

    async def drained(self) -> None:
        """Wait until the last connection has ended."""
        while self._relays or self._terminals:
            await self._left.park()

    async def answer(self, request: Mapping[str, Any], peer: Peer) -> dict[str, Any]:
        """Answer a control request.

        Raises:
            LedgerError: It is refused, or not known.
        """
        word = request.get("request")
        if word == dialogue.REQUEST_STATUS:
            return self.status()
        if word == dialogue.REQUEST_SHUTDOWN:
            self.stop()
            return {}
        if word == dialogue.REQUEST_CANCEL:
            return await self._desk.cancel(request, peer)
        if word == dialogue.REQUEST_STOP:
            return await self._desk.stop(request, peer)
        if word == dialogue.REQUEST_PENDING:
            return self._desk.pending()
        if word == dialogue.REQUEST_DECIDE:
            return await self._desk.decide(request, peer)
        sentence = f"acp-ledgerd {metadata.version('acp-ledger')} does not know the request {word!r}"
        raise PeerFault(sentence, hint="is it the same version? restart acp-ledgerd")

    def status(self) -> dict[str, Any]:
        """What `ledgerctl status` shows."""
        committer = self._house.committer.statistics()
        return {
            "pid": os.getpid(),
            "version": metadata.version("acp-ledger"),
            "ledger": str(self._settings.database.url),
            "schema": schema.HEAD,
            "durability": self._ledger.durability,
            "daemon_id": self._ledger.daemon.daemon_id,
            "started_at": self._started_at,
            "uptime_seconds": (wall_microseconds() - self._started_at) // 1_000_000,
            "stopping": self.stopped.is_set(),
            "service": self._service.status(),
            "trouble": self._trouble,
            "transports": [
                *(relay.status() | {"agent": agent} for relay, agent in self._relays.values()),
                *(terminal.status() | {"agent": agent} for terminal, agent in self._terminals.values()),
            ],
            "committer": committer._asdict(),
        }


@asynccontextmanager
async def open_daemon(
    settings: Settings,
    listen: Path | socket.socket,
    umask: int,
    manager: Manager | None = None,
    source: Source | None = None,
) -> AsyncIterator[Daemon]:
    """Start a daemon that listens at a path or on a socket; leaving stops it. Agents are started with `umask`.

    `source` is where its settings came from; without one they never change.

    Raises:
        LedgerError: It cannot start; nothing is left behind.
    """
    with _ledger(settings) as ledger, listening(listen) as listener, writer_thread() as writer:
        async with trio.open_nursery() as tasks:
            children = Children(umask)
            committer = Committer(ledger, writer, hold_seconds=settings.failure.hold_seconds)
            await tasks.start(committer.run)
            tasks.start_soon(children.reap)
            house = House(committer, children, _rules(settings), trio.Event(), trio.Event())
            service = Service(manager or Manager(), writer, ledger.prove)
            daemon = Daemon(settings, ledger, house, service, source)
            await service.prove()
            # The porch is inside: nobody is let in any more by the time the house waits for its guests to leave.
            async with trio.open_nursery() as guests, trio.open_nursery() as porch:
                door = Door(daemon.run, daemon.answer)
                accepting = await porch.start(door.serve, listener, guests)
                porch.start_soon(_close_door, daemon.stopped, accepting)
                at = activation.path_of(listen) if isinstance(listen, socket.socket) else listen
                logs.get_logger().info(logs.DAEMON_READY, pid=os.getpid(), socket=at)
                await tasks.start(service.run, daemon.sentence)
                yield daemon
                daemon.stopped.set()
            with trio.move_on_after(DRAIN_SECONDS):
                await committer.settled()
            tasks.cancel_scope.cancel()


async def _close_door(stopped: trio.Event, accepting: trio.CancelScope) -> None:
    await stopped.wait()
    accepting.cancel()


@contextmanager
def _ledger(settings: Settings) -> Iterator[Ledger]:
    """The ledger, open, with everything an earlier daemon left in it closed."""
    log = logs.get_logger()
    identity = identify(Path(paths.daemon_id_file(os.environ, os.getuid())))
    url, now = settings.database.url.text, wall_microseconds()
    ledger = Ledger.open(url, identity, at=now, synchronous=settings.database.synchronous)
    try:
        log.info(logs.LEDGER_OPENED, daemon_id=identity.daemon_id, ledger_id=ledger.ledger_id.hex())
        left = recover(ledger, identity.daemon_id, now)
        for each in left:
            log.warning(logs.TRANSPORT_RECOVERED, transport_id=each.transport_id)
        survivors.end(left)
        yield ledger
    finally:
        ledger.close()
        log.info(logs.LEDGER_CLOSED)


def _rules(settings: Settings) -> Rules:
    return Rules(
        line_bytes=settings.limits.line_bytes,
        parse_bytes=settings.limits.parse_bytes,
        stop_seconds=settings.relay.stop_seconds,
        strict=settings.relay.strict,
    )
