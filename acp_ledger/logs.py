"""What the daemon says about itself: named events with fields, for people on a terminal and for machines elsewhere.

What must not be broken here: a log never holds what an agent or a user wrote, and never a secret. So text passes
only under the field names in `TEXT_FIELDS`, masked and escaped; of an error from elsewhere only the type is shown. An
agent's id of a session passes when it is short and plain, for it is what an operator searches for. And a log that
cannot be written fails nobody: the ledger is the record, this is not.
Event names are dotted facts in the past tense, and constants of this module.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias

import structlog

from acp_ledger import journal, sinks
from acp_ledger.errors import LedgerError, without_secrets

if TYPE_CHECKING:
    from collections.abc import MutableMapping

Format: TypeAlias = Literal["auto", "console", "json", "journal"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]

DAEMON_STARTED: Final = "daemon.started"
DAEMON_READY: Final = "daemon.ready"
DAEMON_DEGRADED: Final = "daemon.degraded"
DAEMON_RECOVERED: Final = "daemon.recovered"
DAEMON_STOPPING: Final = "daemon.stopping"
DAEMON_STOPPED: Final = "daemon.stopped"
DAEMON_FAILED: Final = "daemon.failed"
SOCKET_LISTENED: Final = "socket.listened"
SOCKET_REPLACED: Final = "socket.replaced"
CONFIG_LOADED: Final = "config.loaded"
CONFIG_EXPOSED: Final = "config.exposed"
CONFIG_RELOADED: Final = "config.reloaded"
CONFIG_REFUSED: Final = "config.refused"
MANAGER_UNREACHED: Final = "manager.unreached"
WATCHDOG_MISSED: Final = "watchdog.missed"
SOCKET_DIFFERED: Final = "socket.differed"
SESSION_SEEN: Final = "session.seen"
PEER_REFUSED: Final = "peer.refused"
PEER_FAILED: Final = "peer.failed"
RUNNER_CONNECTED: Final = "runner.connected"
RUNNER_DISCONNECTED: Final = "runner.disconnected"
CONTROL_ANSWERED: Final = "control.answered"
LEDGER_CREATED: Final = "ledger.created"
LEDGER_OPENED: Final = "ledger.opened"
LEDGER_CHECKPOINTED: Final = "ledger.checkpointed"
LEDGER_CLOSED: Final = "ledger.closed"
LEDGER_HELD: Final = "ledger.held"
LEDGER_RELEASED: Final = "ledger.released"
LEDGER_REPLACED: Final = "ledger.replaced"
LEDGER_GAP_DECLARED: Final = "ledger.gap_declared"
COMMIT_REFUSED: Final = "commit.refused"
COMMIT_DOUBTED: Final = "commit.doubted"
COMMIT_SETTLED: Final = "commit.settled"
COMMIT_CUT: Final = "commit.cut"
TRANSPORT_OPENED: Final = "transport.opened"
TRANSPORT_NEGOTIATED: Final = "transport.negotiated"
TRANSPORT_FAILED: Final = "transport.failed"
TRANSPORT_CLOSED: Final = "transport.closed"
TRANSPORT_RECOVERED: Final = "transport.recovered"
FRAME_OVERSIZED: Final = "frame.oversized"
CLOCK_STEPPED: Final = "clock.stepped"
AGENT_SPAWNED: Final = "agent.spawned"
AGENT_NOT_SPAWNED: Final = "agent.not_spawned"
AGENT_EXITED: Final = "agent.exited"
AGENT_STOPPED: Final = "agent.stopped"
AGENT_TERMINATED: Final = "agent.terminated"
AGENT_KILLED: Final = "agent.killed"
AGENT_SURVIVED: Final = "agent.survived"
AGENT_SWEPT: Final = "agent.swept"
OPERATOR_CANCELLED: Final = "operator.cancelled"
OPERATOR_STOPPED: Final = "operator.stopped"
OPERATOR_DECIDED: Final = "operator.decided"

TEXT_FIELDS: Final = frozenset(
    {
        "agent",
        "cause",
        "changed",
        "class",
        "close_reason",
        "daemon_id",
        "database",
        "direction",
        "engine",
        "error",
        "event",
        "exception",
        "file",
        "hint",
        "host",
        "journal_mode",
        "label_keys",
        "ledger_id",
        "level",
        "lock",
        "mode",
        "outcome",
        "path",
        "program",
        "reason",
        "request",
        "restart",
        "revision",
        "schema",
        "signal",
        "socket",
        "step",
        "synchronous",
        "timestamp",
        "version",
    }
)
"""The field names under which text is logged. Every one of them names something of ours, or an operator's word."""

SESSION_ID: Final = "session_id"
"""The field of the agent's ids of sessions: one, or a list where a connection has several."""

