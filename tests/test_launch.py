"""At a terminal: the runner asks the daemon, and then is the agent's command itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger import handshake, launch
from acp_ledger.run import UsageError, parse
from tests.support.fake_daemon import FakeDaemon
from tests.support.runners import BARE_PATH, Runners, runners
from tests.support.terminals import COLUMNS, PATIENCE, ROWS, seated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.fake_daemon import Peer

__all__ = ["runners"]

REPORT = """
import json, os, sys
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("report:" + json.dumps({
    "pid": os.getpid(), "group": int(stat[2]), "session": int(stat[3]), "foreground": int(stat[5]),
    "terminals": [os.isatty(number) for number in range(3)], "size": list(os.get_terminal_size(0)),
    "ignored": int(status["SigIgn"], 16), "blocked": int(status["SigBlk"], 16),
    "open": [name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)],
    "words": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd(), "umask": os.umask(0),
}), flush=True)
sys.exit(7)
"""
"""What is run in place of an agent; isolated, for an interpreter that catches signals would show its own doing."""

BY_THE_INTERPRETER = {signal.SIGPIPE, signal.SIGXFSZ}
"""Ignored by every Python program at its own start."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    """A daemon that does what the test tells it."""
    with FakeDaemon(tmp_path / "s") as found:
        yield found


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": BARE_PATH, "HOME": str(folder)}


def _let_go(peer: Peer, *argv: str, **env: str) -> None:
    """Tell the runner to become a command, as a daemon that recorded its launch does."""
    added = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    peer.connection.sendall(launch.encode(map(os.fsencode, argv), {**peer.greeting.env, **added}))


def _masked(*numbers: signal.Signals) -> int:
    return sum(1 << number - 1 for number in numbers)


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP, signal.SIGINT)], ids=["usual", "nohup"])
def test_command_gets_all_that_the_runner_was_given(
    runners: Runners, daemon: FakeDaemon, tmp_path: Path, ignored: tuple[signal.Signals, ...]
) -> None:
    """The terminal, its size, the foreground, signals, environment, directory, and the very process."""

    def before() -> None:
        os.umask(0o027)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    command = runners.command("--socket", daemon.path, "--", "an", "agent")
    options: dict[str, Any] = {"env": _environment(tmp_path), "cwd": tmp_path}
    with seated(command, before, **options) as seat:
        peer = daemon.accept()
        assert peer.greeting.purpose == handshake.PURPOSE_TERMINAL
        assert peer.greeting.argv == (b"an", b"agent")
        _let_go(peer, sys.executable, "-I", "-c", REPORT, "--login", LOGIN="1")
        assert peer.read_to_end() == b""
        status, screen = seat.leave()
        report = json.loads(screen.partition(b"report:")[2])
        process = seat.process.pid
    assert status == 7
    assert [report[name] for name in ("pid", "group", "session", "foreground")] == [process] * 4
    assert report["terminals"] == [True] * 3
    assert report["size"] == [COLUMNS, ROWS]
    assert report["ignored"] & ~_masked(*BY_THE_INTERPRETER) == _masked(*ignored)
    assert report["blocked"] == 0
    assert report["open"] == ["0", "1", "2"]
    assert report["words"] == ["--login"]
    assert {**_environment(tmp_path), "LOGIN": "1"}.items() <= report["environment"].items()
    assert set(report["environment"]) <= {"PATH", "HOME", "LOGIN", "LC_CTYPE"}
    assert (report["cwd"], report["umask"]) == (str(tmp_path), 0o027)


def test_command_dies_of_a_closed_pipe_as_any_does(runners: Runners, daemon: FakeDaemon, tmp_path: Path) -> None:
    """The interpreter ignores that signal for itself; what it becomes must not inherit that."""
    script = "grep SigIgn /proc/self/status"
    with seated(runners.command("--socket", daemon.path, "--", "a"), env=_environment(tmp_path)) as seat:
        _let_go(daemon.accept(), "/bin/sh", "-c", script)
        status, screen = seat.leave()
    assert status == 0
    assert int(screen.split()[1], 16) == 0


def test_keys_reach_the_command(runners: Runners, daemon: FakeDaemon, tmp_path: Path) -> None:
    """Ctrl-C is the command's own affair, for the runner is no more."""
    script = "trap 'echo interrupted' INT; echo ready; until read answer; do :; done; echo heard $answer"
    with seated(runners.command("--socket", daemon.path, "--", "a"), env=_environment(tmp_path)) as seat:
        _let_go(daemon.accept(), "/bin/sh", "-c", script)
        seat.see(b"ready")
        seat.type(b"\x03")
        seat.see(b"interrupted")
        seat.type(b"yes\n")
        seat.see(b"heard yes")
        assert seat.leave()[0] == 0


