"""Stderr that nobody reads, through the installed programs: a pipe that is full, and one whose reader is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import scripted_agent
from tests.system.installed import PATIENCE, daemon_at

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

LINE = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\n'
STEPS = (["stderr", "e" * 1024, 2048], ["send", "ready"], ["stderr", "and more\n"], ["wait", "initialize"])
"""Two megabytes, which is far more than a pipe and every buffer on the way hold, before the first word."""


def test_agent_whose_stderr_nobody_reads_goes_on(tmp_path: Path) -> None:
    """It is never held up, its lines pass in both directions, and its last words are in the ledger."""
    agent = [sys.executable, "-I", scripted_agent.__file__]
    full, closed = os.pipe(), os.pipe()
    os.close(closed[0])
    with daemon_at(tmp_path / "daemon") as daemon:
        for number, stderr in enumerate((full[1], closed[1])):
            steps = [*STEPS, ["send", f"heard {number}"], ["stderr", f"last words {number}"]]
            with subprocess.Popen(
                daemon.runner([*agent, json.dumps(steps)]),
                env=daemon.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            ) as runner:
                output, _ = runner.communicate(LINE, PATIENCE)
            assert output == b"ready\nheard %d\n" % number
            assert runner.returncode == 0
        daemon.wait_for("transport.closed", 2)
        tails = daemon.query("SELECT stderr_tail FROM transport_events WHERE event = 'exited' ORDER BY transport_id")
        for number, (tail,) in enumerate(tails):
            assert tail.endswith(f"eeeeand more\nlast words {number}")
            assert len(tail) == 16 << 10
    for descriptor in (*full, closed[1]):
        os.close(descriptor)
