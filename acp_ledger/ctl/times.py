"""The time words of `--since` and `--until`, turned into the RFC 3339 UTC text of the audit views.

The grammar is systemd.time(7)'s, so that `journalctl` and `ledgerctl` take the same words, with RFC 3339, a bare
duration (`2h` is two hours ago), `recent` and `boot` besides.

What must not be broken here: nothing is guessed. A word that could mean two times is an error that shows valid ones.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final, NamedTuple

from acp_ledger.errors import UsageError

EXAMPLES: Final = "2026-11-30T12:00:00Z, '2026-11-30 15:04', 2h, '3d ago', yesterday or @1395716396"

_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
_RECENT: Final = timedelta(minutes=10)
_UNITS: Final[dict[str, int]] = {
    **dict.fromkeys(("usec", "us", "µs", "μs"), 1),
    **dict.fromkeys(("msec", "ms"), 1_000),
    **dict.fromkeys(("seconds", "second", "sec", "s", ""), 1_000_000),
    **dict.fromkeys(("minutes", "minute", "min", "m"), 60_000_000),
    **dict.fromkeys(("hours", "hour", "hr", "h"), 3_600_000_000),
    **dict.fromkeys(("days", "day", "d"), 86_400_000_000),
    **dict.fromkeys(("weeks", "week", "w"), 604_800_000_000),
    **dict.fromkeys(("months", "month", "M"), 2_629_800_000_000),
    **dict.fromkeys(("years", "year", "y"), 31_557_600_000_000),
}
"""Microseconds; a month is 30.4375 days and a year 365.25, as systemd.time(7) has them."""

_PART: Final = re.compile(r"\s*([0-9]+)(?:\.([0-9]+))?\s*([a-zA-Zµμ]*)")
_STAMP: Final = re.compile(
    r"(?:(?P<weekday>[a-z]+) +(?=\d))?"
    r"(?:(?P<year>\d{4}|\d\d)-(?P<month>\d\d?)-(?P<day>\d\d?))?"
    r"(?:(?P<between>t| +|\b)(?P<hour>\d\d?):(?P<minute>\d\d?)(?::(?P<second>\d\d?)(?:\.(?P<fraction>\d+))?)?)?"
    r"(?P<offset>z|[+-]\d\d:?\d\d)?",
    re.IGNORECASE | re.ASCII,
)
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ZONE: Final = re.compile(r"(?P<rest>.+) (?P<zone>[A-Za-z][\w+/-]*)")
_FIRST_SHORT_YEAR: Final = 69
"""A year of two digits is of the last century from here on, as in strptime(3)."""


class Zone(NamedTuple):
    """Where a clock hangs: `info` None is here; `name` tells summer from winter where a word said which."""

    info: tzinfo | None = None
    name: str | None = None


def as_rfc3339(word: str, now: datetime | None = None) -> str:
    """Give the time a word means, as UTC text with microseconds; a bare duration means that long ago.

    Raises:
        UsageError: The word means no time, or more than one.
    """
    moment = _moment(word.strip(), now or datetime.now(UTC))
    if moment is None:
        raise UsageError(f"cannot read the time {word!r}", hint=f"write it like {EXAMPLES}")
    return rfc3339(moment)


def rfc3339(moment: datetime) -> str:
    """Write a time as the audit views do."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _moment(word: str, now: datetime) -> datetime | None:
    if word == "now":
        return now
    if word == "recent":
        return now - _RECENT
    if word == "boot":
        return _boot()
    if word.startswith("@"):
        return _epoch(word[1:])
    return _relative(word, now) or _dated(*_split_zone(word), now)


def _boot() -> datetime | None:
    """Give the time this machine started, as its kernel tells it."""
    found = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(encoding="ascii"), re.MULTILINE)
    return None if found is None else _epoch(found[1])


def _epoch(seconds: str) -> datetime | None:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", seconds) is None:
        return None
    return _shifted(datetime.fromtimestamp(0, UTC), _micros(seconds))


def _relative(word: str, now: datetime) -> datetime | None:
    """Read a duration: `2h`, `-2h` and `2h ago` are in the past, `+2h` and `2h left` to come."""
    sign, text = (word[0], word[1:]) if word[:1] in {"+", "-"} else ("", word)
    for suffix in () if sign else (" ago", " left"):
        if text.endswith(suffix):
            sign, text = ("+" if suffix == " left" else "-"), text.removesuffix(suffix)
    # A number alone could be a year, a day or a count of seconds, unless a word beside it says that it is a duration.
    micros = None if not sign and text.isdigit() else _micros(text)
    return None if micros is None else _shifted(now, micros if sign == "+" else -micros)


