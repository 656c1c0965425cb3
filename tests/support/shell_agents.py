"""Agents of a few lines of shell: each answers what it is sent with lines that were written down beforehand.

What must not be broken here: they know nothing but the words of ACP, and a request's id is the one that a client
counts from 0: `initialize` 0, `session/new` 1, the first prompt 2.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SESSION = "shell-1"


def line(**members: Any) -> str:
    """A message."""
    return json.dumps({"jsonrpc": "2.0", **members}, separators=(",", ":"), ensure_ascii=False)


def update(kind: str, /, **fields: Any) -> str:
    """A session update."""
    return line(method="session/update", params={"sessionId": SESSION, "update": {"sessionUpdate": kind, **fields}})


def chunk(text: str, kind: str = "agent_message_chunk") -> str:
    """A piece of a message."""
    return update(kind, content={"type": "text", "text": text})


def end(stop_reason: str = "end_turn", id_: int = 2) -> str:
    """The answer to a prompt."""
    return line(id=id_, result={"stopReason": stop_reason})


ALLOW = {"optionId": "allow", "name": "Allow", "kind": "allow_once"}
REJECT = {"optionId": "reject", "name": "Reject", "kind": "reject_once"}
CALL = {"toolCallId": "build-7", "title": "run make", "kind": "execute", "status": "pending"}


def question(
    options: Any = (ALLOW, REJECT), call: Mapping[str, Any] | None = CALL, id_: Any = "perm-1", **more: Any
) -> str:
    """A permission question; without a call or options where they are None."""
    params: dict[str, Any] = {"sessionId": SESSION, **more}
    if call is not None:
        params["toolCall"] = call
    if options is not None:
        params["options"] = options
    return line(id=id_, method="session/request_permission", params=params)


def agent(
    *prompted: str,
    then: Mapping[str, Sequence[str]] | None = None,
    initialize: Mapping[str, Any] | None = None,
    opened: Mapping[str, Any] | None = None,
    answers: Mapping[str, str] | None = None,
    before: str = "",
    heard: Path | None = None,
    leaves: bool = False,
) -> list[str]:
    """The command of an agent that says these lines at its first prompt.

    Args:
        prompted: What it says then.
        then: What it says to a line that holds a word; asked before anything else.
        initialize: Its answer to `initialize`, laid over the plainest one.
        opened: Its answer to `session/new`, likewise.
        answers: Whole lines in the place of those two answers, by method.
        before: Shell that runs first.
        heard: A file that gets every line it is sent.
        leaves: Whether it ends once it said what it says at a prompt.
    """
    hello = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": [], **(initialize or {})}
    session = {"sessionId": SESSION, **(opened or {})}
    own = {"initialize": line(id=0, result=hello), "session/new": line(id=1, result=session), **(answers or {})}
    cases = [(word, lines) for word, lines in (then or {}).items()]
    cases += [(f'"method":"{method}"', [said]) for method, said in own.items()]
    arms = "\n".join(f"*{shlex.quote(word)}*) {_say(lines)} ;;" for word, lines in cases)
    last = f"""*'"method":"session/prompt"'*) {_say(prompted)}{"; exit 0" if leaves else ""} ;;"""
    keep = "" if heard is None else f"printf '%s\\n' \"$line\" >> {shlex.quote(str(heard))}; "
    return ["/bin/sh", "-c", f'{before}\nwhile IFS= read -r line; do {keep}case "$line" in\n{arms}\n{last}\nesac; done']


def _say(lines: Sequence[str]) -> str:
    return "; ".join(f"printf '%s\\n' {shlex.quote(each)}" for each in lines) or ":"
