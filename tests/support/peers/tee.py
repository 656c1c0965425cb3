"""Stands between two peers, passes every byte on, and keeps what passed in each direction.

`tee.py FOLDER -- COMMAND [ARG…]` writes `FOLDER/to_agent` and `FOLDER/to_client`. Standard library only: some clients
start it with an environment of six variables. It ends with the command's status.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path


def copy(source: int, target: int, kept: Path) -> None:
    """Pass bytes on until the source ends, then close the target; every byte is kept before it is passed on."""
    with kept.open("ab", buffering=0) as file:
        while data := os.read(source, 65536):
            file.write(data)
            try:
                _write(target, data)
            except BrokenPipeError:
                break
    os.close(target)


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def main() -> int:
    """Run the command between the two copies."""
    folder, command = Path(sys.argv[1]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if agent.stdin is None or agent.stdout is None:
        return 1
    to_agent = threading.Thread(
        target=copy, args=(0, os.dup(agent.stdin.fileno()), folder / "to_agent"), daemon=True, name="to agent"
    )
    agent.stdin.close()
    to_agent.start()
    copy(agent.stdout.fileno(), os.dup(1), folder / "to_client")
    status = agent.wait()
    os.close(1)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    os._exit(main())
