"""Connects to the daemon's socket, sure of who listens there.

The rule that must not be broken here: no byte is sent before the kernel has said that the listener runs under our own
user id, for a greeting carries the whole environment of an editor.
"""

from __future__ import annotations

import _socket
import os
import sys

_CREDENTIALS = 12
"""Size of Linux's ``struct ucred``: pid, uid and gid as C integers."""


class NoDaemon(Exception):
    """No daemon of ours answers on the socket; the text is a sentence for people.

    Attributes:
        absent: Nobody listens there, so that a daemon may be started. False where somebody does who is not ours.
    """

    def __init__(self, sentence: str, *, absent: bool = False) -> None:
        super().__init__(sentence)
        self.absent = absent


def dial(path: str) -> _socket.socket:
    """Connect to the daemon at ``path``; the socket given is blocking.

    Raises:
        NoDaemon: Nobody listens there, it may not be used, or another user listens.
    """
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC, 0)
    try:
        connection.connect(path)
        _check_listener(connection, path)
    except OSError as failure:
        connection.close()
        absent = isinstance(failure, (FileNotFoundError, ConnectionRefusedError))
        raise NoDaemon(f"no daemon listens on {path} ({failure.strerror})", absent=absent) from failure
    except NoDaemon:
        connection.close()
        raise
    return connection


def _check_listener(connection: _socket.socket, path: str) -> None:
    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS)
    owner = int.from_bytes(credentials[4:8], sys.byteorder)
    if owner != os.getuid():
        raise NoDaemon(f"user id {owner} listens on {path}, not yours; nothing was sent. Look with: ls -l {path}")
