"""An agent of the standard library alone that does one thing, so that what it heard and when can be told exactly.

`scripted_agent.py flood HEARD` asks questions, each behind a burst of updates, as fast as they are answered. It writes
what it hears to HEARD before it does anything about it, and holds a lock on that file as long as it lives.
`scripted_agent.py echo TOLD` answers every line with the line, and tells TOLD (a FIFO) the clock and the line.
`scripted_agent.py pour SAID HEARD` says the bytes of SAID and keeps what it hears in HEARD.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

BURST = 12
SESSION = "flood"


def lines(heard: int | None) -> Any:
    """Lines of standard input, each kept before it is given."""
    waiting = b""
    while data := os.read(0, 65536):
        if heard is not None:
            os.write(heard, data)
        *whole, waiting = (waiting + data).split(b"\n")
        yield from whole


def say(*messages: dict[str, Any]) -> None:
    """Write messages as lines, all of them."""
    write_all(b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages))


def write_all(data: bytes) -> None:
    """Write all of it, however the other side reads."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def burst(number: int) -> None:
    """Updates and a question."""
    updates = [
        {
            "method": "session/update",
            "params": {
                "sessionId": SESSION,
                "update": {
                    "sessionUpdate": "agent_message_chunk",
                    "content": {"type": "text", "text": f"{number}.{part} "},
                },
            },
        }
        for part in range(BURST)
    ]
    call = {"toolCallId": f"call-{number}", "title": f"Step {number}", "status": "pending"}
    options = [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    question = {"sessionId": SESSION, "toolCall": call, "options": options}
    say(*updates, {"id": f"q{number}", "method": "session/request_permission", "params": question})


def flood(path: str) -> None:
    """Play the agent that is killed in the middle."""
    heard = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    fcntl.flock(heard, fcntl.LOCK_EX)
    number = 0
    for line in lines(heard):
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            say({"id": message["id"], "result": {"protocolVersion": 1, "agentCapabilities": {}}})
        elif method == "session/new":
            say({"id": message["id"], "result": {"sessionId": SESSION}})
        else:
            burst(number)
            number += 1


def echo(path: str) -> None:
    """Say every line again, and tell that it came."""
    told = os.open(path, os.O_WRONLY)
    for line in lines(None):
        os.write(told, line + b"\n")
        write_all(line + b"\n")


def pour(said: str, heard: str) -> None:
    """Say a file and keep what is heard, at the same time."""
    kept = os.open(heard, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    saying = threading.Thread(target=write_all, args=(Path(said).read_bytes(),))
    saying.start()
    for _line in lines(kept):
        pass
    saying.join()


if __name__ == "__main__":
    play: dict[str, Callable[..., None]] = {"flood": flood, "echo": echo, "pour": pour}
    play[sys.argv[1]](*sys.argv[2:])