def test_nothing_is_run_before_the_daemon_says_so(runners: Runners, daemon: FakeDaemon, tmp_path: Path) -> None:
    """A daemon that ends in between has recorded nothing."""
    with seated(
        runners.command("--socket", daemon.path, "--", "touch", str(tmp_path / "ran")), env=_environment(tmp_path)
    ) as seat:
        peer = daemon.accept()
        words = launch.encode([b"touch", os.fsencode(tmp_path / "ran")], peer.greeting.env)
        peer.connection.sendall(words[:-1])
        peer.connection.close()
        status, screen = seat.leave()
    assert status == 69
    assert b"nothing was run: the daemon ended before it recorded the launch." in screen
    assert b"ledgerctl status" in screen
    assert not (tmp_path / "ran").exists()


def test_refusal_is_told_to_the_person(runners: Runners, daemon: FakeDaemon, tmp_path: Path) -> None:
    """One line with the daemon's own sentence, and its status."""
    with seated(runners.command("--socket", daemon.path, "--agent", "nobody"), env=_environment(tmp_path)) as seat:
        daemon.accept().connection.sendall(handshake.encode_fatal("acp-ledger: no agent is named nobody", 69))
        assert seat.leave() == (69, b"acp-ledger-run: no agent is named nobody\r\n")


def test_no_daemon_means_no_command(runners: Runners, tmp_path: Path) -> None:
    """Nothing ever runs unrecorded, and the remedy is on the screen."""
    command = runners.command("--socket", str(tmp_path / "none"), "--", "touch", str(tmp_path / "ran"))
    with seated(command, env=_environment(tmp_path)) as seat:
        status, screen = seat.leave()
    assert status == 69
    assert f"Start one with: acp-ledgerd --socket {tmp_path}/none".encode() in screen
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [("nonesuch", 127, "was not found: nonesuch"), ("/etc/passwd", 126, "cannot be executed: /etc/passwd: Permission")],
)
def test_command_that_cannot_be_run_is_told_to_both(
    runners: Runners, daemon: FakeDaemon, tmp_path: Path, name: str, status: int, words: str
) -> None:
    """The person reads why, and the record gets the same sentence."""
    with seated(runners.command("--socket", daemon.path, "--", name), env=_environment(tmp_path)) as seat:
        peer = daemon.accept()
        _let_go(peer, name)
        assert words.encode() in peer.read_to_end()
        found, screen = seat.leave()
    assert found == status
    assert words.encode() in screen


def test_interrupt_ends_the_waiting(runners: Runners, daemon: FakeDaemon, tmp_path: Path) -> None:
    """Ctrl-C while a daemon is slow ends the runner as it ends any program, without a word."""
    with seated(runners.command("--socket", daemon.path, "--", "a"), env=_environment(tmp_path)) as seat:
        daemon.accept()
        seat.type(b"\x03")
        status, screen = seat.leave()
    assert status == -signal.SIGINT
    assert screen == b"^C"


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_one_terminal_alone_is_an_editor(runners: Runners, daemon: FakeDaemon, tmp_path: Path, stream: str) -> None:
    """Whoever pipes lines in, or the answers on, speaks the protocol."""
    options: dict[str, Any] = {stream: subprocess.DEVNULL, "env": _environment(tmp_path)}
    with seated(runners.command("--socket", daemon.path, "--", "a"), **options) as seat:
        peer = daemon.accept()
        assert peer.greeting.purpose == handshake.PURPOSE_RUN
        peer.end(3)
        assert seat.process.wait(PATIENCE) == 3


def test_login_of_a_named_agent_brings_its_own_words(runners: Runners, daemon: FakeDaemon, tmp_path: Path) -> None:
    """An editor appends the login's arguments to its command line, which may name the agent and no command."""
    command = runners.command("--agent", "claude", f"--socket={daemon.path}", "--login", "--agent", "x", "--")
    with seated(command, env=_environment(tmp_path)):
        greeting = daemon.accept().greeting
    assert (greeting.agent, greeting.argv) == (b"claude", ())
    assert greeting.added == (b"--login", b"--agent", b"x", b"--")


def test_words_of_a_login_are_for_a_named_agent_alone() -> None:
    """Beside a command, or for an editor that speaks the protocol, they are a mistake that is told."""
    with pytest.raises(UsageError, match="unknown option --login"):
        parse(["--login"], terminal=True)
    with pytest.raises(UsageError, match="unknown option --login"):
        parse(["--agent", "claude", "--login"])
    assert parse(["--agent", "claude", "--", "npx", "--login"], terminal=True).command == ["npx", "--login"]
