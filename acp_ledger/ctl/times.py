"""The time words of `--since` and `--until`, turned into the RFC 3339 UTC text of the audit views.

What must not be broken here: nothing is guessed. A word that could mean two times is an error that shows valid ones.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from acp_ledger.errors import UsageError

_DURATION: Final = re.compile(r"-?\s*(\d+)\s*(s|min|m|h|d|w)(?:\s+ago)?")
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_DAYS: Final = {"today": 0, "yesterday": 1}
EXAMPLES: Final = "2026-11-30T12:00:00Z, 2h, '3d ago', yesterday or @1395716396"


def as_rfc3339(word: str, now: datetime | None = None) -> str:
    """Give the time a word means, as UTC text with microseconds; a bare duration means that long ago.

    Raises:
        UsageError: The word is none of those.
    """
    moment = _moment(word.strip(), now or datetime.now(UTC))
    if moment is None:
        raise UsageError(f"cannot read the time {word!r}", hint=f"write it like {EXAMPLES}")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(word: str, now: datetime) -> datetime | None:
    if word == "now":
        return now
    if word in _DAYS:
        midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - timedelta(days=_DAYS[word])
    if (duration := _DURATION.fullmatch(word)) is not None:
        return _before(now, int(duration[1]) * _SECONDS[duration[2]])
    return _absolute(word)


def _before(now: datetime, seconds: int) -> datetime | None:
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return None


def _absolute(word: str) -> datetime | None:
    """Read `@EPOCH` or an ISO date; one without an offset is local time, as in journalctl."""
    try:
        return datetime.fromtimestamp(int(word[1:]), UTC) if word.startswith("@") else datetime.fromisoformat(word)
    except (ValueError, OverflowError, OSError):
        return None


def as_text(micros: int) -> str:
    """Write UTC microseconds as the audit views do."""
    whole, fraction = divmod(micros, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:06d}Z"
