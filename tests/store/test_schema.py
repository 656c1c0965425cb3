"""Who may write to a schema, and how one is made and upgraded."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import DBAPIError

from acp_ledger.errors import LedgerLocked, NoLedger, SchemaDiffers
from acp_ledger.store import engine, partitions, schema, tables
from acp_ledger.store.ledger import Ledger
from acp_ledger.store.verify import verify
from tests.support import seed
from tests.support.conversation import whole
from tests.support.ledgers import reading, transport, writer
from tests.support.postgres import ON_POSTGRES, ON_SQLITE

if TYPE_CHECKING:
    from pathlib import Path


def _pretend(url: str, revision: str, compat: str = "0001") -> None:
    """Make a ledger look as if another version of the program had migrated it."""
    with closing(engine.open_writer(url)) as writer:
        state = schema.current(writer.connection)
        assert state is not None
        writer.connection.execute(text("UPDATE alembic_version SET version_num = :number"), {"number": revision})
        row = {
            "ordinal": 1,
            "protocol_revision": "acp/none",
            "ledger_id": state.ledger_id,
            "created_at": 1,
            "schema_revision": revision,
            "compat": compat,
            "software": "acp-ledger 9",
        }
        writer.connection.execute(insert(tables.ledger), row)


def test_missing_schema_is_made(database_url: str) -> None:
    """The daemon makes a ledger where there is none, with an id of its own."""
    first = Ledger.open(database_url, seed.DAEMON, at=1)
    made = first.ledger_id
    first.close()
    assert len(made) == 16
    again = Ledger.open(database_url, seed.DAEMON, at=1)
    assert again.ledger_id == made
    again.close()
    assert schema.check(database_url) == []


def test_older_schema_is_refused_with_the_command(ledger_url: str) -> None:
    """The daemon changes no schema that exists; it says what to run."""
    _pretend(ledger_url, "0000")
    with pytest.raises(SchemaDiffers) as caught:
        Ledger.open(ledger_url, seed.DAEMON, at=1)
    assert caught.value.hint == "ledgerctl db upgrade"
    assert caught.value.exit_code == 13
    with pytest.raises(SchemaDiffers):
        schema.check(ledger_url)


def test_newer_compatible_schema_is_written_to(ledger_url: str) -> None:
    """A ledger a newer program widened is still written to, as long as it says so."""
    _pretend(ledger_url, "0002", compat=schema.HEAD)
    opened = Ledger.open(ledger_url, seed.DAEMON, at=1)
    opened.commit([(opened.open_transport(seed.new_transport()).id, seed.conversation())])
    opened.close()


def test_newer_schema_is_refused(ledger_url: str) -> None:
    """Once the old shape is gone, an old program may not write."""
    _pretend(ledger_url, "0002", compat="0002")
    with pytest.raises(SchemaDiffers, match="0002"):
        Ledger.open(ledger_url, seed.DAEMON, at=1)
    with pytest.raises(SchemaDiffers):
        schema.upgrade(ledger_url)


def test_refused_ledger_is_let_go_of(ledger_url: str) -> None:
    """A daemon that was refused leaves no lock behind."""
    _pretend(ledger_url, "0002", compat="0002")
    for _ in range(2):
        with pytest.raises(SchemaDiffers):
            Ledger.open(ledger_url, seed.DAEMON, at=1)


def test_upgrade_of_the_newest_changes_nothing(ledger_url: str) -> None:
    """There is nothing to apply, and the ledger says so with no row."""
    assert schema.upgrade(ledger_url) == []
    with engine.open_reader(ledger_url).connect() as connection:
        assert [step.revision for step in schema.history(connection)] == [schema.HEAD]


@ON_SQLITE
@pytest.mark.usefixtures("ledger")
def test_upgrade_waits_for_no_daemon(ledger_url: str) -> None:
    """While a daemon has the ledger, an upgrade is refused."""
    with pytest.raises(LedgerLocked):
        schema.upgrade(ledger_url)


def test_upgrade_makes_no_ledger(tmp_path: Path) -> None:
    """A wrong path is an error, not a new ledger."""
    with pytest.raises(NoLedger):
        schema.upgrade(f"sqlite:///{tmp_path}/ledger.db")
    assert list(tmp_path.iterdir()) == []


def test_database_of_others_is_left_alone(database_url: str) -> None:
    """A database that has tables of these names already is not made a ledger."""
    with closing(engine.open_writer(database_url)) as writer:
        writer.connection.execute(text("CREATE TABLE frames (x INTEGER)"))
    with pytest.raises(SchemaDiffers, match="other"):
        Ledger.open(database_url, seed.DAEMON, at=1)


@ON_POSTGRES
def test_frames_fall_into_months(ledger_url: str) -> None:
    """Frames of this month and of years to come have partitions; an upgrade in the future adds more."""
    with closing(engine.open_writer(ledger_url)) as writer:
        count = "SELECT COUNT(*) FROM pg_inherits WHERE inhparent = 'frames'::regclass"
        before = writer.connection.execute(text(count)).scalar_one()
        assert before == partitions.MONTHS + 1
        partitions.make(writer.connection, datetime.now(UTC))
        assert writer.connection.execute(text(count)).scalar_one() == before
        later = datetime(datetime.now(UTC).year + 3, 12, 1, tzinfo=UTC)
        partitions.make(writer.connection, later)
        assert writer.connection.execute(text(count)).scalar_one() > before


@ON_POSTGRES
def test_lines_that_found_no_month_are_moved_into_theirs(ledger_url: str) -> None:
    """A ledger whose partitions ran out is recorded all the same, and an upgrade puts its lines where they belong."""
    late = datetime(datetime.now(UTC).year + 5, 7, 31, 23, tzinfo=UTC)
    with writer(ledger_url) as ledger:
        for opened_at in (1, int(late.timestamp()) * 1_000_000):
            record = transport(ledger, opened_at=opened_at)
            ledger.commit([(record, whole())])
    astray = "SELECT count(DISTINCT transport_id) FROM frames_default"
    month = f"SELECT count(DISTINCT transport_id) FROM frames_y{late.year}m07"  # noqa: S608  # a name of ours

    with reading(ledger_url) as connection:
        assert connection.execute(text(astray)).scalar_one() == 2
        before = verify(connection, full=True)
    with closing(engine.open_writer(ledger_url)) as owner:
        owner.begin()
        partitions.make(owner.connection, late + timedelta(days=60))
        owner.commit()
    with reading(ledger_url) as connection:
        assert connection.execute(text(astray)).scalar_one() == 1, "the one of a clock that stood in 1970 stays"
        assert connection.execute(text(month)).scalar_one() == 1
        assert verify(connection, full=True) == before
        assert before.findings == ()
    with closing(engine.open_writer(ledger_url)) as owner, pytest.raises(DBAPIError, match="only added"):
        owner.connection.execute(text(f"DELETE FROM frames_y{late.year}m07"))  # noqa: S608  # a name of ours


def test_months_meet_without_gap() -> None:
    """Partitions follow each other over the turn of the year, in UTC."""
    found = list(partitions.months(datetime(2026, 11, 30, tzinfo=UTC), 4))
    assert [name for name, _, _ in found] == [
        "frames_y2026m11",
        "frames_y2026m12",
        "frames_y2027m01",
        "frames_y2027m02",
    ]
    assert all(upper == following[1] for (_, _, upper), following in pairwise(found))
    assert found[0][1] == int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1_000_000


def test_migrations_are_found_in_this_installation() -> None:
    """The revisions are beside the package, or inside it."""
    assert (schema.scripts() / "script.py.mako").is_file()
