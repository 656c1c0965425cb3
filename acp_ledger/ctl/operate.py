"""`ledgerctl status`: the daemon in its own words, and the ledger in ours.

What must not be broken here: a daemon that holds or is degraded is never shown as running well, and the ledger's facts
are read from the ledger, so that they are there when the daemon is not.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from acp_ledger.ctl.control import ask, socket_path
from acp_ledger.ctl.options import Command, Options, current_options
from acp_ledger.ctl.reading import ledger_url, open_ledger
from acp_ledger.ctl.render import cell, document
from acp_ledger.ctl.text import escape
from acp_ledger.errors import DaemonUnreachable, ExitCode, LedgerError, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

_TROUBLE: Final = ("degraded", "held")


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
    return ExitCode.INCOMPLETE if _trouble(daemon or {}) else ExitCode.OK


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
        return {**shown, "error": error.message, "hint": error.hint, "exit_code": int(error.exit_code)}


def _screen(daemon: dict[str, Any] | None, failure: DaemonUnreachable | None, ledger: dict[str, Any]) -> Iterator[str]:
    if daemon is None:
        yield f"daemon   not reachable: {failure.message if failure else ''}"
    else:
        yield from _daemon_lines(daemon)
    yield from _block("ledger", ledger)
    for transport in (daemon or {}).get("transports", ()):
        yield from _block("open", transport)


def _daemon_lines(daemon: dict[str, Any]) -> Iterator[str]:
    trouble = _trouble(daemon)
    yield f"daemon   {'running, BUT ' + trouble.upper() if trouble else 'running'}"
    if trouble == "held":
        yield "  a commit is late: agents are not read until the ledger takes it"
    if trouble == "degraded":
        yield "  the ledger does not take commits: agents were ended, and new ones are refused until it does"
    yield from _block("", {name: value for name, value in daemon.items() if name != "transports"})


def _trouble(daemon: dict[str, Any]) -> str:
    """Name what keeps the daemon from committing, wherever its answer says so; empty when nothing does."""
    for name in _TROUBLE:
        if daemon.get(name) is True or daemon.get("state") == name:
            return name
    inner = daemon.get("ledger")
    return _trouble(inner) if isinstance(inner, dict) else ""


def _block(title: str, content: dict[str, Any], indent: str = "  ") -> Iterator[str]:
    if title:
        yield title
    for name, value in content.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from _block("", value, indent + "  ")
        else:
            yield f"{indent}{name:<18} {cell(name, value) if value is not None else '-'}"
