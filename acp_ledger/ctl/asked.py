"""`ledgerctl pending` and `ledgerctl decide`: the questions of unattended agents that wait for a person.

What must not be broken here: only an option that is on offer is chosen, and the answer is in the ledger, with the name
the kernel gives, before anything is said of it.
"""

from __future__ import annotations

import shlex
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from acp_ledger import dialogue
from acp_ledger.ctl.control import ask, socket_path
from acp_ledger.ctl.operate import duration
from acp_ledger.ctl.options import Command, current_options
from acp_ledger.ctl.render import Listing, document, emit, note
from acp_ledger.ctl.text import escape
from acp_ledger.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLUMNS: Final = ("request", "agent", "acp_session_id", "title", "tool_kind", "options", "asked_at", "left")


@click.command(cls=Command, examples=("ledgerctl pending", "ledgerctl pending -o json"))
def pending() -> int:
    """List the permission questions that wait for a person, the oldest first.

    An agent that runs without an editor asks a person where its policy says so (policy.ask, or prompt --ask). LEFT is
    how long the question still waits; then it is rejected. Exits with 69 when no daemon runs.
    """
    options = current_options()
    questions = ask(socket_path(options), dialogue.REQUEST_PENDING)["questions"]
    if options.output in {"json", "jsonl"}:
        document("pending", {"questions": questions}, options)
        return ExitCode.OK
    emit(Listing("pending", _COLUMNS, [tuple(_row(each).values()) for each in questions]), options)
    if questions:
        first = questions[0]
        # An option's id is the agent's own word, and this is a line to be pasted.
        offered = [shlex.quote(str(each.get("option_id"))) for each in first.get("options", ())] or ["ID"]
        note(f"answer one: ledgerctl decide {first['request']} --option {offered[0]}, or --cancel", options)
    else:
        note("no question waits for a person", options)
    return ExitCode.OK


def _row(question: Mapping[str, Any]) -> dict[str, Any]:
    offered = ", ".join(f"{each.get('option_id')} ({each.get('kind')})" for each in question.get("options", ()))
    until = question.get("until")
    left = duration(max(0, int(until / 1e6 - time.time()))) if isinstance(until, int) else "-"
    told = {name: str(question.get(name) or "") for name in _COLUMNS[:5]}
    return {**told, "options": offered, "asked_at": _time(question.get("asked_at")), "left": left}


def _time(micros: object) -> str:
    if not isinstance(micros, int):
        return ""
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@click.command(
    cls=Command,
    examples=("ledgerctl decide 1796073457984481/12 --option allow", "ledgerctl decide 1796073457984481/12 --cancel"),
)
@click.argument("request")
@click.option("--option", metavar="ID", help="The option to choose, by its id.")
@click.option("--cancel", is_flag=True, help="Choose none: the answer is `cancelled`.")
def decide(request: str, option: str | None, *, cancel: bool) -> int:
    """Answer the question REQUEST, as `ledgerctl pending` names it.

    The answer is in the ledger, with who gave it, before the agent hears it. Exits with 2 for an option that is not on
    offer, with 1 for a question that does not wait any more, and with 69 when no daemon runs.
    """
    options = current_options()
    if (option is None) != cancel:
        raise UsageError("choose one option, or none of them", hint="ledgerctl decide REQUEST --option ID, or --cancel")
    done = ask(socket_path(options), dialogue.REQUEST_DECIDE, question=request, option=option)
    if options.output == "table":
        chosen = "`cancelled`" if option is None else f"`{option}`"
        what = done.get("title") or done.get("tool_kind") or "a question"
        sys.stdout.write(escape(f"{what}: answered {chosen} (frame {done.get('frame_seq')})") + "\n")
    else:
        document("decide", done, options)
    return ExitCode.OK
