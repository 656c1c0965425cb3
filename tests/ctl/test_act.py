"""`ledgerctl cancel` and `ledgerctl stop` on a real daemon with a real runner and a real agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger import dialogue, handshake
from acp_ledger.ctl.demo import _running_daemon
from acp_ledger.errors import ExitCode
from tests.daemon.house import AGENT, PROMPT, QUESTION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ctl.conftest import Cli

PATIENCE = 20.0
STEPS = [
    ["wait", "prompt"],
    ["send", QUESTION],
    ["wait", '"cancelled"'],
    ["send", '{"jsonrpc":"2.0","id":7,"result":{"stopReason":"cancelled"}}'],
    ["stay"],
]


class Served:
    """A daemon, and an editor that starts an agent through the installed runner."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self._socket = str(folder / "ledgerd.sock")
        self._editors: list[subprocess.Popen[bytes]] = []

    def ask(self) -> subprocess.Popen[bytes]:
        """Start an agent, and wait until it has asked its question."""
        runner = [sys.executable, "-c", "import sys; from acp_ledger.run import main; sys.exit(main())"]
        agent = [sys.executable, "-I", str(AGENT), json.dumps(STEPS)]
        command = [*runner, "--socket", self._socket, "--agent", "scripted", "--", *agent]
        editor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._editors.append(editor)
        assert editor.stdin is not None
        assert editor.stdout is not None
        editor.stdin.write(PROMPT)
        editor.stdin.flush()
        assert b"request_permission" in editor.stdout.readline()
        return editor

    def close(self) -> None:
        """End the editors that are left."""
        for editor in self._editors:
            editor.kill()
            editor.communicate(timeout=PATIENCE)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, ledger_url: str) -> Iterator[Served]:
    """A running daemon, on each engine."""
    del cli  # it sets HOME
    monkeypatch.setenv("ACP_LEDGER_SOCKET__PATH", str(tmp_path / "ledgerd.sock"))
    with _running_daemon(tmp_path, ledger_url):
        served = Served(tmp_path, ledger_url)
        yield served
        served.close()


def test_running_session_is_cancelled_and_its_agent_stopped(cli: Cli, served: Served) -> None:
    """From the question to the agent's end: each step is confirmed, recorded, and told again once it is over."""
    editor = served.ask()
    assert editor.stdout is not None
    shown = cli("status", "-L", served.url)
    assert "waiting for an answer" in shown.stdout
    cancelled = cli("cancel", "--last", "-L", served.url)
    assert cancelled.exit_code == ExitCode.OK, cancelled.stderr
    assert "session/cancel for s is recorded (frame " in cancelled.stdout
    assert "; 1 open question was answered `cancelled`\n" in cancelled.stdout
    assert b"$/cancel_request" in editor.stdout.readline()
    assert b"stopReason" in editor.stdout.readline()
    idle = cli("cancel", "s", "-L", served.url)
    assert (idle.exit_code, "nothing runs in session" in idle.stderr) == (ExitCode.FAILED, True)
    assert "hint: to end its agent: ledgerctl " in idle.stderr
    stopped = cli("stop", "s", "-o", "json", "-L", served.url)
    told: dict[str, Any] = json.loads(stopped.stdout)
    assert (stopped.exit_code, told["schema"], told["ended"]) == (ExitCode.OK, "acp-ledger/stop/1", True)
    assert editor.wait(PATIENCE) == handshake.EXIT_SIGNAL + 15
    again = cli("stop", str(told["transport_id"]), "-L", served.url)
    assert again.exit_code == ExitCode.FAILED
    assert "is over: transport " in again.stderr
    assert "(operator_stopped)" in again.stderr


@pytest.mark.parametrize(
    ("command", "told", "words"),
    [
        (("stop", "s"), {"ended": False}, "scripted (transport 17, pid 4) is being stopped, and has not ended yet"),
        (
            ("stop", "s"),
            {"ended": True, "how": "exit status 0"},
            "scripted (transport 17, pid 4) was stopped: exit status 0",
        ),
        (("cancel", "s"), {"heard": False}, "is recorded (frame 5) and not taken by the agent yet"),
        (("cancel", "s"), {"heard": True, "questions": 2}, "and sent; 2 open questions were answered `cancelled`"),
    ],
)
def test_what_did_not_come_to_its_end_is_incomplete(
    cli: Cli, answering: Any, command: tuple[str, ...], told: dict[str, Any], words: str
) -> None:
    """Nothing is claimed before it happened; scripts see it by the status."""
    about = {"transport_id": 17, "agent": "scripted", "pid": 4, "acp_session_id": "s", "frame_seq": 5, "requests": 0}
    answering(dialogue.encode_answer(**about, **told))
    result = cli(*command)
    assert words in result.stdout
    done = told.get("ended") or told.get("heard")
    assert result.exit_code == (ExitCode.OK if done else ExitCode.INCOMPLETE)


@pytest.mark.parametrize("arguments", [("cancel", "s"), ("cancel", "--last"), ("stop", "1796")])
def test_without_a_daemon_nothing_is_done(cli: Cli, arguments: tuple[str, ...]) -> None:
    """The status is that of a daemon that cannot be reached, with the command that starts one."""
    result = cli(*arguments)
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "error: no daemon listens on " in result.stderr
    assert "hint: " in result.stderr


@pytest.mark.parametrize(
    "arguments", [("cancel",), ("cancel", "s", "--last"), ("stop",), ("stop", "1", "--wait", "-1")]
)
def test_wrong_usage_asks_nobody(cli: Cli, arguments: tuple[str, ...]) -> None:
    """One session, one transport, a time that is none."""
    assert cli(*arguments).exit_code == ExitCode.USAGE


def test_what_another_daemon_has_is_told(cli: Cli, seeded_file: Path, answering: Any) -> None:
    """What is open in the ledger and not here is for the machine where it was opened."""
    refusal = dialogue.encode_refusal("nothing open is called 'x'", "ledgerctl status")
    answering(refusal, dialogue.encode_answer(transports=[]))
    transport = json.loads(cli("agents", "-L", str(seeded_file), "-o", "json").stdout)["agents"][-1]["transport_id"]
    result = cli("stop", str(transport), "-L", str(seeded_file))
    assert result.exit_code == ExitCode.FAILED
    assert "is open in the ledger, and not with this daemon" in result.stderr
    assert "was opened on " in result.stderr


def test_older_daemon_is_told_apart(cli: Cli, answering: Any) -> None:
    """A daemon that does not know the request says so, and nothing is looked up in its place."""
    answering(dialogue.encode_refusal("this daemon does not know the request 'stop'", "restart acp-ledgerd"))
    result = cli("stop", str(os.getpid()))
    assert result.exit_code == ExitCode.FAILED
    assert "hint: restart acp-ledgerd" in result.stderr


def test_stop_without_a_word_says_how_the_daemon_is_stopped(cli: Cli) -> None:
    """Whoever types it means one or the other."""
    result = cli("stop")
    assert (result.exit_code, "systemctl --user stop acp-ledgerd" in result.stderr) == (ExitCode.USAGE, True)
