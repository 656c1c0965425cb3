"""Peers nobody here wrote notice nothing of the ledger: the same outcome, and the same bytes at both ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.lint import AGENTS
from tests.support.peers.find import Peers, peers, tee
from tests.system.installed import PATIENCE, InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.lint import LintRuns

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def installed() -> Peers:
    """The peers of this checkout."""
    return peers()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledDaemon]:
    """One daemon for all of them, as on a developer's machine."""
    with daemon_at(tmp_path_factory.mktemp("daemon")) as running:
        yield running


class Outcome:
    """How a client's run ended: its status and what it said."""

    def __init__(self, command: list[str], folder: Path, *, home: Path) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        self.status = done.returncode
        self.said = done.stdout.decode()
        self.complaints = done.stderr.decode()

    def told(self) -> Any:
        """What a client of ours tells, as JSON."""
        assert self.status == 0, self.complaints
        return json.loads(self.said)


def same_bytes(daemon: InstalledDaemon, at_client: Path, at_agent: Path) -> None:
    """Check that both ends saw the same bytes in both directions, and that those are what is recorded."""
    daemon.wait_for("transport.closed", len(daemon.transports()))
    newest = daemon.transports()[-1]
    for file, direction in (("to_agent", "client_to_agent"), ("to_client", "agent_to_client")):
        sent = (at_client / file).read_bytes()
        assert sent.count(b"\n") >= 4
        assert sent == (at_agent / file).read_bytes()
        assert sent == daemon.lines(newest, direction)


def through(daemon: InstalledDaemon, agent: list[str], folder: Path) -> list[str]:
    """The agent's command with everything between: tee, runner, daemon, tee."""
    return tee(folder / "at_client", daemon.runner(tee(folder / "at_agent", agent)))


@pytest.mark.parametrize(
    ("client", "agent", "answer"),
    [
        ("python", "python", "reject"),
        ("python", "typescript", "allow"),
        ("typescript", "python", "reject"),
        ("typescript", "typescript", "allow"),
    ],
)
def test_sdk_peers_notice_nothing(
    daemon: InstalledDaemon, installed: Peers, tmp_path: Path, client: str, agent: str, answer: str
) -> None:
    """A plain turn, a question with its answer and a cancelled turn of the official SDKs are the same with a ledger."""
    command = installed.client(client, answer, tmp_path)
    direct = Outcome([*command, *installed.agent(agent)], tmp_path, home=tmp_path).told()
    relayed = Outcome([*command, *through(daemon, installed.agent(agent), tmp_path)], tmp_path, home=tmp_path).told()
    assert relayed == direct
    assert direct["stops"] == ["end_turn", "end_turn", "cancelled"]
    same_bytes(daemon, tmp_path / "at_client", tmp_path / "at_agent")
    newest = daemon.transports()[-1]
    asked = "SELECT outcome, effect FROM audit_decisions WHERE transport_id = :id"
    assert daemon.query(asked, id=newest) == [("selected", answer)]
    turns = "SELECT outcome FROM audit_turns WHERE transport_id = :id ORDER BY turn_id"
    assert [row[0] for row in daemon.query(turns, id=newest)] == ["completed", "completed", "cancelled"]


@pytest.mark.parametrize(("flag", "effect"), [("--approve-all", "allow"), ("--deny-all", "reject")])
def test_acpx_notices_nothing(
    daemon: InstalledDaemon, installed: Peers, tmp_path: Path, flag: str, effect: str
) -> None:
    """The client acpx ends with the same status and the same words with a ledger, whether it allows or denies."""

    def run(agent: list[str], name: str) -> Outcome:
        home = tmp_path / name
        home.mkdir()
        return Outcome([*installed.acpx(), flag, "--agent", " ".join(agent), "exec", "hello"], tmp_path, home=home)

    direct = run(installed.example_agent(), "direct")
    relayed = run(through(daemon, installed.example_agent(), tmp_path), "relayed")
    assert (relayed.status, relayed.said) == (direct.status, direct.said)
    assert direct.status == {"allow": 0, "reject": 5}[effect]
    same_bytes(daemon, tmp_path / "at_client", tmp_path / "at_agent")
    asked = "SELECT outcome, effect FROM audit_decisions WHERE transport_id = :id"
    assert daemon.query(asked, id=daemon.transports()[-1]) == [("selected", effect)]


