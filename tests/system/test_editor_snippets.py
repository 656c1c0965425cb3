"""Clients nobody here wrote, pointed at the ledger by what `ledgerctl editor print` printed, and by nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger import paths
from tests.support.peers.find import Peers, peers
from tests.system.installed import PATIENCE, PROGRAMS, InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.peers


class Desk:
    """A user's home directory, in which the daemon listens where every runner looks."""

    def __init__(self, home: Path, daemon: InstalledDaemon) -> None:
        self.home = home
        self.daemon = daemon
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        if paths.runtime_directory(os.getuid()) is not None:
            # The user who runs the tests has a daemon of his own there, perhaps.
            self.environment[paths.SOCKET_VARIABLE] = str(daemon.socket)

    def run(self, command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end, as this user."""
        return subprocess.run(
            command,
            cwd=folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )

    def printed(self, editor: str, agent: list[str]) -> str:
        """What `editor print` gives for an agent of ours."""
        command = [str(PROGRAMS / "ledgerctl"), "editor", "print", editor, "--agent", "demo", "--title", "Demo", "--"]
        done = self.run([*command, *agent], self.home)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def outcomes(self) -> list[Any]:
        """How the turns of the newest connection of `demo` ended, as the ledger has it."""
        self.daemon.wait_for("transport.closed", len(self.daemon.transports()))
        statement = "SELECT outcome FROM audit_turns WHERE transport_id = :id ORDER BY turn_id"
        newest, agent = self.daemon.query("SELECT transport_id, agent FROM audit_transports ORDER BY 1 DESC")[0]
        assert agent == "demo"
        return [row[0] for row in self.daemon.query(statement, id=newest)]


@pytest.fixture(scope="module")
def installed() -> Peers:
    """The peers of this checkout."""
    return peers()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One home and its daemon for all of them."""
    home = tmp_path_factory.mktemp("home")
    with daemon_at(home / ".local" / "state" / "acp-ledger") as daemon:
        yield Desk(home, daemon)


def test_acpx_runs_through_the_ledger(desk: Desk, installed: Peers, tmp_path: Path) -> None:
    """The client acpx, with the snippet as its only settings, gets its answer, and is recorded."""
    file = desk.home / ".acpx" / "config.json"
    file.parent.mkdir()
    file.write_text(desk.printed("acpx", installed.example_agent()))
    done = desk.run([*installed.acpx(), "--approve-all", "exec", "hello"], tmp_path)
    assert done.returncode == 0, done.stderr
    (said,) = desk.daemon.query("SELECT text FROM messages WHERE stream = 'agent' LIMIT 1")[0]
    assert said.rpartition("! ")[2].encode() in done.stdout
    assert desk.outcomes() == ["completed"]


@pytest.mark.parametrize(
    ("editor", "key", "client"),
    [("zed", "agent_servers", "typescript"), ("jetbrains", "agent_servers", "python")],
)
def test_sdk_clients_run_what_the_entry_names(
    desk: Desk, installed: Peers, tmp_path: Path, editor: str, key: str, client: str
) -> None:
    """Command, arguments and environment of the printed entry are all that a client needs."""
    if client == "python" and paths.SOCKET_VARIABLE in desk.environment:
        pytest.skip("the Python SDK hands on no variables, and the default socket here is that of a real user")
    entry = json.loads(desk.printed(editor, installed.agent("python")))[key]["Demo"]
    command = [*installed.client(client, "allow", tmp_path), entry["command"], *entry["args"]]
    done = desk.run(command, tmp_path, **entry["env"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stops"] == ["end_turn", "end_turn", "cancelled"]
    assert desk.outcomes() == ["completed", "completed", "cancelled"]
