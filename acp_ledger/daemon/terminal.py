"""A login at a terminal: its launch is recorded, its content is not, and the runner itself becomes the command.

What must not be broken here:

* The runner hears its command only once `opened` is in the ledger; so nothing runs unrecorded.
* The command is the person's own process and no child of ours: it is never signalled, here or by a later daemon, and
  its exit status is not ours to know. What is recorded of its end is what could be seen, and nothing more.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from acp_ledger import handshake, launch, logs
from acp_ledger.daemon import processes
from acp_ledger.daemon.clock import WallClock
from acp_ledger.daemon.ending import refusal
from acp_ledger.daemon.streams import Budget, RunnerOutlet, reply
from acp_ledger.daemon.transport import Cause
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import Gap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.daemon.agent import Command
    from acp_ledger.daemon.streams import Descriptor
    from acp_ledger.daemon.transport import House

STOPPING: Final = "acp-ledger: acp-ledgerd is stopping, so nothing was run. Try again in a moment."


class End(NamedTuple):
    """How a launch ended, as far as it could be seen. `ran`: whether the command may have run, unrecorded."""

    close_reason: str
    detail: str
    ran: bool = True


ENDED: Final = End(Cause.AGENT.value, "the command ended; no child of the daemon, so its exit status is not known")
STOPPED: Final = End(Cause.STOPPED.value, "the command may have gone on: it is not the daemon's to end")
UNSEEN: Final = End("not_watched", "the command's process cannot be seen from here, and so neither can its end")
NEVER_TOLD: Final = End(Cause.STOPPED.value, "the runner was not told its command, so nothing was run", ran=False)
NEVER_HEARD: Final = End(Cause.EDITOR.value, "the runner ended before it heard its command", ran=False)


class Terminal:
    """One launch, from its `opened` to its `closed`. `pid` is the runner's, which becomes the command's."""

    def __init__(self, house: House, transport_id: int, runner: Descriptor, pid: int) -> None:
        self._house = house
        self._transport_id = transport_id
        self._runner = runner
        self._pid = pid
        self._observer = Observer(parse_bytes=house.rules.parse_bytes)
        self._lane = house.committer.lane(transport_id, {})
        self._clock = WallClock()
        self._watching = trio.CancelScope()
        self._told = False
        self._log = logs.get_logger(transport_id=transport_id)

    def status(self) -> dict[str, int | str | None]:
        """What `ledgerctl status` shows of it."""
        return {
            "transport_id": self._transport_id,
            "mode": "terminal",
            "pid": self._pid,
            "revision": self._observer.revision,
            "numbers": self._observer.next_seq - 1,
            "queued": len(self._lane.pending),
            "ending": None,
        }

    async def live(self, command: Command) -> None:
        """Record the launch of `command`, let the runner become it, and record what can be seen of its end."""
        mark = {processes.TAG: b"%d" % self._transport_id}
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_house)
                with _watched(self._pid) as process:
                    await self._live(launch.encode(command.argv, {**command.env, **mark}), process)
                nursery.cancel_scope.cancel()
        finally:
            self._house.committer.forget(self._lane)

    async def _watch_house(self) -> None:
        """Act on the daemon being stopped: nobody waits for a person at a terminal, nor for a ledger that is held."""
        await self._house.stopping.wait()
        health = self._house.committer.health
        if health.held:
            self._lane.fail(health.failure())
        self._watching.cancel()

    async def _live(self, words: bytes, process: int | None) -> None:
        since = self._clock.now()
        self._lane.put(self._observer.event("opened", since))
        if await self._lane.flushed():
            end = STOPPED
            with self._watching:
                end = await self._end(words, process)
            await self._close(end if self._told or not end.ran else NEVER_TOLD, since)
        if self._lane.failure is not None:
            self._refuse(refusal(self._lane.failure))

    async def _end(self, words: bytes, process: int | None) -> End:
        """Tell the runner what to become, and wait for the end of what it became."""
        try:
            await reply(self._runner, words)
            self._told = True
            sentence = await self._sentence()
        except OSError:
            return NEVER_HEARD
        if sentence:
            return End(Cause.NOT_STARTED.value, sentence.decode("utf-8", "replace"), ran=False)
        if process is None:
            return UNSEEN
        await trio.lowlevel.wait_readable(process)
        return ENDED

    async def _sentence(self) -> bytes:
        """Read why the command was not run; a runner that became it has closed its end without a word."""
        said = b""
        while len(said) < launch.SENTENCE_BYTES and (data := await self._runner.receive_some()):
            said += data
        return said

    async def _close(self, end: End, since: int) -> None:
        now = self._clock.now()
        if end.ran:
            gap = Gap(0, 0, "", "terminal", since, now, None, None)  # the observer stamps it
            self._lane.put(self._observer.event("gap", now, marks=(gap,)))
        self._lane.put(self._observer.event("closed", now, close_reason=end.close_reason, detail=end.detail))
        if end is NEVER_TOLD:
            self._refuse(STOPPING)
        if await self._lane.flushed():
            self._lane.finish()
            self._log.info(logs.TRANSPORT_CLOSED, close_reason=end.close_reason)

    def _refuse(self, sentence: str) -> None:
        if not self._told:
            RunnerOutlet(self._runner, Budget(1, 1)).refuse(sentence, handshake.EXIT_UNAVAILABLE)


@contextmanager
def _watched(pid: int) -> Iterator[int | None]:
    """A descriptor that is readable once the process has ended; None where the process cannot be seen."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield process
    finally:
        trio.lowlevel.notify_closing(process)
        os.close(process)
