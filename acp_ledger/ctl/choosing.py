"""Which rows a list shows: what its filters say, and the choice of lines and events.

What must not be broken here: a row is left out only by a filter that somebody typed, and the newest rows are those that
the ledger wrote last, whatever their times say.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from acp_ledger.ctl.reading import find, last_session
from acp_ledger.ctl.times import as_rfc3339, as_text
from acp_ledger.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlalchemy import Connection

    from acp_ledger.store.queries import Filter

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


def selected(read: Callable[[Filter], Iterable[Any]], base: Filter, wanted: Wanted, limit: int | None) -> Iterator[Any]:
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


def listed_events(connection: Connection, chosen: Filter) -> Iterator[Any]:
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
    return selected(lambda chosen: listed_events(connection, chosen), base, wanted, limit)


def within(at: str, chosen: Filter) -> bool:
    """Tell whether a time is asked for: the edge of `since` is, that of `until` is not."""
    return (chosen.since is None or at >= chosen.since) and (chosen.until is None or at < chosen.until)
