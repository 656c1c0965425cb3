"""The daemon's clock: UTC microseconds of the wall, and whether the wall was moved.

What must not be broken here: a time is taken once, when a line was read, and is never used to order anything; that is
what `frame_seq` is for. Deadlines use Trio's clock, which no wall clock moves.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_MICROSECONDS: Final = 2_000_000
"""A wall clock that moved further than this against the monotonic one has stepped."""


def wall_microseconds() -> int:
    """UTC microseconds since 1970 by the system's wall clock."""
    return time.time_ns() // 1000


def monotonic_microseconds() -> int:
    """Microseconds of a clock that nobody sets."""
    return time.monotonic_ns() // 1000


class WallClock:
    """Gives the time of a reading, and notes when the wall clock stepped since the last one."""

    def __init__(
        self,
        wall: Callable[[], int] = wall_microseconds,
        monotonic: Callable[[], int] = monotonic_microseconds,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def now(self) -> int:
        """UTC microseconds."""
        return self._wall()

    def step(self) -> int | None:
        """Microseconds the wall clock stepped by since the last call that told of one; None when it did not."""
        moved = self._wall() - self._monotonic() - self._offset
        if abs(moved) <= STEP_MICROSECONDS:
            return None
        self._offset += moved
        return moved
