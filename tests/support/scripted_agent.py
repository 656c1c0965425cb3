"""An agent that does exactly what its script says: one JSON list of steps, given as the first argument.

What must not be broken here: it is a real process that knows nothing of the ledger, needs the standard library alone,
and does nothing its script does not say. Every step is a list of a verb and its arguments; see `VERBS`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_FLOOD = (
    b'{"jsonrpc":"2.0","method":"session/update","params":'
    b'{"sessionId":"s","update":{"sessionUpdate":"x","n":%d,"pad":"%s"}}}\n'
)


def wait(word: str = "") -> None:
    """Read lines until one holds `word`."""
    for line in sys.stdin.buffer:
        if word.encode() in line:
            return
    sys.exit(0)


def send(*lines: str) -> None:
    """Write lines, each with its newline."""
    raw("".join(f"{line}\n" for line in lines))


def raw(text: str) -> None:
    """Write text as it is; latin-1, so that every byte can be said."""
    data = memoryview(text.encode("latin-1", "replace") if text.isascii() else text.encode())
    while data:
        data = data[os.write(1, data) :]


def flood(count: int, size: int) -> None:
    """Write many numbered updates as fast as they are taken."""
    for number in range(count):
        os.write(1, _FLOOD % (number, b"p" * size))


def answer(word: str, result: Any) -> None:
    """Read lines until one holds `word`, and answer it."""
    for line in sys.stdin.buffer:
        if word.encode() in line:
            send(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": result}))
            return


def echo() -> None:
    """Send every line back until there are no more."""
    for line in sys.stdin.buffer:
        os.write(1, line)


def collect(path: str) -> None:
    """Write everything that still comes to a file, line by line."""
    with Path(path).open("wb", 0) as sink:
        sink.writelines(sys.stdin.buffer)


def stderr(text: str, times: int = 1) -> None:
    """Write to stderr."""
    for _ in range(times):
        os.write(2, text.encode())


def shut(descriptor: int) -> None:
    """Close a descriptor."""
    os.close(descriptor)


def ignore(*names: str) -> None:
    """Ignore signals."""
    for name in names:
        signal.signal(signal.Signals[name], signal.SIG_IGN)


def look(path: str) -> None:
    """Wait until there is a file."""
    while not Path(path).exists():
        time.sleep(0.01)  # noqa: TID251  # a process of its own, without an event for it


def touch(path: str) -> None:
    """Make a file."""
    Path(path).touch()


def note(path: str) -> None:
    """Write what this process was given: argv, cwd, environment, descriptors, umask, group."""
    umask = os.umask(0)
    os.umask(umask)
    given = {
        "argv": sys.argv[:1] + sys.argv[2:],
        "cwd": str(Path.cwd()),
        "env": dict(os.environ),
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],  # noqa: PTH208  # the last is the listing's
        "umask": umask,
        "group": os.getpgid(0) == os.getpid(),
    }
    draft = Path(f"{path}.draft")
    draft.write_text(json.dumps(given))
    draft.rename(path)


def child(path: str, *, setsid: bool = False, hold: bool = False, double: bool = False, steps: Any = ()) -> None:
    """Start a process that stays; its number is written to a file. `hold` lets it keep stdout and stderr."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        os.read(reading, 1)  # until the child is where it shall be
        os.close(reading)
        return
    if setsid:
        os.setsid()
    if double and os.fork():
        os._exit(0)
    if not hold:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
    perform(steps)
    draft = Path(f"{path}.draft")
    draft.write_text(str(os.getpid()))
    draft.rename(path)
    os.write(writing, b"x")
    os.close(writing)
    stay()


def stay() -> None:
    """Do nothing for ever."""
    while True:
        signal.pause()


def leave(status: int) -> None:
    """Exit at once."""
    os._exit(status)


def die(name: str) -> None:
    """Die of a signal."""
    os.kill(os.getpid(), signal.Signals[name])


VERBS = {
    function.__name__: function
    for function in (
        answer,
        child,
        collect,
        die,
        echo,
        flood,
        ignore,
        leave,
        look,
        note,
        raw,
        send,
        shut,
        stay,
        stderr,
        touch,
        wait,
    )
}


def perform(steps: Any) -> None:
    """Do the steps of a script; a last dict holds named arguments."""
    for verb, *arguments in steps:
        named = arguments.pop() if arguments and isinstance(arguments[-1], dict) and verb == "child" else {}
        VERBS[verb](*arguments, **named)


if __name__ == "__main__":
    perform(json.loads(sys.argv[1]))
