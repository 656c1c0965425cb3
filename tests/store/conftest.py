"""Ledgers that are open for writing, for the tests of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acp_ledger.store.ledger import Ledger
from tests.support import seed

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """An empty ledger on each engine."""
    opened = Ledger.open(ledger_url, seed.DAEMON, at=seed.START)
    yield opened
    opened.close()


@pytest.fixture
def transport(ledger: Ledger) -> int:
    """The id of a transport in it."""
    return ledger.open_transport(seed.new_transport()).id
