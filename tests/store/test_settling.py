"""When nobody knows whether a commit took place, the ledger itself is asked, and what was lost is noticed."""

from __future__ import annotations

import re
import shutil
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Literal

import pytest
from sqlalchemy import func, select

from acp_ledger.store import tables
from acp_ledger.store.faults import CommitHeld, CommitUnknown, LedgerMoved, LedgerRegressed, classify
from acp_ledger.store.ledger import Ledger
from tests.support import seed
from tests.support.postgres import ON_POSTGRES, ON_SQLITE
from tests.support.proxy import Proxy
from tests.support.seed import Seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from acp_ledger.protocol.records import Entry


def _count(ledger: Ledger) -> int:
    return int(ledger.reading().execute(select(func.count()).select_from(tables.frames)).scalar_one())


def _batch(transport: int, first: int = 1) -> list[tuple[int, Sequence[Entry]]]:
    return [(transport, [Seed(first=first).update("tool_call", seed.step("c", "completed"))])]


@ON_SQLITE
def test_deleted_database_is_noticed_before_anything_is_acknowledged(
    ledger: Ledger, transport: int, tmp_path: Path
) -> None:
    """SQLite commits into a deleted file; the ledger does not call that committed."""
    (tmp_path / "ledger.db").unlink()
    with pytest.raises(LedgerMoved, match="gone"):
        ledger.commit(_batch(transport))
    with pytest.raises(CommitHeld, match="cannot be opened again"):
        ledger.settle(_batch(transport))


@ON_SQLITE
def test_renamed_database_is_settled_when_it_is_back(ledger: Ledger, transport: int, tmp_path: Path) -> None:
    """A ledger that was moved away and back has what was committed meanwhile."""
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (tmp_path / name).rename(tmp_path / f"x-{name}")
    with pytest.raises(LedgerMoved):
        ledger.commit(_batch(transport))
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        if (tmp_path / f"x-{name}").exists():
            (tmp_path / f"x-{name}").rename(tmp_path / name)
    assert ledger.settle(_batch(transport))
    ledger.commit(_batch(transport, 2))
    assert _count(ledger) == 2


@ON_SQLITE
@pytest.mark.parametrize("how", ["unlink", "replace"])
def test_lost_log_is_noticed(ledger: Ledger, transport: int, tmp_path: Path, how: str) -> None:
    """A commit in a write-ahead log nobody will find again is not called committed."""
    ledger.commit(_batch(transport))
    log = tmp_path / "ledger.db-wal"
    log.unlink()
    if how == "replace":
        log.write_bytes(b"")
    with pytest.raises(LedgerMoved, match=r"ledger\.db-wal"):
        ledger.commit(_batch(transport, 2))


@ON_SQLITE
def test_second_name_of_the_database_is_noticed(ledger: Ledger, transport: int, tmp_path: Path) -> None:
    """A hard link made while the ledger is open lets others write to it, and stops it."""
    (tmp_path / "other").hardlink_to(tmp_path / "ledger.db")
    with pytest.raises(LedgerMoved):
        ledger.commit(_batch(transport))


@ON_SQLITE
def test_older_copy_in_the_ledgers_place_is_written_to_no_more(ledger: Ledger, transport: int, tmp_path: Path) -> None:
    """A restored backup lacks rows that were acknowledged; numbers are not given out a second time."""
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as source, closing(sqlite3.connect(tmp_path / "old")) as old:
        source.backup(old)
    (tmp_path / "old").chmod(0o600)
    ledger.commit(_batch(transport))
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (tmp_path / name).unlink()
    shutil.move(tmp_path / "old", tmp_path / "ledger.db")
    with pytest.raises(LedgerMoved):
        ledger.commit(_batch(transport, 2))
    for attempt in (
        ledger.probe,
        lambda: ledger.settle(_batch(transport, 2)),
        lambda: ledger.commit(_batch(transport)),
    ):
        with pytest.raises(LedgerRegressed, match="lacks number 1"):
            attempt()


