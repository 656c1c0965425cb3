"""Plays editors: starts a command the way one of them starts its agent, talks to it in lines, and stops it its way.

The table is what real clients were seen to do, or do in their own code: kinds of streams, what is left of the
environment, who gets stderr, and the exact order of end of file and signals with the pauses between them.
What must not be broken here: a step that a client waits before is taken only if the process still runs by then, as the
client does; and a client never waits for what its original does not wait for.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE: Final = 60.0
"""Seconds after which something that was waited for is taken not to happen."""

SIX: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""What the Python SDK hands on of the environment."""


class Step(NamedTuple):
    """What a client does to stop its agent, and how long it first waits for the agent's end."""

    act: str
    wait: float = 0.0


class Way(NamedTuple):
    """How one client starts and stops its agent."""

    name: str
    stop: tuple[Step, ...]
    streams: str = "pipes"
    environment: tuple[str, ...] | None = None
    stderr: str = "read"
    session: bool = False
    wrapped: bool = False


WAYS: Final = (
    Way("acpx", (Step("eof"), Step("TERM", 0.1), Step("KILL", 1.5)), streams="sockets"),
    Way("acpx-exec", (Step("eof"), Step("TERM", 0.1), Step("tree TERM"), Step("tree KILL", 1.5)), streams="sockets"),
    Way("python-sdk", (Step("eof"), Step("TERM", 2.0), Step("KILL", 2.0)), environment=SIX, stderr="unread"),
    Way("python-example", (Step("TERM"), Step("KILL", 5.0)), stderr="inherited"),
    Way("toad", (Step("eof"),), stderr="unread", wrapped=True),
    Way("terminal-closed", (Step("group HUP"), Step("eof"))),
    Way("codecompanion", (Step("TERM"), Step("eof")), streams="sockets"),
    Way("avante", (Step("TERM"), Step("KILL")), streams="sockets", environment=("PATH",)),
    Way("agent-shell-buffer", (Step("group KILL"),), session=True),
    Way("agent-shell-emacs", (Step("group HUP"), Step("eof")), session=True),
    Way("emacs-killed", (Step("eof"),), session=True),
    Way("acp-client", (Step("TERM"), Step("KILL", 2.0)), stderr="null"),
    Way("chuk-acp", (Step("TERM"), Step("KILL", 5.0))),
    Way("acp-factory", (Step("group TERM"), Step("group KILL", 5.0)), streams="sockets", session=True),
    Way("ai-provider", (Step("TERM"),), streams="sockets"),
    Way("conductor", (Step("eof"), Step("TERM", 0.25), Step("KILL", 0.5)), streams="sockets"),
    Way("zed", (Step("tree KILL"), Step("group KILL")), session=True),
    Way("vscode", (Step("TERM"), Step("drop")), streams="sockets", wrapped=True),
    Way("jupyter", (Step("group INT"), Step("group TERM"), Step("group KILL", 5.0)), session=True),
    Way("client-killed", (Step("drop"),)),
    Way("reads-no-more", (Step("deaf"), Step("eof"))),
)


