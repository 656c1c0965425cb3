"""A daemon gets its identity on a Postgres back from a dead one, and takes it from no living one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from sqlalchemy import text

from acp_ledger.errors import LedgerLocked
from acp_ledger.store import holder
from acp_ledger.store.ledger import Ledger
from tests.support import seed
from tests.support.postgres import ON_POSTGRES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

BUSY_DAEMON = """
import sys
from acp_ledger.store.ledger import Ledger
from tests.support import seed
ledger = Ledger.open(sys.argv[1], seed.DAEMON, at=seed.START)
for setting in sys.argv[2:]:
    ledger.reading().exec_driver_sql(setting)
print("busy", flush=True)
ledger.reading().exec_driver_sql("SELECT pg_sleep(1000)")
"""
"""A daemon whose connection is within a statement, as in a flush that does not end, when it is killed."""

NO_LOOKING = ("SET client_connection_check_interval = 0", "SET statement_timeout = 0")
BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"


@contextmanager
def _killed_while_busy(url: str, *settings: str) -> Iterator[Connection]:
    """A connection that looks at a server which still runs a statement of a daemon that was killed."""
    command = [sys.executable, "-c", BUSY_DAEMON, url, *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, _looking(url) as connection:
        assert process.stdout is not None
        assert process.stdout.readline() == b"busy\n"
        while _sleeping(connection) == 0:
            assert process.poll() is None
        process.kill()
        process.wait()
        yield connection


def _sleeping(connection: Connection) -> int:
    return int(connection.execute(text(BACKENDS)).scalar_one())


@contextmanager
def _looking(url: str) -> Iterator[Connection]:
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@ON_POSTGRES
def test_start_ends_what_a_killed_daemon_left(ledger_url: str) -> None:
    """The server still runs a statement of a dead daemon: the next one has it ended, and starts."""
    with _killed_while_busy(ledger_url, *NO_LOOKING) as connection:
        assert _sleeping(connection) == 1
        Ledger.open(ledger_url, seed.DAEMON, at=seed.START).close()
        assert _sleeping(connection) == 0


@ON_POSTGRES
def test_server_notices_a_death_within_a_statement(ledger_url: str) -> None:
    """Nobody needs to come back for the lock of a dead daemon to be given up."""
    with _killed_while_busy(ledger_url, "SET statement_timeout = 0") as connection:
        connection.execute(text("SET statement_timeout = '30s'"))
        key = {"key": holder.key_of(seed.DAEMON.daemon_id)}
        connection.execute(text("SELECT pg_advisory_lock(:key)"), key)  # comes back once the dead one's is gone


@ON_POSTGRES
def test_lost_connection_of_our_own_is_ended(ledger_url: str) -> None:
    """A daemon whose connection broke does not wait for the server to notice."""
    with closing(Ledger.open(ledger_url, seed.DAEMON, at=seed.START)) as ledger, _looking(ledger_url) as connection:
        ledger.probe()
        first = ledger._writer
        assert first is not None
        backend = first.driver.info.backend_pid
        ledger._writer = None  # as after a failure, but for the connection, which the server believes in
        ledger.probe()
        known = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
        assert connection.execute(known, {"pid": backend}).scalar_one() == 0
        first.close()


def _named(name: str) -> dict[str, Any]:
    return {"connect_args": {"application_name": name}, "isolation_level": "AUTOCOMMIT"}


@ON_POSTGRES
@pytest.mark.parametrize(
    "name",
    [
        f"acp-ledgerd {os.getpid()}@{socket.gethostname()} {holder._started(os.getpid())}",
        f"acp-ledgerd {os.getpid()}@another-machine 1",
        "psql",
    ],
    ids=["living", "elsewhere", "stranger"],
)
def test_connection_that_may_live_is_left_alone(ledger_url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that runs, or of which this machine knows nothing, the lock is respected and its holder named."""
    monkeypatch.setattr(holder, "ATTEMPTS", 1)
    engine = sqlalchemy.create_engine(ledger_url, **_named(name))
    with engine.connect() as connection:
        key = {"key": holder.key_of(seed.DAEMON.daemon_id)}
        connection.execute(text("SELECT pg_advisory_lock(:key)"), key)
        with pytest.raises(LedgerLocked, match=name.rpartition(" ")[0] or name):
            Ledger.open(ledger_url, seed.DAEMON, at=seed.START)
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    engine.dispose()


def test_number_of_a_process_that_was_given_again_is_told_apart() -> None:
    """A number says who runs only together with a start time."""
    here = holder.application_name()
    started = here.rpartition(" ")[2]
    assert not holder._is_gone(here)
    assert holder._is_gone(here.removesuffix(started) + "1")


def test_name_fits_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with a long name is cut where the server would cut the start time."""
    monkeypatch.setattr(socket, "gethostname", lambda: "host" * 16)
    name = holder.application_name()
    assert len(name) == holder.NAME_BYTES
    assert not holder._is_gone(name)
    assert holder._is_gone(name[:-1] + str(9 - int(name[-1])))
