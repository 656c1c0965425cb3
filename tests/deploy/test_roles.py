"""The roles of a shared Postgres: each can do what it is for, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from acp_ledger.errors import DatabaseRefused, ExitCode, SchemaDiffers
from acp_ledger.store import schema, tables
from acp_ledger.store.faults import CommitHeld
from acp_ledger.store.ledger import Ledger
from acp_ledger.store.views import view_names
from tests.support import seed
from tests.support.ledgers import record, writer
from tests.support.team import Team, made_by_owner, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import Cluster

ROOT: Final = Path(__file__).parent.parent.parent
TABLES: Final = [table.name for table in tables.metadata.sorted_tables]


@pytest.fixture(scope="module")
def team(cluster: Cluster) -> Iterator[Team]:
    """A team's ledger with a conversation in it, in a schema of its own with a name that needs quotes."""
    for found in made_by_owner(cluster, "-v", "schema=Our Ledger"):
        record(found.url_of("writer"))
        yield found


def refusal(team: Team, role: str, statement: str) -> str:
    """Postgres's state for a statement of a role; empty when it did it. Nothing of it stays."""
    engine = sqlalchemy.create_engine(team.url_of(role), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)
            connection.rollback()
    except DBAPIError as error:
        return str(getattr(error.orig, "sqlstate", error))
    finally:
        engine.dispose()
    return ""


FORBIDDEN: Final = [
    "UPDATE frames SET method = 'x'",
    "UPDATE frames SET body = NULL, salt = NULL, body_state = 'erased'",
    "DELETE FROM decisions",
    "TRUNCATE gaps",
    "DROP TABLE decisions",
    "DROP VIEW audit_turns",
    "DROP TRIGGER decisions_guard ON decisions",
    "DROP FUNCTION decisions_guard() CASCADE",
    "ALTER TABLE decisions DISABLE TRIGGER ALL",
    "ALTER TABLE frames DETACH PARTITION frames_default",
    "ALTER TABLE decisions ADD COLUMN more int",
    "ALTER TABLE decisions OWNER TO CURRENT_USER",
    "CREATE OR REPLACE VIEW audit_turns AS SELECT 1 AS transport_id",
    "CREATE OR REPLACE FUNCTION decisions_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER mine BEFORE INSERT ON decisions FOR EACH ROW EXECUTE FUNCTION decisions_guard()",
    "CREATE RULE mine AS ON INSERT TO decisions DO INSTEAD NOTHING",
    "SET session_replication_role = replica",
    "CREATE TABLE mine (a int)",
    "CREATE TEMPORARY TABLE frames (a int)",
    "CREATE SCHEMA mine",
    "SELECT acp_ledger_rights()",
    "SELECT * FROM decisions FOR UPDATE",
    "LOCK TABLE decisions IN ACCESS EXCLUSIVE MODE",
    "INSERT INTO daemons SELECT * FROM daemons ON CONFLICT (daemon_id) DO UPDATE SET host = 'x'",
    "INSERT INTO ledger SELECT ordinal + 1, protocol_revision, ledger_id, 0, '9', '9', '' FROM ledger",
    "UPDATE alembic_version SET version_num = '9'",
    "INSERT INTO alembic_version VALUES ('9')",
    "COPY (SELECT 1) TO '/tmp/acp-ledger-copied'",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "ALTER ROLE CURRENT_USER CREATEROLE",
    "SET ROLE postgres",
]


@pytest.mark.parametrize("role", ["writer", "auditor", "reader"])
def test_nobody_but_the_owner_changes_what_is_there(team: Team, role: str) -> None:
    """No role can change, remove, shadow or unguard anything, nor give itself the right to."""
    refused = {statement: refusal(team, role, statement) for statement in FORBIDDEN}
    assert {statement: state for statement, state in refused.items() if state != "42501"} == {}


def test_writer_adds_and_reads(team: Team) -> None:
    """The writer inserts into every table a daemon writes, and reads tables and views."""
    for name in TABLES:
        added = refusal(team, "writer", f"INSERT INTO {name} SELECT * FROM {name} WHERE false")  # noqa: S608  # ours
        assert added == ("42501" if name == "ledger" else ""), name
    assert {name for name in [*TABLES, *view_names()] if refusal(team, "writer", f"TABLE {name}")} == set()


