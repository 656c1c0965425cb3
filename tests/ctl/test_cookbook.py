"""The cookbook: every question is answered alike on both engines, and as counted by hand."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, Final

import pytest

from acp_ledger.ctl import cookbook
from acp_ledger.errors import ExitCode, UsageError
from acp_ledger.store.readonly import run_statement
from docs.cookbook import ANSWERS, GIVEN
from tests.support.cookbook import TRANSPORTS, fill
from tests.support.ledgers import shared_url
from tests.support.team import Team, made_by_owner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ctl.conftest import Cli
    from tests.support.postgres import Cluster

__all__ = ["shared_url"]

NAMES: Final = tuple(file.stem for file in sorted(cookbook.SHIPPED.glob("*.sql")))


@pytest.fixture(scope="module")
def filled(shared_url: str) -> str:
    """The ledger with something to find, on each engine."""
    fill(shared_url)
    return shared_url


def _expected(name: str) -> list[list[str]]:
    with (ANSWERS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _asked(url: str, name: str, **given: str) -> list[list[Any]]:
    question = cookbook.named(name)
    engine = "sqlite" if url.startswith("sqlite") else "postgresql"
    values = cookbook.bound(question, {**GIVEN.get(name, {}), **given})
    answer = run_statement(url, question.statement(engine), None, values)
    assert answer.cut == ()
    return [list(answer.columns), *[list(row) for row in answer.rows]]


@pytest.mark.parametrize("name", NAMES)
def test_question_is_answered_as_counted_by_hand(filled: str, name: str) -> None:
    """Columns, rows, their order and their types are the same on both engines, and the answer is the right one."""
    answer = _asked(filled, name)
    assert {type(value) for row in answer for value in row} <= {str, int, type(None)}
    assert [["" if value is None else str(value) for value in row] for row in answer] == _expected(name)
    assert len(answer) > 1


def test_25_questions_are_answered() -> None:
    """Every question has an expected answer, and no answer is left over."""
    assert {file.stem for file in ANSWERS.glob("*.csv")} == set(NAMES)
    assert len(NAMES) == 25


def test_lines_and_bytes_are_those_of_the_script() -> None:
    """What growth must answer is counted from the lines themselves, and so are the lengths beside them."""
    days: dict[str, list[int]] = {}
    for _, _, script in TRANSPORTS:
        for entry in script().entries:
            if entry.body is not None:
                days.setdefault("2026-11-30" if script.__name__ in {"everyday", "loaded"} else "2026-12-01", []).append(
                    len(entry.body)
                )
    counted = [[day, str(len(sizes)), str(sum(sizes))] for day, sizes in sorted(days.items())]
    assert [row[:3] for row in _expected("growth-per-day")[1:]] == counted
    bodies = {entry.record.frame_seq: entry.body for entry in TRANSPORTS[1][2]().entries}
    shown = [[str(number), str(len(bodies[number] or b""))] for number in (18, 19)]
    assert [[row[0], row[5]] for row in _expected("between")[1:3]] == shown


SINCE: Final = [name for name in NAMES if "since" in {each.name for each in cookbook.named(name).parameters}]


@pytest.mark.parametrize("name", SINCE)
def test_time_narrows_an_answer(filled: str, name: str) -> None:
    """`since` takes any time word; behind everything there is nothing, and a day later not what was before."""
    everything, later = _asked(filled, name), _asked(filled, name, since="2026-12-01 UTC")
    assert len(_asked(filled, name, since="2027-01-01 UTC")) == 1
    assert later != everything
    assert len(later) <= len(everything)


def test_rows_narrow_an_answer(filled: str) -> None:
    """`rows` bounds the longest turns."""
    assert _asked(filled, "turns-longest", rows="1") == _asked(filled, "turns-longest")[:2]


# --- rights


@pytest.fixture(scope="module")
def team(cluster: Cluster) -> Iterator[Team]:
    """The same ledger, shared by a team."""
    for found in made_by_owner(cluster):
        fill(found.url_of("writer"))
        yield found


def test_reader_is_answered_from_views_alone(team: Team, cli: Cli) -> None:
    """What a question is said to read is what it needs: a reader asks those of views, an auditor every one."""
    reads = {name: cookbook.named(name).reads for name in NAMES}
    assert set(reads.values()) == {"views", "tables"}
    for name in NAMES:
        assert len(_asked(team.url_of("auditor"), name)) > 1
        if reads[name] == "views":
            assert len(_asked(team.url_of("reader"), name)) > 1
            continue
        with pytest.raises(UsageError, match="permission denied"):
            _asked(team.url_of("reader"), name)
    refused = cli("sql", "TABLE frames", "-L", team.url_of("reader"))
    assert refused.exit_code == ExitCode.USAGE
    assert "as an auditor" in refused.stderr


# --- the command


def test_named_question_is_asked(cli: Cli, filled: str) -> None:
    """The command gives what the statement gives, in the usual forms."""
    result = cli("sql", "--named", "wait-for-answers", "-L", filled, "-o", "csv", "--param", "since=2026-12-01 UTC")
    assert result.exit_code == ExitCode.OK, result.stderr
    assert result.stdout.splitlines()[1] == "claude,1,3000,3000"


def test_plain_statement_takes_values(cli: Cli, filled: str) -> None:
    """A value is bound and never becomes part of the statement; a `%` and a `:` inside of texts stay what they are."""
    statement = "SELECT agent, ':agent 100%' AS text FROM audit_transports WHERE agent LIKE :agent -- :agent's %"
    for value, found in (("g%", ["ghost\t:agent 100%"]), ("x' OR 1=1 --", [])):
        result = cli("sql", statement, "-L", filled, "--param", f"agent={value}")
        assert result.exit_code == ExitCode.OK, result.stderr
        assert result.stdout.splitlines()[1:] == found


def test_list_tells_names_questions_and_parameters(cli: Cli) -> None:
    """The list needs no ledger, and every question ends with its mark."""
    rows = list(csv.reader(cli("sql", "--list", "-o", "csv").stdout.splitlines()))
    assert rows[0] == ["name", "question", "reads", "parameters"]
    assert [row[0] for row in rows[1:]] == list(NAMES)
    assert all(row[1].endswith("?") for row in rows[1:])
    assert ["between", "transport=…, first=1, last=9223372036854775807"] in [[row[0], row[3]] for row in rows[1:]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--named", "turns-longst"), "did you mean turns-longest"),
        (("--named", "turns-longest", "--param", "row=1"), "has no parameter row"),
        (("--named", "turns-longest", "--param", "rows=many"), "no whole number"),
        (("--named", "turns-longest", "--param", "rows=99999999999999999999"), "no whole number"),
        (("--named", "turns-longest", "--param", "rows"), "no NAME=VALUE"),
        (("--named", "turns-not-completed", "--param", "since=whenever"), "cannot read the time"),
        (("--named", "between"), "needs transport: the transport"),
        (("--named", "between", "SELECT 1"), "one statement, or --named, or --list"),
        ((), "one statement, or --named, or --list"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_question_is_wrong_usage(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    """A name, a parameter or a value that is none is told, and what can be typed instead."""
    result = cli("sql", *arguments, "-L", str(tmp_path / "none.db"))
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert said in result.stderr
    assert "hint: " in result.stderr


def test_questions_of_ones_own_are_asked(cli: Cli, filled: str, tmp_path: Path) -> None:
    """A file in the folder beside the settings is a question; one of the same name takes the place of ours."""
    folder = tmp_path / ".config" / "acp-ledger" / "queries"
    folder.mkdir(parents=True)
    (folder / "mine.sql").write_text(
        "-- How many?\n-- param least integer = 1: at least\nSELECT COUNT(*) + :least AS n FROM turns"
    )
    (folder / "versions.sql").write_text("SELECT 7 AS seven")
    assert cli("sql", "--named", "mine", "-L", filled, "--param", "least=10").stdout.split() == ["n", "15"]
    assert cli("sql", "--named", "versions", "-L", filled).stdout.split() == ["seven", "7"]


def test_statement_and_head_are_told_apart() -> None:
    """A file for one engine says which; comments behind the head belong to the statement."""
    both = cookbook.parse("x", "-- Why?\n--\n-- Since.\n\nSELECT 1 -- one\n-- two\n")
    assert (both.question, both.explanation, both.statement("sqlite")) == ("Why?", "Since.", "SELECT 1 -- one\n-- two")
    each = cookbook.parse("x", "-- Why?\n\n-- on sqlite\nSELECT 1\n\n-- on postgresql\nSELECT 2\n")
    assert (each.statement("sqlite"), each.statement("postgresql")) == ("SELECT 1", "SELECT 2")


def test_value_must_be_given_as_a_pair() -> None:
    """A value may hold `=` itself."""
    assert cookbook.pairs(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(UsageError):
        cookbook.pairs(["=x"])


def test_named_without_a_name_points_to_the_list(cli: Cli) -> None:
    """The questions have names that nobody knows by heart."""
    result = cli("sql", "--named")
    assert (result.exit_code, "ledgerctl sql --list" in result.stderr) == (ExitCode.USAGE, True)