def test_acpx_session_notices_nothing(daemon: InstalledDaemon, installed: Peers, tmp_path: Path) -> None:
    """A session that acpx keeps, with a process to begin it and another to go on, is the same; both are recorded."""

    def run(agent: list[str], name: str) -> list[tuple[int, str]]:
        home = tmp_path / name
        home.mkdir()
        command = [*installed.acpx(), "--approve-all", "--agent", " ".join(agent)]
        said = [
            Outcome([*command, *words], tmp_path, home=home)
            for words in (["sessions", "new"], ["prompt", "hello"], ["sessions", "close"])
        ]
        return [(each.status, re.sub("[0-9a-f]{32}", "ID", each.said)) for each in said]

    direct = run(installed.example_agent(), "direct")
    before = len(daemon.transports())
    relayed = run(daemon.runner(installed.example_agent()), "relayed")
    assert relayed == direct
    assert [status for status, _said in direct] == [0, 0, 0]
    daemon.wait_for("transport.closed", before + 2)
    kept = "SELECT turns, allowed FROM audit_sessions WHERE transport_id IN (:one, :two) ORDER BY transport_id"
    one, two = daemon.transports()[before:]
    assert daemon.query(kept, one=one, two=two) == [(0, 0), (1, 1)]


def test_peers_on_postgres(cluster: Any, installed: Peers, tmp_path: Path) -> None:
    """On Postgres it is the same."""
    with daemon_at(tmp_path / "daemon", cluster.create()) as daemon:
        command = installed.client("typescript", "allow", tmp_path)
        agent = through(daemon, installed.agent("typescript"), tmp_path)
        assert Outcome([*command, *agent], tmp_path, home=tmp_path).told()["stops"][-1] == "cancelled"
        same_bytes(daemon, tmp_path / "at_client", tmp_path / "at_agent")
        assert daemon.verify().findings == ()


@pytest.mark.parametrize("agent", AGENTS)
def test_lint_reports_the_same(lint_runs: LintRuns, agent: str) -> None:
    """The linter acplint gives an agent the same status and the same verdicts, word for word, through the relay."""
    direct = lint_runs.report(agent, relayed=False)
    relayed = lint_runs.report(agent, relayed=True)
    assert relayed == direct
    verdicts = [verdict for _name, _category, verdict, _message in direct[1]]
    assert len(verdicts) >= 40
    # It is itself off the specification, so that agents that keep to it fail some; some of each prove that it looks.
    assert {"PASS", "FAIL"} <= set(verdicts)


def test_lint_was_recorded(lint_runs: LintRuns) -> None:
    """What it asked of the agents through the relay is in the ledger, and intact."""
    for agent in AGENTS:
        lint_runs.report(agent, relayed=True)
    lint_runs.daemon.wait_for("transport.closed", len(AGENTS))
    asked = (
        "SELECT COUNT(DISTINCT method), COUNT(*) FROM frames WHERE direction = 'client_to_agent' AND kind = 'request'"
    )
    ((methods, requests),) = lint_runs.daemon.query(asked)
    assert methods >= 10
    assert requests >= 50
    report = lint_runs.daemon.verify()
    assert (report.findings, report.not_checked) == ((), ())


def test_what_peers_left_is_intact(daemon: InstalledDaemon) -> None:
    """Everything the peers said verifies, mapped again and all."""
    report = daemon.verify()
    assert (report.findings, report.not_checked) == ((), ())


def test_tee_sees_a_difference(tmp_path: Path, installed: Peers) -> None:
    """The comparison can fail: an agent that says something else leaves other bytes."""
    command = installed.client("typescript", "allow", tmp_path)
    other = installed.client("typescript", "reject", tmp_path)
    agent = installed.agent("typescript")
    Outcome([*command, *tee(tmp_path / "a", agent)], tmp_path, home=tmp_path).told()
    Outcome([*other, *tee(tmp_path / "b", agent)], tmp_path, home=tmp_path).told()
    assert (tmp_path / "a" / "to_agent").read_bytes() != (tmp_path / "b" / "to_agent").read_bytes()
