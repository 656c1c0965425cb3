"""`ledgerctl sql` and `ledgerctl db`: the database under the ledger, read-only, and its schema.

What must not be broken here: `sql` can read and do nothing else, is bounded, and says when it cut something; `upgrade`
alone changes a schema, and never beside a running daemon.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from acp_ledger.ctl.options import Command, Entry, LazyGroup, Options, current_options
from acp_ledger.ctl.reading import ledger_url, open_ledger
from acp_ledger.ctl.render import Listing, emit, note
from acp_ledger.ctl.text import escape
from acp_ledger.errors import ExitCode, NoLedger, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

STATEMENT_BYTES: Final = 1 << 20
"""A longer statement is no question of a person."""


def _names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a question."""
    from acp_ledger.ctl.cookbook import questions

    return [name for name in questions() if name.startswith(incomplete)]


@click.command(
    cls=Command,
    examples=(
        "ledgerctl sql --list",
        "ledgerctl sql --named turns-not-completed --param since=yesterday",
        "ledgerctl sql 'SELECT outcome, count(*) FROM audit_turns GROUP BY outcome'",
        "ledgerctl sql - -o csv < question.sql",
    ),
)
@click.argument("statement", required=False)
@click.option(
    "--named",
    metavar="NAME",
    is_flag=False,
    flag_value="",
    shell_complete=_names,
    help="Ask this question of the cookbook.",
)
@click.option("--list", "lists", is_flag=True, help="List the questions of the cookbook.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="A value for :NAME in the statement.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Stop it after this long (30).")
@click.option("--rows", type=click.IntRange(min=1), help="Most rows to show (10,000).")
@click.option("--bytes", "total_bytes", type=click.IntRange(min=1), help="Most bytes of values to show (64 MiB).")
def sql(
    statement: str | None,
    named: str | None,
    params: tuple[str, ...],
    seconds: float | None,
    rows: int | None,
    total_bytes: int | None,
    *,
    lists: bool,
) -> int:
    """Run one read-only SQL statement on the ledger; `-` reads it from stdin.

    The audit views are the contract: audit_transports, audit_sessions, audit_turns, audit_tool_calls,
    audit_decisions, audit_coverage, audit_timeline, audit_anomalies. Exits with 3 when the answer was cut.

    With --named it runs a question of the cookbook, and --list tells which there are. Files NAME.sql in `queries`
    beside your settings are questions of your own.
    """
    options = current_options()
    if sum((statement is not None, named is not None, lists)) != 1:
        raise UsageError("give one statement, or --named, or --list", hint="ledgerctl sql --list")
    if named == "":
        raise UsageError("--named needs the name of a question", hint="ledgerctl sql --list")
    if lists:
        return _list(options)
    from acp_ledger.store.readonly import Limits, run_statement

    usual = Limits()
    limits = Limits(
        seconds=seconds or usual.seconds, rows=rows or usual.rows, total_bytes=total_bytes or usual.total_bytes
    )
    url = ledger_url(options)
    text, values = _asked(url, statement, named, params)
    answer = run_statement(url, text, limits, values)
    emit(Listing("sql", _distinct(answer.columns), answer.rows), options)
    for cut in answer.cut:
        sys.stderr.write(f"incomplete: {escape(cut)}\n")
    return ExitCode.INCOMPLETE if answer.cut else ExitCode.OK


def _list(options: Options) -> int:
    from acp_ledger.ctl.cookbook import questions

    rows = [
        (each.name, each.question, each.reads, ", ".join(f"{one.name}={one.default or '…'}" for one in each.parameters))
        for each in questions().values()
    ]
    emit(Listing("questions", ("name", "question", "reads", "parameters"), rows), options)
    return ExitCode.OK


def _asked(
    url: str, statement: str | None, named: str | None, params: tuple[str, ...]
) -> tuple[str, dict[str, str | int]]:
    """Give the text of what is asked, and the values to be bound in it; those of a plain statement are texts."""
    from acp_ledger.ctl import cookbook

    given = cookbook.pairs(params)
    if named is None:
        return _statement(statement or ""), dict(given)
    question = cookbook.named(named)
    engine = "sqlite" if url.startswith("sqlite") else "postgresql"
    return question.statement(engine), cookbook.bound(question, given)


def _statement(given: str) -> str:
    if given != "-":
        return given
    read = sys.stdin.read(STATEMENT_BYTES + 1)
    if len(read) > STATEMENT_BYTES:
        raise UsageError(f"the statement on stdin is over {STATEMENT_BYTES:,} characters", hint="send one statement")
    return read


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Give every column a name of its own, for a JSON object holds one of each."""
    chosen: list[str] = []
    for name in names:
        count, candidate = 1, name
        while candidate in chosen:
            count += 1
            candidate = f"{name}_{count}"
        chosen.append(candidate)
    return tuple(chosen)


_HERE: Final = "acp_ledger.ctl.database"
db = LazyGroup(
    "db",
    help="Make a ledger, look at its schema, or bring it up to date.",
    entries={
        "Commands": {
            "create": Entry(
                "acp_ledger.ctl.team:create", "Make a ledger where there is none; on Postgres as the owner"
            ),
            "roles": Entry("acp_ledger.ctl.team:roles", "Print the SQL that gives a team's Postgres its four roles"),
            "current": Entry(f"{_HERE}:current", "Show the schema revision of this ledger and of this program"),
            "check": Entry(f"{_HERE}:check", "Exit with 13 unless the schema is the one this program writes"),
            "upgrade": Entry(f"{_HERE}:upgrade", "Bring the schema up to date; the daemon must be stopped"),
        },
    },
    examples=("ledgerctl db current", "ledgerctl db check && systemctl --user start acp-ledger"),
)


@click.command(cls=Command, examples=("ledgerctl db current", "ledgerctl db current -L ./ledger.db -o json"))
def current() -> None:
    """Show every schema revision this ledger went through; the last one is where it is."""
    from acp_ledger.ctl.times import as_text
    from acp_ledger.store import schema
    from acp_ledger.store.faults import MEND_NO_LEDGER

    options = current_options()
    with open_ledger(options) as connection:
        state = schema.current(connection)
        steps = schema.history(connection) if state else []
    if state is None:
        raise NoLedger("there is no ledger in this database", hint=MEND_NO_LEDGER)
    rows = [(step.revision, step.compat, as_text(step.created_at), step.software) for step in steps]
    emit(Listing("migrations", schema.Migration._fields, rows), options)
    note(f"the ledger is at {state.revision}; this program writes {schema.HEAD}", options)


@click.command(cls=Command, examples=("ledgerctl db check", "ledgerctl db check -q || ledgerctl db upgrade"))
def check() -> int:
    """Compare the ledger's schema with the one this program writes; exits with 13 when they differ."""
    from acp_ledger.store import schema

    options = current_options()
    differences = schema.check(ledger_url(options))
    emit(Listing("differences", ("difference",), [(text,) for text in differences]), options)
    note(f"{len(differences)} differences from schema {schema.HEAD}", options)
    return ExitCode.SCHEMA if differences else ExitCode.OK


@click.command(cls=Command, examples=("ledgerctl db upgrade", "ledgerctl db upgrade -L postgresql://owner@host/acp"))
def upgrade() -> int:
    """Apply the schema revisions that are missing, in one transaction; the daemon must be stopped.

    Exits with 11 while a daemon has the ledger.
    """
    from acp_ledger.store import schema

    options = current_options()
    applied = schema.upgrade(ledger_url(options))
    emit(Listing("applied", ("revision",), [(revision,) for revision in applied]), options)
    note(f"the ledger is at {schema.HEAD}{'' if applied else ' already'}", options)
    return ExitCode.OK
