"""Choosing the next transaction: prefixes of the lanes, fair, bounded, and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.daemon.lanes import Lane, take
from acp_ledger.protocol.records import TO_CLIENT
from tests.daemon.faults import entry

SIZES = st.lists(st.lists(st.integers(0, 60), max_size=12), min_size=1, max_size=4)


def lanes_of(sizes: list[list[int]]) -> list[Lane]:
    """Lanes with entries of these sizes."""
    lanes = []
    for number, lane_sizes in enumerate(sizes):
        lane = Lane(number, {}, lambda _lane: None)
        for seq, size in enumerate(lane_sizes, 1):
            lane.put((entry(seq, TO_CLIENT, size=size),), b"line")
        lanes.append(lane)
    return lanes


@given(sizes=SIZES, entries=st.integers(1, 10), size=st.integers(1, 100))
def test_shares_are_prefixes_within_bounds(sizes: list[list[int]], entries: int, size: int) -> None:
    """Every share is a prefix of its lane; the bounds hold, but for one entry that is larger and goes alone."""
    lanes = lanes_of(sizes)
    shares = take([lane for lane in lanes if lane.pending], entries, size)
    for lane, items in shares:
        assert list(items) == list(lane.pending)[: len(items)]
    count = sum(len(items) for _, items in shares)
    used = sum(item.size for _, items in shares for item in items)
    assert count <= entries
    assert used <= size or count == 1
    assert bool(count) == any(lane.pending for lane in lanes)


def test_shares_are_fair() -> None:
    """A transport with little to say is not kept waiting by one that floods."""
    shares = take(lanes_of([[1] * 100, [1] * 3]), 10, 1 << 20)
    assert [len(items) for _, items in shares] == [7, 3]


def test_large_entry_goes_alone() -> None:
    """An entry over the bound shares its transaction with nothing of its own lane."""
    shares = take(lanes_of([[100, 1]]), 10, 50)
    assert [len(items) for _, items in shares] == [1]
