"""The runner's command line, what it tells the daemon, and what it costs an editor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acp_ledger import handshake
from acp_ledger.run import UsageError, parse
from tests.support.fake_daemon import FakeDaemon
from tests.support.runners import BARE_PATH, CONSOLE_SCRIPT, Runners, runners

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["runners"]

PATIENCE = 20.0
MODULES = 45

OURS = {f"acp_ledger{name}" for name in ("", ".run", ".carry", ".dial", ".handshake", ".paths")}
BEYOND_THE_INTERPRETER = OURS | {"__future__", "select", "_socket"}

REPORT_MODULES = """
import sys
before = set(sys.modules)
from acp_ledger.run import main
status = main()
print(len(sys.modules), *sorted(set(sys.modules) - before), file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    """A daemon that does what the test tells it."""
    with FakeDaemon(tmp_path / "s") as found:
        yield found


def _said(process: subprocess.Popen[bytes], status: int) -> bytes:
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    return errors


def test_runner_loads_little(runners: Runners, daemon: FakeDaemon) -> None:
    """Every module costs every conversation of every editor, so the list is written down."""
    process = runners.start("--socket", daemon.path, "--", "agent", script=REPORT_MODULES)
    peer = daemon.accept()
    peer.send(handshake.OUTPUT, b"first byte")
    peer.end(0)
    count, *loaded = _said(process, 0).decode().split()
    assert set(loaded) <= BEYOND_THE_INTERPRETER
    assert int(count) <= MODULES


def test_greeting_tells_what_the_editor_said(runners: Runners, daemon: FakeDaemon, tmp_path: Path) -> None:
    """Command, directory, environment and identity arrive as they are."""
    environment = {"PATH": BARE_PATH, "HOME": str(tmp_path), "KEY": "a=b\n\udcff", "EMPTY": ""}
    words = [
        "--label",
        "team=core=x",
        "--agent=claude",
        "--label=ticket=7",
        "--",
        "npx",
        "-y",
        "--",
        "a b",
        "\udcff",
        "",
    ]
    runners.start("--socket", daemon.path, *words, env=environment, cwd=tmp_path)
    greeting = daemon.accept().greeting
    assert greeting.purpose == handshake.PURPOSE_RUN
    assert greeting.argv == (b"npx", b"-y", b"--", b"a b", b"\xff", b"")
    assert greeting.agent == b"claude"
    assert greeting.labels == ((b"team", b"core=x"), (b"ticket", b"7"))
    assert greeting.cwd == os.fsencode(tmp_path)
    assert greeting.env == {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    assert greeting.ppid == os.getpid()
    assert greeting.parent_exe == os.fsencode(Path("/proc/self/exe").readlink())
    assert greeting.umask == int(Path("/proc/self/status").read_text().split("Umask:")[1].split()[0], 8)


def test_greeting_names_the_runner(runners: Runners, daemon: FakeDaemon) -> None:
    """The record says which process asked."""
    process = runners.start("--socket", daemon.path, "--agent", "claude")
    greeting = daemon.accept().greeting
    assert greeting.pid == process.pid
    assert greeting.argv == ()


def test_environment_of_path_alone_is_handed_on_alone(runners: Runners, daemon: FakeDaemon) -> None:
    """The interpreter sets a locale for itself, which the agent was never given."""
    runners.start("--socket", daemon.path, "--", "agent", env={"PATH": BARE_PATH})
    assert daemon.accept().greeting.env == {b"PATH": BARE_PATH.encode()}


def test_large_environment_arrives(runners: Runners, daemon: FakeDaemon) -> None:
    """Continuous integration puts whole files there."""
    environment = {f"V{number}": "x" * 100_000 for number in range(12)}
    runners.start("--socket", daemon.path, "--", "agent", env={"PATH": BARE_PATH, **environment})
    assert daemon.accept().greeting.env[b"V11"] == b"x" * 100_000


def test_socket_is_taken_from_the_environment(runners: Runners, daemon: FakeDaemon) -> None:
    """Editors can set a variable where they take no arguments."""
    runners.start("--", "agent", env={"PATH": BARE_PATH, "ACP_LEDGER_SOCKET__PATH": daemon.path})
    assert daemon.accept().greeting.argv == (b"agent",)


def test_named_socket_without_daemon_says_how_to_start_one(runners: Runners, tmp_path: Path) -> None:
    """Whoever named a socket meant the daemon there, and no other is started for it."""
    process = runners.start("--socket", str(tmp_path / "none"), "--", "agent")
    output, errors = process.communicate(b'{"id":1,"method":"initialize"}\n', timeout=PATIENCE)
    assert process.returncode == 69
    assert f"Start one with: acp-ledgerd --socket {tmp_path}/none".encode() in output
    assert errors.count(b"\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["acp-ledger-run"]


def test_socket_path_too_long_is_named(runners: Runners) -> None:
    """The kernel would cut it, or say nothing of use."""
    process = runners.start("--socket", "/" + "x" * 120, "--", "agent", stdin=subprocess.DEVNULL)
    assert b"121 bytes and a Unix socket allows 107" in _said(process, 69)


def test_removed_directory_is_named(runners: Runners, daemon: FakeDaemon, tmp_path: Path) -> None:
    """An agent cannot be started where there is no directory any more."""
    gone = tmp_path / "gone"
    gone.mkdir()

    def remove() -> None:
        gone.rmdir()

    process = runners.start("--socket", daemon.path, "--", "a", cwd=gone, preexec_fn=remove, stdin=subprocess.DEVNULL)
    assert b"the working directory was removed" in _said(process, 69)


def test_refused_run_answers_the_editor(runners: Runners, daemon: FakeDaemon) -> None:
    """The daemon's own sentence and status reach whoever asked first."""
    process = runners.start("--socket", daemon.path, "--", "nonesuch")
    peer = daemon.accept()
    assert process.stdin is not None
    process.stdin.write(b'{"id":7,"method":"initialize"}\n')
    process.stdin.flush()
    assert peer.read_exactly(31)
    peer.connection.sendall(handshake.encode_fatal("acp-ledger: nonesuch: command not found", 127))
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 127
    assert b'"id":7,"error"' in output
    assert b'"message": "acp-ledger: nonesuch: command not found"' in output
    assert errors == b"acp-ledger-run: nonesuch: command not found\n"


def test_refusal_after_output_is_for_stderr_alone(runners: Runners, daemon: FakeDaemon) -> None:
    """Once the daemon answers for itself, nobody answers beside it."""
    process = runners.start("--socket", daemon.path, "--", "agent")
    peer = daemon.accept()
    peer.send(handshake.OUTPUT, b"{}\n")
    peer.connection.sendall(handshake.encode_fatal("the ledger's disk is full", 69))
    output, errors = process.communicate(b'{"id":7,"method":"x"}\n', timeout=PATIENCE)
    assert output == b"{}\n"
    assert errors == b"acp-ledger-run: the ledger's disk is full\n"
    assert process.returncode == 69


def test_daemon_that_never_spoke_leaves_no_request_unanswered(runners: Runners, daemon: FakeDaemon) -> None:
    """Several editors wait for ever on a bare end of file."""
    process = runners.start("--socket", daemon.path, "--", "agent")
    peer = daemon.accept()
    peer.connection.close()
    output, _ = process.communicate(b'{"id":"x","method":"initialize"}\n', timeout=PATIENCE)
    assert b'"id":"x","error"' in output
    assert process.returncode == 69


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "no COMMAND after --"),
        (["--"], "no COMMAND after --"),
        (["npx", "agent"], "'npx' is no option: put -- before the agent's command"),
        (["--agnet", "x"], "unknown option --agnet; did you mean --agent?"),
        (["--zzz"], "unknown option --zzz$"),
        (["--agent"], "--agent needs a value"),
        (["--agent", "--", "x"], "--agent needs a value"),
        (["--agent=", "--", "x"], "--agent needs a value that is not empty"),
        (["--label", "x", "--", "a"], "--label needs KEY=VALUE, not 'x'"),
        (["--label", "=x", "--", "a"], "--label needs KEY=VALUE"),
    ],
)
def test_wrong_command_line_is_explained(argv: list[str], sentence: str) -> None:
    """Whoever edits an editor's settings reads what to change."""
    with pytest.raises(UsageError, match=sentence):
        parse(argv)


def test_wrong_command_line_exits_with_two(runners: Runners) -> None:
    """One line with the usage, and the status scripts know."""
    errors = _said(runners.start("--scoket", "x"), 2)
    assert errors.startswith(b"acp-ledger-run: unknown option --scoket; did you mean --socket?. Usage: acp-ledger-run")
    assert errors.count(b"\n") == 1


@pytest.mark.parametrize(
    ("option", "text"), [("--version", "acp-ledger-run 0."), ("--help", "Usage: acp-ledger-run [")]
)
def test_runner_describes_itself(runners: Runners, option: str, text: str) -> None:
    """Asked for its version or its usage it starts nothing."""
    process = runners.start(option)
    output, errors = process.communicate(timeout=PATIENCE)
    assert output.decode().startswith(text)
    assert errors == b""
    assert process.returncode == 0


def test_installed_script_is_the_one_tested() -> None:
    """What these tests start is what an editor starts, but for the interpreter that the installer put into it."""
    installed = Path(sys.executable).with_name("acp-ledger-run").read_text()
    assert installed.splitlines()[1:] == CONSOLE_SCRIPT.splitlines()[1:]
