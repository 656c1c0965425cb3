"""However a client stops its agent, nothing of the agent is left, the daemon lives, and the record says what happened.

Each client's own order of end of file and signals is played against an agent in the middle of a turn, with a question
open and a child in a session of its own. All are played at once, as editors do, and then looked at one by one.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.support.clients import WAYS, Client, Way, scripted, start
from tests.support.conversation import call, question, result, update
from tests.support.terminal import end_daemon
from tests.system.installed import InstalledDaemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

STOP_SECONDS: Final = "0.3"
AT_ONCE: Final = 6

OPENING: Final = (
    call(0, "initialize", protocolVersion=1, clientInfo={"name": "a client", "version": "1"}),
    call(1, "session/new", cwd="/", mcpServers=[]),
    call(2, "session/prompt", sessionId="s", prompt=[{"type": "text", "text": "Go on"}]),
)
SAID: Final = (
    result(0, protocolVersion=1, agentCapabilities={}),
    result(1, sessionId="s"),
    update("tool_call", "s", toolCallId="c", title="A call", status="in_progress"),
    question("q", "c", "s"),
)
CASES: Final = [(way, stubborn) for way in WAYS for stubborn in (False, True)]


class Played(NamedTuple):
    """What is known of a client that has stopped its agent."""

    client: Client
    folder: Path
    transport_id: int

    def is_gone(self, name: str) -> bool:
        """Whether a process that noted its number is there no more."""
        with suppress(ProcessLookupError):
            os.kill(int((self.folder / name).read_text()), 0)
            return False
        return True


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledDaemon]:
    """One daemon for all clients, which gives an agent little time."""
    found = InstalledDaemon(tmp_path_factory.mktemp("daemon"))
    found.environment["ACP_LEDGER_RELAY__STOP_SECONDS"] = STOP_SECONDS
    found.start()
    yield found
    found.end()


def agent(folder: Path, *, stubborn: bool) -> list[str]:
    """An agent in the middle of a turn with two children, one in a session of its own."""
    deaf: list[Any] = [["ignore", "SIGTERM", "SIGINT", "SIGHUP"]] if stubborn else []
    turn: list[Any] = [["wait", "prompt"], ["send", *[line.decode() for line in SAID]]]
    children: list[Any] = [
        ["child", str(folder / "child"), {"hold": True, "steps": deaf}],
        ["child", str(folder / "far"), {"setsid": True, "steps": deaf}],
    ]
    return scripted(*deaf, *children, *turn, ["stay"] if stubborn else ["wait", "never"])


def converse(command: list[str], folder: Path, environ: dict[str, str], way: Way) -> Client:
    """Start an agent, bring it into the middle of its turn, and stop it."""
    client = start(command, folder, environ, way)
    try:
        client.say(*OPENING)
        client.hear(b"session/request_permission")
        client.stop()
    except BaseException:
        client.give_up()
        raise
    finally:
        client.over()
    return client


@pytest.fixture(scope="module")
def played(daemon: InstalledDaemon, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Played]:
    """All clients with both agents, some at once."""

    def play(case: tuple[Way, bool]) -> tuple[Client, Path]:
        way, stubborn = case
        folder = tmp_path_factory.mktemp(way.name)
        command = daemon.runner(agent(folder, stubborn=stubborn))
        command[1:1] = ["--label", f"case={folder.name}"]
        return converse(command, folder, {**daemon.environment, "USER": "mia"}, way), folder

    with ThreadPoolExecutor(AT_ONCE) as pool:
        ended = list(pool.map(play, CASES))
    daemon.wait_for("transport.closed", len(CASES))
    found = {label: number for number, label in daemon.query("SELECT id, label FROM transports")}
    numbers = [found[f'{{"case":"{folder.name}"}}'] for _, folder in ended]
    return {
        (way.name, stubborn): Played(client, folder, number)
        for (way, stubborn), (client, folder), number in zip(CASES, ended, numbers, strict=True)
    }


@pytest.mark.parametrize(
    ("way", "stubborn"),
    [pytest.param(way, deaf, id=f"{way.name}-{'deaf' if deaf else 'polite'}") for way, deaf in CASES],
)
def test_stopped_agent_is_gone_and_recorded(
    daemon: InstalledDaemon, played: dict[tuple[str, bool], Played], way: Way, *, stubborn: bool
) -> None:
    """Agent and children end, nothing but the runner was met, and no answer or end of a turn is invented."""
    found = played[way.name, stubborn]
    assert (found.is_gone("child"), found.is_gone("far")) == (True, True)
    assert (found.client.complaints, found.client.killed) == (b"", [])
    said, heard = _joined(OPENING), _joined(SAID)
    assert found.client.heard == daemon.lines(found.transport_id, "agent_to_client") == heard
    assert daemon.lines(found.transport_id, "client_to_agent") == said

    def ask(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in daemon.query(statement, id=found.transport_id)]

    assert ask("SELECT close_reason FROM audit_transports WHERE transport_id = :id") == [("editor_ended",)]
    assert ask("SELECT outcome, stop_reason FROM audit_turns WHERE transport_id = :id") == [("stream_ended", None)]
    answered = "SELECT outcome, option_id, effect, decided_by FROM audit_decisions WHERE transport_id = :id"
    assert ask(answered) == [("unanswered", None, "none", "nobody")]
    assert ask("SELECT COUNT(*) FROM frames WHERE transport_id = :id AND origin <> 'peer'") == [(0,)]


def _joined(lines: tuple[bytes, ...]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def test_who_asked_is_recorded(daemon: InstalledDaemon, played: dict[tuple[str, bool], Played]) -> None:
    """The kernel's word for who asked for an agent stands in the record: user and process."""
    found = played["acpx", False]
    asked = "SELECT peer_uid, peer_pid FROM transports WHERE id = :id"
    assert daemon.query(asked, id=found.transport_id) == [(os.getuid(), found.client.process.pid)]