def test_auditor_reads_and_adds_nothing(team: Team) -> None:
    """The auditor reads tables, partitions and views, and inserts nowhere."""
    partition = "frames_default"
    assert {name for name in [*TABLES, *view_names(), partition] if refusal(team, "auditor", f"TABLE {name}")} == set()
    for name in TABLES:
        added = refusal(team, "auditor", f"INSERT INTO {name} SELECT * FROM {name} WHERE false")  # noqa: S608  # ours
        assert added == "42501", name


def test_reader_sees_views_alone(team: Team) -> None:
    """A reader reads each view, with the rights of its owner, and no table, so no line and no message."""
    assert {name for name in view_names() if refusal(team, "reader", f"TABLE {name}")} == set()
    every = [*TABLES, "frames_default", "alembic_version"]
    assert {name for name in every if refusal(team, "reader", f"TABLE {name}") != "42501"} == set()


def test_guards_hold_the_owner_too(team: Team) -> None:
    """By accident the owner changes nothing either; on purpose it can, and the chain shows it."""
    assert refusal(team, "owner", "DELETE FROM decisions") == "23001"
    assert refusal(team, "owner", "ALTER TABLE decisions DISABLE TRIGGER ALL") == ""


def test_large_objects_are_taken_from_everybody_as_the_page_says(cluster: Cluster) -> None:
    """Postgres gives them to all; the statement of docs/operations.md leaves nobody of ours a way to fill a disk."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    found = re.search(r"`(REVOKE EXECUTE ON FUNCTION lo_create[^`]+)`", page)
    assert found is not None
    ways = ["SELECT lo_create(0)", "SELECT lo_creat(-1)", "SELECT lo_from_bytea(0, 'x')"]
    for team in made_by_owner(cluster):
        assert [refusal(team, "writer", way) for way in ways] == ["", "", ""]
        superuser = sqlalchemy.create_engine(team.url, poolclass=NullPool)
        with superuser.begin() as connection:
            connection.exec_driver_sql(" ".join(found[1].split()))
        superuser.dispose()
        for role in ("owner", "writer", "auditor", "reader"):
            assert [refusal(team, role, way) for way in ways] == ["42501", "42501", "42501"]


def test_stranger_does_not_come_in(team: Team) -> None:
    """Whoever has a login on the server, but no role of ours, cannot even connect."""
    engine = sqlalchemy.create_engine(team.url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("DROP ROLE IF EXISTS stranger"))
        connection.execute(text("CREATE ROLE stranger LOGIN"))
    outside = sqlalchemy.create_engine(team.url.replace("://postgres@", "://stranger@"), poolclass=NullPool)
    with pytest.raises(DBAPIError, match="permission denied for database"):
        outside.connect()
    with engine.begin() as connection:
        connection.execute(text("DROP ROLE stranger"))


@pytest.mark.parametrize("words", [["sessions"], ["decisions"], ["coverage"], ["sql", "SELECT * FROM audit_timeline"]])
def test_reader_uses_what_stands_on_views(team: Team, words: list[str]) -> None:
    """Where views suffice `ledgerctl` works for a reader."""
    done = team.ledgerctl("reader", *words, "-o", "jsonl")
    assert done.exit_code == ExitCode.OK, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()]
    table = team.ledgerctl("reader", *words)
    assert (table.exit_code, "error" in table.stderr) == (ExitCode.OK, False), table.stderr


@pytest.mark.parametrize("words", [["verify"], ["events"], ["agents"], ["db", "current"]])
def test_reader_is_sent_to_an_auditor(team: Team, words: list[str]) -> None:
    """Where tables are needed a reader is told so, and which command it takes."""
    done = team.ledgerctl("reader", *words)
    assert done.exit_code == ExitCode.REFUSED
    assert "may not read" in done.stderr
    again = team.url_of("AUDITOR").replace(team.role("AUDITOR"), "AUDITOR")
    assert f"hint: ask as an auditor: ledgerctl {' '.join(words)} -L {again}" in done.stderr
    assert team.ledgerctl("auditor", *words).exit_code == ExitCode.OK


def test_upgrade_as_another_role_names_the_owner(team: Team) -> None:
    """Who may not upgrade is told who may, and how; nothing is changed."""
    for role in ("writer", "auditor"):
        done = team.ledgerctl(role, "db", "upgrade")
        assert done.exit_code == ExitCode.REFUSED, done.stderr
        assert f"belongs to {team.role('owner')}" in done.stderr
        assert f"hint: ledgerctl db upgrade -L {team.url_of('owner')}\n" in done.stderr
    assert team.ledgerctl("auditor", "db", "check").exit_code == ExitCode.OK


@pytest.mark.parametrize("role", ["owner", None])
def test_upgrade_keeps_owner_and_rights(team: Team, role: str | None) -> None:
    """Views that were made anew are the owner's and can be read, also when a superuser upgrades."""
    url = team.url_of(role) if role else team.url
    schema.upgrade(url)
    test_reader_sees_views_alone(team)
    test_auditor_reads_and_adds_nothing(team)
    engine = sqlalchemy.create_engine(team.url, poolclass=NullPool)
    with engine.connect() as connection:
        whose = "SELECT DISTINCT viewowner FROM pg_views WHERE schemaname = 'Our Ledger'"
        assert connection.execute(text(whose)).scalars().all() == [team.role("owner")]


