"""Ledgers with something in them, and hands that tamper with them."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.pool import NullPool

from acp_ledger.protocol.revisions import MAPPING_VERSION
from acp_ledger.store import engine
from acp_ledger.store.ledger import Daemon, Ledger, NewTransport
from tests.support.conversation import START, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from acp_ledger.protocol.records import Entry
    from tests.support.postgres import Cluster

DAEMON: Final = Daemon("d" * 32, "host", 1000)


@pytest.fixture(params=["sqlite", "postgres"], scope="module")
def shared_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a ledger that tests of a module share, once on each engine."""
    return _copied(request, tmp_path_factory.mktemp("shared"))


@pytest.fixture(params=["sqlite", "postgres"], scope="module")
def second_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another one."""
    return _copied(request, tmp_path_factory.mktemp("second"))


def _copied(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), folder / "ledger.db")
        return f"sqlite:///{folder}/ledger.db"
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.create(request.getfixturevalue("postgres_template"))


@contextmanager
def writer(url: str) -> Iterator[Ledger]:
    """The ledger at the URL, made where it is missing."""
    ledger = Ledger.open(url, DAEMON, at=START)
    try:
        yield ledger
    finally:
        ledger.close()


def transport(ledger: Ledger, agent: str = "claude", **options: Any) -> int:
    """Open a transport and give its id."""
    values: dict[str, Any] = {
        "opened_at": START,
        "mode": "relay",
        "agent": agent,
        "argv": ("agent", "--acp"),
        "cwd": "/home/mia/src",
        "mapping_version": MAPPING_VERSION,
        "label": {"team": "billing"},
    }
    return ledger.open_transport(NewTransport(**values | options)).id


def record(url: str, *transports: Sequence[Entry]) -> list[int]:
    """Commit transports, one batch each, and give their ids; without any, one whole conversation."""
    with writer(url) as ledger:
        ids = []
        for entries in transports or (whole(),):
            ids.append(transport(ledger))
            ledger.commit([(ids[-1], entries)])
        return ids


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """A connection that reads, as `ledgerctl` has it."""
    reader = engine.open_reader(url)
    with reader.connect() as connection:
        yield connection
    reader.dispose()


def tamper(url: str, *statements: str, **values: Any) -> None:
    """Change what is stored behind the ledger's back: every guard is taken away first, as who owns the file can."""
    with tampered(url, *statements, **values) as connection:
        connection.commit()


@contextmanager
def tampered(url: str, *statements: str, **values: Any) -> Iterator[Connection]:
    """A connection that sees the ledger tampered with; at the end everything is as it was."""
    owner = sqlalchemy.create_engine(url, poolclass=NullPool)
    with owner.connect() as connection:
        if connection.dialect.name == "sqlite":
            # The driver begins no transaction before it meets DDL.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        _drop_guards(connection)
        for statement in statements:
            changed = connection.execute(text(statement), values)
            if changed.rowcount == 0:
                raise AssertionError(f"nothing was tampered with: {statement}")
        yield connection
        connection.rollback()
    owner.dispose()


def _drop_guards(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
        for name in names:
            connection.execute(text(f'DROP TRIGGER "{name}"'))
        return
    found = connection.execute(
        text("SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0")
    )
    for name, table in found.all():
        connection.execute(text(f'DROP TRIGGER "{name}" ON {table}'))
