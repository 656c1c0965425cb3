"""A flush that fails leaves the outcome unknown; the ledger finds out, and has every entry once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import select

from acp_ledger.store import engine, tables, verify
from tests.support.flush_writer import ENTRIES

ROOT: Final = Path(__file__).parent.parent.parent


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace; on Debian and Ubuntu: sudo apt install strace")
@pytest.mark.parametrize("which", [14, 17])
def test_failed_flush_is_settled_and_nothing_is_lost(tmp_path: Path, which: int) -> None:
    """One flush of the log fails with an I/O error: that commit is unknown, is looked up, and is there once."""
    fault = ["-e", "trace=fdatasync,fsync", "-e", f"inject=fdatasync:error=EIO:when={which}"]
    done = subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            *fault,
            sys.executable,
            "-m",
            "tests.support.flush_writer",
            tmp_path,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    ((words, _found),) = json.loads(done.stdout)["settled"]
    assert "SQLITE_IOERR_FSYNC" in words
    with engine.open_reader(f"sqlite:///{tmp_path}/ledger.db").connect() as connection:
        c = tables.tool_call_steps.c
        assert list(connection.execute(select(c.frame_seq)).scalars()) == list(range(1, ENTRIES + 1))
        assert verify.verify(connection).findings == ()
