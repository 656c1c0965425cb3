"""What a verification says: findings, what was not checked, and what a reader must know.

What must not be broken here: the words of `Found` are written in people's scripts and never change their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from acp_ledger.errors import ExitCode


class Found(StrEnum):
    """What can be wrong."""

    CHAIN_BROKEN = "chain_broken"
    BODY_MISMATCH = "body_mismatch"
    SEQ_GAP = "seq_gap"
    FACTS_MISMATCH = "facts_mismatch"
    PRIVATE_MISMATCH = "private_mismatch"
    GENESIS_MISMATCH = "genesis_mismatch"
    ERASED_WITHOUT_EVENT = "erased_without_event"
    PROJECTION_MISMATCH = "projection_mismatch"
    ROW_WITHOUT_NUMBER = "row_without_number"
    NUMBER_TWICE = "number_twice"
    ROW_WITHOUT_TRANSPORT = "row_without_transport"
    LEDGER_ROWS_DIFFER = "ledger_rows_differ"


class Finding(NamedTuple):
    """Something that is not as it was committed. `expected` is what the other rows say, `actual` what is stored."""

    kind: Found
    transport_id: int
    frame_seq: int | None
    detail: str
    expected: str | None = None
    actual: str | None = None


class NotChecked(NamedTuple):
    """What the verifier could not look at, and why; `from_frame_seq` is where it stopped, None for all of it."""

    transport_id: int
    from_frame_seq: int | None
    reason: str


class Note(NamedTuple):
    """What a reader of the record must know although nothing is wrong with it."""

    transport_id: int | None
    frame_seq: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a verification. `findings` holds the first of them; `found` counts all."""

    ledger_id: str
    full: bool
    transports: int
    frames: int
    events: int
    rows: int
    bodies: dict[str, int]
    findings: tuple[Finding, ...]
    found: int
    not_checked: tuple[NotChecked, ...]
    notes: tuple[Note, ...]

    @property
    def exit_code(self) -> ExitCode:
        """5 when something is wrong, 3 when something was not checked, else 0."""
        if self.found:
            return ExitCode.INTEGRITY
        return ExitCode.INCOMPLETE if self.not_checked else ExitCode.OK
