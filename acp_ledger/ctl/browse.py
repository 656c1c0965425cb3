"""The lists: sessions, events, decisions, agents, coverage.

What must not be broken here: a list is one audit view, its columns unchanged, and what the list does not cover (kinds
that were not recorded as steps, gaps, anomalies, questions without an answer) is said beside it.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from acp_ledger.ctl.options import Command, Options, current_options, with_ledger
from acp_ledger.ctl.reading import find, last_session, open_ledger
from acp_ledger.ctl.render import Listing, draws, emit, note
from acp_ledger.ctl.times import as_rfc3339, as_text
from acp_ledger.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlalchemy import Connection

    from acp_ledger.store.queries import Filter

SCREEN_ROWS: Final = 20
"""How many rows a list shows on a terminal where `-n` does not say."""

MOST_KINDS: Final = 8
"""How many words of the wire a note names before it counts the rest."""

_Decorated = TypeVar("_Decorated", bound="Callable[..., Any]")


@dataclass(frozen=True)
class Wanted:
    """What the filters of a list say."""

    lines: int | None
    reverse: bool
    grep: str | None
    since: str | None
    until: str | None
    session: str | None
    last: bool
    agent: str | None
    editor: str | None
    cwd: str | None
    require_match: bool


def list_filters(function: _Decorated) -> _Decorated:
    """Add the filters that every list takes."""
    options = (
        click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the N newest rows."),
        click.option("-r", "--reverse", is_flag=True, help="Newest first."),
        click.option("-g", "--grep", metavar="REGEX", help="Only rows with a text this matches."),
        click.option(
            "-S",
            "--since",
            metavar="TIME",
            help="From this time on: `2h`, `yesterday`, `15:04`, RFC 3339; all of systemd.time(7).",
        ),
        click.option("-U", "--until", metavar="TIME", help="Before this time."),
        click.option("--session", metavar="ID", help="Only this session: its id or a unique beginning of it."),
        click.option("--last", is_flag=True, help="Only the session opened last."),
        click.option("--agent", metavar="NAME", help="Only this agent."),
        click.option("--editor", metavar="NAME", help="Only this editor, by the name it gave itself."),
        click.option("--cwd", metavar="DIR", help="Only sessions opened in this directory."),
        click.option("--require-match", is_flag=True, help="Exit with 4 when nothing matches."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def chosen_filter(connection: Connection, wanted: Wanted) -> Filter:
    """Turn the filters of a list into those of the ledger; ids and `--last` are looked up."""
    from acp_ledger.store.queries import Filter

    every = Filter(
        agent=wanted.agent,
        client=wanted.editor,
        cwd=None if wanted.cwd is None else os.path.abspath(wanted.cwd),  # noqa: PTH100  # a link stays the name it has
        since=_time(wanted.since),
        until=_time(wanted.until),
    )
    if wanted.last:
        key = last_session(connection, every)
        return replace(every, transport_id=key.transport_id, session_id=key.session_id)
    if wanted.session is None:
        return every
    found = find(connection, wanted.session, ("session", "transport"))
    only = found[0].transport_id if len(found) == 1 else None
    if found[0].kind == "transport":
        return replace(every, transport_id=only)
    return replace(every, transport_id=only, acp_session_id=found[0].id)


def _time(word: str | None) -> str | None:
    return None if word is None else as_rfc3339(word)


def compiled(wanted: Wanted) -> re.Pattern[str] | None:
    """Compile the pattern of `-g`.

    Raises:
        UsageError: It is none.
    """
    try:
        return None if wanted.grep is None else re.compile(wanted.grep)
    except re.error as error:
        raise UsageError(
            f"-g {wanted.grep!r} is no regular expression: {error}", hint="quote it: -g 'npm.*test'"
        ) from error


def _limit(wanted: Wanted, options: Options) -> int | None:
    """Give the number of rows: as typed, else one screen on a terminal, else all."""
    if wanted.lines is not None:
        return wanted.lines
    return SCREEN_ROWS if draws(options) else None


def _select(read: Callable[[Filter], Iterable[Any]], base: Filter, wanted: Wanted, limit: int | None) -> Iterator[Any]:
    """Give the newest `limit` rows that match, oldest first unless reversed; without a limit they stream."""
    pattern = compiled(wanted)
    backwards = wanted.reverse or limit is not None
    # The ledger can count the rows only where it alone decides which of them match.
    bound = limit if pattern is None else None
    rows = (row for row in read(replace(base, reverse=backwards, limit=bound)) if matches(row, pattern))
    chosen = itertools.islice(rows, limit)
    if backwards and not wanted.reverse:
        return iter(list(chosen)[::-1])
    return iter(chosen)


def matches(row: Iterable[object], pattern: re.Pattern[str] | None) -> bool:
    """Tell whether a text of a row matches."""
    return pattern is None or any(isinstance(value, str) and pattern.search(value) for value in row)


def columns_of(row_type: type) -> tuple[str, ...]:
    """Name the columns of a view by the fields of its row."""
    return tuple(field.rstrip("_") for field in getattr(row_type, "_fields", ()))


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
        rows = _select(lambda chosen: read(connection, chosen), base, wanted, limit)
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
    starts anew is nothing to it, and a ledger that cannot be read is tried again until it can.
    """
    narrow = ("frame_seq", "at", "event", "direction", "kind", "method", "session_update", "byte_count", "detail")
    if follows:
        from acp_ledger.ctl.follow import follow

        return follow(typed, ("transport_id", *narrow))
    from acp_ledger.store import answers

    return _run("events", answers.LedgerEvent, _events, narrow, typed, uncovered)


def _events(connection: Connection, chosen: Filter) -> Iterator[Any]:
    """Read lines and events with their times as the views write them."""
    from acp_ledger.store import queries

    timed = chosen.since is not None or chosen.until is not None
    # These rows have no time to narrow by in the ledger, so it cannot count them either.
    for row in map(as_shown, queries.events(connection, replace(chosen, limit=None) if timed else chosen)):
        if within(row.at, chosen):
            yield row


def as_shown(row: Any) -> Any:
    """Give a line or an event with its time as the views write it."""
    return row._replace(at=as_text(row.at))


def chosen_rows(connection: Connection, base: Filter, wanted: Wanted, limit: int | None) -> Iterator[Any]:
    """Give the newest `limit` lines and events that are asked for, oldest first."""
    return _select(lambda chosen: _events(connection, chosen), base, wanted, limit)


def within(at: str, chosen: Filter) -> bool:
    """Tell whether a time is asked for: the edge of `since` is, that of `until` is not."""
    return (chosen.since is None or at >= chosen.since) and (chosen.until is None or at < chosen.until)


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

    A process without a `closed_at` has no end in the ledger; `ledgerctl status` asks the daemon whether it lives.
    """
    from acp_ledger.store import answers

    narrow = (
        "transport_id",
        "agent",
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