def _micros(span: str) -> int | None:
    """Add up the parts of a duration; None where it is none, or a unit is not known."""
    total, rest = 0, span.strip()
    while rest:
        part = _PART.match(rest)
        if part is None or part[3] not in _UNITS:
            return None
        whole, fraction, unit = int(part[1]), part[2] or "", _UNITS[part[3]]
        total += whole * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        rest = rest[part.end() :]
    return total if span.strip() else None


def _shifted(moment: datetime, micros: int | None) -> datetime | None:
    try:
        return None if micros is None else moment + timedelta(microseconds=micros)
    except OverflowError:
        return None


def _split_zone(word: str) -> tuple[str, Zone]:
    """Take the time zone off the end of a word: `UTC`, a name of here (`CET`), or one of the zone files."""
    found = _ZONE.fullmatch(word)
    if found is None:
        return word, Zone()
    if found["zone"].upper() == "UTC":
        return found["rest"], Zone(UTC)
    for name in time.tzname:
        if found["zone"].upper() == name.upper():
            return found["rest"], Zone(None, name)
    info = _zone_file(found["zone"])
    return (word, Zone()) if info is None else (found["rest"], Zone(info))


def _zone_file(name: str) -> tzinfo | None:
    from zoneinfo import ZoneInfo  # only whoever names a zone needs it

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _dated(word: str, zone: Zone, now: datetime) -> datetime | None:
    today = now.astimezone(zone.info).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None, fold=0)
    if word in _DAYS:
        # A day begins even where summer time leaves out its midnight, so this one is not asked whether it exists.
        return _on(today + timedelta(days=_DAYS[word]), zone.info)
    found = _STAMP.fullmatch(word)
    if found is None or not (found["year"] or found["hour"]):
        return None
    naive = _clock(found, today)
    if naive is None or not _is_day(found["weekday"], naive):
        return None
    if not found["offset"]:
        return _only(word, naive, zone)
    # An offset belongs to RFC 3339, which has a date, and no other word for the zone beside it.
    return None if zone != Zone() or not found["year"] else naive.replace(tzinfo=_offset(found["offset"]))


def _clock(found: re.Match[str], today: datetime) -> datetime | None:
    """Read the digits of a date, else of today, and of a time, else of midnight; None where there is no such day."""
    year, month, day = (int(found[name] or getattr(today, name)) for name in ("year", "month", "day"))
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    if found["year"] and len(found["year"]) == len("26"):
        year += 1900 if year >= _FIRST_SHORT_YEAR else 2000
    micros = int((found["fraction"] or "").ljust(6, "0")[:6])
    if bool(found["year"] and found["hour"]) != bool(found["between"]):
        return None
    try:
        return today.replace(year, month, day, hour, minute, second, micros)
    except ValueError:
        return None


def _is_day(name: str | None, naive: datetime) -> bool:
    """Tell whether a time is on the weekday that was named; a wrong one may mean a wrong date."""
    return name is None or name.lower() in {(day := _WEEKDAYS[naive.weekday()]), day[:3]}


def _offset(text: str) -> tzinfo:
    return datetime.strptime(text.upper(), "%z").tzinfo or UTC


def _on(naive: datetime, info: tzinfo | None) -> datetime:
    return naive.astimezone() if info is None else naive.replace(tzinfo=info)


def _only(word: str, naive: datetime, zone: Zone) -> datetime | None:
    """Give the one moment at which the clock of a zone shows this time.

    Raises:
        UsageError: It shows it twice, or never, for summer time begins or ends there.
    """
    moments = []
    for fold in (0, 1):
        moment = _on(naive.replace(fold=fold), zone.info)
        shown = moment.astimezone(UTC).astimezone(zone.info).replace(tzinfo=None)
        named = zone.name is None or moment.tzname() == zone.name
        if shown == naive and named and moment.astimezone(UTC) not in moments:
            moments.append(moment.astimezone(UTC))
    if len(moments) == 1:
        return moments[0]
    spelled = " or ".join(rfc3339(each) for each in moments)
    what = "may mean two times" if moments else "is a time that the clock there did not show"
    raise UsageError(f"{word!r} {what}", hint=f"write {spelled}" if moments else f"write it like {EXAMPLES}")


def as_text(micros: int) -> str:
    """Write UTC microseconds as the audit views do."""
    whole, fraction = divmod(micros, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:06d}Z"
