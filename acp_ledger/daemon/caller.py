"""The program whose client the daemon is: what it says, and what it is told, object by object.

What must not be broken here: a caller is told of nothing that is not in the ledger, and one that does not read is
waited for; it is nobody else's delay.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import trio

from acp_ledger import dialogue
from acp_ledger.daemon.client import CallFailed
from acp_ledger.daemon.streams import reply
from acp_ledger.errors import UsageError
from acp_ledger.handshake import HandshakeError

if TYPE_CHECKING:
    from acp_ledger.daemon.streams import Descriptor


OPENING_SECONDS: Final = 10.0
"""How long a caller has to say on which terms it wants a client."""


class Caller:
    """The socket's other end, behind its greeting; `first` is what was read with that."""

    def __init__(self, guest: Descriptor, first: bytes) -> None:
        self._guest = guest
        self._objects = dialogue.ObjectReader()
        self._said: deque[dict[str, Any]] = deque()
        self._first = first
        self._telling = trio.Lock()

    async def receive(self) -> dict[str, Any] | None:
        """The next thing it says; None once it is gone.

        Raises:
            HandshakeError: It talks nonsense.
        """
        while not self._said:
            data, self._first = self._first, b""
            try:
                data = data or await self._guest.receive_some()
            except (OSError, trio.ClosedResourceError):
                return None
            if not data:
                return None
            self._said.extend(self._objects.feed(data))
        return self._said.popleft()

    async def opening(self) -> dict[str, Any]:
        """The first thing it says: on which terms.

        Raises:
            UsageError: It says something else, or nothing in time.
        """
        said: dict[str, Any] | None = None
        with trio.move_on_after(OPENING_SECONDS):
            try:
                said = await self.receive()
            except HandshakeError as fault:
                raise UsageError(str(fault)) from fault
        if said is None or said.get("call") != "open":
            raise UsageError("a caller opens with its terms")
        return said

    async def tell(self, event: str, **fields: Any) -> None:
        """Tell it something. One that is gone hears nothing; that it is gone is seen where it is listened to."""
        async with self._telling:
            try:
                await reply(self._guest, dialogue.encode(event=event, **fields))
            except (OSError, trio.ClosedResourceError):
                return


class Hearing:
    """The caller's replies: told of something with a number, it says what it makes of it."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._number = 0
        self._reply: dict[str, Any] | None = None
        self._came = trio.Event()

    def came(self, reply: dict[str, Any]) -> None:
        """Take a reply. One to something that is over is nothing any more."""
        if reply.get("number") == self._number:
            self._reply = reply
            self._came.set()

    async def hear(self, event: str, seconds: float, **fields: Any) -> dict[str, Any]:
        """Tell the caller, and wait for its reply.

        Raises:
            CallFailed: It failed, or did not come in time.
        """
        self._number += 1
        self._reply, self._came = None, trio.Event()
        with trio.move_on_after(seconds):
            await self._caller.tell(event, number=self._number, **fields)
            await self._came.wait()
        return self._taken(event, seconds)

    def _taken(self, event: str, seconds: float) -> dict[str, Any]:
        if self._reply is None:
            raise CallFailed("observer", f"the program did not take the {event} within {seconds:g} seconds")
        if self._reply.get("error") is not None:
            raise CallFailed("observer", f"the program failed to take the {event}: {self._reply['error']}")
        return self._reply
