"""The write-ahead log has its disk before anybody waits for a commit."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from acp_ledger.store.files import LOG_BYTES, lay_log
from acp_ledger.store.ledger import Ledger
from tests.support import seed

if TYPE_CHECKING:
    from pathlib import Path


def test_commits_go_into_bytes_the_log_already_has(tmp_path: Path) -> None:
    """A log that is laid out grows no longer by what is committed."""
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(f"sqlite:///{path}", seed.DAEMON, at=1)
    ledger.lay_log()
    log = path.with_name("ledger.db-wal")
    assert log.stat().st_size == LOG_BYTES
    transport = ledger.open_transport(seed.new_transport()).id
    ledger.commit([(transport, seed.conversation())])
    assert log.stat().st_size == LOG_BYTES
    ledger.close()


def test_laid_bytes_are_no_part_of_the_ledger(tmp_path: Path) -> None:
    """A log with room behind its frames is read after a crash as one without."""
    path = tmp_path / "crashed.db"
    with sqlite3.connect(tmp_path / "model.db", isolation_level=None) as model:
        model.execute("PRAGMA journal_mode=WAL")
        model.execute("CREATE TABLE t (x)")
        model.execute("INSERT INTO t VALUES (1)")
        lay_log(tmp_path / "model.db", 1 << 20)
        model.execute("INSERT INTO t VALUES (2)")
        for suffix in ("", "-wal"):
            path.with_name(path.name + suffix).write_bytes((tmp_path / f"model.db{suffix}").read_bytes())
    with sqlite3.connect(path) as crashed:
        assert crashed.execute("SELECT x FROM t").fetchall() == [(1,), (2,)]
    crashed.close()
    model.close()


def test_log_that_cannot_be_laid_costs_time_alone(tmp_path: Path) -> None:
    """Where there is no log to lay out, nothing is made and nobody is told."""
    lay_log(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_log_that_somebody_else_writes_is_left_alone(tmp_path: Path) -> None:
    """Room is made under SQLite's own lock, or what another has just written would be overwritten."""
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(f"sqlite:///{path}", seed.DAEMON, at=1)
    before = path.with_name("ledger.db-wal").stat().st_size
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        ledger.lay_log()
        assert path.with_name("ledger.db-wal").stat().st_size == before
        other.execute("ROLLBACK")
    other.close()
    ledger.lay_log()
    assert path.with_name("ledger.db-wal").stat().st_size == LOG_BYTES
    ledger.close()
