"""Opening the ledger for reading."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LEAVE_ROWS_UNREAD = """
import sys
from acp_ledger.ctl.options import Options
from acp_ledger.ctl.reading import open_ledger
from acp_ledger.store import queries

with open_ledger(Options(ledger=sys.argv[1])) as connection:
    rows = queries.coverage(connection)
    next(rows)
"""


def test_rows_left_unread_are_nobodys_business(seeded_file: Path) -> None:
    """A reader that stops in the middle, as `| head -1` does, is told nothing about cursors."""
    # In a process of its own: a logger that nobody has set up writes to stderr, and pytest sets one up.
    command = [sys.executable, "-c", LEAVE_ROWS_UNREAD, str(seeded_file)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stderr == b""