_PLAIN_ID: Final = re.compile(r"[!-~]{1,128}")

LONGEST_TEXT: Final = 500
"""Characters of a text field that are kept. An agent's name is its own word and may be long; ours are not."""

LONGEST_LIST: Final = 20
"""Values of a list that are kept."""

LONGEST_ERROR: Final = 20_000
"""Characters of an error's traceback that are kept."""

_Event: TypeAlias = "MutableMapping[str, Any]"


def configure(
    *,
    form: Format = "auto",
    level: Level = "info",
    stream: TextIO | None = None,
    journal_socket: str = journal.SOCKET,
) -> None:
    """Send every event from `level` on to `stream` (standard error by default), one line each.

    `auto` writes for people when the stream is a terminal, to the journal by its own protocol when the stream leads
    there, and JSON otherwise.
    """
    out = sinks.Lines(sys.stderr if stream is None else stream)
    if form == "auto":
        form = "console" if out.stream.isatty() else "journal" if out.leads_to_journal() else "json"
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            describe_error,
            withhold,
            _renderer(form, out.stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=(sinks.Entries(journal.Journal(journal_socket), out) if form == "journal" else out).itself,
        cache_logger_on_first_use=False,
    )


def _renderer(form: Format, out: TextIO) -> structlog.typing.Processor:
    if form == "console":
        return _for_people(out)
    return _as_it_is if form == "journal" else structlog.processors.JSONRenderer()


def _as_it_is(_logger: object, _method: str, event: _Event) -> _Event:
    return event


def get_logger(**fields: object) -> structlog.typing.FilteringBoundLogger:
    """A logger that adds `fields` to each of its events."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(**fields)
    return logger


def describe_error(_logger: object, _method: str, event: _Event) -> _Event:
    """Replace `exc_info` by a text of our own: where it happened, and no word that may be a peer's."""
    given = event.pop("exc_info", None)
    if not given:
        return event
    error = given if isinstance(given, BaseException) else _current(given)
    if error is not None:
        event["exception"] = describe(error)
    return event


def describe(error: BaseException) -> str:
    """An error, its causes and, of a group, its members: the frames of each, then its type and our own words."""
    lines = []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines += [describe(cause), "which led to:"]
    lines += [line.rstrip("\n") for line in _frames(error)]
    lines.append(f"{type(error).__qualname__}: {words}" if (words := words_of(error)) else type(error).__qualname__)
    if isinstance(error, BaseExceptionGroup):
        lines += [describe(member) for member in error.exceptions]
    return "\n".join(lines)


def words_of(error: BaseException) -> str:
    """What may be shown of an error's message: our own and the operating system's words, never a library's.

    A library quotes what it choked on (a key, a value, a statement's parameters), and that may be a user's.
    """
    if isinstance(error, LedgerError):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or ""
    return ""


def withhold(_logger: object, _method: str, event: _Event) -> _Event:
    """Let numbers pass, and text only under a name of `TEXT_FIELDS`; everything else shows its type and size."""
    return {key: _allowed(key, value) for key, value in event.items()}


def _allowed(key: str, value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | os.PathLike) and key in TEXT_FIELDS:
        limit = LONGEST_ERROR if key == "exception" else LONGEST_TEXT
        return _printable(without_secrets(str(value)), limit, lines=key == "exception")
    if key == SESSION_ID and isinstance(value, str) and _PLAIN_ID.fullmatch(value):
        return value
    if isinstance(value, tuple | list) and key in TEXT_FIELDS | {SESSION_ID}:
        return [_allowed(key, item) for item in value[:LONGEST_LIST]]
    size = f", {len(value)}" if isinstance(value, str | bytes | tuple | list | dict) else ""
    return f"[withheld: {type(value).__name__}{size}]"


def _printable(text: str, limit: int, *, lines: bool) -> str:
    """A terminal shows what was written and does nothing else: control characters are spelled out."""
    cut = text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
    return "".join(
        char if char.isprintable() or (lines and char == "\n") else char.encode("unicode_escape").decode("ascii")
        for char in cut
    )


def _current(given: object) -> BaseException | None:
    if isinstance(given, tuple):
        error = given[1]
        return error if isinstance(error, BaseException) else None
    return sys.exc_info()[1]


def _frames(error: BaseException) -> list[str]:
    return traceback.format_list(traceback.extract_tb(error.__traceback__))


def _for_people(out: TextIO) -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(colors=out.isatty() and "NO_COLOR" not in os.environ)


EVENTS: Final = frozenset(
    value for name, value in dict(globals()).items() if name.isupper() and isinstance(value, str) and "." in value
)
"""Every event name. A log call uses one of them, by its constant."""
