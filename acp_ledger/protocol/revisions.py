"""Which mapping reads a connection: from the version in the answer to `initialize` to what reads its frames.

What must not be broken here: the version is the one in the *result* of the first successful `initialize`, never the
one that was asked for. Until it is settled frames are read as v1, by shape, and stamped as unnegotiated. A version
without a mapping is relayed and kept: its updates are named and nothing is read into them, while prompts, questions
and answers are read by shape. A result without a readable integer version settles nothing, and neither does a second
successful `initialize`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp_ledger.protocol import v1
from acp_ledger.protocol.envelope import identity, integer_of
from acp_ledger.protocol.records import UNNEGOTIATED
from acp_ledger.protocol.strict import Number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acp_ledger.protocol.transcript import Stream

MAPPING_VERSION: Final = "1+schema-2.4.0"
"""Names the whole set of mappers: our own number, and the schema they were written against."""

VERSION_MAX: Final = 65_535
"""ACP's versions are 16-bit numbers (schema, `ProtocolVersion`)."""


class Reading(NamedTuple):
    """How the frames of a connection are read.

    `ends_turn` says whether a prompt's result ends its turn; an error always does.
    """

    revision: str
    mapped: bool
    step_of: Callable[[v1.Fields, list[str]], v1.Mapped]
    streams: Mapping[str, Stream]
    ends_turn: Callable[[Any], bool]


def _unmapped_step(update: v1.Fields, wrong: list[str]) -> v1.NotRecorded:
    return v1.NotRecorded(v1.word(update, "sessionUpdate", wrong))


def _always(_result: Any) -> bool:
    return True


def _has_stop_reason(result: Any) -> bool:
    return isinstance(result, dict) and type(result.get("stopReason")) is str


V1: Final = Reading(v1.REVISION, mapped=True, step_of=v1.step_of, streams=v1.STREAMS, ends_turn=_always)
START: Final = V1._replace(revision=UNNEGOTIATED)


def reading_of(version: int) -> Reading:
    """The reading of a negotiated version."""
    if version == 1:
        return V1
    return Reading(f"acp/v{version}", mapped=False, step_of=_unmapped_step, streams={}, ends_turn=_has_stop_reason)


def version_of(result: Any) -> int | None:
    """The version a result settles; None where it is no whole number from 0 to 65,535. 1.0 is 1."""
    version = integer_of(result, "protocolVersion", [])
    return version if version is not None and 0 <= version <= VERSION_MAX else None


def version_text(value: Any) -> str | None:
    """A version as it was said, for the record."""
    if type(value) is int:
        return str(value)
    if isinstance(value, Number):
        return identity(value.literal)
    return identity(value) if type(value) is str else None
