"""The door to the ledger: takes what was read, commits it, and only then lets it go on.

The rules of this module, which nothing may break:

1. Only `_forward` makes a `Receipt`, and only after COMMIT returned, or after an unknown commit was found in the
   ledger. `streams.Outlet.forward` sends receipts and nothing else. Hence: what a peer got is in the ledger.
2. One writer thread, one call at a time (`writer`). No call is abandoned when somebody is cancelled: a waiter may be
   cancelled while its entry is in flight, and then "durable and not forwarded" is true, never the other way round.
3. A commit has three outcomes. *Held* and *not committed*: the entries are still at the front of their lanes, and the
   next attempt takes them from there. *Unknown*: nothing is written until `settle` has looked. *Refused*: for what
   an entry is; the transaction is cut, by transport and then by entry, until the one that is refused stands alone.
   Its transport ends, all others go on.
4. An entry leaves its lane from the front when it is committed, and in no other way; a lane that failed gives up its
   numbers, and its closing rows are made in SQL from what was committed.

Batches form by themselves: while one commit is in flight, the next lines queue up. There is no batching window: on an
idle line the commit begins in the step that read the line, and the writer's thread itself sends it on.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from acp_ledger import logs
from acp_ledger.daemon import lanes
from acp_ledger.daemon.closing import Closing, close
from acp_ledger.daemon.holding import Health
from acp_ledger.daemon.lanes import Failure, Lane, Share
from acp_ledger.errors import LedgerError
from acp_ledger.protocol.records import Frame
from acp_ledger.store.faults import CommitHeld, CommitRefused, CommitUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from acp_ledger.daemon.writer import Writer
    from acp_ledger.protocol.records import Direction, Entry
    from acp_ledger.store.ledger import Ledger, NewTransport, OpenedTransport

BATCH_ENTRIES: Final = 512
BATCH_BYTES: Final = 4 << 20
"""At most this much is one transaction, or one entry that is larger."""

FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 1.0
"""Seconds between two attempts of a held commit: doubled from the first to the longest."""

TIDY_SECONDS: Final = 30.0
"""How long nothing must have been written before the database's log is emptied."""

_SEAL: Final = object()


class Receipt:
    """A line that is in the ledger, and so may be sent: exactly `body`, and a newline where it had one."""

    __slots__ = ("body", "direction", "frame_seq", "terminated", "transport_id")

    def __init__(
        self, transport_id: int, frame_seq: int, direction: Direction, body: bytes, *, terminated: bool, seal: object
    ) -> None:
        if seal is not _SEAL:
            raise TypeError("only the committer makes receipts, after the commit")
        self.transport_id = transport_id
        self.frame_seq = frame_seq
        self.direction = direction
        self.body = body
        self.terminated = terminated


class Statistics(NamedTuple):
    """How the committer is doing. Times are microseconds, of the last commits; None before the first one."""

    queued: int
    commits: int
    entries: int
    commit_p50: int | None
    commit_p99: int | None
    held_seconds: float | None
    degraded: bool
    error: str | None