@ON_SQLITE
def test_other_ledger_in_its_place_is_not_written_to(ledger: Ledger, transport: int, tmp_path: Path) -> None:
    """A new ledger under the old name is somebody else's."""
    other = Ledger.open(f"sqlite:///{tmp_path}/other.db", seed.DAEMON, at=seed.START)
    other.close()
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (tmp_path / name).unlink()
    (tmp_path / "other.db").rename(tmp_path / "ledger.db")
    with pytest.raises(LedgerMoved):
        ledger.commit(_batch(transport))
    with pytest.raises(LedgerRegressed, match="another ledger"):
        ledger.probe()


@ON_SQLITE
def test_reader_keeps_a_doubted_commit_from_being_settled(ledger: Ledger, transport: int, tmp_path: Path) -> None:
    """Settling rewrites the log into the database; while somebody reads an old state that cannot be done."""
    with closing(sqlite3.connect(f"file:{tmp_path}/ledger.db?mode=ro", uri=True)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM frames").fetchone()
        (tmp_path / "other").hardlink_to(tmp_path / "ledger.db")
        with pytest.raises(LedgerMoved):
            ledger.commit(_batch(transport))
        (tmp_path / "other").unlink()
        with pytest.raises(CommitHeld, match="reader") as caught:
            ledger.settle(_batch(transport))
        assert str(caught.value.hint).endswith(f": fuser -v {tmp_path}/ledger.db")
    assert ledger.settle(_batch(transport))


def test_settling_another_batch_is_an_error(ledger: Ledger, transport: int) -> None:
    """Only the batch whose outcome is unknown can be settled."""
    with pytest.raises(ValueError, match="not the batch"):
        ledger.settle(_batch(transport))


@pytest.fixture
def proxy(ledger_url: str) -> Iterator[Proxy]:
    """A faulty wire to Postgres."""
    found = re.search(r":(\d+)/", ledger_url)
    assert found is not None
    with Proxy(int(found[1])) as made:
        yield made


@pytest.fixture
def far_ledger(ledger_url: str, proxy: Proxy) -> Iterator[Ledger]:
    """A ledger behind that wire."""
    opened = Ledger.open(re.sub(r":\d+/", f":{proxy.port}/", ledger_url), seed.DAEMON, at=seed.START)
    yield opened
    opened.close()


@ON_POSTGRES
@pytest.mark.parametrize(("fault", "committed"), [("lose_answer", True), ("lose_commit", False)])
def test_lost_commit_is_settled_both_ways(
    far_ledger: Ledger,
    proxy: Proxy,
    fault: Literal["lose_answer", "lose_commit"],
    committed: bool,  # noqa: FBT001  # a parameter of the table
) -> None:
    """The client sees the same error whether the server committed or not; the rows tell."""
    transport = far_ledger.open_transport(seed.new_transport()).id
    far_ledger.commit(_batch(transport))
    proxy.fault = fault
    with pytest.raises(CommitUnknown):
        far_ledger.commit(_batch(transport, 2))
    assert proxy.struck.is_set()
    proxy.fault = "none"
    assert far_ledger.settle(_batch(transport, 2)) is committed
    far_ledger.commit(_batch(transport, 3 if committed else 2))
    assert _count(far_ledger) == (3 if committed else 2)


@ON_POSTGRES
def test_hanging_commit_is_cut_from_another_thread(far_ledger: Ledger, proxy: Proxy) -> None:
    """A server that does not answer is left by shutting the socket, and the outcome is unknown."""
    transport = far_ledger.open_transport(seed.new_transport()).id
    proxy.fault = "swallow"
    caught: list[BaseException] = []

    def commit() -> None:
        try:
            far_ledger.commit(_batch(transport))
        except CommitUnknown as unknown:
            caught.append(unknown)

    thread = threading.Thread(target=commit)
    thread.start()
    assert proxy.struck.wait(20)
    far_ledger.interrupt()
    thread.join(20)
    assert len(caught) == 1
    proxy.fault = "none"
    assert not far_ledger.settle(_batch(transport))


SQLITE_CODES = [
    ("SQLITE_IOERR_FSYNC", "commit", CommitUnknown),
    ("SQLITE_IOERR_FSYNC", "before", CommitUnknown),
    ("SQLITE_IOERR_WRITE", "commit", CommitUnknown),
    ("SQLITE_INTERRUPT", "commit", CommitUnknown),
    ("SQLITE_INTERRUPT", "before", CommitHeld),
    ("SQLITE_PROTOCOL", "commit", CommitUnknown),
    ("SQLITE_FULL", "commit", CommitHeld),
    ("SQLITE_BUSY_SNAPSHOT", "before", CommitHeld),
    ("SQLITE_READONLY_DBMOVED", "before", CommitHeld),
    ("SQLITE_CORRUPT", "before", CommitHeld),
]


@pytest.mark.parametrize(("name", "phase", "kind"), SQLITE_CODES)
def test_sqlite_error_is_told(name: str, phase: Literal["before", "commit"], kind: type[Exception]) -> None:
    """Only codes after which SQLite has certainly rolled back count as not committed."""
    error = sqlite3.OperationalError("words")
    error.sqlite_errorcode = getattr(sqlite3, name)
    error.sqlite_errorname = name
    fault = classify(error, phase)
    assert type(fault) is kind
    assert name in fault.message
    assert fault.hint


POSTGRES_STATES = [
    ("58030", "commit", CommitUnknown),
    ("57P01", "commit", CommitUnknown),
    ("XX000", "commit", CommitUnknown),
    ("08006", "commit", CommitUnknown),
    ("57014", "commit", CommitUnknown),
    (None, "commit", CommitUnknown),
    ("53100", "commit", CommitHeld),
    ("40001", "commit", CommitHeld),
    ("57P01", "before", CommitHeld),
    ("57014", "before", CommitHeld),
    ("42501", "before", CommitHeld),
    ("25006", "before", CommitHeld),
]


@pytest.mark.parametrize(("state", "phase", "kind"), POSTGRES_STATES)
def test_postgres_error_is_told(state: str | None, phase: Literal["before", "commit"], kind: type[Exception]) -> None:
    """Once COMMIT was sent, only an answer that says no counts as not committed."""
    psycopg = pytest.importorskip("psycopg", reason="an extra")
    error = psycopg.OperationalError("words\nvalues of a row")
    error.sqlstate = state
    fault = classify(error, phase)
    assert type(fault) is kind
    assert "values of a row" not in fault.message


@ON_POSTGRES
def test_doubt_survives_another_doubt(far_ledger: Ledger, proxy: Proxy) -> None:
    """A transport whose opening is unknown too does not make the ledger forget the batch it must settle."""
    transport = far_ledger.open_transport(seed.new_transport()).id
    proxy.fault = "lose_answer"
    with pytest.raises(CommitUnknown):
        far_ledger.commit(_batch(transport))
    proxy.fault = "none"
    far_ledger.probe()
    proxy.struck.clear()
    proxy.fault = "lose_answer"
    with pytest.raises(CommitUnknown):
        far_ledger.open_transport(seed.new_transport())
    proxy.fault = "none"
    assert far_ledger.settle(_batch(transport))
    assert far_ledger.open_transport(seed.new_transport()).id > transport


@ON_SQLITE
def test_nothing_is_written_behind_a_log_that_failed(ledger: Ledger, transport: int, tmp_path: Path) -> None:
    """After a flush that may have failed the log is rewritten before any other transaction, or nothing is."""
    with closing(sqlite3.connect(f"file:{tmp_path}/ledger.db?mode=ro", uri=True)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM frames").fetchone()
        (tmp_path / "other").hardlink_to(tmp_path / "ledger.db")
        with pytest.raises(LedgerMoved):
            ledger.commit(_batch(transport))
        (tmp_path / "other").unlink()
        for attempt in (ledger.probe, lambda: ledger.open_transport(seed.new_transport())):
            with pytest.raises(CommitHeld, match="reader"):
                attempt()
    ledger.open_transport(seed.new_transport())
    assert ledger.settle(_batch(transport))
