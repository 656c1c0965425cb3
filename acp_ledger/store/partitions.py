"""The partitions of `frames` on Postgres: one per month of a transport's opening, and a default one for all others.

What must not be broken here: a line always finds a partition, and no line is changed by moving it into another one. It
is done by who owns the table, within the transaction that makes or upgrades a schema.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from acp_ledger.store import tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

MONTHS: Final = 36
"""Months of `frames` that have a partition of their own from the day a schema is made or upgraded."""


def months(first: datetime, count: int) -> Iterator[tuple[str, int, int]]:
    """Names and bounds of monthly partitions, in UTC microseconds, the upper one excluded."""
    year, month = first.year, first.month
    for _ in range(count):
        following = (year + month // 12, month % 12 + 1)
        bounds = [int(datetime(*start, 1, tzinfo=UTC).timestamp()) * 1_000_000 for start in ((year, month), following)]
        yield f"frames_y{year:04}m{month:02}", bounds[0], bounds[1]
        year, month = following


def make(connection: Connection, now: datetime) -> None:
    """On Postgres, make the partitions that are missing, from this month on, and the default one.

    Lines that came when there was no month for them are moved out of the default one, each into its month.
    """
    if connection.dialect.name != "postgresql":
        return
    connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS frames_default PARTITION OF frames DEFAULT")
    oldest = _oldest_astray(connection)
    first = now if oldest is None else min(now, oldest)
    wanted = list(months(first, MONTHS + (now.year - first.year) * 12 + now.month - first.month))
    astray = oldest is not None and oldest <= now + timedelta(days=31 * MONTHS)
    if astray:
        # A month cannot be made while the default partition holds lines of it.
        connection.exec_driver_sql("ALTER TABLE frames DETACH PARTITION frames_default")
        connection.exec_driver_sql("ALTER TABLE frames_default RENAME TO frames_astray")
        connection.exec_driver_sql("CREATE TABLE frames_default PARTITION OF frames DEFAULT")
    for name, lower, upper in wanted:
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF frames FOR VALUES FROM ({lower}) TO ({upper})",
        )
    if astray:
        connection.exec_driver_sql("INSERT INTO frames SELECT * FROM frames_astray")
        connection.exec_driver_sql("DROP TABLE frames_astray")


def _oldest_astray(connection: Connection) -> datetime | None:
    """The month of the oldest line in the default partition that is no older than the ledger: an honest clock's."""
    created = connection.execute(select(func.min(tables.ledger.c.created_at))).scalar()
    if created is None:
        return None
    begun = _month(created)
    query = "SELECT min(transport_id) FROM frames_default WHERE transport_id >= %s"
    found = connection.exec_driver_sql(query, (int(begun.timestamp()) * 1_000_000,)).scalar()
    return None if found is None else _month(found)


def _month(micros: int) -> datetime:
    """The beginning of a month; of a time that no calendar has, the last one."""
    try:
        found = datetime.fromtimestamp(micros // 1_000_000, UTC)
    except (OverflowError, ValueError):
        found = datetime.max.replace(tzinfo=UTC)
    return found.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
