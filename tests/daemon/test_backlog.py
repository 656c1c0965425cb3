"""What withheld lines may leave waiting is bounded, and whose lines are withheld is who waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from acp_ledger.daemon.backlog import WAITING_LINES, WITHHELD_BYTES, Backlog
from acp_ledger.daemon.lanes import Failure, Lane
from acp_ledger.protocol.records import TO_CLIENT
from tests.daemon.faults import entry
from tests.daemon.test_streams import pair, read, receipt

if TYPE_CHECKING:
    from collections.abc import Callable


def lane_of(count: int) -> Lane:
    """A lane with so many entries in it."""
    lane = Lane(1, {}, lambda _lane: None)
    for seq in range(1, count + 1):
        lane.put((entry(seq, TO_CLIENT),))
    return lane


async def waits_until(backlog: Backlog, happens: Callable[[], object]) -> None:
    """Nobody reads on before that, and somebody does afterwards."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(backlog.room)
        await wait_all_tasks_blocked()
        assert nursery.child_tasks
        happens()
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks


@pytest.mark.parametrize(("count", "size"), [(WAITING_LINES + 1, 1), (2, WITHHELD_BYTES), (1, WITHHELD_BYTES + 1)])
async def test_withheld_lines_wait_for_their_commit(count: int, size: int) -> None:
    """Too many, or too large, are read on behind only when the first of them is in the ledger, or the lane failed."""
    for ends in (partial(Lane.committed, count=1), partial(Lane.fail, failure=Failure("closed", "gone", None))):
        lane = lane_of(count)
        backlog = Backlog(lane)
        for seq in range(1, count + 1):
            backlog.withheld(seq, size)
        await waits_until(backlog, partial(ends, lane))


async def test_own_lines_wait_for_their_peer() -> None:
    """A peer that reads nothing of what it is told is read no further, until it does or is gone."""
    with pair() as (outlet, source):
        backlog = Backlog(lane_of(0))
        for seq in range(1, WAITING_LINES + 2):
            backlog.said(seq, outlet)

        def take() -> None:
            """Let one line reach the peer."""
            outlet.forward([receipt(1, b"answer")])
            outlet.notice()

        await waits_until(backlog, take)
        assert await read(source, 7) == b"answer\n"
        backlog.said(WAITING_LINES + 2, outlet)
        await waits_until(backlog, outlet.close)


async def test_few_lines_wait_for_nobody() -> None:
    """What is within bounds is not waited for, committed or not."""
    with pair() as (outlet, _):
        backlog = Backlog(lane_of(WAITING_LINES))
        for seq in range(1, WAITING_LINES + 1):
            backlog.withheld(seq, WITHHELD_BYTES // WAITING_LINES)
            backlog.said(seq, outlet)
        with trio.fail_after(1):
            await backlog.room()
