"""Programs that are a client through the daemon: an observer that keeps what it hears, and clients in each state."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from acp_ledger.client import (
    CallFailed,
    Client,
    Observer,
    PermissionReply,
    PermissionRequest,
    Update,
    open_client,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from tests.sources.conftest import House

PATIENCE = 20.0


class Journal(Observer):
    """Keeps what it hears, in order; answers with `reply`, and fails where it is told to, from that many on.

    `meanwhile` runs while a client waits for what it says to an update or a question.
    """

    def __init__(
        self,
        reply: PermissionReply | None = None,
        *,
        fails: str = "",
        after: int = 0,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.heard: list[Update | PermissionRequest] = []
        self.asked: list[PermissionRequest] = []
        self._reply = reply
        self._fails = fails
        self._after = after
        self._meanwhile = meanwhile

    @property
    def updates(self) -> list[Update]:
        """The updates."""
        return [each for each in self.heard if isinstance(each, Update)]

    @property
    def decided(self) -> list[PermissionRequest]:
        """The decisions."""
        return [each for each in self.heard if isinstance(each, PermissionRequest)]

    async def update(self, update: Update) -> None:
        """Keep it."""
        self.heard.append(update)
        await self._do("update")

    async def answer(self, request: PermissionRequest) -> PermissionReply | None:
        """Answer."""
        self.asked.append(request)
        await self._do("answer")
        return self._reply

    async def commit(self, request: PermissionRequest) -> None:
        """Keep it."""
        self.heard.append(request)
        await self._do("commit")

    async def _do(self, where: str) -> None:
        if self._meanwhile is not None and where != "commit":
            await self._meanwhile()
        if self._fails == where and len(self.heard) > self._after:
            raise OSError("the journal is full")


@asynccontextmanager
async def opened(house: House, command: Sequence[str], **terms: Any) -> AsyncIterator[Client]:
    """A client that is not started."""
    with trio.fail_after(PATIENCE):
        async with open_client(command, socket=house.socket, **terms) as client:
            yield client


@asynccontextmanager
async def started(house: House, command: Sequence[str], **terms: Any) -> AsyncIterator[Client]:
    """A client with a session."""
    async with opened(house, command, **terms) as client:
        await client.start()
        yield client


async def failed(client: Client, *blocks: Any) -> CallFailed:
    """How a prompt fails."""
    with pytest.raises(CallFailed) as caught:
        await client.prompt(*(blocks or ("go",)))
    return caught.value
