"""The daemon's door: one Unix socket, for runners and for `ledgerctl`.

What must not be broken here: only processes of the daemon's own user are heard; a greeting is bounded in size and in
time, and whoever connects, says nothing or talks nonsense costs nobody else anything. A socket file is taken away only
when nobody listens behind it and it is ours.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from acp_ledger import dialogue, handshake, logs, paths
from acp_ledger.daemon.opening import Peer
from acp_ledger.daemon.streams import Budget, Descriptor, RunnerOutlet, reply
from acp_ledger.errors import ConfigError, LedgerError, LedgerLocked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from acp_ledger.handshake import Greeting

GREETING_SECONDS: Final = 10.0
"""A greeting that takes longer is none."""

BACKLOG: Final = 64
PAUSE_SECONDS: Final = 0.1
"""After an accept that failed for want of descriptors or memory; connections wait in the backlog meanwhile."""

_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PEERCRED: Final = struct.Struct("3i")


@contextmanager
def listening(at: Path | socket.socket) -> Iterator[socket.socket]:
    """Listen on a Unix socket that only we may connect to, and that is gone afterwards; or on one that was passed.

    Raises:
        ConfigError: The path cannot be that of a socket, or others may write to its directory.
        LedgerLocked: Another daemon listens there.
    """
    if isinstance(at, socket.socket):
        with at:
            yield at
        return
    path = at
    try:
        paths.check_socket_path(str(path))
        paths.make_private_directory(str(path.parent), os.getuid())
    except paths.PathError as fault:
        raise ConfigError(str(fault)) from fault
    with socket.socket(socket.AF_UNIX) as listener:
        _bind(listener, path)
        mine = path.lstat()
        try:
            yield listener
        finally:
            with suppress(OSError):
                now = path.lstat()
                if (now.st_dev, now.st_ino) == (mine.st_dev, mine.st_ino):
                    path.unlink()


def _bind(listener: socket.socket, path: Path) -> None:
    """Listen, and only then appear at `path`: whoever finds a socket there and is refused takes it for a dead one's."""
    _remove_stale(path)
    draft = path.with_name(f".{os.getpid()}")
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{draft.name}")  # always short enough for a socket's address
        draft.chmod(0o600)
        listener.listen(BACKLOG)
        draft.rename(path)
    except OSError as fault:
        raise ConfigError(
            f"cannot listen on {path}: {fault.strerror}", hint="name another socket with --socket"
        ) from fault
    finally:
        os.close(folder)


def _remove_stale(path: Path) -> None:
    """Take away the socket of a daemon that is no more. The instance lock is held, so nobody else does the same."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise ConfigError(f"{path} exists and is no socket of ours", hint=f"look at it: ls -l {path}")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            logs.get_logger().info(logs.SOCKET_REPLACED, socket=str(path))
            return
        except OSError:
            pass  # somebody listens and is busy
    raise LedgerLocked(f"another daemon listens on {path}", hint="talk to it: ledgerctl status")


class Door:
    """Takes connections, and hands each to whoever it is for."""

    def __init__(
        self,
        run: Callable[[Greeting, Peer, Descriptor, bytes], Awaitable[None]],
        answer: Callable[[Mapping[str, Any], Peer], Awaitable[dict[str, Any]]],
    ) -> None:
        self._run = run
        self._answer = answer
        self._log = logs.get_logger()

    async def serve(
        self,
        listener: socket.socket,
        guests: trio.Nursery,
        *,
        task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept connections until the scope it reports is cancelled; each lives in `guests` and outlives this."""
        listener.setblocking(False)  # noqa: FBT003  # likewise
        with trio.CancelScope() as accepting:
            task_status.started(accepting)
            await self._accept(listener, guests)

    async def _accept(self, listener: socket.socket, guests: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                guest, _ = listener.accept()
            except OSError as fault:
                if fault.errno in _SHORTAGES:
                    self._log.error(logs.PEER_FAILED, error=fault.strerror)
                    await trio.sleep(PAUSE_SECONDS)
                continue  # otherwise whoever knocked has left
            peer = _peer(guest)
            if peer.uid != os.getuid():
                self._log.warning(logs.PEER_REFUSED, uid=peer.uid, pid=peer.pid)
                guest.close()
                continue
            guests.start_soon(self._receive, Descriptor(guest.detach()), peer)

    async def _receive(self, guest: Descriptor, peer: Peer) -> None:
        try:
            await self._greet(guest, peer)
        except (OSError, trio.ClosedResourceError):
            self._log.debug(logs.PEER_FAILED, pid=peer.pid)  # it left
        finally:
            guest.close()

    async def _greet(self, guest: Descriptor, peer: Peer) -> None:
        reader = handshake.GreetingReader()
        greeting = None
        try:
            with trio.fail_after(GREETING_SECONDS):
                while greeting is None:
                    if not (data := await guest.receive_some()):
                        return
                    greeting = reader.feed(data)
            if greeting.purpose == handshake.PURPOSE_CONTROL:
                await self._control(guest, peer, reader.rest)
                return
        except trio.TooSlowError:
            self._log.warning(logs.PEER_REFUSED, pid=peer.pid, reason="slow")
            return
        except handshake.HandshakeError as fault:
            self._log.warning(logs.PEER_REFUSED, pid=peer.pid, reason="malformed")
            refuse(guest, str(fault))
            return
        await self._run(greeting, peer, guest, reader.rest)

    async def _control(self, guest: Descriptor, peer: Peer, first: bytes) -> None:
        with trio.fail_after(GREETING_SECONDS):
            request = await _request(guest, first)
        if request is None:
            return
        try:
            packet = dialogue.encode_answer(**await self._answer(request, peer))
        except LedgerError as fault:
            packet = dialogue.encode_refusal(fault.message, fault.hint, int(fault.exit_code))
        with trio.fail_after(GREETING_SECONDS):
            await reply(guest, packet)
        self._log.debug(logs.CONTROL_ANSWERED, request=str(request.get("request")))


async def _request(guest: Descriptor, first: bytes) -> dict[str, Any] | None:
    """Read a control request; None when whoever asked has left."""
    reader = dialogue.ControlReader()
    request = reader.feed(first)
    while request is None:
        if not (data := await guest.receive_some()):
            return None
        request = reader.feed(data)
    return request


def refuse(guest: Descriptor, sentence: str, status: int = handshake.EXIT_UNAVAILABLE) -> None:
    """Tell a runner why it cannot be served; a fresh socket takes that much at once."""
    RunnerOutlet(guest, Budget(1, 1)).refuse(sentence, status)


def _peer(guest: socket.socket) -> Peer:
    return Peer(*_PEERCRED.unpack(guest.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)))
