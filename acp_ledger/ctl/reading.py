"""Finding and opening the ledger that a command reads, and turning the ids that people type into rows.

What must not be broken here: reading needs no daemon and changes nothing, and an id that could mean two things is never
guessed: the candidates are listed.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from acp_ledger import paths
from acp_ledger.ctl.render import note
from acp_ledger.errors import DatabaseRefused, LedgerError, NoLedger, StoreFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.exc import SQLAlchemyError

    from acp_ledger.ctl.options import Options
    from acp_ledger.settings import Settings
    from acp_ledger.store.answers import Match
    from acp_ledger.store.queries import Filter

SHORTEST_PREFIX: Final = 4
_SETTINGS: Final = "ACP_LEDGER_"
_WARNED: Final = "acp_ledger.ctl.reading.warned"


class NothingFoundError(LedgerError):
    """No row has this id."""


class SessionKey(NamedTuple):
    """A session of the ledger."""

    transport_id: int
    session_id: int


def settings_of(options: Options) -> Settings:
    """Load the settings as the daemon would, and warn of a password in them that others may read."""
    settings = load_settings(options)
    _warn_exposed(settings, options)
    return settings


def load_settings(options: Options) -> Settings:
    """Load the settings as the daemon would."""
    from acp_ledger.settings import load

    overrides = {"database.url": as_url(options.ledger)} if options.ledger else {}
    return load(_config_file(options), overrides)


def _warn_exposed(settings: Settings, options: Options) -> None:
    """Say once in a run that others may read a settings file with a password in it."""
    import click

    from acp_ledger.settings import EXPOSED

    file = settings.exposed_file()
    context = click.get_current_context(silent=True)
    said = {} if context is None else context.find_root().meta
    if file is None or said.setdefault(_WARNED, False):
        return
    said[_WARNED] = True
    note(f"warning: {file}: {EXPOSED}", options)
    note(f"hint: chmod 600 {shlex.quote(os.fspath(file))}", options)


def ledger_url(options: Options) -> str:
    """Give the ledger's URL: the flag, else the settings; nothing is imported for the default one."""
    if options.ledger:
        return as_url(options.ledger)
    if options.config is None and not _is_configured():
        return paths.default_ledger_url(os.environ, os.getuid())
    return settings_of(options).database.url.text


def as_url(text: str) -> str:
    """Take a database URL as it is, and a path as that of an SQLite file.

    Raises:
        UsageError: It is no address of a ledger.
    """
    from acp_ledger.ledger_url import LedgerUrl

    try:
        return LedgerUrl.parse(text if "://" in text else f"sqlite:///{text}").text
    except ValueError as error:
        # Where a URL's parts cannot be told apart, any of them may be a password.
        shown = text if "://" not in text or text.startswith("sqlite") else f"{text.partition('://')[0]}://…"
        raise UsageError(
            f"-L {shown}: {error}", hint="name a file, or write postgresql://user@host/database"
        ) from error


def _config_file(options: Options) -> Path | None:
    return Path(options.config) if options.config else None


def _is_configured() -> bool:
    """Tell whether a file or the environment sets anything; importing the settings costs 250 ms."""
    named = any(name.startswith(_SETTINGS) for name in os.environ)
    return named or any(Path(file).exists() for file in paths.config_files(os.environ, os.getuid()))


@contextmanager
def open_ledger(options: Options) -> Iterator[Connection]:
    """Open the ledger for reading only."""
    import logging

    from sqlalchemy.exc import SQLAlchemyError

    from acp_ledger.store import engine

    # Whoever closes our pipe early leaves us a cursor that outlives its connection, which SQLAlchemy would tell him.
    logging.getLogger("sqlalchemy").addHandler(logging.NullHandler())
    url = ledger_url(options)
    reader = engine.open_reader(url)
    try:
        with reader.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise _unreadable(url, error) from error
    finally:
        reader.dispose()


def _unreadable(url: str, error: SQLAlchemyError) -> StoreFault:
    """Say why a database cannot be read: it holds no ledger, or it refuses."""
    from acp_ledger.store.faults import NOT_ALLOWED, driver_error

    words = str(driver_error(error)).partition("\n")[0]
    if getattr(driver_error(error), "sqlstate", None) == NOT_ALLOWED:
        return DatabaseRefused(f"this role may not read all that is asked for: {words}", hint=_as_auditor(url))
    if "no such table" in words or "does not exist" in words:
        return NoLedger(f"there is no ledger in {url}: {words}", hint="ledgerctl db check")
    return DatabaseRefused(f"the ledger {url} cannot be read: {words}", hint="ledgerctl db check")


def _as_auditor(url: str) -> str:
    """Give the command again, for a role that may read tables; a reader has the views alone."""
    import click
    from sqlalchemy import make_url

    context = click.get_current_context(silent=True)
    command = "ledgerctl" if context is None else context.command_path
    named = make_url(url).set(username="AUDITOR", password=None).render_as_string()
    return f"ask as an auditor: {command} -L {shlex.quote(named)}"


def find(connection: Connection, text: str, kinds: Sequence[str]) -> list[Match]:
    """Find what an id, or a unique beginning of at least four characters, means.

    Exact matches win over beginnings. Several matches are given back only when they are the same id on several
    transports, newest last.

    Raises:
        NothingFoundError: There is none.
        UsageError: It may mean different things; they are listed.
    """
    from acp_ledger.store import queries

    transport, slash, rest = text.partition("/")
    qualified = bool(slash) and transport.isdigit()
    wanted = rest if qualified else text
    found = [match for match in queries.resolve(connection, wanted) if match.kind in kinds]
    if qualified:
        found = [match for match in found if match.transport_id == int(transport)]
    exact = [match for match in found if match.id == wanted]
    if not exact and len(wanted) < SHORTEST_PREFIX:
        found = []
    return _unambiguous(text, exact or found, kinds)


def _unambiguous(text: str, found: list[Match], kinds: Sequence[str]) -> list[Match]:
    if not found:
        raise NothingFoundError(f"no {' or '.join(kinds)} {text!r} in this ledger", hint="ledgerctl sessions")
    if len({(match.kind, match.id) for match in found}) > 1:
        listed = ", ".join(f"{match.kind} {match.transport_id}/{match.id}" for match in found[:10])
        raise UsageError(f"{text!r} may mean {len(found)} things: {listed}", hint="write more of the id")
    return found


def last_session(connection: Connection, among: Filter) -> SessionKey:
    """Give the session that was opened last among those a filter leaves, whenever that was.

    Raises:
        NothingFoundError: There is none.
    """
    from acp_ledger.store import queries

    wanted = replace(among, since=None, until=None, limit=1, reverse=True)
    for row in queries.sessions(connection, wanted):
        return SessionKey(row.transport_id, row.session_id)
    raise NothingFoundError("there is no session yet", hint="put acp-ledger-run before the agent's command")
