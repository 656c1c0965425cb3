"""What Linux says about processes, and what it lets us ask of it: `/proc`, `prctl`, pidfds.

What must not be broken here: a signal goes to the process that was looked at, never to another one that got its
number since; so it is sent through a pidfd that was opened before the last look.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TAG: Final = b"ACP_LEDGER_TRANSPORT"
"""The variable by which an agent, and whatever it starts, is known to be ours."""

_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_PROC: Final = Path("/proc")


class Stat(NamedTuple):
    """What `/proc/PID/stat` says. `start_time` is in clock ticks since boot, and with the boot id names a process."""

    pid: int
    state: str
    ppid: int
    pgid: int
    start_time: int

    @property
    def is_dead(self) -> bool:
        """Whether nothing of it runs any more: a zombie waits for its parent alone."""
        return self.state in "ZX"


def hide() -> None:
    """Keep other processes of this user from reading our memory, environment and descriptors.

    Raises:
        OSError: The kernel does not allow it.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of whatever our agents leave behind, so that it can be found and reaped.

    Raises:
        OSError: The kernel does not allow it.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def boot_id() -> str | None:
    """The name of this boot; a start time means nothing in another one."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def cgroup(pid: int) -> str | None:
    """The path of a process in the unified hierarchy."""
    try:
        lines = (_PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)


def stat(pid: int) -> Stat | None:
    """What a process is doing; None when there is none of that number."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # its name comes before, and may hold spaces and brackets
    return Stat(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19]))


def tag(pid: int) -> bytes | None:
    """The value of `TAG` in a process's environment; None when it has none, or we may not look."""
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    prefix = TAG + b"="
    return next((part[len(prefix) :] for part in environ.split(b"\0") if part.startswith(prefix)), None)


def everybody() -> Iterator[Stat]:
    """Every process there is to see."""
    for name in os.listdir(_PROC):  # noqa: PTH208  # hundreds of names, often; a Path for each is waste
        if name.isdigit() and (found := stat(int(name))) is not None:
            yield found


def family(leader: Stat, mark: bytes) -> list[Stat]:
    """The living processes of an agent: its group, its descendants, and whoever carries its mark.

    Once the leader was reaped its number may be a stranger's, and so may the group of that name; then the mark counts.
    """
    living = [each for each in everybody() if not each.is_dead]
    named = stat(leader.pid)
    root = leader.pid if named is None or named.start_time == leader.start_time else -1
    children: dict[int, list[Stat]] = {}
    for each in living:
        children.setdefault(each.ppid, []).append(each)
    found = {each.pid: each for each in living if root in {each.pid, each.pgid}}
    found |= {each.pid: each for each in living if each.pid not in found and tag(each.pid) == mark}
    queue = [root, *found]
    while queue:
        for child in children.get(queue.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                queue.append(child.pid)
    found.pop(os.getpid(), None)
    return list(found.values())


def marked(mark: bytes) -> list[Stat]:
    """The living processes that carry an agent's mark."""
    return [each for each in everybody() if not each.is_dead and tag(each.pid) == mark]


def send(process: Stat, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; False when it is gone or not ours to signal."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = stat(process.pid)
        if now is None or now.start_time != process.start_time:
            return False
        signal.pidfd_send_signal(pidfd, number)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def reap(is_ours: Callable[[int], bool]) -> int:
    """Take the exit status of dead children that nobody waits for; `is_ours` tells whom somebody does wait for."""
    count = 0
    for pid in _children():
        if is_ours(pid):
            continue
        with suppress(ChildProcessError):
            count += os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
    return count


def _children() -> list[int]:
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208  # one name a thread
        with suppress(OSError):
            found += map(int, (_PROC / "self/task" / task / "children").read_bytes().split())
    return found
