"""The daemon as a service: when it is ready, whether it lives, what it is doing.

What must not be broken here:

* `READY=1` follows a write that the ledger has committed, and nothing else does.
* `WATCHDOG=1` follows a round that the writer's thread has finished since the last one. A thread that is stuck in a
  call, or an event loop that does not turn, sends none. A ledger that cannot be written to and says so is no reason to
  be killed: the daemon holds its sessions, tells their editors why, and recovers by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from acp_ledger import logs
from acp_ledger.daemon.clock import monotonic_microseconds
from acp_ledger.daemon.holding import LATE_COMMIT
from acp_ledger.store.faults import CommitHeld, CommitUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from acp_ledger.daemon.committer import Statistics
    from acp_ledger.daemon.notify import Manager
    from acp_ledger.daemon.writer import Writer

STATUS_SECONDS: Final = 5.0
"""How old the figures of `STATUS=` may be."""

PROOF_SECONDS: Final = 0.5
"""Between two attempts to prove a ledger that could not be written to at the start."""

BEATS: Final = 3
"""How often we say that we live within the time in which the manager wants to hear it: two may get lost."""


class Service:
    """Keeps a service manager informed. `commit` commits a write to the ledger; it is called in the writer's thread."""

    def __init__(self, manager: Manager, writer: Writer, commit: Callable[[], None]) -> None:
        self.beats = 0
        self.missed = 0
        self._manager = manager
        self._writer = writer
        self._commit = commit
        self._proven = False
        self._ready = False
        self._told = ""
        self._rounds = -1
        self._news = trio.lowlevel.ParkingLot()

    async def prove(self) -> None:
        """Find out whether the ledger keeps what is written to it, before anybody is let in."""
        if not self._manager.listens:
            return
        try:
            await self._writer.call(self._commit)
        except (CommitHeld, CommitUnknown) as fault:
            self._manager.tell(STATUS=f"not ready: the ledger cannot be written ({fault.message})")
        else:
            self._proven = True

    async def run(
        self, sentence: Callable[[], str], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep the manager informed of what `sentence` says, for ever; it costs nothing where there is none."""
        task_status.started()
        if not self._manager.listens:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._become_ready, sentence)
            while True:
                await self._beat(sentence())
                with trio.move_on_after(self._pause()):
                    await self._news.park()

    def changed(self) -> None:
        """What the daemon is doing is another thing now: tell soon."""
        self._news.unpark_all()

    def stopping(self, seconds: float, sentence: str) -> None:
        """The daemon is about to end, and may need so long to end its sessions in good order."""
        self._manager.tell(STOPPING=1, EXTEND_TIMEOUT_USEC=int(seconds * 1e6), STATUS=sentence)

    def reloading(self) -> None:
        """The settings are about to be read again."""
        if self._ready:  # what is not ready yet does not become so by reading its settings
            self._manager.tell(RELOADING=1, MONOTONIC_USEC=monotonic_microseconds())

    def reloaded(self, sentence: str) -> None:
        """They were, whatever came of it."""
        if self._ready:
            self._manager.tell(READY=1, STATUS=sentence)

    def status(self) -> dict[str, float | bool | None]:
        """What `ledgerctl status` shows of it."""
        return {
            "managed": self._manager.listens,
            "ready": self._ready,
            "watchdog_seconds": self._manager.watchdog,
            "beats": self.beats,
            "missed": self.missed,
        }

    async def _become_ready(self, sentence: Callable[[], str]) -> None:
        while not self._proven:
            await trio.sleep(PROOF_SECONDS)
            await self.prove()
        self._ready = True
        self._manager.tell(READY=1, STATUS=sentence())

    def _pause(self) -> float:
        watchdog = self._manager.watchdog
        return STATUS_SECONDS if watchdog is None else min(STATUS_SECONDS, watchdog / BEATS)

    async def _beat(self, sentence: str) -> None:
        state = {}
        if self._manager.watchdog is not None and await self.is_alive():
            state["WATCHDOG"] = "1"
            self.beats += 1
        if self._ready and sentence != self._told:
            state["STATUS"] = self._told = sentence
        if state:
            self._manager.tell(**state)

    async def is_alive(self) -> bool:
        """Whether the writer's thread finished a round since this was asked last. An idle one is asked for one."""
        if self._writer.rounds == self._rounds:
            if self._writer.busy:
                self.missed += 1
                logs.get_logger().error(logs.WATCHDOG_MISSED, missed=self.missed)
                return False
            await self._writer.call(_nothing)
        self._rounds = self._writer.rounds
        return True


def describe(transports: int, committer: Statistics, *, stopping: bool, trouble: str | None) -> str:
    """What the daemon is doing, in one line for `systemctl status`."""
    if committer.degraded:
        what = f"NOT RECORDING, new sessions are refused: {committer.error or LATE_COMMIT}"
    elif committer.held_seconds is not None:
        what = f"HOLDING {_count(transports, 'transport')}: {committer.error or LATE_COMMIT}"
    elif stopping:
        what = f"stopping, {_count(transports, 'transport')} to end"
    else:
        what = f"recording {_count(transports, 'transport')}"
    what += f"; {_count(committer.entries, 'number')} committed"
    if committer.held_seconds is not None:
        what += f"; the ledger has not been written for {committer.held_seconds:.0f} s"
    elif committer.commit_p99 is not None:
        what += f", commit p99 {committer.commit_p99 / 1000:.1f} ms"
    return f"{what}; {trouble}" if trouble else what


def _count(number: int, of: str) -> str:
    return f"{number:,} {of}" if number == 1 else f"{number:,} {of}s"


def _nothing() -> None:
    """A round of its own."""
