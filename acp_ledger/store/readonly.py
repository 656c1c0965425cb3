"""One statement of a person, run on the ledger so that it can read and do nothing else.

What must not be broken here: nothing that comes in as text is trusted to be a SELECT. On SQLite the database is opened
read-only, `query_only` is on and an authorizer refuses every action that is not on a short list; on Postgres the
statement runs alone in a READ ONLY transaction that is always rolled back. Time, rows and bytes are bounded, and what
was cut is said.
"""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from acp_ledger.errors import ExitCode, LedgerError, UsageError
from acp_ledger.store import engine
from acp_ledger.store.views import view_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import psycopg
    from sqlalchemy import Connection

Value: TypeAlias = str | bytes | int | float | bool | None

HINT_READING: Final = "this command reads: start with SELECT or WITH; the ledger is written by acp-ledgerd alone"
HINT_NAMES: Final = f"the views are {', '.join(view_names())}; their columns: docs/schema.md"
HINT_RIGHTS: Final = "a reader may read the audit_ views; for tables ask as an auditor, or as the writer"
HINT_NARROW: Final = "narrow it with WHERE or LIMIT, or raise the limit"

FIRST_WORDS: Final = frozenset({"select", "with", "values", "explain", "pragma", "table", "show"})

READ_PRAGMAS: Final = frozenset(
    {
        "collation_list",
        "compile_options",
        "foreign_key_list",
        "function_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "table_info",
        "table_list",
        "table_xinfo",
    }
)
"""Pragmas of SQLite that have no writing form."""

_READ_TABLE_FUNCTIONS: Final = ("json_each", "json_tree", "pragma_table_info", "pragma_index_list", "pragma_index_info")

REFUSED_FUNCTIONS: Final = frozenset({"edit", "fts3_tokenizer", "load_extension", "readfile", "writefile"})
"""SQLite functions that load code or reach files; some builds have them."""

REFUSED_ON_POSTGRES: Final = re.compile(
    r"\b(pg_read_\w*file|pg_stat_file|pg_ls_\w+|pg_file_\w+|lo_\w+|dblink\w*|query_to_xml\w*|cursor_to_xml\w*"
    r"|table_to_xml\w*|schema_to_xml\w*|database_to_xml\w*|pg_terminate_backend|pg_cancel_backend|pg_reload_conf"
    r"|pg_rotate_logfile|pg_switch_wal|pg_create_\w+|pg_drop_\w+|pg_promote|pg_backup_\w+|pg_logical_\w+"
    r"|pg_replication_\w+|pg_try_advisory_\w+|pg_advisory_\w+|set_config|pg_sleep\w*|pg_notify)\b",
    re.IGNORECASE,
)
"""Functions a READ ONLY transaction lets through although they reach files, other sessions or settings."""

_UNKNOWN_NAMES: Final = frozenset({"42P01", "42703"})
"""Postgres's states for a table and for a column that there is not."""

_COMMENT: Final = re.compile(r"\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/|\(|;", re.DOTALL)
_PLACES: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|::|:(?P<name>[a-z_]\w*)|%""", re.DOTALL | re.IGNORECASE
)
_STEPS_BETWEEN_LOOKS: Final = 1000
_ACTIONS: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a statement: `seconds` of running, `rows` and `total_bytes` of its answer, `value_bytes` of one value.

    On Postgres a value over `value_bytes` is cut after it came over the wire; on SQLite it is never built.
    """

    seconds: float = 30.0
    rows: int = 10_000
    total_bytes: int = 64 * 1024 * 1024
    value_bytes: int = 64 * 1024 * 1024 + 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a statement; `cut` says in words what is missing from them, and is empty when nothing is."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    cut: tuple[str, ...]


class StatementRefused(UsageError):
    """The statement is not one that only reads, or the database would not run it."""

    exit_code = ExitCode.USAGE


class StatementTooLarge(LedgerError):
    """The statement ran out of its time or built a value over the bound."""

    exit_code = ExitCode.FAILED


