"""The writer's thread: the one thread that calls the ledger, one call at a time.

What must not be broken here: a call that was begun is waited for until it is over, whoever is cancelled meanwhile, for
what became of a commit must be known. There is no way to abandon one.

It is a thread of its own and not one of Trio's pool, because every line waits for two changes of threads: an eventfd
that the caller itself waits for costs a quarter of the way back through Trio's queue of callbacks.
"""

from __future__ import annotations

import os
import queue
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import outcome
import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class Writer:
    """Runs calls in its thread. Make one with `writer_thread`."""

    def __init__(self) -> None:
        self.busy = False
        self.rounds = 0  # calls that are over
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], int] | None] = queue.SimpleQueue()
        self._over = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # of a call somebody waits for
        self._signal = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # of one that was begun, or a wake-up
        self._result: outcome.Outcome[Any] = outcome.Value(None)
        self._turn = trio.lowlevel.ParkingLot()

    async def call(self, job: Callable[[*_Ts], _T], *args: *_Ts) -> _T:
        """Call `job` in the thread, after the calls that were asked for before; gives or raises what it does.

        It can be cancelled while it waits for its turn, and not any more once it has begun.
        """
        while self.busy:
            await self._turn.park()
        self.busy = True
        self._calls.put((lambda: job(*args), self._over))
        with trio.CancelScope(shield=True):
            await _read(self._over)
        result: _T = self.collect()
        return result

    def begin(self, call: Callable[[], Any]) -> None:
        """Begin a call where none is in flight, without waiting; whoever waits for `signal` collects its result.

        Nobody is woken for it: the writer's thread gets the interpreter as soon as Trio's has nothing more to do.
        """
        self.busy = True
        self._calls.put((call, self._signal))

    def collect(self) -> Any:
        """Give or raise what the last call did, once it is over."""
        self.busy = False
        self.rounds += 1
        self._turn.unpark()
        return self._result.unwrap()

    async def signal(self) -> None:
        """Wait until the call that was begun is over, or until somebody called `wake`; for one task alone."""
        await _read(self._signal)

    def wake(self) -> None:
        """Let whoever waits for `signal` look around."""
        os.eventfd_write(self._signal, 1)

    def work(self) -> None:
        """The thread: call what is asked for, until it is told that there is nothing more."""
        while (asked := self._calls.get()) is not None:
            call, over = asked
            self._result = outcome.capture(call)
            os.eventfd_write(over, 1)

    def stop(self) -> None:
        """Let the thread end, once the call it is in is over."""
        self._calls.put(None)

    def close(self) -> None:
        """Give the eventfds back, when the thread has ended."""
        os.close(self._over)
        os.close(self._signal)


async def _read(eventfd: int) -> None:
    await trio.lowlevel.wait_readable(eventfd)
    os.eventfd_read(eventfd)


@contextmanager
def writer_thread() -> Iterator[Writer]:
    """Start the thread; it has ended when this is left."""
    writer = Writer()
    thread = threading.Thread(target=writer.work, name="writer")
    thread.start()
    try:
        yield writer
    finally:
        writer.stop()
        thread.join()
        writer.close()
