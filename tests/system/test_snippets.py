"""What `ledgerctl editor print` prints is all it takes: clients nobody here wrote, pasted nothing else, are recorded.

The home is a new one, no daemon runs, and the environment says nothing of a ledger: the first runner starts the daemon.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from acp_ledger import paths
from acp_ledger.dial import NoDaemon, dial
from acp_ledger.store import engine
from tests.support.peers.find import Peers, peers
from tests.support.terminal import end_daemon
from tests.system.installed import PATIENCE, PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.peers


@dataclass(frozen=True, slots=True)
class Home:
    """A user's home with nothing of ours in it but the programs."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a shell hands on here."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder)}

    def run(self, command: list[str], *, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        nothing = subprocess.DEVNULL
        return subprocess.run(
            command,
            env=self.environment,
            cwd=cwd,
            stdin=nothing,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def printed(self, editor: str, *agent: str) -> Any:
        """What is printed to be pasted, read as the editor reads it."""
        done = self.run([str(PROGRAMS / "ledgerctl"), "editor", "print", editor, *agent], cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def recorded(self, agent: str) -> list[tuple[Any, ...]]:
        """How each question that an agent asked was answered."""
        reader = engine.open_reader(paths.default_ledger_url({"HOME": str(self.folder)}, os.getuid()))
        asked = (
            "SELECT d.outcome, d.effect FROM audit_decisions d JOIN audit_transports t USING (transport_id)"
            " WHERE t.agent = :agent"
        )
        with reader.connect() as connection:
            found = [tuple(row) for row in connection.execute(text(asked), {"agent": agent})]
        reader.dispose()
        return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A new home; the daemon that comes to run in it is ended."""
    found = Home(tmp_path_factory.mktemp("home"))
    uid = os.getuid()
    if paths.runtime_directory(uid) is not None:
        try:
            dial(paths.socket_path({}, uid)).close()
        except NoDaemon:
            pass
        else:
            pytest.skip("a daemon of yours runs, and would record what these tests say: ledgerctl stop")
    yield found
    end_daemon(paths.socket_path(found.environment, uid))


@pytest.fixture(scope="module")
def installed() -> Peers:
    """The peers of this checkout."""
    return peers()


def test_acpx_needs_its_snippet_alone(home: Home, installed: Peers, tmp_path: Path) -> None:
    """Acpx with the printed settings ends with the status and words it has without them, and is recorded."""
    agent = installed.example_agent()
    words = ["--approve-all", "exec", "hello"]
    direct = home.run([*installed.acpx(), "--agent", " ".join(agent), *words], cwd=tmp_path)
    settings = home.printed("acpx", "--agent", "example", "--", *agent)
    (home.folder / ".acpx").mkdir(exist_ok=True)
    (home.folder / ".acpx" / "config.json").write_text(json.dumps(settings))
    overseen = home.run([*installed.acpx(), *words], cwd=tmp_path)
    assert (overseen.returncode, overseen.stdout) == (direct.returncode, direct.stdout), overseen.stderr
    assert direct.returncode == 0
    assert home.recorded("example") == [("selected", "allow")]


@pytest.mark.parametrize("client", ["python", "typescript"])
@pytest.mark.parametrize("editor", ["zed", "jetbrains"])
def test_sdk_clients_need_a_snippet_alone(
    home: Home, installed: Peers, tmp_path: Path, client: str, editor: str
) -> None:
    """The command and arguments that are printed for an editor serve a client on either SDK as its agent's."""
    agent = installed.agent(client)
    (server,) = home.printed(editor, "--agent", f"{client}-{editor}", "--", *agent)["agent_servers"].values()
    play = installed.client(client, "reject", tmp_path)
    direct = home.run([*play, *agent], cwd=tmp_path)
    overseen = home.run([*play, server["command"], *server["args"]], cwd=tmp_path)
    assert json.loads(overseen.stdout) == json.loads(direct.stdout), overseen.stderr
    assert home.recorded(f"{client}-{editor}") == [("selected", "reject")]
