"""Proving a ledger is a real write: committed, on the disk, and without a trace in any table."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select, text

from acp_ledger.store import schema, tables
from acp_ledger.store.faults import CommitHeld, CommitUnknown
from acp_ledger.store.ledger import Ledger
from tests.support import seed
from tests.support.postgres import ON_POSTGRES, ON_SQLITE
from tests.support.team import made_by_owner

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Cluster


def _rows(ledger: Ledger) -> list[int]:
    connection = ledger.reading()
    return [
        connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in tables.metadata.sorted_tables
    ]


@ON_SQLITE
def test_proof_is_written_to_the_log_of_sqlite(ledger: Ledger, tmp_path: Path) -> None:
    """What proves the ledger has gone through its log, as a commit does; no row is added, the schema is the same."""
    wal = tmp_path / "ledger.db-wal"
    rows, before = _rows(ledger), wal.read_bytes()
    ledger.prove()
    assert wal.read_bytes() != before
    assert _rows(ledger) == rows
    assert not schema.check(ledger.url)


@ON_POSTGRES
def test_proof_is_flushed_by_postgres(ledger: Ledger) -> None:
    """What proves the ledger has reached the server's disk when it returns; no row is added."""
    rows, connection = _rows(ledger), ledger.reading()
    before = connection.execute(text("SELECT pg_current_wal_insert_lsn()::text")).scalar_one()
    ledger.prove()
    flushed = connection.execute(
        text("SELECT pg_current_wal_flush_lsn() > CAST(:before AS pg_lsn)"), {"before": before}
    )
    assert flushed.scalar_one() is True
    assert _rows(ledger) == rows


@ON_SQLITE
def test_locked_ledger_is_not_proven(ledger: Ledger, tmp_path: Path) -> None:
    """While another program holds the write lock nothing is proven; afterwards it is."""
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CommitHeld):
            ledger.prove()
    ledger.prove()


@ON_SQLITE
def test_file_that_was_taken_away_is_not_proven(ledger: Ledger, tmp_path: Path) -> None:
    """A write into a file that is no longer the ledger's proves nothing."""
    (tmp_path / "ledger.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(CommitUnknown):
        ledger.prove()


@ON_POSTGRES
@pytest.mark.parametrize(
    "damage",
    ["ALTER TABLE frames RENAME TO others", "SET default_transaction_read_only = on"],
    ids=["no table", "read-only"],
)
def test_database_that_takes_no_rows_is_not_proven(ledger: Ledger, damage: str) -> None:
    """A server that would let us write a message and no frame does not count as writable."""
    ledger.reading().execute(text(damage))
    with pytest.raises(CommitHeld):
        ledger.prove()


def test_writers_role_may_prove(cluster: Cluster) -> None:
    """A daemon whose role may insert and select, and nothing else, becomes ready."""
    for team in made_by_owner(cluster):
        opened = Ledger.open(team.url_of("writer"), seed.DAEMON, at=seed.START)
        opened.prove()
        opened.close()
