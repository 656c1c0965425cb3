"""The time words of `--since` and `--until`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from acp_ledger.ctl.times import as_rfc3339, as_text
from acp_ledger.errors import UsageError

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("2026-11-30T12:00:00Z", "2026-11-30T12:00:00.000000Z"),
        ("2026-11-30T12:00:00.5+02:00", "2026-11-30T10:00:00.500000Z"),
        ("@1395716396", "2014-03-25T02:59:56.000000Z"),
        ("2h", "2026-11-30T10:00:00.000000Z"),
        ("-2h", "2026-11-30T10:00:00.000000Z"),
        ("2h ago", "2026-11-30T10:00:00.000000Z"),
        ("90s", "2026-11-30T11:58:30.000000Z"),
        ("7d", "2026-11-23T12:00:00.000000Z"),
        ("now", "2026-11-30T12:00:00.000000Z"),
    ],
)
def test_time_word_is_utc_text(word: str, expected: str) -> None:
    """A word becomes the text the audit views compare with."""
    assert as_rfc3339(word, NOW) == expected


def test_yesterday_begins_a_day_before_today() -> None:
    """Both begin at a local midnight; yesterday is the earlier one."""
    assert as_rfc3339("yesterday", NOW) < as_rfc3339("today", NOW) <= as_rfc3339("now", NOW)


@pytest.mark.parametrize("word", ["", "soon", "12", "2 fortnights", "@", "@99999999999999999999", "9999999999d"])
def test_unclear_time_is_refused_with_examples(word: str) -> None:
    """A word that is no time is an error that shows valid ones."""
    with pytest.raises(UsageError) as caught:
        as_rfc3339(word, NOW)
    assert "2026-11-30T12:00:00Z" in str(caught.value.hint)


def test_microseconds_are_written_as_in_views() -> None:
    """A number of microseconds reads like the time columns of the views, to the last digit."""
    assert as_text(1_764_518_403_000_007) == "2025-11-30T16:00:03.000007Z"
