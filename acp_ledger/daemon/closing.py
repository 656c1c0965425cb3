"""What a transport is owed that its ledger failed: the gap there was, and its end.

What must not be broken here: the rows are made in SQL, from what was committed; the observer that ran ahead of that is
not asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from acp_ledger.daemon.clock import wall_microseconds
from acp_ledger.store.recovery import GapNote, close_open, terminal_gap

if TYPE_CHECKING:
    from acp_ledger.daemon.lanes import Failure, Lane
    from acp_ledger.protocol.records import Direction
    from acp_ledger.store.ledger import Ledger

CLOSE_REASONS: Final = {"closed": "ledger_failure", "refused": "ledger_refused"}
"""The `close_reason` of a transport that its ledger failed."""


class Closing(NamedTuple):
    """The closing rows a failed transport is owed, as soon as the ledger writes again."""

    lane: Lane
    failure: Failure
    unrecorded: int
    """Lines of our own that the editor got and the ledger did not."""
    delivered: tuple[tuple[Direction, int], ...]


def close(ledger: Ledger, closing: Closing) -> None:
    """Write, in SQL, what a failed transport's end is from what was committed of it, and the gap before it."""
    now = wall_microseconds()
    given_up = closing.lane.given_up()
    gap = terminal_gap(ledger.reading(), closing.lane.transport_id, now) or GapNote(
        cause=closing.failure.cause,
        from_at=now if given_up.since is None else given_up.since,
        to_at=now,
        count=given_up.lines + closing.unrecorded,
    )
    close_open(
        ledger,
        closing.lane.transport_id,
        event="closed",
        at=now,
        close_reason=CLOSE_REASONS[closing.failure.cause],
        gap=gap,
        detail=closing.failure.sentence,
        delivered=closing.delivered,
    )
