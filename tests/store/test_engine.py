"""A writer is handed out only where the database keeps what it commits, and no error tells a password."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from acp_ledger.errors import DatabaseRefused, LedgerLocked, NoLedger
from acp_ledger.store import engine, files
from acp_ledger.store.files import InstanceLock
from acp_ledger.store.ledger import Ledger
from acp_ledger.store.writer import Writer
from tests.support import seed
from tests.support.postgres import ON_POSTGRES, ON_SQLITE

if TYPE_CHECKING:
    from tests.support.postgres import Cluster


def _pragma(writer: Writer, name: str) -> Any:
    return writer.driver.execute(f"PRAGMA {name}").fetchone()[0]


@pytest.mark.parametrize(("synchronous", "level"), [("full", 2), ("normal", 1)])
def test_sqlite_settings_are_read_back(tmp_path: Path, synchronous: engine.Synchronous, level: int) -> None:
    """A fresh ledger syncs every commit, overwrites what is deleted, and keeps its log within bounds."""
    writer = engine.open_writer(f"sqlite:///{tmp_path}/ledger.db", synchronous)
    with closing(writer):
        assert (_pragma(writer, "journal_mode"), _pragma(writer, "synchronous")) == ("wal", level)
        assert _pragma(writer, "secure_delete") == 1
        assert _pragma(writer, "wal_autocheckpoint") == engine.CHECKPOINT_PAGES


def test_setting_that_does_not_stick_is_refused() -> None:
    """Where SQLite answers something else than what was asked for, the connection is not used."""
    writer = Writer(create_engine("sqlite://"), None)
    with closing(writer), pytest.raises(DatabaseRefused, match="journal_mode = WAL: it reads back as 'memory'"):
        engine._set_sqlite(writer, "full")


def test_ledger_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    """Directory, database, log and shared memory are made without rights for others, whatever the umask."""
    before = os.umask(0)
    try:
        ledger = Ledger.open(f"sqlite:///{tmp_path}/deep/er/ledger.db", seed.DAEMON, at=seed.START)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "deep/er").iterdir()}
    ledger.close()
    assert set(modes) == {"ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.lock"}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "deep/er").stat().st_mode) == 0o700


def _link(path: Path) -> None:
    path.with_name("real.db").touch(0o600)
    path.symlink_to("real.db")


def _dangling(path: Path) -> None:
    path.symlink_to("nothing.db")


def _second_name(path: Path) -> None:
    path.touch(0o600)
    path.with_name("second.db").hardlink_to(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _writable(path: Path) -> None:
    path.touch()
    path.chmod(0o666)


def _not_sqlite(path: Path) -> None:
    path.write_bytes(b"something else entirely" * 100)
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_link, "symbolic link"),
        (_second_name, "2 names"),
        (_folder, "is a directory"),
        (_writable, "others may write"),
        (_not_sqlite, "not a database"),
    ],
)
def test_unsafe_file_is_refused(tmp_path: Path, make: Any, words: str) -> None:
    """A file that is not the ledger's alone is not written to, and the error says what mends it."""
    make(tmp_path / "ledger.db")
    with pytest.raises(DatabaseRefused, match=words) as caught:
        engine.open_writer(f"sqlite:///{tmp_path}/ledger.db")
    assert caught.value.hint
    assert caught.value.exit_code == 12


@pytest.mark.parametrize(("make", "words"), [(_folder, "is a directory"), (_dangling, "symbolic link")])
def test_reader_refuses_what_is_no_file_as_the_daemon_does(tmp_path: Path, make: Any, words: str) -> None:
    """A directory, and a link that leads nowhere, are called by the same words and mended by the same hint."""
    make(tmp_path / "ledger.db")
    hints = []
    for call in (engine.open_reader, engine.open_writer):
        with pytest.raises(DatabaseRefused, match=words) as caught:
            call(f"sqlite:///{tmp_path}/ledger.db")
        hints.append(caught.value.hint)
    assert hints[0] == hints[1]


def test_reader_follows_a_link_to_a_file(tmp_path: Path) -> None:
    """Only a writer needs the ledger's own path; who reads may come by another."""
    engine.open_writer(f"sqlite:///{tmp_path}/real.db").close()
    (tmp_path / "link.db").symlink_to("real.db")
    engine.open_reader(f"sqlite:///{tmp_path}/link.db").dispose()


def test_open_directory_is_refused(tmp_path: Path) -> None:
    """Where everybody may replace files, no ledger is made."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(DatabaseRefused, match="everybody may replace"):
        engine.open_writer(f"sqlite:///{folder}/ledger.db")
    folder.chmod(0o1777)
    engine.open_writer(f"sqlite:///{folder}/ledger.db").close()


MOUNTS = """
21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /home rw,relatime shared:7 - nfs4 server:/home rw
31 30 0:41 / /home/a\\040b rw - xfs /dev/sdb rw
32 21 0:42 / /data - 9p share rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/var/lib", "ext4"), ("/home", "nfs4"), ("/home/mia", "nfs4"), ("/homework", "ext4"), ("/home/a b/c", "xfs")],
)
def test_filesystem_is_that_of_the_nearest_mount(folder: str, kind: str) -> None:
    """The deepest mount above a folder counts, and names are compared whole."""
    assert files.filesystem(Path(folder), MOUNTS) == kind


