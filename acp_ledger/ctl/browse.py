"""The lists: sessions, events, decisions, agents, coverage.

What must not be broken here: a list is one audit view, its columns unchanged, and what the list does not cover (kinds
that were not recorded as steps, gaps, anomalies, questions without an answer) is said beside it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from acp_ledger.ctl.choosing import Wanted, chosen_filter, columns_of, list_filters, listed_events, selected
from acp_ledger.ctl.options import Command, Options, current_options, with_ledger
from acp_ledger.ctl.reading import open_ledger
from acp_ledger.ctl.render import Listing, draws, emit, note
from acp_ledger.ctl.times import as_text
from acp_ledger.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlalchemy import Connection

    from acp_ledger.store.queries import Filter

SCREEN_ROWS: Final = 20
"""How many rows a list shows on a terminal where `-n` does not say."""

MOST_KINDS: Final = 8
"""How many words of the wire a note names before it counts the rest."""


def _limit(wanted: Wanted, options: Options) -> int | None:
    """Give the number of rows: as typed, else one screen on a terminal, else all."""
    if wanted.lines is not None:
        return wanted.lines
    return SCREEN_ROWS if draws(options) else None


def _run(
    name: str,
    row_type: type,
    read: Callable[[Connection, Filter], Iterable[Any]],
    narrow: tuple[str, ...],
    typed: dict[str, Any],
    footer: Callable[[Connection, Filter, list[Any]], Iterable[str]],
) -> int:
    """Write a list and what must be said beside it; return the exit code."""
    options, wanted = current_options(), Wanted(**typed)
    with open_ledger(options) as connection:
        base = chosen_filter(connection, wanted)
        limit = _limit(wanted, options)
        seen: list[Any] = []
        rows = selected(lambda chosen: read(connection, chosen), base, wanted, limit)
        # Machine forms stream; beside a table stand notes, and notes need the rows.
        kept = _keep(rows, seen) if options.output == "table" else rows
        count = emit(Listing(name, columns_of(row_type), kept, narrow), options)
        if options.output == "table" and options.columns != "help":
            _say(footer(connection, base, seen), count, name, limit, options)
    return ExitCode.NOTHING_MATCHED if wanted.require_match and count == 0 else ExitCode.OK


def _keep(rows: Iterable[Any], seen: list[Any]) -> Iterator[Any]:
    for row in rows:
        seen.append(row)
        yield row


def _say(notes: Iterable[str], count: int, name: str, limit: int | None, options: Options) -> None:
    more = f"; the newest {limit} at most, -n shows more" if limit is not None and count == limit else ""
    noun = "words" if name == "coverage" else name
    note(f"{count:,} {noun.removesuffix('s') if count == 1 else noun}{more}", options)
    for text in notes:
        note(text, options)


def uncovered(connection: Connection, base: Filter, rows: list[Any]) -> Iterator[str]:
    """Say what the sessions of `rows` hold that is no step, and what an auditor must know about them."""
    from acp_ledger.store import queries

    transports = sorted({row.transport_id for row in rows})
    filters = [replace(base, transport_id=one) for one in transports] if len(transports) <= SCREEN_ROWS else [base]
    counts: dict[str, int] = {}
    anomalies = gaps = 0
    sees_gaps = queries.may_read(connection, "gaps")
    for chosen in filters:
        for row in queries.coverage(connection, chosen):
            if row.recorded_as != "step":
                counts[row.word] = counts.get(row.word, 0) + row.count
        anomalies += sum(1 for _ in queries.anomalies(connection, chosen))
        gaps += sum(1 for _ in queries.gaps(connection, chosen)) if sees_gaps else 0
    if counts:
        listed = with_ledger("ledgerctl coverage", current_options())
        yield f"not recorded as steps: {counted_words(counts)} ({listed})"
    yield f"anomalies: {anomalies:,}; declared gaps: {f'{gaps:,}' if sees_gaps else 'an auditor may see them'}"


def counted_words(counts: dict[str, int]) -> str:
    """Name the most frequent words with their counts, and how many more there are."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{count:,} {word}" for word, count in ordered[:MOST_KINDS])
    rest = sum(count for _, count in ordered[MOST_KINDS:])
    return f"{named}, and {rest:,} of {len(ordered) - MOST_KINDS:,} more kinds" if rest else named


def _nothing(_connection: Connection, _base: Filter, _rows: list[Any]) -> Iterator[str]:
    return iter(())


