"""`ledgerctl sql`, `db` and `verify`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from acp_ledger.ctl.verify import _Progress
from acp_ledger.errors import ExitCode
from acp_ledger.store.views import view_names
from tests.ctl.test_main import tamper

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ctl.conftest import Cli

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.mark.parametrize("view", view_names())
def test_every_view_can_be_asked(cli: Cli, seeded: str, view: str) -> None:
    """Plain SQL on each documented view works on both engines, and its help names the view."""
    result = cli("sql", f"SELECT * FROM {view}", "-o", "jsonl", "-L", seeded)  # noqa: S608  # the views' own names
    assert result.exit_code == ExitCode.OK
    assert [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    assert view in cli("sql", "--help").stdout.replace("\n  ", " ")


def test_statement_is_read_from_stdin(cli: Cli, seeded: str) -> None:
    """`-` takes the statement from stdin, so that it may have lines and quotes."""
    result = cli("sql", "-", "-q", "-L", seeded, stdin="SELECT count(*) AS n\n  FROM audit_turns\n")
    assert result.stdout == "n\n4\n"
    assert cli("sql", "-", "-L", seeded, stdin="SELECT 1 " + " " * 2**20).exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO gaps SELECT * FROM gaps",
        "UPDATE decisions SET effect = 'allow'",
        "WITH x AS (SELECT 1) DELETE FROM frames",
        "DROP VIEW audit_turns",
        "CREATE TABLE mine (a INT)",
        "SELECT 1; DELETE FROM frames",
        "",
    ],
)
def test_sql_can_only_read(cli: Cli, seeded: str, statement: str) -> None:
    """Whatever would change the ledger is refused, and the ledger is as it was."""
    before = cli("verify", "-o", "json", "-L", seeded).stdout
    result = cli("sql", statement, "-L", seeded)
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith("error: ")
    assert cli("verify", "-o", "json", "-L", seeded).stdout == before


def test_endless_statement_is_stopped(cli: Cli, seeded: str) -> None:
    """A statement ends at its time limit, with what can be done about it."""
    result = cli("sql", ENDLESS, "--seconds", "0.2", "-L", seeded)
    assert result.exit_code == ExitCode.FAILED
    assert "0.2 s" in result.stderr
    assert "hint: " in result.stderr


def test_bytes_are_bounded(cli: Cli, seeded: str) -> None:
    """An answer over its bytes is cut, told to be incomplete even when quiet, and has a status of its own."""
    result = cli("sql", "SELECT body FROM frames", "--bytes", "300", "-q", "-L", seeded)
    assert result.exit_code == ExitCode.INCOMPLETE
    assert result.stderr.startswith("incomplete: only the first ")


def test_equal_column_names_stay_apart(cli: Cli, seeded: str) -> None:
    """Two columns of one name are both in the answer."""
    result = cli("sql", "SELECT 1 AS a, 2 AS a, 3 AS a", "-o", "jsonl", "-L", seeded)
    assert json.loads(result.stdout) == {"a": 1, "a_2": 2, "a_3": 3}


def test_schema_is_current(cli: Cli, seeded: str) -> None:
    """A new ledger is at this program's revision: `check` finds nothing and `upgrade` has nothing to do."""
    current = json.loads(cli("db", "current", "-o", "json", "-L", seeded).stdout)
    assert current["migrations"][-1]["revision"] == "0001"
    check = cli("db", "check", "-o", "json", "-L", seeded)
    assert (check.exit_code, json.loads(check.stdout)["differences"]) == (ExitCode.OK, [])
    upgrade = cli("db", "upgrade", "-o", "json", "-L", seeded)
    assert (upgrade.exit_code, json.loads(upgrade.stdout)["applied"]) == (ExitCode.OK, [])


def test_missing_view_is_a_difference(cli: Cli, seeded_file: Path) -> None:
    """A guard that somebody removed is named, and is no success."""
    tamper(seeded_file, "UPDATE ledger SET software = software")
    result = cli("db", "check", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.SCHEMA
    assert "missing: " in result.stdout


def test_intact_ledger_verifies(cli: Cli, seeded: str) -> None:
    """An untouched ledger is intact on both engines, and what a chain cannot prove is said."""
    for more in ((), ("--full",)):
        result = cli("verify", "-L", seeded, *more)
        assert result.exit_code == ExitCode.OK, result.stdout
        assert result.stdout.splitlines()[-1] == "result: INTACT"
        assert "not checked: nothing" in result.stdout
        assert "a head kept elsewhere" in result.stdout


def test_finding_is_told_to_a_machine(cli: Cli, seeded_file: Path) -> None:
    """As JSON a finding has its kind and its place, and the document its exit code."""
    tamper(seeded_file, "UPDATE tool_call_steps SET title = 'harmless' WHERE tool_call_id = 'call-two'")
    result = cli("verify", "-o", "json", "-L", str(seeded_file))
    found = json.loads(result.stdout)
    assert (found["exit_code"], found["result"]) == (ExitCode.INTEGRITY, "NOT INTACT, 1 findings")
    assert found["findings"][0]["kind"] == "private_mismatch"
    assert found["findings"][0]["transport_id"] == 1796000000000001


def test_body_stored_as_text_is_a_finding(cli: Cli, seeded_file: Path) -> None:
    """On SQLite a tamperer can put text where bytes were; nothing fails over it, and it is found."""
    tamper(seeded_file, "UPDATE frames SET body = CAST(body AS TEXT) WHERE kind = 'request'")
    assert cli("verify", "-L", str(seeded_file)).exit_code == ExitCode.INTEGRITY
    full = cli("verify", "--full", "-L", str(seeded_file))
    assert full.exit_code == ExitCode.INTEGRITY
    assert "its body is not stored as bytes" in full.stdout
    assert "initialize" in cli("show", "1796000000000000:3", "-L", str(seeded_file)).stdout
    assert "initialize" in cli("show", "1796000000000000:3", "--raw", "-L", str(seeded_file)).stdout


def test_unknown_mapping_is_not_checked(cli: Cli, seeded_file: Path) -> None:
    """What could not be mapped again is listed as loudly as a finding, and is no plain success."""
    tamper(seeded_file, "UPDATE transports SET mapping_version = '99+future'")
    result = cli("verify", "--full", "-L", str(seeded_file))
    assert "not checked: 2" in result.stdout
    assert result.exit_code == ExitCode.INTEGRITY  # the changed row itself is a finding


def test_progress_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Where stderr is no terminal, a line comes every ten seconds and not for every row."""
    times = iter((0.0, 1.0, 11.0, 12.0, 22.0))
    progress = _Progress(lambda: next(times))
    for done in range(1, 5):
        progress(done * 1_000, 8_000)
    progress.clear()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "verifying 2,000 of 8,000 numbers, 182/s, 33 s left"
    assert len(lines) == 2
    assert not sys.stderr.isatty()
