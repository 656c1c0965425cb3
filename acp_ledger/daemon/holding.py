"""How the ledger is doing: it writes, a commit is late (held), or too late (degraded).

What must not be broken here: trouble begins with the first attempt that did not succeed and ends with the next one
that does; nothing else may end it. A hold is bounded: at its deadline somebody is told, whatever the database does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from acp_ledger.daemon.lanes import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from acp_ledger.errors import LedgerError

GRACE_SECONDS: Final = 1.0
"""A commit that is late by less is nobody's business: somebody's short lock, a disk that is busy."""

LATE_COMMIT: Final = "a commit has not returned"


class Health:
    """Whether the ledger takes what we write. All times are Trio's clock."""

    def __init__(self, hold_seconds: float) -> None:
        self.hold_seconds = hold_seconds
        self.held_since: float | None = None
        self.degraded = False
        self.error: str | None = None
        self.hint: str | None = None
        self._trying_since: float | None = None
        self._heeded = trio.lowlevel.ParkingLot()
        self._released = trio.lowlevel.ParkingLot()

    @property
    def trying(self) -> bool:
        """Whether an attempt is in flight, or the last one did not succeed."""
        return self._trying_since is not None

    @property
    def held(self) -> bool:
        """Whether agents must not be read: a commit is late."""
        return self.held_since is not None

    def heed(self) -> None:
        """There is something to watch."""
        self._heeded.unpark_all()

    def attempt(self) -> None:
        """An attempt to write begins. Every line's way leads through here, so nobody is woken for it."""
        if self._trying_since is None:
            self._trying_since = trio.current_time()

    def failed(self, fault: LedgerError) -> None:
        """The attempt did not succeed, for this reason. It will be repeated."""
        self.error = fault.message
        self.hint = fault.hint

    def succeeded(self) -> bool:
        """The ledger writes. True when this ends a hold."""
        was_held = self.held
        self._trying_since = self.held_since = None
        self.degraded = False
        if was_held:
            self.error = self.hint = None
            self._released.unpark_all()
        return was_held

    async def released(self) -> None:
        """Wait until the ledger is not held."""
        while self.held:
            await self._released.park()

    async def watch(
        self, is_idle: Callable[[], bool], on_hold: Callable[[], None], on_deadline: Callable[[], None]
    ) -> None:
        """Tell when a hold begins, and when it has lasted too long; sleep while there is nothing to watch."""
        while True:
            since = self._trying_since
            if since is None and is_idle():
                await self._heeded.park()
                continue
            await trio.sleep_until((trio.current_time() if since is None else since) + GRACE_SECONDS)
            if since is not None and self._trying_since == since:
                self.held_since = since
                on_hold()
                await self._outlast(since + self.hold_seconds, on_deadline)

    async def _outlast(self, deadline: float, on_deadline: Callable[[], None]) -> None:
        with trio.move_on_at(deadline):
            await self.released()
        if self.held:
            self.degraded = True
            on_deadline()
            await self.released()

    def failure(self) -> Failure:
        """What a transport that cannot go on is told."""
        why = self.error or LATE_COMMIT
        return Failure("closed", f"the ledger cannot be written ({why})", self.hint)
