"""One daemon for all behaviours that need one, and what its ledger has of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.system.installed import InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.client import Client


class House:
    """A running daemon, and its ledger."""

    def __init__(self, daemon: InstalledDaemon) -> None:
        self.socket = daemon.socket
        self.folder = daemon.folder
        self._daemon = daemon

    def query(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Rows of the ledger."""
        return [tuple(row) for row in self._daemon.query(statement, **values)]

    def rows(self, client: Client, select: str) -> list[tuple[Any, ...]]:
        """Rows of this client's: a statement up to its WHERE, in the order of the numbers."""
        return self.query(f"{select} WHERE transport_id = :id ORDER BY frame_seq", id=client.transport_id)

    def said(self, client: Client) -> list[bytes]:
        """The lines that were written to the agent."""
        return self._daemon.lines(client.transport_id, "client_to_agent").splitlines()


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A daemon that lasts for all of them."""
    with daemon_at(tmp_path_factory.mktemp("src")) as daemon:
        yield House(daemon)
