"""Plays one side of a recording: says its lines, and waits for the other side's before it goes on.

`replay.py agent|client RECORDING HEARD` says every line of its side byte for byte in the order of the recording, and
keeps what it hears in HEARD. It ends with 1 when it hears anything but the other side's next line. Standard library
only.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

SAYS = {"agent": "agent->client", "client": "client->agent"}


def recorded(path: str) -> list[tuple[str, bytes]]:
    """Direction and exact line of every entry; bytes that are no UTF-8 were recorded as lone surrogates."""
    entries = [json.loads(line) for line in Path(path).read_bytes().split(b"\n") if line]
    return [(entry["dir"], entry["line"].encode("utf-8", "surrogateescape")) for entry in entries]


class Side:
    """One side's ends of the two pipes."""

    def __init__(self, heard: str) -> None:
        self._heard = os.open(heard, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._waiting = b""

    def hears(self, line: bytes) -> bool:
        """Whether the next line is that one."""
        while b"\n" not in self._waiting:
            data = os.read(0, 65536)
            if not data:
                return False
            os.write(self._heard, data)
            self._waiting += data
        first, _newline, self._waiting = self._waiting.partition(b"\n")
        return first == line

    @staticmethod
    def says(line: bytes) -> None:
        """Write the line."""
        view = memoryview(line + b"\n")
        while view:
            view = view[os.write(1, view) :]


def main(side: str, recording: str, heard: str) -> int:
    """Play the side; the agent then waits for the end of its input, as agents do."""
    ends = Side(heard)
    for direction, line in recorded(recording):
        if direction == SAYS[side]:
            ends.says(line)
        elif direction in SAYS.values() and not ends.hears(line):
            return 1
    if side == "agent":
        return int(os.read(0, 1) != b"")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