def test_network_filesystem_is_refused(tmp_path: Path) -> None:
    """On a network filesystem the log of SQLite is not safe, and the error names the ways out."""
    mounts = MOUNTS + f"40 21 0:50 / {tmp_path} rw - nfs server:/x rw\n"
    with pytest.raises(DatabaseRefused, match="network filesystem") as caught:
        files.refuse_network(tmp_path, mounts)
    assert "Postgres" in str(caught.value.hint)


def test_missing_ledger_is_not_made_by_a_reader(tmp_path: Path) -> None:
    """Who only reads a ledger that is not there is told so, and leaves nothing behind."""
    with pytest.raises(NoLedger) as caught:
        engine.open_reader(f"sqlite:///{tmp_path}/ledger.db")
    assert caught.value.exit_code == 10
    assert str(caught.value.hint).startswith("put acp-ledger-run before the agent's command, or start acp-ledgerd")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://u:secret@h/d", "nonsense"])
def test_other_addresses_are_refused(url: str) -> None:
    """A ledger is a file or Postgres; what else there is gets an error that tells no secret."""
    with pytest.raises(DatabaseRefused) as caught:
        engine.open_writer(url)
    assert "secret" not in str(caught.value)


def test_reader_cannot_write(ledger: Ledger, ledger_url: str, transport: int) -> None:
    """What reads the ledger is refused every write by the database, while the daemon writes."""
    reader = engine.open_reader(ledger_url)
    with reader.connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM transports")).scalar_one() == 1
        for statement in ("INSERT INTO daemons VALUES ('d', 'acp/none', 'h', 1, 1)", "CREATE TABLE x (y INTEGER)"):
            with pytest.raises(DBAPIError, match=r"read-?only"):
                connection.execute(text(statement))
            connection.rollback()
    reader.dispose()
    ledger.commit([(transport, seed.conversation())])


@ON_SQLITE
def test_lock_names_its_holder(ledger: Ledger, tmp_path: Path) -> None:
    """The second daemon hears the process id of the first, whatever name leads to the file."""
    assert ledger.durability == "power"
    (tmp_path / "way").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(LedgerLocked, match=f"pid {os.getpid()}"):
        InstanceLock(tmp_path / "way" / "ledger.db")


@ON_SQLITE
def test_lock_that_was_deleted_is_not_held_twice(ledger: Ledger, tmp_path: Path) -> None:
    """A lock file made anew is another lock; the ledger itself is still guarded by its one writer's transactions."""
    assert ledger.durability == "power"
    (tmp_path / "ledger.db.lock").unlink()
    with InstanceLock(tmp_path / "ledger.db"), pytest.raises(LedgerLocked):
        InstanceLock(tmp_path / "ledger.db")


def test_old_sqlite_is_told() -> None:
    """A SQLite with the bug that corrupts shared logs is named; a fixed one is not."""
    warning = engine.sqlite_warning()
    assert (warning is None) == (sqlite3.sqlite_version_info >= engine.SAFE_SQLITE)
    assert warning is None or sqlite3.sqlite_version in warning


def test_postgres_settings_are_read_back(cluster: Cluster) -> None:
    """A role that turned off synchronous commits writes durably all the same, and waits for nothing long."""
    url = cluster.create()
    writer = engine.open_writer(url + "?options=-csynchronous_commit%3Doff")
    with closing(writer):
        shown = {
            name: engine._show(writer, name) for name in ("synchronous_commit", "lock_timeout", "statement_timeout")
        }
    assert shown == {"synchronous_commit": "on", "lock_timeout": "1s", "statement_timeout": "8s"}
    cluster.drop(url)


def test_normal_is_refused_on_postgres() -> None:
    """Less than a durable commit is for SQLite alone; the server is not even asked."""
    with pytest.raises(DatabaseRefused, match="synchronous = normal"):
        engine.open_writer("postgresql://nobody@127.0.0.1:1/none", "normal")


def test_setting_a_server_must_have_is_named() -> None:
    """What cannot be set for a connection alone is named with the line that mends it."""
    fault = engine._setting_fault("fsync", "off", {"on"})
    assert "fsync = off" in fault.message
    assert "fsync = on" in str(fault.hint)


@ON_POSTGRES
def test_read_only_postgres_is_refused(ledger_url: str) -> None:
    """A standby, or a role that may only read, is no place to write."""
    with pytest.raises(DatabaseRefused, match=r"read-?only"):
        engine.open_writer(ledger_url + "?options=-cdefault_transaction_read_only%3Don")


@pytest.mark.parametrize("call", [engine.open_writer, engine.open_reader])
def test_no_error_shows_the_password(call: Any) -> None:
    """A server that cannot be reached is named without the password."""
    pytest.importorskip("psycopg", reason="an extra")
    with pytest.raises(DatabaseRefused) as caught:
        call("postgresql://mia:s3cret-canary@127.0.0.1:1/ledger")
    whole = f"{caught.value} {caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"
    assert "s3cret-canary" not in whole
    assert "mia" in whole


@pytest.mark.parametrize(("call", "right"), [(engine.open_writer, "may write"), (engine.open_reader, "may connect")])
def test_unreachable_postgres_is_named_as_it_was_given(call: Any, right: str) -> None:
    """The options we add are nobody's concern, and who only reads is not sent to look for a right to write."""
    pytest.importorskip("psycopg", reason="an extra")
    with pytest.raises(DatabaseRefused, match="postgresql") as caught:
        call("postgresql://mia@127.0.0.1:1/ledger")
    assert "127.0.0.1:1/ledger cannot be opened" in caught.value.message
    assert right in str(caught.value.hint)
