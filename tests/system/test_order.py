"""Record first, then pass on: with the disk slowed down, with the ledger locked, and row by row in the database."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from acp_ledger.protocol.records import TABLE_OF, Event, Frame
from tests.support.conversation import answer, question
from tests.system.echo import echo
from tests.system.forked import ForkedDaemon
from tests.system.installed import daemon_at
from tests.system.test_kill import Conversation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import Cluster

pytestmark = pytest.mark.slow

DELAY = 0.5
"""Seconds by which a flush of the disk is slowed down under `strace`, so that nothing gets behind it by chance."""

CALLS = "trace=fdatasync,fsync,read,write"
NOTE = b'{"jsonrpc":"2.0","method":"x/idle","params":{}}'


@contextmanager
def slow_disk(pid: int, trace: Path) -> Iterator[None]:
    """Every flush of the process takes DELAY longer, and its reads, flushes and writes are put down in `trace`."""
    if shutil.which("strace") is None:
        reason = "strace is missing; on Debian and Ubuntu: sudo apt install strace"
        if os.environ.get("ACP_LEDGER_TEST_REQUIRE_PEERS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    inject = f"inject=fdatasync,fsync:delay_enter={int(DELAY * 1e6)}"
    command = ["strace", "-f", "-s", "200", "-e", CALLS, "-e", inject, "-o", str(trace), "-p", str(pid)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as strace:
        assert strace.stderr is not None
        assert b"attached" in strace.stderr.readline()
        yield
        strace.terminate()


def _steps(trace: Path) -> list[str]:
    """What a traced daemon did, in order: `read` and `write` of the note, and a `flush` begun and done in between."""
    steps: list[str] = []
    flushing = False
    for call in trace.read_text().splitlines():
        if "x/idle" in call:
            steps += [word for word in ("read", "write") if f" {word}(" in call or f"<... {word} resumed" in call]
        elif "sync(" in call:
            flushing = steps[-1:] == ["read"]
        if "(DELAYED)" in call and steps[-1:] == ["read"] and flushing:
            steps.append("flush")
    return steps


def test_no_line_passes_before_its_flush(tmp_path: Path) -> None:
    """Between reading an idle line and writing it on lies a whole flush of the disk, in either direction."""
    trace = tmp_path / "trace"
    with daemon_at(tmp_path / "daemon") as daemon, echo(daemon, tmp_path) as client:
        with slow_disk(daemon.pid, trace):
            client.pass_line(NOTE)
        assert _steps(trace) == ["read", "flush", "write"] * 2


def test_agent_hears_no_answer_while_the_ledger_is_locked(tmp_path: Path) -> None:
    """With another connection holding the write lock the agent hears nothing of an answer until it lets go."""
    with daemon_at(tmp_path / "daemon") as daemon, echo(daemon, tmp_path) as client:
        asked = question("q1", "call-1")
        client.pass_line(asked)
        with closing(sqlite3.connect(daemon.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            client.say(answer("q1", "yes"))
            daemon.wait_for("ledger.held")
            assert client.agent_heard(seconds=0) is None
            assert daemon.query("SELECT COUNT(*) FROM decisions") == [(0,)]
            other.execute("ROLLBACK")
        heard = client.agent_heard()
        assert heard == answer("q1", "yes")
        decided = daemon.query("SELECT option_id, option_kind, effect, decided_by FROM decisions")
        assert decided == [("yes", "allow_once", "allow", "client")]


FORGETFUL = """
from acp_ledger.store.ledger import Ledger
Ledger.commit = lambda self, batch: None
"""
"""A daemon that says it committed and did not."""


def test_forgetful_daemon_is_noticed(tmp_path: Path) -> None:
    """The negative control: a daemon that does not wait for the ledger passes the answer on although it is locked."""
    daemon = ForkedDaemon(tmp_path / "daemon", mischief=FORGETFUL)
    daemon.start()
    try:
        with echo(daemon, tmp_path) as client:
            client.pass_line(question("q1", "call-1"))
            with closing(sqlite3.connect(daemon.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                client.say(answer("q1", "yes"))
                assert client.agent_heard() is not None
                assert daemon.query("SELECT COUNT(*) FROM decisions") == [(0,)]
                other.execute("ROLLBACK")
    finally:
        daemon.close()


def test_rows_are_of_their_lines_transaction(cluster: Cluster, tmp_path: Path) -> None:
    """On Postgres every derived row was written by the very transaction that wrote its line or event."""
    with daemon_at(tmp_path / "daemon", cluster.create()) as daemon:
        Conversation(daemon, "rows", questions=40).end()
        daemon.wait_for("transport.closed")
        records = (
            "SELECT transport_id, frame_seq, xmin FROM frames UNION ALL"
            " SELECT transport_id, frame_seq, xmin FROM transport_events"
        )
        # Only names from above are put together here.
        transactions = daemon.query(f"SELECT COUNT(DISTINCT xmin::text) FROM ({records}) r")  # noqa: S608  # see above
        assert transactions[0][0] > 20
        compared = 0
        for table in sorted(set(TABLE_OF.values()) - {TABLE_OF[Frame], TABLE_OF[Event]}):
            ((rows, alike),) = daemon.query(
                f"SELECT COUNT(*), COUNT(*) FILTER (WHERE d.xmin = r.xmin) FROM {table} d"  # noqa: S608  # see above
                f" LEFT JOIN ({records}) r USING (transport_id, frame_seq)"
            )
            assert (table, alike) == (table, rows)
            compared += rows
        assert compared > 100