def _open_questions(_connection: Connection, _base: Filter, rows: list[Any]) -> Iterator[str]:
    for outcome in ("open", "unanswered"):
        count = sum(1 for row in rows if row.outcome == outcome)
        if count:
            yield f"{count:,} {outcome}"
    yield "asked and decided: when the daemon read the line; the answer was sent after its row was committed"


@click.command(
    cls=Command,
    examples=(
        "ledgerctl sessions -n 5",
        "ledgerctl sessions --cwd . -r",
        "ledgerctl sessions -S yesterday --agent claude -o json",
    ),
)
@list_filters
def sessions(**typed: Any) -> int:
    """List sessions: one row of `audit_sessions` each, oldest first."""
    from acp_ledger.store import answers, queries

    narrow = ("acp_session_id", "agent", "first_at", "turns", "tool_calls", "questions", "allowed", "last_outcome")
    return _run("sessions", answers.Session, queries.sessions, narrow, typed, uncovered)


@click.command(
    cls=Command,
    examples=(
        "ledgerctl events --last",
        "ledgerctl events --session 01k5 -g request_permission -o jsonl",
        "ledgerctl events -f",
        "ledgerctl events -f -S today -o jsonl | ship-to-siem",
    ),
)
@list_filters
@click.option("-f", "--follow", "follows", is_flag=True, help="Then show what is committed, as it is committed.")
def events(*, follows: bool, **typed: Any) -> int:
    """List every line and every event of a transport in the order of their numbers.

    With -f the newest 10 rows (-n and -S say otherwise) are followed by those that are committed from now on, until
    Ctrl-C (130), until nobody reads them (141), or until -U. It reads the ledger alone: a daemon that is down or
    starts anew is nothing to it, and a ledger that cannot be read any more is tried again until it can; one that is
    not there at the beginning ends it with 10.
    """
    narrow = ("frame_seq", "at", "event", "direction", "kind", "method", "session_update", "byte_count", "detail")
    if follows:
        from acp_ledger.ctl.follow import follow

        return follow(typed, ("transport_id", *narrow))
    from acp_ledger.store import answers

    return _run("events", answers.LedgerEvent, listed_events, narrow, typed, uncovered)


@click.command(
    cls=Command,
    examples=("ledgerctl decisions -r -n 10", "ledgerctl decisions -g reject -o csv > answers.csv"),
)
@list_filters
def decisions(**typed: Any) -> int:
    """List permission questions and their answers: one row of `audit_decisions` each."""
    from acp_ledger.store import answers, queries

    narrow = ("asked_at", "tool_call_id", "detail", "outcome", "option_kind", "decided_by", "rule", "waited_ms")
    return _run("decisions", answers.Decision, queries.decisions, narrow, typed, _open_questions)


@click.command(
    cls=Command,
    examples=(
        "ledgerctl agents -S today",
        "ledgerctl agents --agent claude --columns opened_at,pid,signal,stderr_tail",
    ),
)
@list_filters
def agents(**typed: Any) -> int:
    """List agent processes, live and past: who ran, which version, for how long, and how it ended.

    AGENT is the name it was started under (--agent, else its program's), REPORTED_NAME what it calls itself.
    A process without a `closed_at` has no end in the ledger; `ledgerctl status` asks the daemon whether it lives.
    """
    from acp_ledger.store import answers

    narrow = (
        "transport_id",
        "agent",
        "reported_name",
        "agent_version",
        "client",
        "opened_at",
        "last_at",
        "sessions",
        "turns",
        "close_reason",
    )
    return _run("agents", answers.AgentRun, _agents, narrow, typed, _without_end)


def _agents(connection: Connection, chosen: Filter) -> Iterator[Any]:
    from acp_ledger.store.agents import agents as processes

    row: Any
    for row in processes(connection, chosen):
        yield row._replace(last_at=as_text(row.last_at))


def _without_end(_connection: Connection, _base: Filter, rows: list[Any]) -> Iterator[str]:
    count = sum(1 for row in rows if row.closed_at is None)
    if count:
        yield f"{count:,} without an end in the ledger"


@click.command(
    cls=Command,
    examples=("ledgerctl coverage --last", "ledgerctl coverage -g 'frame only' -o csv"),
)
@list_filters
def coverage(**typed: Any) -> int:
    """List what became of every word of the wire: a step, text that was kept, or the frame alone."""
    from acp_ledger.store import answers, queries

    narrow = ("transport_id", "direction", "word", "recorded_as", "count", "replayed")
    return _run("coverage", answers.Coverage, queries.coverage, narrow, typed, _nothing)
