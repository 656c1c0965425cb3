"""Socket activation: the socket a service manager listens on for us (sd_listen_fds(3)).

What must not be broken here: descriptors that were meant for another process are left alone, those that were meant for
us do not reach an agent, and the variables that name them are gone once they were read. A socket that was passed is the
manager's: its file is never taken away.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_ledger.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
FIRST: Final = 3
"""Descriptors are passed from here on."""

NAMES: Final = frozenset({"ledgerd", "acp-ledgerd.socket"})
"""What ours is called where several sockets are passed (`FileDescriptorName=`)."""

MEND: Final = "acp-ledgerd takes one listening Unix stream socket (ListenStream=/a/path); look at its socket unit"


def passed_socket(environ: MutableMapping[str, str], pid: int) -> socket.socket | None:
    """The socket that was passed to the process `pid`; None when none was.

    Raises:
        ConfigError: What was passed is no socket we can listen on, or there are several and none has our name.
    """
    meant_for, count, names = (environ.pop(name, "") for name in VARIABLES)
    if meant_for != str(pid) or not (count.isascii() and count.isdigit()) or int(count) == 0:
        return None
    passed = range(FIRST, FIRST + int(count))
    try:
        for fd in passed:
            os.set_inheritable(fd, False)  # noqa: FBT003  # os takes it by position alone
    except OSError as fault:
        raise ConfigError(f"the socket that was passed is not there: {fault.strerror}", hint=MEND) from fault
    return _checked(_ours(passed, names.split(":")))


def _ours(passed: range, names: list[str]) -> int:
    if len(passed) == 1:
        return passed[0]
    ours = [fd for fd, name in zip(passed, names, strict=False) if name in NAMES]
    if len(ours) != 1:
        raise ConfigError(f"{len(passed)} sockets were passed, and one is wanted", hint=MEND)
    return ours[0]


def _checked(fd: int) -> socket.socket:
    """Take it as a socket, when it is one that listens."""
    try:
        found = socket.socket(fileno=fd)
    except OSError as fault:
        raise ConfigError(f"what was passed is no socket: {fault.strerror}", hint=MEND) from fault
    listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if found.family != socket.AF_UNIX or found.type != socket.SOCK_STREAM or not listens:
        found.detach()
        raise ConfigError("the socket that was passed is not a listening Unix stream socket", hint=MEND)
    return found


def path_of(listener: socket.socket) -> Path | None:
    """Where a socket listens; None where it has no path."""
    name = listener.getsockname()
    return Path(os.fsdecode(name)) if name and not os.fsencode(name).startswith(b"\0") else None
