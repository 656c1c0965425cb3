"""The queue of one transport: numbered entries of both directions, in the order they were read.

What must not be broken here: an entry leaves its lane from the front, once it is committed; and a lane that failed
takes nothing more, for the numbers it gave up are computed again from what was committed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

import trio

from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from acp_ledger.daemon.committer import Receipt
    from acp_ledger.protocol.records import Direction, Entry

CANCEL: Final = "session/cancel"
"""The method by which an editor stops a turn; it must never wait for a database."""

Cause: TypeAlias = Literal["closed", "refused"]
"""Why a lane failed: the ledger could not commit in time, or it refused an entry for what it is."""


class Outbox(Protocol):
    """Where the receipts of one direction go."""

    def forward(self, receipts: Sequence[Receipt]) -> None:
        """Send the lines of these receipts, in this order. Called in the writer's thread."""

    def notice(self) -> None:
        """Tell whoever waits what became of them. Called in Trio's thread."""


class Item(NamedTuple):
    """An entry in its lane, and the line to forward once it is committed; None where nothing is forwarded."""

    entry: Entry
    line: bytes | None

    @property
    def size(self) -> int:
        """Bytes it adds to a transaction."""
        return len(self.entry.body or b"")


class Failure(NamedTuple):
    """Why a transport can not go on: the cause, a sentence for people, and the command that mends it."""

    cause: Cause
    sentence: str
    hint: str | None


class GivenUp(NamedTuple):
    """What a failed lane read and did not commit."""

    lines: int
    since: int | None
    """UTC microseconds of the first of them; None when there is none."""


class Lane:
    """The queue of one transport.

    `awaited` tells whether the editor waits for an answer; `unheard` names, once the lane failed, the requests whose
    answers were read and will never be forwarded.
    """

    def __init__(self, transport_id: int, outboxes: dict[Direction, Outbox], arrived: Callable[[Lane], None]) -> None:
        self.transport_id = transport_id
        self.outboxes = outboxes
        self.pending: deque[Item] = deque()
        self.failure: Failure | None = None
        self.unheard: tuple[str, ...] = ()
        self.failed = trio.Event()
        self.awaited: Callable[[], bool] = _nobody
        self._arrived = arrived
        self._abandoned: deque[Item] = deque()
        self._finished = False
        self._late_lines = 0
        self._cancels: deque[int] = deque()
        self._moved = trio.lowlevel.ParkingLot()

    @property
    def cancelling(self) -> bool:
        """Whether a `session/cancel` waits here."""
        return bool(self._cancels)

    @property
    def busy(self) -> bool:
        """Whether somebody waits for this lane: lines that are queued, or an editor for its answer."""
        return bool(self.pending) or self.awaited()

    def put(self, entries: Sequence[Entry], line: bytes | None = None) -> None:
        """Queue what one reading gave, in one step. `line` is forwarded once the first entry is committed."""
        if self.failure is not None:
            self._late_lines += sum(isinstance(entry.record, Frame) for entry in entries)
            return
        for entry in entries:
            self.pending.append(Item(entry, line))
            line = None
        if _is_cancel(entries[0]):
            self._cancels.append(entries[0].record.frame_seq)
        self._arrived(self)

    def committed(self, count: int) -> None:
        """Take the first `count` entries off, for they are in the ledger."""
        queue = self.pending if self.failure is None else self._abandoned
        done = [queue.popleft() for _ in range(count)]
        while self._cancels and done and self._cancels[0] <= done[-1].entry.record.frame_seq:
            self._cancels.popleft()
        self._moved.unpark_all()

    def fail(self, failure: Failure) -> None:
        """Stop for good; only the first failure counts."""
        if self.failure is None and not self._finished:
            self.failure = failure
            self._abandoned, self.pending = self.pending, deque()
            self.unheard = tuple(_answered(self._abandoned))
            self.failed.set()
            self._moved.unpark_all()

    def finish(self) -> None:
        """Its last entry is committed: it cannot fail any more."""
        self._finished = True

    async def flushed(self) -> bool:
        """Wait until everything put so far is committed; False when the lane failed first."""
        while self.pending:
            await self._moved.park()
        return self.failure is None

    async def reached(self, frame_seq: int) -> None:
        """Wait until that number is committed, or the lane failed."""
        while self.pending and self.pending[0].entry.record.frame_seq <= frame_seq:
            await self._moved.park()

    def given_up(self) -> GivenUp:
        """What was read and is not in the ledger."""
        frames = [item.entry.record for item in self._abandoned if isinstance(item.entry.record, Frame)]
        return GivenUp(len(frames) + self._late_lines, frames[0].received_at if frames else None)


class Share(NamedTuple):
    """The first `count` entries of a lane, as part of a transaction."""

    lane: Lane
    items: tuple[Item, ...]

    @property
    def rows(self) -> tuple[int, list[Entry]]:
        """What the ledger takes."""
        return self.lane.transport_id, [item.entry for item in self.items]


def take(lanes: Sequence[Lane], entries: int, size: int) -> list[Share]:
    """Choose the next transaction: prefixes of the lanes, one entry of each in turn, up to `entries` and `size` bytes.

    An entry over `size` goes alone. Nothing is taken off: an entry leaves its lane when it is committed.
    """
    if len(lanes) == 1:
        return _prefix(lanes[0], entries, size)
    counts = dict.fromkeys(range(len(lanes)), 0)
    open_lanes = deque(range(len(lanes)))
    taken = used = 0
    while open_lanes and taken < entries:
        index = open_lanes.popleft()
        pending = lanes[index].pending
        if counts[index] == len(pending):
            continue
        weight = pending[counts[index]].size
        if taken and used + weight > size:
            continue  # what stands behind it in its lane must not overtake it
        counts[index] += 1
        taken += 1
        used += weight
        open_lanes.append(index)
        if used > size:
            break
    return [_share(lane, counts[index]) for index, lane in enumerate(lanes) if counts[index]]


def _prefix(lane: Lane, entries: int, size: int) -> list[Share]:
    count = used = 0
    for item in lane.pending:
        used += item.size
        if count == entries or (count and used > size):
            break
        count += 1
    return [_share(lane, count)] if count else []


def _share(lane: Lane, count: int) -> Share:
    return Share(lane, tuple(lane.pending[index] for index in range(count)))


def _is_cancel(entry: Entry) -> bool:
    """Whether this is the editor stopping a turn."""
    record = entry.record
    return isinstance(record, Frame) and record.method == CANCEL and record.direction == TO_AGENT


def _answered(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        record = item.entry.record
        if not isinstance(record, Frame) or record.direction != TO_CLIENT or record.kind != "response":
            continue
        if record.rpc_id is not None and record.method is not None:  # without a method it answers nothing
            yield record.rpc_id


def _nobody() -> bool:
    return False
