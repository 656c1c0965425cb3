"""Agents that outlived their transport: processes that carry its mark, and that no daemon has any more.

What must not be broken here: a process is told of only where its mark is a transport of this very ledger, for other
daemons on this machine have agents of their own; and nobody is ended.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_ledger.ctl.doctor.finding import Finding
from acp_ledger.ctl.doctor.ledger import reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.ctl.doctor.finding import Case

_PROC: Final = Path("/proc")
_MARK: Final = b"ACP_LEDGER_TRANSPORT="
"""How the environment of an agent, and of what it starts, names its transport."""


def survivors(case: Case) -> Iterator[Finding]:
    """No process belongs to a transport of this ledger that the daemon no longer has."""
    from acp_ledger.store import condition

    families: dict[int, list[int]] = {}
    for pid, transport_id in marked():
        if pid != os.getpid():
            families.setdefault(transport_id, []).append(pid)
    held = {each.get("transport_id") for each in (case.daemon or {}).get("transports", ())}
    with reading(case) as connection:
        known = set() if connection is None else condition.known_transports(connection, families.keys() - held)
    for transport_id in sorted(known):
        pids = " ".join(map(str, sorted(families[transport_id])))
        sentence = f"the agent of transport {transport_id} outlived it: {pids}"
        yield Finding("warn", "survivors", sentence, f"look at it, then end it: ps -fp '{pids}'; kill {pids}")
    if not known:
        yield Finding("ok", "survivors", "no agent outlived its transport")


def marked() -> Iterator[tuple[int, int]]:
    """Every process of ours that an agent of the ledger is or started, with its transport."""
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environ = (folder / "environ").read_bytes()
        except OSError:
            continue
        for part in environ.split(b"\0"):
            if part.startswith(_MARK) and (mark := part.removeprefix(_MARK)).isdigit():
                yield int(folder.name), int(mark)
