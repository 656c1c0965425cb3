"""What withholding lines may leave waiting: withheld lines until they are committed, our own until a peer took them.

What must not be broken here: both are bounded, and whose lines are withheld is who waits. A peer that never reads what
we answer it is read no further; nobody else is held up by that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from acp_ledger.daemon.lanes import Lane
    from acp_ledger.daemon.streams import Outlet

WITHHELD_BYTES: Final = 8 << 20
"""Bytes of withheld lines of one direction that may wait for their commit, or one longer line."""

WAITING_LINES: Final = 1024
"""Withheld lines of one direction that may wait for their commit, and lines of ours that may wait for a peer."""


class Backlog:
    """What waits on account of one direction's lines."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._withheld: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._said: deque[tuple[int, Outlet]] = deque()

    def withheld(self, frame_seq: int, size: int) -> None:
        """A line was numbered and will not be forwarded."""
        self._withheld.append((frame_seq, size))
        self._bytes += size

    def said(self, frame_seq: int, outlet: Outlet) -> None:
        """A line of ours was queued for a peer."""
        self._said.append((frame_seq, outlet))

    async def room(self) -> None:
        """Wait until not too much waits any more."""
        while self._withheld and (self._bytes > WITHHELD_BYTES or len(self._withheld) > WAITING_LINES):
            frame_seq, size = self._withheld.popleft()
            await self._lane.reached(frame_seq)
            self._bytes -= size
        while len(self._said) > WAITING_LINES:
            frame_seq, outlet = self._said.popleft()
            await outlet.reached(frame_seq)
