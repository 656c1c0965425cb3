"""A login at a terminal through the installed programs, and a daemon that is killed meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.terminals import seated
from tests.system.forked import ForkedDaemon

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_killed_daemon_costs_a_login_nothing_but_its_end(tmp_path: Path) -> None:
    """The command goes on and keeps its status; the next daemon tells the gap, and leaves the command alone too."""
    daemon = ForkedDaemon(tmp_path / "daemon")
    daemon.start()
    try:
        command = ["/bin/sh", "-c", 'while read word; do echo "<$word>"; done; exit 7']
        with seated(daemon.runner(command), env=daemon.environment) as seat:
            seat.type(b"before\n")
            seat.see(b"<before>")
            daemon.kill()
            daemon.start()
            seat.type(b"after\n\x04")
            assert seat.leave()[0] == 7
            assert b"<after>" in seat.seen
        events = daemon.query("SELECT event, close_reason FROM transport_events ORDER BY frame_seq")
        assert events == [("opened", None), ("gap", None), ("interrupted", "daemon_lost")]
        assert daemon.query("SELECT cause, count FROM gaps") == [("terminal", None)]
        assert not daemon.verify().findings
    finally:
        daemon.close()


def test_nothing_is_run_while_the_daemon_cannot_record(tmp_path: Path) -> None:
    """The person reads what to do, the status is 69, and the command never ran."""
    daemon = ForkedDaemon(tmp_path / "daemon", mischief=FULL)
    daemon.start()
    try:
        with seated(daemon.runner(["touch", str(tmp_path / "ran")]), env=daemon.environment) as seat:
            status, screen = seat.leave()
        daemon.kill()  # one that is told to stop would try for a while to write the end
        assert status == 69
        assert b"the disk is full" in screen
        assert b"df -h" in screen
        assert not (tmp_path / "ran").exists()
    finally:
        daemon.close()


FULL = """
from acp_ledger.store.faults import CommitHeld
from acp_ledger.store.ledger import Ledger
def full(self, *_):
    raise CommitHeld("the disk is full", hint="df -h")
Ledger.commit = Ledger.probe = full
import os
os.environ["ACP_LEDGER_FAILURE__HOLD_SECONDS"] = "0.5"
"""
"""A daemon whose disk is full once a transport's row is in."""
