"""What the daemon's tests start from: a home of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.daemon.house import House, open_house

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
async def house(ledger_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """A running daemon, once on each engine."""
    async with open_house(ledger_url, tmp_path) as house:
        yield house


@pytest.fixture
async def sqlite_house(tmp_path: Path) -> AsyncIterator[House]:
    """A running daemon on SQLite, for what the engine has no part in."""
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path) as house:
        yield house