def test_daemon_outlives_them_all(daemon: InstalledDaemon, played: dict[tuple[str, bool], Played]) -> None:
    """After all of them the daemon still runs, and the ledger verifies."""
    assert not daemon.is_over()
    report = daemon.verify()
    assert (report.findings, report.not_checked) == ((), ())
    assert report.transports == len(played)


KILLER: Final = next(way for way in WAYS if way.name == "zed")


def test_killer_meets_children_in_other_sessions(tmp_path: Path) -> None:
    """The negative control: without a runner the same client does meet the agent's children, and ends them."""
    found = Played(converse(agent(tmp_path, stubborn=True), tmp_path, dict(os.environ), KILLER), tmp_path, 0)
    assert sorted(found.client.killed) == sorted(int((tmp_path / name).read_text()) for name in ("child", "far"))


BESIDE: Final = """
import sys
from acp_ledger import paths, run
paths.RUNTIME_ROOT = {runtime!r}
sys.exit(run.main(daemon=[sys.executable, "-c", {daemon!r}]))
"""
DAEMON: Final = """
from acp_ledger import paths
from acp_ledger.daemon.main import main
paths.RUNTIME_ROOT = {runtime!r}
main()
"""


def test_daemon_of_a_killed_runner_lives(tmp_path: Path) -> None:
    """A daemon that a runner started for itself is met by no client that kills everything it started, and goes on."""
    runtime = str(tmp_path / "run")
    script = tmp_path / "acp-ledger-run"
    script.write_text(BESIDE.format(runtime=runtime, daemon=DAEMON.format(runtime=runtime)))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ACP_LEDGER_RELAY__STOP_SECONDS": STOP_SECONDS}
    clients = []
    for name in ("one", "two"):
        (folder := tmp_path / name).mkdir()
        command = [sys.executable, str(script), "--", *agent(folder, stubborn=False)]
        clients.append(converse(command, folder, environ, KILLER))
    assert [(client.killed, client.complaints) for client in clients] == [([], b"")] * 2
    socket = tmp_path / ".local/state/acp-ledger/ledgerd.sock"
    assert end_daemon(str(socket)) is True
    with sqlite3.connect(f"file:{tmp_path}/.local/share/acp-ledger/ledger.db?mode=ro", uri=True) as ledger:
        reasons = "SELECT close_reason, COUNT(*) FROM audit_transports GROUP BY 1"
        assert ledger.execute(reasons).fetchall() == [("editor_ended", 2)]
    ledger.close()