class Committer:
    """The only one who calls the ledger's writer, and the only maker of receipts."""

    def __init__(self, ledger: Ledger, writer: Writer, *, hold_seconds: float) -> None:
        self.health = Health(hold_seconds)
        self._ledger = ledger
        self._writer = writer
        self._begun: list[Share] = []
        self._begun_at = 0.0
        self._lanes: list[Lane] = []
        self._next_lane = 0
        self._owed: deque[Closing] = deque()
        self._paid = trio.lowlevel.ParkingLot()
        self._idle = False  # whether `run` waits, and nothing is begun
        self._pause = FIRST_PAUSE
        self._times: deque[float] = deque(maxlen=1024)
        self._commits = 0
        self._entries = 0
        self._log = logs.get_logger()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit what is queued, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.health.watch, self._is_unused, self._on_hold, self._on_deadline)
            nursery.start_soon(self._tidy)
            task_status.started()
            while True:
                if self._begun:
                    begun, self._begun = self._begun, []
                    await self._write(begun, self._collect)
                elif shares := self._take():
                    await self._write(shares)
                elif self.health.trying:
                    await self._attempt(partial(self._writer.call, self._ledger.probe))
                elif self._owed:
                    await self._write_closing(self._owed[0])
                else:
                    self._idle = True
                    await self._writer.signal()

    async def _tidy(self) -> None:
        """Lay the database's log out; when nothing was written for a while, empty it, so that nobody waits for that."""
        await self._writer.call(self._ledger.lay_log)
        tidied = seen = 0
        while True:
            await trio.sleep(TIDY_SECONDS)
            if seen == self._commits != tidied and not self.health.trying:
                await self._writer.call(self._ledger.checkpoint)
                tidied = seen
            seen = self._commits

    def lane(self, transport_id: int, outboxes: dict[Direction, lanes.Outbox]) -> Lane:
        """Make the queue of a transport that `open` opened."""
        lane = Lane(transport_id, outboxes, self._arrived)
        self._lanes.append(lane)
        self.health.heed()
        return lane

    def forget(self, lane: Lane, unrecorded: int = 0, delivered: Iterable[tuple[Direction, int]] = ()) -> None:
        """A transport is over. A failed one gets its closing rows as soon as the ledger writes."""
        self._lanes.remove(lane)
        if lane.failure is not None:
            self._owed.append(Closing(lane, lane.failure, unrecorded, tuple(delivered)))
            self._wake()

    async def settled(self) -> None:
        """Wait until no failed transport is owed its closing rows."""
        while self._owed:
            await self._paid.park()

    async def open(self, new: NewTransport) -> OpenedTransport:
        """Write the row of a transport; it is in the ledger when this returns, and its process may start.

        Raises:
            LedgerError: It could not be written within the hold.
        """
        failure: LedgerError | None = None
        with trio.move_on_after(self.health.hold_seconds):
            while not self.health.degraded:
                try:
                    return await self._writer.call(self._ledger.open_transport, new)
                except (CommitHeld, CommitUnknown) as fault:
                    failure = fault
                    self.health.attempt()
                    self.health.failed(fault)
                    self.health.heed()
                    self._wake()
                await trio.sleep(LONGEST_PAUSE / 4)
        reason = self.health.failure()
        raise failure or LedgerError(reason.sentence, hint=reason.hint)

    def statistics(self) -> Statistics:
        """A snapshot."""
        times = sorted(self._times)
        since = self.health.held_since
        return Statistics(
            queued=sum(len(lane.pending) for lane in self._lanes),
            commits=self._commits,
            entries=self._entries,
            commit_p50=_microseconds(times, 50),
            commit_p99=_microseconds(times, 99),
            held_seconds=None if since is None else trio.current_time() - since,
            degraded=self.health.degraded,
            error=self.health.error,
        )

    # ---- what is to be written

    def _arrived(self, lane: Lane) -> None:
        if self.health.degraded or (self.health.held and lane.cancelling):
            lane.fail(self.health.failure())
        elif self._idle and not self._writer.busy and not self.health.trying:
            self._begin()
        else:
            self._wake()

    def _begin(self) -> None:
        """Begin to commit in the very step in which a line was read; the end of it wakes the task that runs here."""
        self._idle = False
        self._begun = self._take()
        self._begun_at = perf_counter()
        self.health.attempt()
        self._writer.begin(partial(self._commit, self._begun))

    def _take(self) -> list[Share]:
        return lanes.take(self._ready(), BATCH_ENTRIES, BATCH_BYTES)

    def _is_unused(self) -> bool:
        return not self._lanes and not self._owed

    def _wake(self) -> None:
        if self._idle:
            self._idle = False
            self._writer.wake()

    def _ready(self) -> list[Lane]:
        """The lanes with something in them, another one first each time."""
        ready = [lane for lane in self._lanes if lane.pending]
        if len(ready) > 1:
            self._next_lane = (self._next_lane + 1) % len(ready)
            return ready[self._next_lane :] + ready[: self._next_lane]
        return ready

    # ---- a hold

    def _on_hold(self) -> None:
        self._log.warning(logs.LEDGER_HELD, error=self.health.error, transports=len(self._lanes))
        for lane in self._lanes:
            if lane.cancelling:
                lane.fail(self.health.failure())

    def _on_deadline(self) -> None:
        self._log.error(logs.DAEMON_DEGRADED, error=self.health.error, hint=self.health.hint)
        for lane in self._lanes:
            if lane.busy:
                lane.fail(self.health.failure())
        self._ledger.interrupt()  # a call that hangs ends as unknown, where the database's socket can be shut

    # ---- writing

    def _commit(self, shares: list[Share]) -> None:
        """In the writer thread: commit, and let the lines go at once. Every microsecond here is one of every line's."""
        self._ledger.commit([share.rows for share in shares])
        _forward(shares)

    async def _write(self, shares: list[Share], call: Callable[[], Awaitable[object]] | None = None) -> None:
        """Commit these; `call` gives what became of a commit of them that was begun."""
        started = perf_counter() if call is None else self._begun_at
        try:
            committed = await self._attempt(call or partial(self._writer.call, self._commit, shares))
        except CommitUnknown as fault:
            self._log.error(logs.COMMIT_DOUBTED, error=fault.message)
            committed = await self._settle([share.rows for share in shares])
            if committed:
                _forward(shares)
        except CommitRefused as fault:
            await self._refused(shares, fault)
            return
        if committed:
            self._times.append(perf_counter() - started)
            self._commits += 1
            self._take_off(shares)

    async def _collect(self) -> None:
        self._writer.collect()

    async def _attempt(self, call: Callable[[], Awaitable[object]]) -> bool:
        """Try once; False, after a pause, when the ledger cannot now. A refusal and an unknown outcome are raised."""
        self.health.attempt()
        try:
            await call()
        except CommitRefused:
            self._released()
            raise
        except (CommitHeld, CommitUnknown) as fault:
            self.health.failed(fault)
            if isinstance(fault, CommitUnknown):
                raise
            await trio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return False
        self._released()
        return True

    def _released(self) -> None:
        self._pause = FIRST_PAUSE
        if self.health.succeeded():
            self._log.warning(logs.LEDGER_RELEASED)

    async def _settle(self, rows: Sequence[tuple[int, list[Entry]]]) -> bool:
        """Find out whether a commit of unknown outcome is in the ledger; nothing is written before that is known."""
        found: list[bool] = []
        while not found:
            try:
                await self._attempt(partial(self._writer.call, lambda: found.append(self._ledger.settle(rows))))
            except CommitUnknown:
                await trio.sleep(self._pause)
        self._log.warning(logs.COMMIT_SETTLED, committed=found[0])
        return found[0]

    async def _refused(self, shares: list[Share], fault: LedgerError) -> None:
        """Cut a refused transaction: by transport, then in halves, until the entry that is refused stands alone."""
        if len(shares) > 1:
            for share in shares:
                await self._write_alive([share])
        elif len(shares[0].items) > 1:
            lane, items = shares[0]
            middle = len(items) // 2
            await self._write_alive([Share(lane, items[:middle])])
            await self._write_alive([Share(lane, items[middle:])])
        else:
            lane, items = shares[0]
            self._log.error(
                logs.COMMIT_REFUSED,
                transport_id=lane.transport_id,
                frame_seq=items[0].entry.record.frame_seq,
                error=fault.message,
            )
            lane.fail(Failure("refused", f"the ledger refused an entry ({fault.message})", fault.hint))

    async def _write_alive(self, shares: list[Share]) -> None:
        """Write a part of a cut transaction, unless its lane failed meanwhile or moved on without it."""
        lane, items = shares[0]
        while lane.failure is None and lane.pending and lane.pending[0] is items[0]:
            await self._write(shares)

    def _take_off(self, shares: list[Share]) -> None:
        """These are committed and forwarded: they leave their lanes, and whoever waits for that is told."""
        for lane, items in shares:
            self._entries += len(items)
            lane.committed(len(items))
            for outbox in lane.outboxes.values():
                outbox.notice()

    async def _write_closing(self, closing: Closing) -> None:
        try:
            if not await self._attempt(partial(self._writer.call, close, self._ledger, closing)):
                return
        except CommitUnknown:
            return  # the next attempt finds out: a transport that is closed is not closed again
        except CommitRefused as fault:
            self._log.error(logs.COMMIT_REFUSED, transport_id=closing.lane.transport_id, error=fault.message)
        self._owed.popleft()
        self._paid.unpark_all()
        self._log.warning(logs.LEDGER_GAP_DECLARED, transport_id=closing.lane.transport_id)


def _forward(shares: list[Share]) -> None:
    """Everything here is committed: make the receipts, and hand them on in the order in which they were read.

    Nothing of a failed lane is sent: its editor was told already that it gets no answer.
    """
    for lane, items in shares:
        if lane.failure is not None:
            continue
        receipts: dict[Direction, list[Receipt]] = {}
        for entry, line in items:
            record = entry.record
            if line is None or not isinstance(record, Frame):
                continue
            receipts.setdefault(record.direction, []).append(
                Receipt(
                    lane.transport_id,
                    record.frame_seq,
                    record.direction,
                    line,
                    terminated=record.terminated,
                    seal=_SEAL,
                )
            )
        for direction, ready in receipts.items():
            lane.outboxes[direction].forward(ready)


def _microseconds(times: Sequence[float], percent: int) -> int | None:
    return int(times[(len(times) - 1) * percent // 100] * 1e6) if times else None
