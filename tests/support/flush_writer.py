"""Commits entries one by one in a process whose flushes fail, settles what is unknown, and says how it went.

Run under `strace -e inject=…` with the folder of the ledger; prints JSON.
"""

from __future__ import annotations

import json
import sys

from acp_ledger.store.faults import CommitUnknown
from acp_ledger.store.ledger import Ledger
from tests.support import seed

ENTRIES = 12


def main() -> None:
    """Write, and tell which commits were unknown and what became of them."""
    ledger = Ledger.open(f"sqlite:///{sys.argv[1]}/ledger.db", seed.DAEMON, at=seed.START)
    transport = ledger.open_transport(seed.new_transport()).id
    script = seed.Seed()
    settled = []
    for _ in range(ENTRIES):
        batch = [(transport, [script.update("tool_call", seed.step("c", "completed"))])]
        try:
            ledger.commit(batch)
        except CommitUnknown as unknown:
            found = ledger.settle(batch)
            settled.append([unknown.message, found])
            if not found:
                ledger.commit(batch)
    ledger.close()
    json.dump({"settled": settled}, sys.stdout)


if __name__ == "__main__":
    main()
