"""A ledger that does what a script says: for the outcomes and the timing that a real one cannot be asked for.

It keeps what it "commits", so that a test can compare what was sent with what was durable at that moment.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from acp_ledger.protocol.records import Event, Frame
from acp_ledger.store.faults import CommitHeld, CommitRefused, CommitUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acp_ledger.protocol.records import Direction, Entry

    Batch = Sequence[tuple[int, Sequence[Entry]]]

Fault = Literal["ok", "held", "unknown-in", "unknown-out"]


class ScriptedLedger:
    """Commits as scripted, then always. `gate` holds every call while it is clear."""

    def __init__(self, *script: Fault) -> None:
        self.script = list(script)
        self.durable: list[tuple[int, int]] = []
        self.batches: list[list[tuple[int, int]]] = []
        self.refuses: Callable[[Entry], bool] = lambda _entry: False
        self.gate = threading.Event()
        self.gate.set()
        self.in_call = threading.Event()
        self.interrupts = 0
        self.checkpoints = 0
        self.broken = False

    def commit(self, batch: Batch) -> None:
        """Commit, or not, or nobody knows."""
        self._wait()
        numbers = [(transport, entry.record.frame_seq) for transport, entries in batch for entry in entries]
        self.batches.append(numbers)
        if any(self.refuses(entry) for _, entries in batch for entry in entries):
            raise CommitRefused("a constraint")
        fault = self._next()
        if fault in {"ok", "unknown-in"}:
            self.durable += numbers
        if fault != "ok":
            raise CommitUnknown("the reply was lost")

    def settle(self, batch: Batch) -> bool:
        """Tell whether a batch is there."""
        self._wait()
        self._next()
        return all(
            (transport, entry.record.frame_seq) in self.durable for transport, entries in batch for entry in entries
        )

    def probe(self) -> None:
        """Find out whether it writes again."""
        self._wait()
        self._next()

    def lay_log(self) -> None:
        """Nothing is to be laid out here."""

    def checkpoint(self) -> bool:
        """Count that the log was emptied."""
        self.checkpoints += 1
        return True

    def interrupt(self) -> None:
        """Count that it was asked to cut a call."""
        self.interrupts += 1

    def _wait(self) -> None:
        self.in_call.set()
        assert self.gate.wait(20)

    def _next(self) -> Fault:
        fault = self.script.pop(0) if self.script else "ok"
        if fault == "held" or self.broken:
            raise CommitHeld("the disk is full", hint="df -h")
        return fault


def entry(seq: int, direction: Direction, *, size: int = 10, method: str | None = None) -> Entry:
    """A line's entry, as an observer would make it."""
    from acp_ledger.protocol.records import Entry  # noqa: PLC0415  # keeps the type's name free above

    frame = Frame(
        seq, "acp/v1", None, None, direction, "peer", "forward", "notification", method, None, "setup", None, None,
        "not_recorded", seq, size, terminated=True, body_state="exact",
    )  # fmt: skip
    return Entry(frame, (), b"%d" % seq + b"x" * size)


def event_entry(seq: int) -> Entry:
    """An event's entry."""
    from acp_ledger.protocol.records import Entry  # noqa: PLC0415  # likewise

    return Entry(Event(seq, "acp/v1", "eof", seq), (), None)