def run_statement(
    url: str, statement: str, limits: Limits | None = None, values: Mapping[str, str | int] | None = None
) -> Answer:
    """Run `statement` on the ledger at `url` and return its rows, bounded by `limits`.

    `values` are bound where the statement names them, as `:name`.

    Raises `StatementRefused` when it does more than read, `StatementTooLarge` when it passes a bound that cannot be
    answered by cutting, and what opening a ledger raises.
    """
    bounds = limits or Limits()
    _check_first_word(statement)
    reader = engine.open_reader(url)
    try:
        with reader.connect() as connection:
            run = _run_sqlite if connection.dialect.name == "sqlite" else _run_postgres
            return run(connection, statement, bounds, values or {})
    finally:
        reader.dispose()


def _check_first_word(statement: str) -> None:
    position = 0
    while (blank := _COMMENT.match(statement, position)) is not None:
        position = blank.end()
    word = re.match(r"\w*", statement[position:])
    first = word.group().lower() if word else ""
    if first not in FIRST_WORDS:
        raise StatementRefused(f"refused: a statement that starts with {first.upper() or 'nothing'}", hint=HINT_READING)


@dataclass(slots=True)
class _Collected:
    """Rows taken up to the bounds, and what was left behind."""

    limits: Limits
    rows: list[tuple[Value, ...]]
    cut: list[str]
    size: int = 0

    def take(self, rows: Iterable[tuple[Value, ...]]) -> None:
        for row in rows:
            if len(self.rows) == self.limits.rows:
                self.cut.append(f"only the first {self.limits.rows:,} rows are shown; {HINT_NARROW}")
                return
            kept = tuple(self._bounded(value) for value in row)
            self.size += sum(_size(value) for value in kept)
            if self.size > self.limits.total_bytes:
                self.cut.append(
                    f"only the first {len(self.rows):,} rows are shown: more than {self.limits.total_bytes:,} bytes; "
                    f"{HINT_NARROW}"
                )
                return
            self.rows.append(kept)

    def _bounded(self, value: Value) -> Value:
        if not isinstance(value, str | bytes) or len(value) <= self.limits.value_bytes:
            return value
        note = f"a value of {len(value):,} is cut to {self.limits.value_bytes:,}"
        if note not in self.cut:
            self.cut.append(note)
        return value[: self.limits.value_bytes]

    def answer(self, columns: Iterable[str]) -> Answer:
        return Answer(tuple(columns), tuple(self.rows), tuple(self.cut))


def _size(value: Value) -> int:
    return len(value) if isinstance(value, str | bytes) else 8


# --- SQLite


def _run_sqlite(connection: Connection, statement: str, limits: Limits, values: Mapping[str, str | int]) -> Answer:
    raw = connection.connection.driver_connection
    if not isinstance(raw, sqlite3.Connection):
        raise TypeError(f"not a connection of the standard sqlite3: {type(raw)}")
    _lock_down(raw, limits)
    collected = _Collected(limits, [], [])
    try:
        with closing(raw.cursor()) as cursor:
            cursor.execute(statement, values)
            collected.take(cursor)
            return collected.answer(column[0] for column in cursor.description or ())
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        raise _sqlite_fault(error, limits) from error


def _lock_down(raw: sqlite3.Connection, limits: Limits) -> None:
    """Take from the connection everything but reading, for good: it is closed after its statement."""
    for function in _READ_TABLE_FUNCTIONS:
        # A table-valued function is declared at its first use, which the authorizer would take for a write.
        raw.execute(f"SELECT 1 FROM {function}(NULL)").close()  # noqa: S608  (names from the list above)
    raw.execute("PRAGMA query_only = ON")
    raw.execute("PRAGMA trusted_schema = OFF")
    raw.row_factory = None
    raw.text_factory = _readable
    raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.value_bytes)
    raw.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    raw.set_progress_handler(_deadline(limits.seconds), _STEPS_BETWEEN_LOOKS)
    raw.set_authorizer(_authorize)


