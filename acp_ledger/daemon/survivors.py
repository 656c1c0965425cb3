"""Agents that outlived a daemon that died: ended where they are proven to be ours, else reported.

What must not be broken here: a process is ended only when its number, start time, boot and control group are all
those of the process that was started; a number alone names nobody.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from acp_ledger import logs
from acp_ledger.daemon import processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acp_ledger.store.recovery import Process, Recovered

TERM_SECONDS: Final = 1.0
KILL_SECONDS: Final = 1.0


def end(left: Iterable[Recovered]) -> None:
    """End what is left of these transports' agents; blocks for two seconds at most."""
    log = logs.get_logger()
    living: list[processes.Stat] = []
    for each in left:
        family = _family(each.process, b"%d" % each.transport_id) if each.process is not None else []
        if family:
            log.warning(logs.AGENT_SURVIVED, transport_id=each.transport_id, processes=len(family))
        living += family
        strangers = [found.pid for found in processes.marked(b"%d" % each.transport_id) if found not in family]
        if strangers:
            log.error(logs.AGENT_SURVIVED, transport_id=each.transport_id, processes=len(strangers), reason="unproven")
    if living:
        _end(living)
        log.warning(logs.AGENT_SWEPT, processes=len(living))


def is_proven(process: Process) -> bool:
    """Whether the process that was started is the one that now has its number."""
    found = processes.stat(process.pid)
    return (
        found is not None
        and not found.is_dead
        and process.boot_id is not None
        and (process.start_time, process.boot_id) == (found.start_time, processes.boot_id())
        and process.cgroup == processes.cgroup(process.pid)
    )


def _family(process: Process, mark: bytes) -> list[processes.Stat]:
    leader = processes.stat(process.pid)
    return processes.family(leader, mark) if leader is not None and is_proven(process) else []


def _end(living: Sequence[processes.Stat]) -> None:
    for number, patience in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        poll = select.poll()
        pidfds = []
        for each in living:
            with suppress(OSError):
                pidfds.append(os.pidfd_open(each.pid))
                poll.register(pidfds[-1], select.POLLIN)
            processes.send(each, number)
        _await(poll, len(pidfds), patience)
        for pidfd in pidfds:
            os.close(pidfd)


def _await(poll: select.poll, count: int, seconds: float) -> None:
    """Wait until `count` processes have ended; a poll that tells of none has waited in vain."""
    while count and (ended := poll.poll(seconds * 1000)):
        for pidfd, _ in ended:
            poll.unregister(pidfd)
        count -= len(ended)
