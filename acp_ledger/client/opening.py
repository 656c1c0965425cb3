"""What opening a client needs: the daemon, found as the runner finds it, and what it is told of the agent to start.

What must not be broken here: the agent gets the program's own environment, directory and umask, as it would from a
shell; and nothing is sent before the kernel has said that the listener is our own user (`dial`).
"""

from __future__ import annotations

import os
import socket as sockets
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from acp_ledger import handshake, paths
from acp_ledger.dial import NoDaemon, dial
from acp_ledger.errors import (
    AgentFault,
    AgentNotFound,
    ConfigError,
    DaemonUnreachable,
    ExitCode,
    LedgerError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STARTER: Final = "acp_ledger.client.starter"

_COERCED: Final = {b"C.UTF-8", b"C.utf8", b"UTF-8"}
"""What Python sets `LC_CTYPE` to where it finds no locale (PEP 538)."""

_ERROR_OF: Final[dict[int, type[LedgerError]]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.CONFIG: ConfigError,
    ExitCode.UNREACHABLE: DaemonUnreachable,
    ExitCode.CANNOT_EXECUTE: AgentFault,
    ExitCode.NOT_FOUND: AgentNotFound,
}


def connected(named: str | os.PathLike[str] | None) -> sockets.socket:
    """Connect to the daemon; where none runs, and no socket was named, start one, which takes some seconds at most.

    Raises:
        DaemonUnreachable: There is none, and none could be started.
    """
    try:
        flag = None if named is None else os.fspath(named)
        path, is_default = paths.chosen_socket(os.environ, os.getuid(), flag)
        try:
            return _dialled(path)
        except NoDaemon as missing:
            if not missing.absent:
                raise
            if not is_default:
                raise DaemonUnreachable(str(missing), hint=f"start one with: acp-ledgerd --socket {path}") from missing
        return _dialled(_start())
    except (NoDaemon, paths.PathError) as fault:
        raise DaemonUnreachable(str(fault), hint="ledgerctl doctor") from fault


def _dialled(path: str) -> sockets.socket:
    return sockets.socket(fileno=dial(path).detach())


def _start() -> str:
    """Start a daemon as the runner does, in a process of its own; gives its socket."""
    done = subprocess.run(  # noqa: S603  # our own program; a Ctrl-C is not for it
        [sys.executable, "-P", "-m", _STARTER],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        start_new_session=True,
    )
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip() or f"no daemon could be started ({done.returncode})"
        raise DaemonUnreachable(words, hint="ledgerctl doctor")
    return os.fsdecode(done.stdout)


def greeting_of(
    command: Sequence[str],
    agent: str | None,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    labels: Mapping[str, str],
) -> bytes:
    """What the daemon is told first.

    Raises:
        UsageError: It cannot be told: too long, or no list.
    """
    if isinstance(command, str | bytes):
        raise UsageError("a command is a list: the program, then each of its arguments")
    given = None if env is None else {os.fsencode(key): os.fsencode(value) for key, value in env.items()}
    greeting = handshake.Greeting(
        handshake.PURPOSE_CLIENT,
        argv=map(os.fsencode, command),
        cwd=os.fsencode(_directory(cwd)),
        env=environment() if given is None else given,
        agent=None if agent is None else os.fsencode(agent),
        labels=[(os.fsencode(key), os.fsencode(value)) for key, value in labels.items()],
        pid=os.getpid(),
        ppid=os.getppid(),
        umask=_umask(),
    )
    try:
        return handshake.encode_greeting(greeting)
    except handshake.HandshakeError as fault:
        raise UsageError(str(fault)) from fault


def refusal(told: Mapping[str, Any]) -> LedgerError:
    """The error for a client that the daemon did not open, with the daemon's own status."""
    message, hint, status = str(told.get("error") or "the daemon refused"), told.get("hint"), told.get("status")
    if not isinstance(status, int) or status not in frozenset(ExitCode) - {ExitCode.OK}:
        return LedgerError(message, hint=hint)
    refused = _ERROR_OF.get(status, LedgerError)(message, hint=hint)
    refused.exit_code = ExitCode(status)
    return refused


def _directory(cwd: str | os.PathLike[str] | None) -> str:
    """The directory that is meant, from the root on."""
    try:
        return os.path.abspath("." if cwd is None else cwd)  # noqa: PTH100  # ACP wants no `..`, and no links followed
    except FileNotFoundError:
        raise UsageError("the working directory was removed", hint="go to another, or give one") from None


def environment() -> dict[bytes, bytes]:
    """Give this program's environment, without what the interpreter itself added to it."""
    found = dict(os.environb)
    if found.get(b"LC_CTYPE") in _COERCED and not _began_with(b"LC_CTYPE"):
        del found[b"LC_CTYPE"]
    return found


def _began_with(name: bytes) -> bool:
    """Whether this process was started with that variable."""
    try:
        with open("/proc/self/environ", "rb", 0) as file:  # noqa: PTH123  # the kernel's, not a file of anybody's
            return any(entry.startswith(name + b"=") for entry in file.readall().split(b"\0"))
    except OSError:
        return True


def _umask() -> int | None:
    """Give the umask as the kernel tells it: the C library tells it by setting another, and threads make files."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123  # likewise
            return next((int(line.split()[1], 8) for line in file if line.startswith("Umask:")), None)
    except OSError:
        return None
