"""A statement of a person reads the ledger and can do nothing else, on both engines."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from acp_ledger.errors import ExitCode, NoLedger
from acp_ledger.store.readonly import (
    READ_PRAGMAS,
    Answer,
    Limits,
    StatementRefused,
    StatementTooLarge,
    run_statement,
)
from tests.support.conversation import whole
from tests.support.ledgers import reading, record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Cluster


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """A ledger with one whole conversation, on SQLite."""
    path = tmp_path_factory.mktemp("readonly") / "ledger.db"
    shutil.copy(sqlite_template, path)
    record(f"sqlite:///{path}")
    return f"sqlite:///{path}"


@pytest.fixture(scope="module")
def on_postgres(cluster: Cluster, postgres_template: str) -> str:
    """A ledger with one whole conversation, on Postgres, reached as a superuser."""
    url = cluster.create(postgres_template)
    record(url)
    return url


@pytest.fixture(params=["on_sqlite", "on_postgres"])
def ledger(request: pytest.FixtureRequest) -> str:
    """A ledger with one whole conversation, once on each engine."""
    return str(request.getfixturevalue(request.param))


def fingerprint(url: str) -> list[Any]:
    """What a statement might have changed."""
    with reading(url) as connection:
        rows = connection.execute(text("SELECT frame_seq, chain FROM frames ORDER BY 1")).all()
        names = (
            "SELECT name FROM sqlite_master ORDER BY 1"
            if url.startswith("sqlite")
            else "SELECT relname FROM pg_class ORDER BY 1"
        )
        return [*rows, *connection.execute(text(names)).scalars()]


def test_rows_come_with_their_columns(ledger: str) -> None:
    """A question about a view is answered with named columns, and nothing is said to be cut."""
    answer = run_statement(ledger, "SELECT step, call FROM audit_timeline WHERE step = 'question'")
    assert (answer.columns, answer.rows, answer.cut) == (("step", "call"), (("question", "c1"),), ())


def test_no_rows_still_have_columns(ledger: str) -> None:
    """An answer without rows has its columns all the same."""
    assert run_statement(ledger, "SELECT id, epoch FROM transports WHERE id = 0") == Answer(("id", "epoch"), (), ())


@pytest.mark.parametrize(
    "statement",
    [
        "-- what there is\n /* all of it */ SELECT COUNT(*) FROM frames",
        "WITH x AS (SELECT COUNT(*) AS n FROM frames) SELECT n FROM x;",
        "EXPLAIN SELECT COUNT(*) FROM frames",
        "VALUES (18)",
    ],
)
def test_reading_statements_run(ledger: str, statement: str) -> None:
    """Comments, WITH, EXPLAIN, VALUES and a semicolon at the end are fine."""
    assert run_statement(ledger, statement).rows


def test_sqlite_reads_json_and_schema(on_sqlite: str) -> None:
    """What an auditor needs besides tables works: JSON of a body, columns of a table, in both spellings."""
    found = run_statement(
        on_sqlite, "SELECT j.value FROM frames f, json_each(CAST(f.body AS TEXT)) j WHERE frame_seq = 3"
    )
    assert ("initialize",) in found.rows
    assert run_statement(on_sqlite, "SELECT name FROM pragma_table_info('frames')").rows[0] == ("transport_id",)
    assert all(run_statement(on_sqlite, f"PRAGMA {name}(frames)").cut == () for name in READ_PRAGMAS)


WRITES = [
    "INSERT INTO deliveries VALUES (1, 1, 0, 'x', 'agent_to_client', 1)",
    "UPDATE decisions SET effect = 'allow'",
    "DELETE FROM frames",
    "DROP TABLE frames",
    "CREATE TABLE mine (x int)",
    "CREATE TEMP TABLE mine (x int)",
    "WITH x AS (SELECT 1) DELETE FROM frames",
    "SELECT 1; DELETE FROM frames",
    "SELECT 1; SELECT 2",
    "",
    "/* nothing */ ;",
    "-- SELECT 1",
    "(DELETE FROM frames)",
]

SQLITE_WRITES = [
    "EXPLAIN DELETE FROM frames",
    "REPLACE INTO ledger SELECT * FROM ledger",
    "ATTACH '{folder}/other.db' AS other",
    "SELECT 1 UNION SELECT load_extension('x')",
    "SELECT fts3_tokenizer('simple')",
    "VACUUM INTO '{folder}/copy.db'",
    "PRAGMA query_only = OFF",
    "PRAGMA query_only",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA writable_schema = ON",
    "PRAGMA user_version = 7",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA optimize",
    "SELECT * FROM pragma_optimize",
    "BEGIN IMMEDIATE",
    "ANALYZE",
    "REINDEX",
    "DETACH main",
]

POSTGRES_WRITES = [
    "EXPLAIN ANALYZE DELETE FROM frames",
    "WITH gone AS (DELETE FROM frames RETURNING 1) SELECT * FROM gone",
    "SELECT * INTO mine FROM frames",
    "SELECT 1 FROM frames FOR UPDATE",
    "COPY frames TO '/tmp/frames'",
    "COPY (SELECT 1) TO PROGRAM 'touch /tmp/acp-ledger-was-here'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT \"pg_read_file\"('/etc/passwd')",
    "SELECT pg_read_binary_file('/etc/passwd')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    "SELECT set_config('default_transaction_read_only', 'off', false)",
    "SELECT pg_advisory_lock(1)",
    "SELECT query_to_xml('DELETE FROM frames', true, true, '')",
    "SELECT nextval('x')",
    "DO $$ BEGIN DELETE FROM frames; END $$",
    "SET default_transaction_read_only = off",
    "COMMIT",
    "TRUNCATE frames",
    "SELECT 1; COMMIT; DELETE FROM frames",
    "CALL something()",
    "LISTEN x",
]


def refused(url: str, statement: str) -> None:
    """Check that it is refused and changes nothing."""
    before = fingerprint(url)
    with pytest.raises(StatementRefused) as refusal:
        run_statement(url, statement)
    assert refusal.value.exit_code is ExitCode.USAGE
    assert fingerprint(url) == before


@pytest.mark.parametrize("statement", WRITES)
def test_anything_else_is_refused(ledger: str, statement: str) -> None:
    """Whatever is not one statement that reads is refused, and changes nothing."""
    refused(ledger, statement)


@pytest.mark.parametrize("statement", SQLITE_WRITES)
def test_sqlite_reaches_nothing_else(on_sqlite: str, tmp_path: Path, statement: str) -> None:
    """Nothing is attached, copied out, loaded, locked or set on SQLite."""
    refused(on_sqlite, statement.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("statement", POSTGRES_WRITES)
def test_postgres_reaches_nothing_else(on_postgres: str, statement: str) -> None:
    """Nothing is written, locked or set on Postgres, no file is reached and no other session, even by a superuser."""
    refused(on_postgres, statement)


@pytest.mark.parametrize("name", ['u&"pg\\005fread\\005ffile"', 'u&"lo\\005fimport"'])
def test_superuser_gives_up_files(on_postgres: str, name: str) -> None:
    """A name that hides from the list of refused functions reaches no file: a reader has no right to call it."""
    with pytest.raises(StatementRefused, match="permission denied"):
        run_statement(on_postgres, f"SELECT {name}('/etc/passwd')")


@pytest.mark.parametrize(
    "statement",
    [
        "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT COUNT(*) FROM x",
        "SELECT COUNT(*) FROM frames a, frames b, frames c, frames d, frames e, frames f, frames g",
    ],
)
def test_endless_statement_is_stopped(ledger: str, statement: str) -> None:
    """A statement without an end is stopped at its deadline."""
    with pytest.raises(StatementTooLarge, match=r"did not end within 0\.3 s") as stopped:
        run_statement(ledger, statement, Limits(seconds=0.3))
    assert stopped.value.hint


def test_endless_rows_are_cut(ledger: str) -> None:
    """Rows over the bound are left out, and the answer says so."""
    endless = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT n FROM x"
    if ledger.startswith("postgres"):
        endless += " LIMIT 100000"
    answer = run_statement(ledger, endless, Limits(rows=5))
    assert [row[0] for row in answer.rows] == [1, 2, 3, 4, 5]
    assert "only the first 5 rows" in answer.cut[0]


def test_rows_at_the_bound_are_whole(ledger: str) -> None:
    """As many rows as are allowed are not called cut."""
    answer = run_statement(ledger, "SELECT 1 UNION ALL SELECT 2", Limits(rows=2))
    assert (len(answer.rows), answer.cut) == (2, ())


def test_bytes_are_bounded(ledger: str) -> None:
    """An answer is cut where its bytes pass the bound, and says so."""
    answer = run_statement(ledger, "SELECT body FROM frames ORDER BY frame_seq", Limits(total_bytes=600))
    assert 0 < len(answer.rows) < len(whole())
    assert "more than 600 bytes" in answer.cut[0]


def test_large_value_is_refused_or_cut(ledger: str) -> None:
    """A value over the bound is never built on SQLite, and cut on Postgres."""
    if ledger.startswith("sqlite"):
        with pytest.raises(StatementTooLarge, match="over 1,000 bytes"):
            run_statement(ledger, "SELECT zeroblob(1000000)", Limits(value_bytes=1000))
        return
    answer = run_statement(ledger, "SELECT repeat('x', 1000000)", Limits(value_bytes=1000))
    assert len(str(answer.rows[0][0])) == 1000
    assert "1,000,000" in answer.cut[0]


def test_mistake_is_explained(ledger: str) -> None:
    """A statement the database does not understand gives its words."""
    with pytest.raises(StatementRefused, match="nosuch"):
        run_statement(ledger, "SELECT * FROM nosuch")


@pytest.mark.parametrize("statement", ["SELECT * FROM tool_calls", "SELECT nosuch FROM audit_turns"])
def test_unknown_name_is_answered_with_the_views(ledger: str, statement: str) -> None:
    """Who asks for a table or a column that there is not is told what there is, and where it is described."""
    with pytest.raises(StatementRefused) as caught:
        run_statement(ledger, statement)
    assert "audit_turns, audit_tool_calls" in str(caught.value.hint)
    assert "docs/schema.md" in str(caught.value.hint)


def test_missing_ledger_is_not_made(tmp_path: Path) -> None:
    """Asking where there is no ledger says so and makes none."""
    with pytest.raises(NoLedger):
        run_statement(f"sqlite:///{tmp_path}/none.db", "SELECT 1")
    assert list(tmp_path.iterdir()) == []


def test_foreign_bytes_are_shown(on_sqlite: str) -> None:
    """Text that is no UTF-8 is shown with replacement characters on SQLite, where it can be stored."""
    assert run_statement(on_sqlite, "SELECT CAST(x'ff41' AS TEXT)").rows == (("\ufffdA",),)
