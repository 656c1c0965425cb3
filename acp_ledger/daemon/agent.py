"""The agent's process: started exactly as the editor would have, and ended for good.

What must not be broken here: an agent is a child of the daemon in a process group of its own, gets the runner's argv,
directory and environment and nothing of the daemon's, and when its transport is over nothing of it runs any more. An
agent is never made to wait for its stderr. There is no parent-death signal: Trio forks from a worker thread, and the
signal would come when that thread ends.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from acp_ledger import handshake, logs
from acp_ledger.daemon import processes
from acp_ledger.daemon.streams import Descriptor
from acp_ledger.errors import AgentFault, AgentNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STDERR_KEPT: Final = 16 << 10
"""Bytes of the agent's last words that the ledger keeps."""

TERM_SECONDS: Final = 1.0
"""How long a process has after TERM; with the sweep everything is gone two seconds after a hard stop."""

SWEEP_SECONDS: Final = 2.0
SWEEP_PAUSE: Final = 0.02
"""How long survivors are looked for, and how often; a KILL takes effect when the kernel gets to it."""


class Command(NamedTuple):
    """What to start. All of it bytes: no encoding holds what a Unix process may be given."""

    argv: tuple[bytes, ...]
    cwd: bytes
    env: Mapping[bytes, bytes]
    umask: int | None = None
    """The editor's; None: the one the daemon was started with."""


class Ending(NamedTuple):
    """How a process ended: by itself with a status, or by a signal."""

    status: int | None
    signal: int | None

    @property
    def code(self) -> int:
        """What a shell says of it: the status, or 128 and the signal's number."""
        return handshake.EXIT_SIGNAL + self.signal if self.signal else self.status or 0

    @property
    def words(self) -> str:
        """The same for people."""
        return f"signal {signal.Signals(self.signal).name}" if self.signal else f"exit status {self.status}"


class Facts(NamedTuple):
    """What names a process for good: a number is used again, but not with this start time in this boot."""

    pid: int
    start_time: int | None
    boot_id: str | None
    pgid: int
    cgroup: str | None


class Children:
    """The daemon's children: agents, which are waited for by name, and orphans of theirs, which are adopted."""

    def __init__(self, umask: int) -> None:
        self._umask = umask
        self._agents: set[int] = set()
        self._spawning = 0

    async def spawn(self, command: Command, transport_id: int) -> Agent:
        """Start an agent.

        Raises:
            AgentFault: It cannot be executed (exit status 126).
            AgentNotFound: There is no such program (127).
        """
        mark = b"%d" % transport_id
        self._spawning += 1
        try:
            with ExitStack() as parents, trio.CancelScope(shield=True):
                process, pipes = await self._open(command, mark, parents)
                self._agents.add(process.pid)
                parents.pop_all()
        except (OSError, ValueError) as fault:
            raise _not_started(command, fault) from fault
        finally:
            self._spawning -= 1
        return Agent(process, pipes, mark, self._agents.discard)

    async def _open(
        self, command: Command, mark: bytes, parents: ExitStack
    ) -> tuple[trio.Process, tuple[Descriptor, Descriptor, Descriptor]]:
        """Start the process; `parents` closes our ends of its pipes where that fails."""
        with ExitStack() as childs:
            ends = [os.pipe() for _ in range(3)]  # Python makes both ends close-on-exec
            ours = (ends[0][1], ends[1][0], ends[2][0])
            theirs = (ends[0][0], ends[1][1], ends[2][1])
            for fd in theirs:
                childs.callback(os.close, fd)
            pipes = (Descriptor(ours[0]), Descriptor(ours[1]), Descriptor(ours[2]))
            for pipe in pipes:
                parents.callback(pipe.close)
            process = await trio.lowlevel.open_process(
                list(command.argv),
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                cwd=command.cwd,
                env={**command.env, processes.TAG: mark},  # type: ignore[dict-item]  # bytes, as subprocess takes them
                process_group=0,
                umask=self._umask if command.umask is None else command.umask,
            )
        return process, pipes

    async def reap(self) -> None:
        """Reap adopted orphans as they die, for ever."""
        with trio.open_signal_receiver(signal.SIGCHLD) as deaths:
            async for _ in deaths:
                self.reap_now()

    def reap_now(self) -> None:
        """Reap the dead orphans there are. While a process is being started nobody knows yet whose child it is."""
        if not self._spawning:
            processes.reap(self._agents.__contains__)