def _readable(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _deadline(seconds: float) -> Callable[[], int]:
    end = time.monotonic() + seconds
    return lambda: int(time.monotonic() > end)


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    """The authorizer: a short list of actions is allowed, everything else is refused, whatever SQLite adds later."""
    if action in _ACTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in READ_PRAGMAS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _sqlite_fault(error: Exception, limits: Limits) -> LedgerError:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_INTERRUPT:
        return _out_of_time(limits)
    if code == sqlite3.SQLITE_TOOBIG or isinstance(error, OverflowError):
        return StatementTooLarge(f"a value of the statement is over {limits.value_bytes:,} bytes", hint=HINT_NARROW)
    if code in {sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY} or "not authorized" in str(error):
        return StatementRefused(f"refused: {error}", hint=HINT_READING)
    if "one statement at a time" in str(error):
        return StatementRefused("refused: more than one statement", hint="run them one by one")
    hint = HINT_NAMES if str(error).startswith(("no such table", "no such column")) else None
    return StatementRefused(f"the database does not understand the statement: {error}", hint=hint)


def _out_of_time(limits: Limits) -> LedgerError:
    return StatementTooLarge(f"the statement did not end within {limits.seconds:g} s and was stopped", hint=HINT_NARROW)


# --- Postgres


def _run_postgres(connection: Connection, statement: str, limits: Limits, values: Mapping[str, str | int]) -> Answer:
    named = REFUSED_ON_POSTGRES.search(statement)
    if named is not None:
        raise StatementRefused(f"refused: {named.group()} reaches past reading the ledger", hint=HINT_READING)
    # Imported here: psycopg is an extra, and only a Postgres URL brings anybody here.
    import psycopg  # noqa: PLC0415  (see above)

    raw = connection.connection.driver_connection
    if not isinstance(raw, psycopg.Connection):
        raise TypeError(f"not a connection of psycopg: {type(raw)}")
    collected = _Collected(limits, [], [])
    try:
        _begin_read_only(raw, limits)
        with raw.cursor() as cursor:
            query, given = _placed(statement, values).encode(), values or None
            collected.take(cursor.stream(query, given))
            if cursor.description is None:
                # A stream without rows tells no columns; prepared, and so still one statement, it does.
                cursor.execute(query, given, prepare=True)
            return collected.answer(column.name for column in cursor.description or ())
    except psycopg.Error as error:
        raise _postgres_fault(error, limits) from error
    finally:
        connection.invalidate()


def _placed(statement: str, values: Mapping[str, str | int]) -> str:
    """Write `:name` as psycopg has it, outside of texts, names and comments; without values nothing is changed."""

    def placed(found: re.Match[str]) -> str:
        name = found["name"]
        return f"%({name})s" if name in values else found[0].replace("%", "%%")

    return _PLACES.sub(placed, statement) if values else statement


def _begin_read_only(raw: psycopg.Connection[tuple[Value, ...]], limits: Limits) -> None:
    """Open the READ ONLY transaction with its deadline; a superuser gives up the right to more than reading tables."""
    raw.rollback()
    raw.read_only = True
    milliseconds = str(max(1, int(limits.seconds * 1000)))
    for setting in ("statement_timeout", "lock_timeout"):
        raw.execute("SELECT set_config(%s, %s, true)", (setting, milliseconds))
    superuser = raw.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    if superuser == (True,):
        raw.execute("SET LOCAL ROLE pg_read_all_data")


def _postgres_fault(error: psycopg.Error, limits: Limits) -> LedgerError:
    state = error.sqlstate or ""
    if state == "57014":
        return _out_of_time(limits)
    words = (error.diag.message_primary or str(error)).strip()
    if state == "42501" and re.search(r" (table|view|schema) ", words):
        return StatementRefused(f"refused: {words}", hint=HINT_RIGHTS)
    if state in {"25006", "42501", "0A000"}:
        return StatementRefused(f"refused: {words}", hint=HINT_READING)
    if "multiple commands" in words:
        return StatementRefused("refused: more than one statement", hint="run them one by one")
    hint = HINT_NAMES if state in _UNKNOWN_NAMES else None
    return StatementRefused(f"the database does not understand the statement: {words}", hint=hint)
