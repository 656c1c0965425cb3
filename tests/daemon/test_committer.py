"""The committer: nothing leaves before its commit, in every outcome a commit can have.

The clock is frozen and moved by hand; the ledger is scripted, for a real one cannot be told when to fail.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from acp_ledger.daemon.committer import BATCH_ENTRIES, TIDY_SECONDS, Committer, Receipt
from acp_ledger.daemon.holding import GRACE_SECONDS
from acp_ledger.daemon.writer import Writer, writer_thread
from acp_ledger.errors import LedgerError
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, Direction
from tests.daemon.faults import ScriptedLedger, entry, event_entry
from tests.support.seed import new_transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from acp_ledger.daemon.lanes import Lane

HOLD_SECONDS = 10.0
DIRECTIONS: tuple[Direction, ...] = (TO_CLIENT, TO_AGENT, TO_CLIENT)


class Probe:
    """Takes receipts, and checks at that very moment that what they stand for is durable."""

    def __init__(self, ledger: ScriptedLedger) -> None:
        self.got: list[int] = []
        self._ledger = ledger

    def forward(self, receipts: Sequence[Receipt]) -> None:
        """Note the numbers."""
        for receipt in receipts:
            assert (receipt.transport_id, receipt.frame_seq) in self._ledger.durable
            self.got.append(receipt.frame_seq)

    def notice(self) -> None:
        """Nobody waits here."""


class Bench:
    """A committer over a scripted ledger, and lanes with probes at both ends."""

    def __init__(self, ledger: ScriptedLedger, writer: Writer) -> None:
        self.ledger = ledger
        self.committer = Committer(cast("Any", ledger), writer, hold_seconds=HOLD_SECONDS)

    def lane(self, transport_id: int) -> tuple[Lane, Probe, Probe]:
        """A lane, what its client gets and what its agent gets."""
        client, agent = Probe(self.ledger), Probe(self.ledger)
        return self.committer.lane(transport_id, {TO_CLIENT: client, TO_AGENT: agent}), client, agent

    async def in_call(self) -> None:
        """Wait until the writer thread is inside the ledger."""
        await trio.to_thread.run_sync(self.ledger.in_call.wait, 20)
        self.ledger.in_call.clear()


@asynccontextmanager
async def bench(*script: Any) -> AsyncIterator[Bench]:
    """A committer that runs."""
    with writer_thread() as writer:
        made = Bench(ScriptedLedger(*script), writer)
        async with trio.open_nursery() as nursery:
            await nursery.start(made.committer.run)
            try:
                yield made
            finally:
                made.ledger.gate.set()
                nursery.cancel_scope.cancel()


async def until(clock: MockClock, done: Callable[[], bool], step: float = 0.1, most: float = 60.0) -> float:
    """Move the clock until something is so; gives the seconds that took."""
    passed = 0.0
    while not done():
        assert passed < most
        await trio.to_thread.run_sync(lambda: None)  # lets the writer's thread come back
        await wait_all_tasks_blocked(0.001)
        clock.jump(step)
        passed += step
    return passed


async def test_nothing_is_forwarded_before_its_commit() -> None:
    """While a commit is in flight nothing of it is with a peer; afterwards all of it is, in order."""
    async with bench() as made:
        made.ledger.gate.clear()
        lane, client, agent = made.lane(1)
        for seq, direction in enumerate(DIRECTIONS, 1):
            lane.put((entry(seq, direction),), b"line")
        await made.in_call()
        await wait_all_tasks_blocked()
        assert (client.got, agent.got) == ([], [])
        made.ledger.gate.set()
        assert await lane.flushed()
        assert (client.got, agent.got) == ([1, 3], [2])


async def test_events_are_committed_and_never_sent() -> None:
    """An event has its place in the order and is nothing to send."""
    async with bench() as made:
        lane, client, _ = made.lane(1)
        lane.put((event_entry(1),))
        lane.put((entry(2, TO_CLIENT), event_entry(3)), b"line")
        assert await lane.flushed()
        assert client.got == [2]
        assert [number for _, number in made.ledger.durable] == [1, 2, 3]


async def test_lines_that_wait_share_a_commit() -> None:
    """What queues up while a commit is in flight is one transaction, over all transports, up to the bound."""
    async with bench() as made:
        made.ledger.gate.clear()
        first, _, _ = made.lane(1)
        second, _, _ = made.lane(2)
        first.put((entry(1, TO_CLIENT),), b"line")
        await made.in_call()
        for seq in range(2, 402):
            first.put((entry(seq, TO_CLIENT),), b"line")
            second.put((entry(seq - 1, TO_CLIENT),), b"line")
        made.ledger.gate.set()
        assert await first.flushed()
        assert await second.flushed()
        sizes = [len(batch) for batch in made.ledger.batches]
        assert sizes == [1, BATCH_ENTRIES, 801 - 1 - BATCH_ENTRIES]
        assert {transport for transport, _ in made.ledger.batches[1]} == {1, 2}


async def test_cheap_line_never_overtakes() -> None:
    """A large line and the cheap ones behind it arrive in the order in which they were read."""
    async with bench() as made:
        lane, client, _ = made.lane(1)
        for seq, size in enumerate((10, 5 << 20, 10, 3 << 20, 2 << 20, 10), 1):
            lane.put((entry(seq, TO_CLIENT, size=size),), b"line")
        assert await lane.flushed()
        assert client.got == [1, 2, 3, 4, 5, 6]
        assert [[seq for _, seq in batch] for batch in made.ledger.batches] == [[1], [2], [3, 4], [5, 6]]


async def test_held_commit_is_repeated(mock_clock: MockClock) -> None:
    """A commit that cannot be now is tried again until it is, and nothing is lost or doubled."""
    async with bench("held", "held", "held") as made:
        lane, client, _ = made.lane(1)
        lane.put((entry(1, TO_CLIENT), entry(2, TO_CLIENT)), b"line")
        await until(mock_clock, lambda: not lane.pending)
        assert client.got == [1]
        assert made.ledger.durable == [(1, 1), (1, 2)]
        assert lane.failure is None


@pytest.mark.parametrize("outcome", ["unknown-in", "unknown-out"])
async def test_unknown_commit_is_settled_before_anything_else(outcome: str, mock_clock: MockClock) -> None:
    """Whether an unknown commit took place or not, its lines are sent once, and only when they are in the ledger."""
    async with bench(outcome, "held", "ok") as made:
        lane, client, _ = made.lane(1)
        lane.put((entry(1, TO_CLIENT),), b"line")
        lane.put((entry(2, TO_CLIENT),), b"line")
        await until(mock_clock, lambda: not lane.pending)
        assert client.got == [1, 2]
        assert made.ledger.durable == [(1, 1), (1, 2)]


async def test_refused_entry_ends_its_transport_alone() -> None:
    """What stands before a refused entry is sent, it and what follows is not, and other transports go on."""
    async with bench() as made:
        made.ledger.refuses = lambda one: one.record.frame_seq == 5
        made.ledger.gate.clear()
        bad, bad_client, _ = made.lane(1)
        good, good_client, _ = made.lane(2)
        good.put((entry(1, TO_CLIENT),), b"line")
        await made.in_call()
        for seq in range(1, 9):
            bad.put((entry(seq, TO_CLIENT),), b"line")
        for seq in range(2, 5):
            good.put((entry(seq, TO_CLIENT),), b"line")
        made.ledger.gate.set()
        assert not await bad.flushed()
        assert await good.flushed()
        assert bad_client.got == [1, 2, 3, 4]
        assert good_client.got == [1, 2, 3, 4]
        assert bad.failure is not None
        assert bad.failure.cause == "refused"
        assert bad.given_up().lines == 4
        assert good.failure is None


async def test_failed_transport_takes_nothing_more() -> None:
    """Lines put after a refusal are counted, and never reach the ledger or a peer."""
    async with bench() as made:
        made.ledger.refuses = lambda one: one.record.frame_seq == 1
        lane, client, _ = made.lane(1)
        lane.put((entry(1, TO_CLIENT),), b"line")
        assert not await lane.flushed()
        lane.put((entry(2, TO_CLIENT),), b"line")
        await wait_all_tasks_blocked()
        assert client.got == []
        assert lane.given_up().lines == 2


async def test_cancel_ends_a_hold_at_once(mock_clock: MockClock) -> None:
    """Stopping a turn never waits for the database: its transport fails, while another one goes on holding."""
    async with bench() as made:
        made.ledger.broken = True
        stopped, _, agent = made.lane(1)
        patient, _, _ = made.lane(2)
        for lane in (stopped, patient):
            lane.put((entry(1, TO_CLIENT),), b"line")
        await until(mock_clock, lambda: made.committer.health.held)
        stopped.put((entry(2, TO_AGENT, method="session/cancel"),), b"line")
        assert stopped.failed.is_set()
        assert patient.failure is None
        assert agent.got == []


async def test_cancel_read_before_the_hold_ends_it_too(mock_clock: MockClock) -> None:
    """A cancel that was queued when the ledger stopped writing is acted upon when the hold is declared."""
    async with bench() as made:
        made.ledger.broken = True
        lane, _, _ = made.lane(1)
        lane.put((entry(1, TO_AGENT, method="session/cancel"),), b"line")
        passed = await until(mock_clock, lane.failed.is_set)
        assert passed <= GRACE_SECONDS + 0.5


async def test_short_lateness_is_no_hold(mock_clock: MockClock) -> None:
    """A commit that is late by less than the grace ends nothing, not even for an editor that cancels."""
    async with bench() as made:
        made.ledger.broken = True
        lane, _, agent = made.lane(1)
        lane.put((entry(1, TO_AGENT, method="session/cancel"),), b"line")
        await until(mock_clock, lambda: mock_clock.current_time() > GRACE_SECONDS / 2, step=GRACE_SECONDS / 10)
        made.ledger.broken = False
        await until(mock_clock, lambda: not lane.pending, step=0.01)
        assert agent.got == [1]


async def test_hold_ends_at_its_deadline(mock_clock: MockClock) -> None:
    """After the hold who waits is told so; a transport nobody waits for goes on, and works again afterwards."""
    async with bench() as made:
        made.ledger.broken = True
        busy, _, _ = made.lane(1)
        asked, _, _ = made.lane(2)
        idle, idle_client, _ = made.lane(3)
        asked.awaited = lambda: True
        busy.put((entry(1, TO_CLIENT),), b"line")
        passed = await until(mock_clock, busy.failed.is_set)
        assert HOLD_SECONDS - 0.5 <= passed <= HOLD_SECONDS + 0.5
        assert asked.failed.is_set()
        assert idle.failure is None
        assert made.ledger.interrupts == 1
        assert made.committer.statistics().degraded
        assert busy.failure is not None
        assert "the disk is full" in busy.failure.sentence
        made.ledger.broken = False
        await until(mock_clock, lambda: not made.committer.health.held)
        idle.put((entry(1, TO_CLIENT),), b"line")
        assert await idle.flushed()
        assert idle_client.got == [1]
        assert made.ledger.durable == [(3, 1)]


async def test_line_read_while_degraded_fails_its_transport(mock_clock: MockClock) -> None:
    """Once the hold is over nobody waits for it a second time."""
    async with bench() as made:
        made.ledger.broken = True
        first, _, _ = made.lane(1)
        late, _, _ = made.lane(2)
        first.put((entry(1, TO_CLIENT),), b"line")
        await until(mock_clock, first.failed.is_set)
        late.put((entry(1, TO_AGENT),), b"line")
        assert late.failed.is_set()


async def test_runner_that_comes_while_degraded_waits_for_nothing(mock_clock: MockClock) -> None:
    """It is refused at once: the clock stands still, and the ledger is not even asked."""
    async with bench() as made:
        made.ledger.broken = True
        lane, _, _ = made.lane(1)
        lane.put((entry(1, TO_CLIENT),), b"line")
        await until(mock_clock, lane.failed.is_set)
        with pytest.raises(LedgerError, match="the disk is full"):
            await made.committer.open(new_transport())


async def test_hanging_commit_is_a_hold_too(mock_clock: MockClock) -> None:
    """A call that never returns is cut at the deadline; what it did after all is never sent."""
    async with bench() as made:
        made.ledger.gate.clear()
        lane, client, _ = made.lane(1)
        lane.put((entry(1, TO_CLIENT),), b"line")
        await made.in_call()
        mock_clock.jump(GRACE_SECONDS)
        await wait_all_tasks_blocked()
        assert made.committer.health.held
        mock_clock.jump(HOLD_SECONDS)
        await lane.failed.wait()
        assert made.ledger.interrupts == 1
        assert lane.given_up().lines == 1
        made.ledger.gate.set()
        await made.committer.health.released()
        assert made.ledger.durable == [(1, 1)]
        assert client.got == []
        assert lane.given_up().lines == 0, "it was committed after all"


async def test_answers_read_and_not_committed_are_named(mock_clock: MockClock) -> None:
    """The requests whose answers were given up with a failed transport are known, so that they can be answered."""
    async with bench() as made:
        made.ledger.broken = True
        lane, _, _ = made.lane(1)
        answer = entry(1, TO_CLIENT)
        record = cast("Any", answer.record)._replace(kind="response", method="session/prompt", rpc_id="7")
        lane.put((answer._replace(record=record),), b"line")
        await until(mock_clock, lane.failed.is_set)
        assert lane.unheard == ("7",)


async def test_waiter_that_is_cancelled_loses_nothing() -> None:
    """Cancelling who waits for a commit cancels no commit: the line is durable and forwarded."""
    async with bench() as made:
        made.ledger.gate.clear()
        lane, client, _ = made.lane(1)
        lane.put((entry(1, TO_CLIENT),), b"line")
        await made.in_call()
        with trio.move_on_after(0) as scope:
            await lane.flushed()
        assert scope.cancelled_caught
        made.ledger.gate.set()
        assert await lane.flushed()
        assert client.got == [1]


async def test_log_is_emptied_once_when_idle(mock_clock: MockClock) -> None:
    """A ledger that was written to and then left alone is tidied, once; one that nobody wrote to is left alone."""
    async with bench() as made:
        lane, _, _ = made.lane(1)
        lane.put((entry(1, TO_CLIENT),), b"line")
        assert await lane.flushed()
        await until(mock_clock, lambda: made.ledger.checkpoints > 0, step=TIDY_SECONDS, most=4 * TIDY_SECONDS)
        for _ in range(4):
            mock_clock.jump(TIDY_SECONDS)
            await wait_all_tasks_blocked()
        assert made.ledger.checkpoints == 1


def test_receipts_cannot_be_made() -> None:
    """Nobody but the committer can make what may be sent."""
    with pytest.raises(TypeError, match="only the committer"):
        Receipt(1, 1, TO_CLIENT, b"forged", terminated=True, seal=object())


async def test_statistics_are_a_snapshot() -> None:
    """What the status shows is counted and frozen."""
    async with bench() as made:
        lane, _, _ = made.lane(1)
        lane.put((entry(1, TO_CLIENT),), b"line")
        before = made.committer.statistics()
        assert await lane.flushed()
        after = made.committer.statistics()
        assert (before.queued, after.queued) == (1, 0)
        assert (before.commits, after.commits, after.entries) == (0, 1, 1)
        assert before.commit_p50 is None
        assert after.commit_p50 is not None