def descendants(pid: int) -> list[int]:
    """Every descendant of a process that /proc shows by parent, whatever session it is in."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        waiting += (more := children.get(waiting.pop(), []))
        found += more
    return found


class Client:
    """An agent's process as its client has it: two streams of lines, and perhaps its stderr."""

    def __init__(self, command: list[str], way: Way, cwd: Path, environ: Mapping[str, str]) -> None:
        self.way = way
        self.heard = bytearray()
        self._at = 0
        self.complaints = b""
        self.killed: list[int] = []
        """Descendants that a stop met."""
        ours, theirs = _streams(way.streams)
        named = way.environment
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", '"$@"; exit $?', "sh", *command] if way.wrapped else command,
            cwd=cwd,
            env={name: value for name, value in environ.items() if named is None or name in named},
            stdin=theirs[0],
            stdout=theirs[1],
            stderr={"null": subprocess.DEVNULL, "inherited": None}.get(way.stderr, subprocess.PIPE),
            start_new_session=way.session,
        )
        for descriptor in theirs:
            os.close(descriptor)
        self._stdin: IO[bytes] = os.fdopen(ours[0], "wb", 0)
        self._stdout: IO[bytes] = os.fdopen(ours[1], "rb", 0)
        self._listener = self._reader()

    def _reader(self) -> threading.Thread | None:
        if self.way.stderr != "read":
            return None
        thread = threading.Thread(target=self._drain, daemon=True)
        thread.start()
        return thread

    def _drain(self) -> None:
        if self.process.stderr is not None:
            self.complaints = self.process.stderr.read()

    def say(self, *lines: bytes) -> None:
        """Write lines; a process that is gone hears nothing."""
        data = memoryview(b"".join(line + b"\n" for line in lines))
        with suppress(BrokenPipeError, ConnectionResetError):
            while data:
                data = data[self._stdin.write(data) :]

    def hear(self, word: bytes) -> bytes:
        """Read on until a whole line holds a word; that line."""
        while True:
            while (end := self.heard.find(b"\n", self._at)) >= 0:
                line, self._at = bytes(self.heard[self._at : end]), end + 1
                if word in line:
                    return line
            if not (data := self._read()):
                raise AssertionError(f"no {word!r} in {bytes(self.heard[-2000:])!r}")
            self.heard += data

    def _read(self) -> bytes:
        if not select.select([self._stdout], [], [], PATIENCE)[0]:
            raise AssertionError(f"nothing comes behind {bytes(self.heard[-2000:])!r}")
        return self._stdout.read(65536)

    def rest(self) -> None:
        """Read to the end."""
        with suppress(ConnectionResetError):
            while data := self._read():
                self.heard += data

    def stop(self) -> None:
        """Stop it, each step after its pause, as long as it runs."""
        for step in self.way.stop:
            if step.wait:
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(step.wait)
                    continue
            self._act(step.act)

    def _act(self, act: str) -> None:
        if act in {"eof", "drop"}:
            self._stdin.close()
        if act in {"deaf", "drop"}:
            self._stdout.close()
        whom, _, name = act.rpartition(" ")
        if name not in {"TERM", "KILL", "HUP", "INT"}:
            return
        number = signal.Signals[f"SIG{name}"]
        if whom == "tree":
            self._signal_tree(number)
        elif whom == "group" and self.way.session:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def _signal_tree(self, number: signal.Signals) -> None:
        """Signal the process and every descendant, across sessions."""
        self.killed += descendants(self.process.pid)
        for pid in (*self.killed, self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        """Close stdin."""
        self._stdin.close()

    def give_up(self) -> None:
        """End it at once, because the test failed."""
        self.process.kill()

    def over(self) -> int:
        """Wait for the end; the status, that of a signal as a shell gives it."""
        status = self.process.wait(PATIENCE)
        self._stdin.close()
        if self._listener is not None:
            self._listener.join(PATIENCE)
        for stream in (self._stdin, self._stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return status if status >= 0 else 128 - status


def _streams(kind: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Our ends and the agent's ends of its stdin and stdout."""
    if kind == "pipes":
        (their_in, our_in), (our_out, their_out) = os.pipe(), os.pipe()
        return (our_in, our_out), (their_in, their_out)
    pairs = [socket.socketpair() for _ in range(2)]
    (our_in, their_in), (our_out, their_out) = [(one.detach(), other.detach()) for one, other in pairs]
    return (our_in, our_out), (their_in, their_out)


PLAIN: Final = Way("plain", (Step("eof"),))
"""A client of no special manners."""


def start(command: list[str], cwd: Path, environ: Mapping[str, str], way: Way = PLAIN) -> Client:
    """Start a command as a client."""
    return Client(command, way, cwd, environ)


def scripted(*steps: Any) -> list[str]:
    """The command of an agent that does these steps."""
    return [sys.executable, "-S", "-E", str(Path(__file__).with_name("scripted_agent.py")), json.dumps(steps)]
