"""`ledgerctl cancel` and `ledgerctl stop`: what an operator does to a running session, through its daemon.

What must not be broken here: nothing is done but by the daemon, which records it first; what was done is said with the
name of what it was done to, and what did not come to its end yet is no success.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from acp_ledger import dialogue
from acp_ledger.ctl.control import ANSWER_SECONDS, ask, socket_path
from acp_ledger.ctl.options import Command, Options, current_options
from acp_ledger.ctl.reading import find, open_ledger
from acp_ledger.ctl.render import document, note
from acp_ledger.ctl.text import escape
from acp_ledger.errors import DaemonUnreachable, ExitCode, LedgerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

STOP_SECONDS: Final = 30.0
"""How long a stop is waited for unless another time is asked for."""


@click.command(
    cls=Command,
    examples=(
        "ledgerctl cancel sess_9f2c",
        "ledgerctl cancel 1796073457984481/sess_9f2c",
        "ledgerctl cancel --last",
        "ledgerctl cancel --last --agent claude -o json",
    ),
)
@click.argument("session", required=False)
@click.option("--last", is_flag=True, help="The session in which something runs, the newest one.")
@click.option("--agent", metavar="NAME", help="With --last: of this agent.")
def cancel(session: str | None, agent: str | None, *, last: bool) -> int:
    """End what runs in SESSION, as its editor would: the agent is told, and lives on.

    SESSION is the agent's id of it, a unique beginning of at least four characters, or TRANSPORT/ID. The agent gets
    session/cancel, and `cancelled` for every permission question that waits in that session or still comes while the
    turn lasts; the editor is told that its questions want no answer any more, and an answer it gives all the same is
    kept and not passed on. Every line is in the ledger before it is sent, with who asked for it. The turn ends when the
    agent says so; one that does not listen is ended with `ledgerctl stop`.

    A session of `ledgerctl prompt` is cancelled in the same way; its command ends as the turn does.

    Exits with 3 when the agent has not taken the cancellation yet, and with 69 when no daemon runs.
    """
    options = current_options()
    if (session is None) != last:
        raise UsageError("name one session", hint="ledgerctl cancel SESSION, or ledgerctl cancel --last")
    done = _asked(options, session, dialogue.REQUEST_CANCEL, session=session, agent=agent)
    if options.output == "table":
        _say(_cancelled(done))
        note(
            f"the turn ends when the agent says so; if it does not: ledgerctl stop {done.get('transport_id')}", options
        )
    else:
        document("cancel", done, options)
    return ExitCode.OK if done.get("heard") else ExitCode.INCOMPLETE


def _cancelled(done: Mapping[str, Any]) -> str:
    heard = "sent" if done.get("heard") else "not taken by the agent yet"
    what = f"session/cancel for {done.get('acp_session_id')} is recorded (frame {done.get('frame_seq')}) and {heard}"
    count = done.get("questions", 0)
    answered = f"; {count} open question{'s were' if count > 1 else ' was'} answered `cancelled`" if count else ""
    return f"{_agent(done)}: {what}{answered}"


@click.command(
    cls=Command,
    examples=("ledgerctl stop 1796073457984481", "ledgerctl stop sess_9f2c --wait 5", "ledgerctl stop 1796 -o json"),
)
@click.argument("transport", required=False)
@click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(min=0, max=600),
    default=STOP_SECONDS,
    show_default=True,
    help="Seconds to wait for its end.",
)
def stop(transport: str | None, seconds: float) -> int:
    """End the agent of TRANSPORT for good, with everything it started.

    TRANSPORT is its number, a unique beginning of at least four digits, or a session of it. The agent's input is
    closed; then its process group gets TERM, then KILL. The editor gets an error for every request that waits, and the
    ledger keeps who asked for it: close_reason operator_stopped.

    A `ledgerctl prompt` that waits for it ends with 48.

    Exits with 3 when the agent has not ended within the time, and with 69 when no daemon runs.
    """
    options = current_options()
    if transport is None:
        raise UsageError(
            "name the agent to stop, by its transport or its session (ledgerctl status has them)",
            hint="the daemon itself: systemctl --user stop acp-ledgerd, or TERM to the pid in ledgerctl status",
        )
    patience = ANSWER_SECONDS + seconds
    done = _asked(options, transport, dialogue.REQUEST_STOP, patience=patience, transport=transport, seconds=seconds)
    if options.output == "table":
        _say(_stopped(done))
    else:
        document("stop", done, options)
    return ExitCode.OK if done.get("ended") else ExitCode.INCOMPLETE


def _stopped(done: Mapping[str, Any]) -> str:
    if not done.get("ended"):
        return f"{_agent(done)} is being stopped, and has not ended yet; see: ledgerctl status"
    count = done.get("requests", 0)
    told = f"; {count} open request{'s were' if count > 1 else ' was'} answered with an error" if count else ""
    return f"{_agent(done)} was stopped: {done.get('how') or 'it had not started'}{told}"


def _agent(done: Mapping[str, Any]) -> str:
    return f"{done.get('agent')} (transport {done.get('transport_id')}, pid {done.get('pid')})"


def _say(sentence: str) -> None:
    sys.stdout.write(f"{escape(sentence)}\n")


def _asked(options: Options, named: str | None, request: str, **fields: Any) -> dict[str, Any]:
    """Ask the daemon; what it does not have open is looked up, for it may be over."""
    try:
        return ask(socket_path(options), request, **fields)
    except DaemonUnreachable:
        raise
    except LedgerError as refused:
        if named is None or refused.exit_code is not ExitCode.FAILED:
            raise
        raise _over(named, options) or refused from refused


def _over(named: str, options: Options) -> LedgerError | None:
    """Say of what is in the ledger why it cannot be acted on here; None where it is not there."""
    from acp_ledger.store import queries

    try:
        with open_ledger(options) as connection:
            last = find(connection, named, ("session", "transport"))[-1]
            transport = next(queries.transports(connection, queries.Filter(transport_id=last.transport_id)), None)
    except LedgerError:
        return None
    if transport is None:
        return None
    where = f"transport {transport.transport_id} of {transport.agent}"
    if transport.closed_at is None:
        if transport.transport_id in _held(options):
            return None  # it is this daemon's, which said what is to be said
        words = f"{named} is open in the ledger, and not with this daemon: {where} was opened on {transport.host}"
        return LedgerError(words, hint="do it there; a daemon that died closes what it left open at its next start")
    words = f"{named} is over: {where} was closed at {transport.closed_at} ({transport.close_reason})"
    return LedgerError(words, hint=f"ledgerctl show {last.transport_id}/{last.id}" if last.kind == "session" else None)


def _held(options: Options) -> set[object]:
    """The transports that the daemon has open."""
    told = ask(socket_path(options), dialogue.REQUEST_STATUS)
    return {each.get("transport_id") for each in told.get("transports", ())}
