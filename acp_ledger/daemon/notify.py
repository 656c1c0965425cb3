"""What a service manager is told: sd_notify(3), over the datagram socket it names, and the watchdog it asks for.

What must not be broken here: telling never waits and never fails the daemon. What the manager cannot take now goes
with the next word, the newest value of each key. The variables are taken out of the environment when they are read:
they are meant for this process alone.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Final, Self

from acp_ledger import logs

if TYPE_CHECKING:
    from collections.abc import MutableMapping

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

_LATER: Final = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.EINTR})
"""The manager is there and has no room: it gets the same with the next word."""


class Manager:
    """The service manager that started us; a manager without an address hears nothing.

    `watchdog` is the time within which it wants to hear that we live, in seconds; None: it does not watch.
    """

    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        self._address = None if address is None else _socket_address(address)
        self._owed: dict[str, str] = {}
        self._failing = False

    @classmethod
    def of(cls, environ: MutableMapping[str, str], pid: int) -> Self:
        """The manager that this environment names to the process `pid`; its variables are gone afterwards."""
        address, period, watched = (environ.pop(name, "") for name in VARIABLES)
        for_us = watched in {"", str(pid)} and period.isascii() and period.isdigit() and int(period) > 0
        return cls(address or None, int(period) / 1e6 if address and for_us else None)

    @property
    def listens(self) -> bool:
        """Whether anybody is told."""
        return self._address is not None

    def tell(self, **state: str | int) -> None:
        """Tell it this, under sd_notify's own names (`READY=1`); nobody waits for that, and it cannot fail."""
        if self._address is None:
            return
        self._owed |= {name: _line(str(value)) for name, value in state.items()}
        if not self._owed:
            return
        text = "".join(f"{name}={value}\n" for name, value in self._owed.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to_manager:
                to_manager.sendto(text.encode("utf-8", "replace"), self._address)
        except OSError as fault:
            self._failed(fault)
        else:
            self._owed = {}
            self._failing = False

    def _failed(self, fault: OSError) -> None:
        if fault.errno not in _LATER and not self._failing:
            logs.get_logger().warning(logs.MANAGER_UNREACHED, error=fault.strerror)
            self._failing = True


def _socket_address(named: str) -> bytes:
    """A path, or a name in the abstract namespace, which is written with `@` for its NUL."""
    raw = os.fsencode(named)
    return b"\0" + raw[1:] if raw.startswith(b"@") else raw


def _line(text: str) -> str:
    """A value ends at its newline; whatever cannot be shown is spelled out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
