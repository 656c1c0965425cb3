"""`ledgerctl status`: the daemon in its own words, and the ledger in ours.

What must not be broken here: a daemon that holds or is degraded is never shown as running well, and the ledger's facts
are read from the ledger, so that they are there when the daemon is not.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from acp_ledger.ctl.control import ask, socket_path
from acp_ledger.ctl.options import Command, Options, current_options, with_ledger
from acp_ledger.ctl.reading import ledger_url, open_ledger
from acp_ledger.ctl.render import document
from acp_ledger.ctl.text import escape
from acp_ledger.errors import DaemonUnreachable, ExitCode, LedgerError, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADINGS: Final = ("TRANSPORT", "AGENT", "PID", "SESSION", "STATE")
_READER: Final = ("limit", "storage", "buffered", "high_water", "rejected")
_READER_HEADINGS: Final = ("READS", "LIMIT", "STORAGE", "BUFFERED", "LONGEST", "REJECTED", "PHASE")
TROUBLE: Final = {
    "holding": "a commit is late, and agents are not read until the ledger takes it",
    "degraded": "the ledger takes no commit, agents were ended, and new ones are refused until it does",
}
"""What keeps a daemon from committing, in words."""


@click.command(cls=Command, examples=("ledgerctl status", "ledgerctl status -o json | jq .daemon"))
def status() -> int:
    """Show the daemon, the ledger and the open transports.

    Exits with 69 when the daemon does not answer (the ledger's facts are shown all the same), and with 3 when it
    cannot commit at the moment.
    """
    options = current_options()
    daemon, failure = _daemon(options)
    ledger = _ledger(options)
    if options.output == "table":
        for line in _screen(daemon, failure, ledger):
            sys.stdout.write(escape(line) + "\n")
    else:
        document("status", {"daemon": daemon, "ledger": ledger}, options)
    if failure is not None:
        raise failure
    if "error" in ledger:
        return int(ledger["exit_code"])
    return ExitCode.INCOMPLETE if trouble(daemon or {}) else ExitCode.OK


def _daemon(options: Options) -> tuple[dict[str, Any] | None, DaemonUnreachable | None]:
    try:
        return ask(socket_path(options), "status"), None
    except DaemonUnreachable as failure:
        return None, failure


def _ledger(options: Options) -> dict[str, Any]:
    """Give the ledger's facts, or why they cannot be read."""
    url = ledger_url(options)
    shown = {"url": without_secrets(url)}
    try:
        with open_ledger(options) as connection:
            from acp_ledger.store import queries

            return {**shown, **queries.facts(connection)._asdict()}
    except LedgerError as error:
        hint = error.hint and with_ledger(error.hint, options)
        return {**shown, "error": error.message, "hint": hint, "exit_code": int(error.exit_code)}


def _screen(daemon: dict[str, Any] | None, failure: DaemonUnreachable | None, ledger: dict[str, Any]) -> Iterator[str]:
    if daemon is None:
        yield f"daemon   not reachable: {failure.message if failure else ''}"
    else:
        yield from _daemon_lines(daemon)
    yield from _ledger_lines(ledger)
    if transports := (daemon or {}).get("transports"):
        yield ""
        yield from _aligned([_HEADINGS, *(row for each in transports for row in _open(each))])
        yield from _readers(transports)


def _readers(transports: list[dict[str, Any]]) -> Iterator[str]:
    """How the reading of each agent stands whose client the daemon is, in bytes."""
    rows = [
        (str(each.get("transport_id")), *(str(reader.get(key)) for key in _READER), _reading(reader))
        for each in transports
        if isinstance(reader := each.get("reader"), dict)
    ]
    if rows:
        yield ""
        yield from _aligned([_READER_HEADINGS, *rows])


def _reading(reader: dict[str, Any]) -> str:
    return "ended: a line was too long" if reader.get("terminal") else str(reader.get("phase"))


def _daemon_lines(daemon: dict[str, Any]) -> Iterator[str]:
    kind = trouble(daemon)
    state = f"running, BUT {kind.upper()}" if kind else "stopping" if daemon.get("stopping") else "running"
    committer = dict(daemon.get("committer") or {})
    up = duration(daemon.get("uptime_seconds"))
    yield f"daemon   {state}   pid {daemon.get('pid')}   up {up}   v{daemon.get('version')}"
    if kind:
        yield f"         {TROUBLE[kind]}: {committer.get('error') or 'no reason given'}"
    if daemon.get("trouble"):
        yield f"         {daemon['trouble']}"
    kept = f"schema {daemon.get('schema')}, durable against {daemon.get('durability')} loss"
    yield f"         writes to {daemon.get('ledger')}, {kept}"
    times = f"commit p50 {_milliseconds(committer.get('commit_p50'))}, p99 {_milliseconds(committer.get('commit_p99'))}"
    recorded = f"{committer.get('entries', 0):,} recorded since it started"
    yield f"         {times}, {committer.get('queued', 0)} waiting, {recorded}"


def _ledger_lines(ledger: dict[str, Any]) -> Iterator[str]:
    yield f"ledger   {ledger['url']}"
    if "error" in ledger:
        yield f"         cannot be read: {ledger['error']}"
        if ledger["hint"]:
            yield f"         hint: {ledger['hint']}"
        return
    yield f"         id {ledger['ledger_id']}, schema {ledger['revision']}"
    yield f"record   {_counts(ledger, 'sessions', 'turns', 'frames', 'events', 'questions', 'decisions')}"
    yield f"         {_counts(ledger, 'transports', 'open_transports', 'anomalies', 'gaps')}"


def _counts(ledger: dict[str, Any], *names: str) -> str:
    return ", ".join(f"{ledger[name]:,} {name.replace('_', ' ')}" for name in names)


def _open(transport: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line for each session in which something runs; one for a transport in which nothing does."""
    whole = (str(transport.get("transport_id")), str(transport.get("agent")), str(transport.get("pid") or "-"))
    if ending := transport.get("ending"):
        yield *whole, "-", f"ending ({ending})"
        return
    if transport.get("mode") == "terminal":
        yield *whole, "-", "a login at a terminal; what passes there is not recorded"
        return
    for session in transport.get("running") or ():
        yield *whole, str(session.get("acp_session_id")), _doing(session)
    if not transport.get("running"):
        yield *whole, "-", f"idle, {transport.get('sessions', 0)} sessions"
    elif (left := transport.get("busy", 0) - len(transport["running"])) > 0:
        yield *whole, "-", f"{left} more sessions are busy"


def _doing(session: dict[str, Any]) -> str:
    if not session.get("questions"):
        return f"running turn {', '.join(map(str, session.get('turns') or ('?',)))}"
    asked_at = session.get("asked_at")
    waited = f" for {duration(int(time.time() - asked_at / 1e6))}" if isinstance(asked_at, int) else ""
    more = f" and {session['questions'] - 1} more" if session["questions"] > 1 else ""
    return f"waiting for an answer{waited}: {session.get('asked') or 'a question without a title'}{more}"


def _aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _milliseconds(micros: object) -> str:
    return f"{micros / 1000:.1f} ms" if isinstance(micros, int | float) else "-"


def duration(seconds: object) -> str:
    """Write seconds as days, hours and minutes, the two largest of them."""
    if not isinstance(seconds, int):
        return "-"
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"


def trouble(daemon: dict[str, Any]) -> str:
    """Name what keeps the daemon from committing; empty when nothing does."""
    committer = daemon.get("committer") or {}
    if committer.get("degraded"):
        return "degraded"
    return "holding" if committer.get("held_seconds") is not None else ""
