"""The time words of `--since` and `--until`, checked against systemd's own reading of them."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from acp_ledger.ctl.times import as_rfc3339, as_text
from acp_ledger.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW: Final = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
BERLIN: Final = "CET-1CEST,M3.5.0,M10.5.0/3"
"""A zone with summer time, spelled out, so that it needs no zone files."""

UNITS: Final = (
    *("usec", "us", "µs", "msec", "ms", "seconds", "second", "sec", "s", "minutes", "minute", "min", "m"),
    *("hours", "hour", "hr", "h", "days", "day", "d", "weeks", "week", "w", "months", "month", "M"),
    *("years", "year", "y"),
)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("2026-11-30T12:00:00Z", "2026-11-30T12:00:00.000000Z"),
        ("2026-11-30t12:00:00z", "2026-11-30T12:00:00.000000Z"),
        ("2026-11-30T12:00:00.5+02:00", "2026-11-30T10:00:00.500000Z"),
        ("2026-11-30 12:00:00.123456789Z", "2026-11-30T12:00:00.123456Z"),
        ("2026-11-30T12:00-0330", "2026-11-30T15:30:00.000000Z"),
        ("@1395716396", "2014-03-25T02:59:56.000000Z"),
        ("@1395716396.25", "2014-03-25T02:59:56.250000Z"),
        ("2h", "2026-11-30T10:00:00.000000Z"),
        ("-2h", "2026-11-30T10:00:00.000000Z"),
        ("2h ago", "2026-11-30T10:00:00.000000Z"),
        ("+2h", "2026-11-30T14:00:00.000000Z"),
        ("2h left", "2026-11-30T14:00:00.000000Z"),
        ("1h 30min 1.5s", "2026-11-30T10:29:58.500000Z"),
        ("90s", "2026-11-30T11:58:30.000000Z"),
        ("7d", "2026-11-23T12:00:00.000000Z"),
        ("now", "2026-11-30T12:00:00.000000Z"),
        ("recent", "2026-11-30T11:50:00.000000Z"),
        ("yesterday UTC", "2026-11-29T00:00:00.000000Z"),
        ("2026-11-30 12:00 Europe/Berlin", "2026-11-30T11:00:00.000000Z"),
        ("2026-07-01 12:00 Europe/Berlin", "2026-07-01T10:00:00.000000Z"),
        ("Mon 2026-11-30 12:00 America/New_York", "2026-11-30T17:00:00.000000Z"),
    ],
)
def test_time_word_is_utc_text(word: str, expected: str) -> None:
    """A word becomes the text the audit views compare with."""
    assert as_rfc3339(word, NOW) == expected


def test_yesterday_begins_a_day_before_today() -> None:
    """Both begin at a local midnight; yesterday is the earlier one."""
    assert as_rfc3339("yesterday", NOW) < as_rfc3339("today", NOW) <= as_rfc3339("now", NOW)


def test_boot_is_when_the_kernel_started() -> None:
    """`boot` is as long ago as the machine has been up, to the second that the kernel counts in."""
    up = float(Path("/proc/uptime").read_text().split()[0])
    found = datetime.fromisoformat(as_rfc3339("boot"))
    assert abs(datetime.now(UTC) - timedelta(seconds=up) - found) < timedelta(hours=1)


@pytest.mark.parametrize(
    "word",
    [
        *(
            "",
            "soon",
            "12",
            "2026",
            "2 fortnights",
            "@",
            "@x",
            "@99999999999999999999",
            "9999999999d",
            "ago",
            "-",
            "+ago",
        ),
        *("1.2.3h ago", "1.h ago", "2026-02-30", "2026-11-30 24:00", "2026-13-01", "26:00", "2026-11-3012:00"),
        *("Tue 2026-11-30", "Mon", "Xyz 2026-11-30", "12:00+02:00", "2026-11-30T12:00Z Europe/Berlin", "T12:00"),
        *("\u0663h", "@\u0663", "2026-11-3\u0660"),  # digits that are none of ours
        *("2026-11-30 Europe/Nowhere", "2026-11-30 12:00 ../etc/passwd", "--2h", "2h ago ago", "1" * 60 + "!"),
    ],
)
def test_unclear_time_is_refused_with_examples(word: str) -> None:
    """A word that is no time is an error that shows valid ones."""
    with pytest.raises(UsageError) as caught:
        as_rfc3339(word, NOW)
    assert "2026-11-30T12:00:00Z" in str(caught.value.hint)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock on the wall shows Berlin's time."""
    monkeypatch.setenv("TZ", BERLIN)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("suffix", ["", " Europe/Berlin"])
