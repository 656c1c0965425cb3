"""The two ends of a client's lines: what it read is taken from here, and an answer may wait here to be let go.

What must not be broken here: both take receipts and nothing else, so a client learns of no line, and an agent hears no
answer, that is not in the ledger. Receipts come from the writer's thread, everything else from Trio's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_ledger.daemon.committer import Receipt
    from acp_ledger.daemon.streams import Outlet


class Inbox:
    """The agent's lines for a client of ours. `through` is the number of the last one it was through with."""

    def __init__(self) -> None:
        self.through = 0
        self._committed: dict[int, Receipt] = {}

    def forward(self, receipts: Sequence[Receipt]) -> None:
        """Take committed lines."""
        self._committed.update({receipt.frame_seq: receipt for receipt in receipts})

    def notice(self) -> None:
        """Nobody waits here: whoever wants a line waits for its lane."""

    def take(self, frame_seq: int) -> Receipt | None:
        """The line of that number, once; None while it is not committed."""
        return self._committed.pop(frame_seq, None)


class Gate:
    """The way to the agent. A line whose number is `kept` waits, committed, until it is released or let go."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._kept: dict[int, Receipt | None] = {}

    def keep(self, frame_seq: int) -> None:
        """The line that is going to have this number is not to pass by itself."""
        self._kept[frame_seq] = None

    def forward(self, receipts: Sequence[Receipt]) -> None:
        """Pass committed lines on, but those that are kept."""
        passing = []
        for receipt in receipts:
            if receipt.frame_seq in self._kept:
                self._kept[receipt.frame_seq] = receipt
            else:
                passing.append(receipt)
        if passing:
            self._outlet.forward(passing)

    def notice(self) -> None:
        """Tell whoever waits what became of the lines that passed."""
        self._outlet.notice()

    def release(self, frame_seq: int) -> None:
        """Let a kept line pass. One that is not committed is lost instead: it must not pass later, out of its turn."""
        receipt = self._kept.pop(frame_seq)
        if receipt is not None:
            self._outlet.forward((receipt,))
            self._outlet.notice()
