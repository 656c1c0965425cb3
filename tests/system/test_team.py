"""Two daemons on one Postgres, both in the writer's role, on a ledger its owner made: each minds its own."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from acp_ledger.errors import ExitCode
from tests.support.team import Team, made_by_owner
from tests.system.installed import PATIENCE, PROGRAMS, InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import Cluster

LINE = b'{"jsonrpc":"2.0","method":"_demo/said","params":{"number":%d}}\n'


class Conversation:
    """A runner before an agent that says every line again."""

    def __init__(self, daemon: InstalledDaemon) -> None:
        self.process = subprocess.Popen(
            daemon.runner(["cat"]),
            env=daemon.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )

    def say(self, number: int) -> bytes:
        """Say a line; what comes back, which is then in the ledger twice, and nothing when nobody is there any more."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(LINE % number)
        return self.process.stdout.readline()

    def end(self) -> int:
        """Hang up; the status."""
        _out, _err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


@contextmanager
def conversation(daemon: InstalledDaemon) -> Iterator[Conversation]:
    """A conversation; nothing of it outlives the test."""
    found = Conversation(daemon)
    try:
        yield found
    finally:
        found.process.kill()
        found.end()


@pytest.fixture
def team(cluster: Cluster) -> Iterator[Team]:
    """An empty ledger of a team."""
    yield from made_by_owner(cluster)


def endings(daemon: InstalledDaemon) -> dict[int, str]:
    """How transports ended, of those that did."""
    ended = "SELECT transport_id, event FROM transport_events WHERE event IN ('closed', 'interrupted')"
    return {row[0]: row[1] for row in daemon.query(ended)}


def test_each_daemon_recovers_only_its_own(team: Team, tmp_path: Path) -> None:
    """One is killed and comes back: it closes what it had left open, and the other's conversation notices nothing."""
    with daemon_at(tmp_path / "a", team.url_of("writer")) as a, daemon_at(tmp_path / "b", team.url_of("writer")) as b:
        with conversation(a) as lost:
            assert lost.say(1) == LINE % 1
            [of_a] = a.transports()
            with conversation(b) as kept:
                assert kept.say(1) == LINE % 1
                [of_b] = set(b.transports()) - {of_a}
                a.kill()
                assert kept.say(2) == LINE % 2
                assert endings(b) == {}
                a.start()
                assert endings(b) == {of_a: "interrupted"}
                assert kept.say(3) == LINE % 3
                assert kept.end() == 0
        with conversation(a) as again:
            assert again.say(1) == LINE % 1
            assert again.end() == 0
    assert endings(a)[of_b] == "closed"
    assert sorted(endings(a).values()) == ["closed", "closed", "interrupted"]
    assert team.ledgerctl("auditor", "verify", "--full").exit_code == ExitCode.OK
    daemons = a.query("SELECT count(DISTINCT daemon_id), count(*) FROM transports")
    assert [tuple(row) for row in daemons] == [(2, 3)]


def test_second_daemon_of_a_state_directory_is_refused(team: Team, tmp_path: Path) -> None:
    """What would be the same daemon twice does not start, and is told which process it has to do with."""
    with daemon_at(tmp_path / "a", team.url_of("writer")) as a:
        command = [str(PROGRAMS / "acp-ledgerd"), "--ledger", a.url, "--socket", str(tmp_path / "other.sock")]
        second = subprocess.run(command, env=a.environment, capture_output=True, text=True, check=False)
        assert second.returncode == ExitCode.LOCKED
        assert f"another daemon (acp-ledgerd {a.pid}@" in second.stderr
        assert "a state directory of its own" in second.stderr