def test_daemon_without_the_right_to_write_says_so(team: Team) -> None:
    """With an address of the wrong role a daemon does not start, and says which role it takes."""
    with pytest.raises(DatabaseRefused, match="cannot be read") as unreadable:
        Ledger.open(team.url_of("reader"), seed.DAEMON, at=seed.START)
    assert "ledgerctl db roles" in (unreadable.value.hint or "")
    with pytest.raises(CommitHeld, match="permission denied") as held:
        Ledger.open(team.url_of("auditor"), seed.DAEMON, at=seed.START)
    assert "a role that may write" in (held.value.hint or "")


def test_writer_cannot_make_the_ledger(cluster: Cluster) -> None:
    """On an empty database the daemon's role is told what the owner has to run; the order of the steps is free."""
    found = Team(cluster, cluster.create())
    found.run_roles()
    with pytest.raises(DatabaseRefused) as refused:
        Ledger.open(found.url_of("writer"), seed.DAEMON, at=seed.START)
    assert refused.value.hint == f"ledgerctl db create -L {found.url_of('owner')}"
    # A superuser makes it, and still it is the owner's.
    assert run("ledgerctl", "db", "create", "-L", found.url).returncode == 0
    Ledger.open(found.url_of("writer"), seed.DAEMON, at=seed.START).close()
    assert refusal(found, "reader", "TABLE audit_turns") == ""
    cluster.drop(found.url)


def test_roles_are_given_to_a_ledger_that_is_there(ledger_url: str, cluster: Cluster) -> None:
    """A ledger that a daemon made as it liked is taken over, as often as one likes."""
    if ledger_url.startswith("sqlite"):
        assert run("ledgerctl", "db", "create", "-L", ledger_url).stderr.startswith("there is a ledger")
        return
    record(ledger_url)
    found = Team(cluster, ledger_url)
    found.run_roles()
    found.run_roles()
    with writer(found.url_of("writer")) as ledger:
        ledger.probe()
    assert found.ledgerctl("auditor", "verify", "--full").exit_code == ExitCode.OK
    assert refusal(found, "owner", "ALTER TABLE decisions DISABLE TRIGGER USER") == ""
    assert refusal(found, "writer", "DELETE FROM decisions") == "42501"


def test_roles_need_no_superuser(cluster: Cluster) -> None:
    """Who has the database and may make roles gives them, as on a server that is rented."""
    found = Team(cluster, cluster.create())
    engine = sqlalchemy.create_engine(found.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE ROLE renter LOGIN CREATEROLE CREATEDB"))
        connection.exec_driver_sql(f"ALTER DATABASE {found.database} OWNER TO renter")
    found.run_roles(admin="renter")
    assert found.ledgerctl("owner", "db", "create").exit_code == ExitCode.OK
    found.run_roles(admin="renter")
    Ledger.open(found.url_of("writer"), seed.DAEMON, at=seed.START).close()
    assert refusal(found, "reader", "TABLE audit_turns") == ""
    assert refusal(found, "writer", "DELETE FROM decisions") == "42501"
    cluster.drop(found.url)


def test_right_that_older_servers_gave_everybody_is_taken(cluster: Cluster) -> None:
    """A database that came from before Postgres 15 let all make tables, which could stand in the place of ours."""
    found = Team(cluster, cluster.create())
    engine = sqlalchemy.create_engine(found.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("GRANT CREATE ON SCHEMA public TO PUBLIC"))
    found.run_roles("-v", "schema=public")
    for role in ("writer", "auditor", "reader"):
        assert refusal(found, role, "CREATE TABLE decisions (id int)") == "42501"
    cluster.drop(found.url)


def test_create_refuses_what_is_no_ledger(cluster: Cluster) -> None:
    """A database of other programs is left alone."""
    url = cluster.create()
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE frames (picture int)"))
    with pytest.raises(SchemaDiffers, match="other programs"):
        schema.create(url)
    cluster.drop(url)
