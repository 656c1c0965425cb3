"""What every test starts from: no setting of the person who runs them, and a ledger on each engine for who asks.

What must not be broken here: a test that takes `ledger_url` or `database_url` runs on SQLite and on Postgres.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import hypothesis
import pytest

from acp_ledger.store import engine, schema

# Fixtures live where they are imported.
from tests.support.postgres import Cluster, cluster, database_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["cluster", "database_url"]

# How long an example takes says how busy the machine is, and nothing about the property.
hypothesis.settings.register_profile("suite", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("suite")

for _name in [name for name in os.environ if name.startswith("ACP_LEDGER_")]:
    if not _name.startswith("ACP_LEDGER_TEST_"):
        del os.environ[_name]


def _made(url: str) -> str:
    writer = engine.open_writer(url)
    schema.prepare(writer)
    writer.close()
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty ledger, to be copied."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    _made(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(cluster: Cluster) -> str:
    """The name of a database with an empty ledger, to be copied."""
    return _made(cluster.create()).rpartition("/")[2]


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty ledger of the newest schema, once on each engine."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "ledger.db")
        (tmp_path / "ledger.db").chmod(0o600)
        yield f"sqlite:///{tmp_path}/ledger.db"
        return
    server: Cluster = request.getfixturevalue("cluster")
    url = server.create(request.getfixturevalue("postgres_template"))
    yield url
    if server.server is not None:
        server.drop(url)
