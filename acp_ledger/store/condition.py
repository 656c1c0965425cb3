"""The condition a ledger's database is in: what it keeps of a commit, how big it is, how long its partitions last.

What must not be broken here: only questions, asked of a connection that can only read; and what a database does not
tell is None, never a guess.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import bindparam, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Connection

_POSTGRES_KEEPS: Final = {"fsync": "on", "full_page_writes": "on", "server_encoding": "UTF8"}
_PARTITION: Final = re.compile(r"frames_y(\d{4})m(\d{2})")
_DECEMBER: Final = 12

VACUUM_LATE: Final = 5
"""How many times autovacuum's own measure a table may grow before that is told; once is every day's business."""

_TELLS_INSERTS: Final = (13,)
_LATE: Final = text(
    "SELECT relname, n_ins_since_vacuum FROM pg_stat_user_tables WHERE schemaname = current_schema() "
    "AND n_ins_since_vacuum > :times * (current_setting('autovacuum_vacuum_insert_threshold')::float8 "
    "+ current_setting('autovacuum_vacuum_insert_scale_factor')::float8 "
    "* greatest(n_live_tup - n_ins_since_vacuum, 0)) "
    "ORDER BY n_ins_since_vacuum DESC"
)


class Partitions(NamedTuple):
    """The partitions of `frames` on Postgres: when the last month ends, and whether the default one holds rows."""

    end: datetime | None
    default_used: bool


class Size(NamedTuple):
    """A table and its indexes, in bytes."""

    table: str
    size: int


class Unvacuumed(NamedTuple):
    """A table, and the rows that were added since it was last vacuumed."""

    table: str
    rows: int


class Vacuum(NamedTuple):
    """Whether autovacuum is on, and the tables it is late with, the latest first."""

    on: bool
    late: list[Unvacuumed]


def unsafe_settings(connection: Connection) -> Iterator[tuple[str, str, str]]:
    """Settings of the database under which a commit may be lost: name, value, and the value it must have."""
    if connection.dialect.name == "sqlite":
        found = str(connection.execute(text("PRAGMA journal_mode")).scalar_one())
        if found != "wal":
            yield "journal_mode", found, "wal"
        return
    for name, wanted in _POSTGRES_KEEPS.items():
        found = str(connection.execute(text(f"SHOW {name}")).scalar_one())
        if found != wanted:
            yield name, found, wanted


def server_time(connection: Connection) -> float | None:
    """The database server's clock, in seconds since 1970; None for SQLite, whose clock is ours."""
    if connection.dialect.name == "sqlite":
        return None
    return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def newest_opening(connection: Connection) -> int | None:
    """When the newest transport was opened, in UTC microseconds; None when there is none."""
    opened = connection.execute(text("SELECT opened_at FROM transports ORDER BY id DESC LIMIT 1")).scalar()
    return None if opened is None else int(opened)


def known_transports(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Which of these ids are transports of this ledger."""
    query = text("SELECT id FROM transports WHERE id IN :ids").bindparams(bindparam("ids", expanding=True))
    return {int(each) for each in connection.execute(query, {"ids": sorted(ids)}).scalars()}


def partitions(connection: Connection) -> Partitions | None:
    """How far the partitions of `frames` reach; None for SQLite, which has none."""
    if connection.dialect.name == "sqlite":
        return None
    names = connection.execute(
        text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'frames'::regclass")
    ).scalars()
    ends = [_end(match) for name in names if (match := _PARTITION.search(str(name)))]
    # By its size, for a role that may read `frames` may not read a partition by its own name.
    used = connection.execute(
        text("SELECT coalesce(pg_relation_size(to_regclass('frames_default')), 0) > 0")
    ).scalar_one()
    return Partitions(max(ends, default=None), bool(used))


def _end(match: re.Match[str]) -> datetime:
    year, month = int(match[1]), int(match[2])
    return datetime(year + month // _DECEMBER, month % _DECEMBER + 1, 1, tzinfo=UTC)


def sizes(connection: Connection) -> list[Size]:
    """The tables of a Postgres ledger by size, the biggest first; partitions count to `frames`. None for SQLite."""
    if connection.dialect.name == "sqlite":
        return []
    rows = connection.execute(
        text(
            "SELECT CASE WHEN c.relname LIKE 'frames\\_%' THEN 'frames' ELSE c.relname END AS name, "
            "sum(pg_total_relation_size(c.oid))::bigint AS size FROM pg_class c "
            "WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace GROUP BY 1 ORDER BY 2 DESC"
        )
    )
    return [Size(row.name, row.size) for row in rows]


def vacuum(connection: Connection) -> Vacuum | None:
    """Whether Postgres looks after its tables by itself, and which it is late with; None where it does not tell.

    Late is a table with `VACUUM_LATE` times the new rows after which autovacuum is due. Whoever may connect may ask.
    """
    version = connection.dialect.server_version_info or (0,)
    if connection.dialect.name == "sqlite" or version < _TELLS_INSERTS:
        return None
    on = connection.execute(
        text("SELECT current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on'")
    )
    late = connection.execute(_LATE, {"times": VACUUM_LATE})
    return Vacuum(bool(on.scalar_one()), [Unvacuumed(row.relname, row.n_ins_since_vacuum) for row in late])
