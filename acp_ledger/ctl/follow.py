"""`ledgerctl events -f`: the rows of a ledger as they are committed, until somebody ends it.

What must not be broken here: only committed rows are shown, each once, from the ledger itself, so that a daemon that
is down or starts anew changes nothing. It waits without turning, holds no transaction while it waits, and ends at once
when nobody reads any more.
"""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING, Any, Final

from acp_ledger.ctl.choosing import Wanted, as_shown, chosen_filter, chosen_rows, columns_of, compiled, matches, within
from acp_ledger.ctl.options import Options, current_options
from acp_ledger.ctl.reading import ledger_url, open_ledger
from acp_ledger.ctl.render import Listing, emit, note
from acp_ledger.ctl.times import as_rfc3339
from acp_ledger.errors import ExitCode, NoLedger, StoreFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from acp_ledger.store.follow import Place

ROWS_BEFORE: Final = 10
"""How many rows of what is there already are shown first, as `journalctl -f` and `tail -f` do."""

LOOK_SECONDS: Final = {"sqlite": 0.2, "postgresql": 0.5}
"""How long to wait between two looks. SQLite tells without reading that nothing was committed; Postgres is asked."""

RETRY_SECONDS: Final = 1.0
"""How long to wait before a ledger that cannot be read is tried again."""


def follow(typed: dict[str, Any], narrow: tuple[str, ...]) -> int:
    """Write what is there and then what is committed, until `--until`, an interrupt, or the reader's end."""
    from acp_ledger.store.answers import LedgerEvent

    options, wanted = current_options(), Wanted(**typed)
    _refuse_endless(options, wanted)
    rows = _Followed(options, wanted).rows()
    count = emit(Listing("events", columns_of(LedgerEvent), rows, narrow, live=True), options)
    return ExitCode.NOTHING_MATCHED if wanted.require_match and count == 0 else ExitCode.OK


def _refuse_endless(options: Options, wanted: Wanted) -> None:
    if options.output == "json":
        raise UsageError("-f has no end, and a JSON document needs one", hint="use -o jsonl: one object a line")
    if wanted.reverse:
        raise UsageError("-f shows what comes, and -r shows the newest first", hint="leave one of them out")


class _Followed:
    """A ledger that is followed, over as many connections as it takes."""

    def __init__(self, options: Options, wanted: Wanted) -> None:
        self._options, self._wanted = options, wanted
        self._pattern = compiled(wanted)
        self._place: Place | None = None
        self._lost = False

    def rows(self) -> Iterator[Any]:
        """Give rows as they are committed; a ledger that cannot be read once it was is tried again for ever."""
        from acp_ledger.store.follow import AnotherLedger

        while True:
            file = _WatchedFile(self._options)
            try:
                with open_ledger(self._options) as connection:
                    yield from self._begin(connection)
                    yield from self._looks(connection, file)
                    return
            except StoreFault as failure:
                if self._place is None or isinstance(failure, AnotherLedger):
                    raise
                self._say_lost(failure)
            _wait(RETRY_SECONDS)

    def _say_lost(self, failure: StoreFault) -> None:
        if not self._lost:
            note(f"-- {failure.message}; trying again every {RETRY_SECONDS:g} s --", self._options)
        self._lost = True

    def _begin(self, connection: Connection) -> Iterator[Any]:
        from acp_ledger.store import follow

        if self._place is None:
            base = chosen_filter(connection, self._wanted)
            # First the place, then the rows before it: what is committed in between is met by one of them.
            self._place = follow.start(connection, base)
            yield from self._before(connection, self._place)
            return
        follow.resume(connection, self._place)
        note("-- the ledger can be read again --", self._options)
        self._lost = False

    def _before(self, connection: Connection, place: Place) -> Iterator[Any]:
        """Give the last rows that are there: as many as `-n` says, all of them behind `--since`, else a few."""
        limit = self._wanted.lines
        if limit is None and place.wanted.since is None:
            limit = ROWS_BEFORE
        for row in chosen_rows(connection, place.wanted, self._wanted, limit):
            place.seen(row)
            yield row
        connection.rollback()

    def _looks(self, connection: Connection, file: _WatchedFile) -> Iterator[Any]:
        from acp_ledger.store import follow

        place, more = self._place, False
        while place is not None:
            file.check()
            is_over = place.wanted.until is not None and as_rfc3339("now") >= place.wanted.until
            if more or follow.changed(connection, place):
                found = follow.fresh(connection, place)
                yield from (row for row in map(as_shown, found.rows) if self._is_asked(row, place))
                more = found.more
            if is_over and not more:
                return
            if not more:
                _wait(LOOK_SECONDS[connection.dialect.name])

    def _is_asked(self, row: Any, place: Place) -> bool:
        return matches(row, self._pattern) and within(row.at, place.wanted)


class _WatchedFile:
    """The file of an SQLite ledger: once it was moved away, whoever has it open would wait for ever."""

    def __init__(self, options: Options) -> None:
        from acp_ledger.store.engine import sqlite_file

        self._path = sqlite_file(ledger_url(options))
        self._opened = self._identity()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = None if self._path is None else self._path.stat()
        except OSError:
            return None
        return None if found is None else (found.st_dev, found.st_ino)

    def check(self) -> None:
        """Look whether the file is still there.

        Raises:
            NoLedger: It was moved, removed or replaced.
        """
        if self._identity() != self._opened:
            raise NoLedger(f"the ledger is no longer at {self._path}")


def _wait(seconds: float) -> None:
    """Hand over what was written, and wait; a reader that went away ends the waiting at once.

    Raises:
        BrokenPipeError: Nobody reads stdout any more.
    """
    sys.stdout.flush()
    reader = select.poll()
    reader.register(sys.__stdout__ or 1, 0)
    if reader.poll(seconds * 1000):
        raise BrokenPipeError