class Agent:
    """A running agent, its pipes, and how to end it."""

    def __init__(
        self,
        process: trio.Process,
        pipes: tuple[Descriptor, Descriptor, Descriptor],
        mark: bytes,
        ended: Callable[[int], None],
    ) -> None:
        self.stdin, self.stdout, self._stderr = pipes
        self.ending: Ending | None = None
        self.exited = trio.Event()
        self.stderr_tail = b""
        self._process = process
        self._mark = mark
        self._ended = ended
        self._log = logs.get_logger(transport_id=int(mark), pid=process.pid)
        found = processes.stat(process.pid)
        self._leader = found or processes.Stat(process.pid, "X", os.getpid(), process.pid, -1)
        self.facts = Facts(
            pid=process.pid,
            start_time=found.start_time if found else None,
            boot_id=processes.boot_id(),
            pgid=process.pid,
            cgroup=processes.cgroup(process.pid),
        )

    async def wait(self) -> None:
        """Wait for its end, and take its exit status."""
        code = await self._process.wait()
        self._ended(self._process.pid)
        self.ending = Ending(None, -code) if code < 0 else Ending(code, None)
        self.exited.set()

    async def drain_stderr(self, hear: Callable[[bytes], None]) -> None:
        """Read its stderr as fast as it comes, keep the last of it, and let `hear` have all of it."""
        with suppress(OSError, trio.ClosedResourceError):
            while data := await self._stderr.receive_some():
                self.stderr_tail = (self.stderr_tail + data)[-STDERR_KEPT:]
                hear(data)

    async def end(self, patience: float, hurry: trio.Event) -> None:
        """End it: its input is closed, `patience` seconds later (or in a hurry) TERM, then KILL; then what escaped.

        When this returns nothing of it runs, or the log says what does. It must run beside `wait`.
        """
        self.stdin.close()
        if not await self._exits_within(patience, hurry):
            self._log.info(logs.AGENT_TERMINATED)
            self._signal(signal.SIGTERM)
            if not await self._exits_within(TERM_SECONDS, trio.Event()):
                self._log.warning(logs.AGENT_KILLED)
                self._signal(signal.SIGKILL)
        await self._sweep()
        await self.exited.wait()

    def close(self) -> None:
        """Close our ends of its pipes, and kill it where it still runs."""
        self._signal(signal.SIGKILL)
        for pipe in (self.stdin, self.stdout, self._stderr):
            pipe.close()

    async def _exits_within(self, seconds: float, hurry: trio.Event) -> bool:
        with trio.move_on_after(seconds):
            await first(self.exited, hurry)
        return self.exited.is_set()

    def _signal(self, number: signal.Signals) -> None:
        """Signal its group; the process alone where the group cannot be signalled."""
        if self.exited.is_set():
            return  # its number may be another's by now
        try:
            os.killpg(self._process.pid, number)
        except OSError:
            with suppress(OSError):
                self._process.send_signal(number)

    async def _sweep(self) -> None:
        """Kill what the agent left behind: members of its group, descendants, and whoever left both with its mark."""
        swept: set[int] = set()
        with trio.move_on_after(SWEEP_SECONDS) as scope:
            while survivors := await trio.to_thread.run_sync(processes.family, self._leader, self._mark):
                for each in survivors:
                    processes.send(each, signal.SIGKILL)
                swept.update(each.pid for each in survivors)
                await trio.sleep(SWEEP_PAUSE)
        if swept - {self._process.pid}:
            self._log.info(logs.AGENT_SWEPT, processes=len(swept - {self._process.pid}))
        if scope.cancelled_caught:
            self._log.error(logs.AGENT_SURVIVED, processes=len(swept))


async def first(*events: trio.Event) -> None:
    """Wait for whichever comes first."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(wait, event)


def _not_started(command: Command, fault: OSError | ValueError) -> AgentFault:
    name = os.fsdecode(command.argv[0]) if command.argv else ""
    if isinstance(fault, ValueError):
        return AgentFault(f"the agent's command cannot be executed: {fault}")
    words = os.strerror(fault.errno) if fault.errno else str(fault)
    if fault.filename is not None and os.fsencode(fault.filename) == command.cwd != command.argv[0]:
        return AgentFault(f"the agent cannot start in {os.fsdecode(command.cwd)}: {words}")
    if fault.errno == errno.ENOENT:
        return AgentNotFound(
            f"the agent's command was not found: {name}",
            hint="Give its full path, or extend the PATH it gets: in the editor's agent settings, or here.",
        )
    return AgentFault(f"the agent's command cannot be executed: {name}: {words}", hint=f"Look at it: ls -l {name}")