@pytest.mark.usefixtures("berlin")
def test_time_that_summer_time_doubles_is_refused(suffix: str) -> None:
    """An hour the clock shows twice may mean two times: both are spelled in UTC; one it leaves out is none."""
    with pytest.raises(UsageError) as caught:
        as_rfc3339(f"2026-10-25 02:30{suffix}")
    assert caught.value.hint == "write 2026-10-25T00:30:00.000000Z or 2026-10-25T01:30:00.000000Z"
    with pytest.raises(UsageError, match="did not show"):
        as_rfc3339(f"2026-03-29 02:30{suffix}")


@pytest.mark.usefixtures("berlin")
def test_name_of_the_zone_tells_the_doubled_hour_apart() -> None:
    """Whoever writes CEST or CET said which of the two is meant."""
    assert as_rfc3339("2026-10-25 02:30 CEST") == "2026-10-25T00:30:00.000000Z"
    assert as_rfc3339("2026-10-25 02:30 cet") == "2026-10-25T01:30:00.000000Z"


def test_microseconds_are_written_as_in_views() -> None:
    """A number of microseconds reads like the time columns of the views, to the last digit."""
    assert as_text(1_764_518_403_000_007) == "2025-11-30T16:00:03.000007Z"


# --- systemd's own reading


def _stamps(chance: random.Random) -> Iterator[str]:
    """Spell dates and times as systemd.time(7) allows; of the year's hours those that a clock shows once."""
    for _ in range(200):
        day = datetime(1971, 1, 1, 4, tzinfo=UTC) + timedelta(seconds=chance.randrange(60 * 365 * 86_400))
        date = day.strftime(chance.choice(("%Y-%m-%d", "%y-%m-%d" if day.year < 2069 else "%Y-%m-%d")))
        clock = f"{chance.randrange(4, 24):02}:{day:%M}{chance.choice(('', f':{day:%S}', f':{day:%S}.{day.second}'))}"
        weekday = chance.choice(("", "", f"{day:%a} ", f"{day:%A} ", f"{day:%a} ".lower()))
        zone = chance.choice(("", "", " UTC", " utc"))
        yield chance.choice((f"{weekday}{date} {clock}{zone}", f"{weekday}{date}{zone}", f"{clock}{zone}"))


def _spans(chance: random.Random) -> Iterator[str]:
    """Spell durations, in the past and to come, that stay within the years systemd can count."""
    for _ in range(280):
        few = [(chance.randrange(30), chance.choice(UNITS)) for _ in range(chance.randrange(1, 4))]
        fraction = chance.choice(("", "", ".5", ".25"))
        span = chance.choice(("", " ")).join(
            f"{count}{fraction}{chance.choice(('', ' '))}{unit}" for count, unit in few
        )
        yield chance.choice((f"{span} ago", f"-{span}", f"+{span}" if "y" not in span else f"-{span}", f"{span} left"))


def _epochs(chance: random.Random) -> Iterator[str]:
    for _ in range(20):
        yield f"@{chance.randrange(2**31)}{chance.choice(('', '.5', '.000001'))}"


WORDS: Final = ("now", "today", "yesterday", "tomorrow", "today UTC", "yesterday utc", "tomorrow UTC", "5 ago", "-90")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze (apt install systemd)")
@pytest.mark.usefixtures("berlin")
def test_500_words_mean_what_systemd_says() -> None:
    """Both read each of 500 words as the same time; what counts from now lies between our readings before and after."""
    chance = random.Random(20261130)  # noqa: S311  # words of a test
    words = [*WORDS, *_stamps(chance), *_spans(chance), *_epochs(chance)]
    assert len(words) >= 500
    before = [as_rfc3339(word) for word in words]
    command = ["systemd-analyze", "timestamp", "--", *words]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env={"TZ": BERLIN, "LC_ALL": "C.UTF-8"})
    after = [as_rfc3339(word) for word in words]
    assert told.returncode == 0, told.stderr
    seconds = re.findall(r"^ *UNIX seconds: @(\d+)(?:\.(\d+))?$", told.stdout, re.MULTILINE)
    theirs = [as_text(int(whole) * 1_000_000 + int(fraction.ljust(6, "0"))) for whole, fraction in seconds]
    pairs = zip(words, before, theirs, after, strict=True)
    assert [pair for pair in pairs if not pair[1] <= pair[2] <= pair[3]] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze (apt install systemd)")
@pytest.mark.parametrize("word", ["soon", "2 fortnights ago", "1.2.3h ago", "Tue 2026-11-30", "26:00", "+5 ago", ""])
def test_what_systemd_refuses_is_refused(word: str) -> None:
    """A word that systemd cannot read is none for us either."""
    assert (
        subprocess.run(["systemd-analyze", "timestamp", "--", word], capture_output=True, check=False).returncode != 0
    )
    with pytest.raises(UsageError):
        as_rfc3339(word)
