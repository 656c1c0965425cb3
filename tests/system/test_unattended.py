"""Agents of the official SDKs, with the daemon as their client: allowed, rejected, cancelled, and recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from acp_ledger.client import Observer, Policy, Update, open_client
from tests.support.peers.find import Peers, peers
from tests.system.installed import PATIENCE, InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def installed() -> Peers:
    """The peers of this checkout."""
    return peers()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledDaemon]:
    """One daemon for all of them."""
    with daemon_at(tmp_path_factory.mktemp("daemon")) as running:
        yield running


class Waiting(Observer):
    """Tells when the agent says that it waits."""

    def __init__(self) -> None:
        self.seen = trio.Event()

    def update(self, update: Update) -> None:
        """Hear it."""
        if update.text == "waiting":
            self.seen.set()


@pytest.mark.parametrize("answer", ["allow", "reject"])
@pytest.mark.parametrize("agent", ["python", "typescript"])
async def test_sdk_agent_runs_unattended(daemon: InstalledDaemon, installed: Peers, agent: str, answer: str) -> None:
    """A plain turn, a question that the policy answers, and a turn that its program cancels."""
    policy = Policy(allow_title_prefixes=("Edit",)) if answer == "allow" else Policy()
    waiting = Waiting()
    with trio.fail_after(PATIENCE):
        async with open_client(installed.agent(agent), socket=daemon.socket, policy=policy, observer=waiting) as client:
            await client.start()
            plain = await client.prompt_detailed("plain")
            asked = await client.prompt_detailed("tool")

            async def cancel() -> None:
                """Cancel the turn once it is under way."""
                await waiting.seen.wait()
                await client.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel)
                cancelled = await client.prompt_detailed("wait")
    assert (plain.text, plain.outcome) == ("Good morning \u2028 \U0001f600", "completed")
    assert (asked.decisions, asked.outcome) == (1, "completed")
    assert (cancelled.text, cancelled.outcome) == ("waiting", "cancelled")
    decided = "SELECT effect, decided_by FROM audit_decisions WHERE transport_id = :id"
    assert daemon.query(decided, id=client.transport_id) == [(answer, "policy")]
    steps = "SELECT status FROM audit_tool_calls WHERE transport_id = :id"
    last = "completed" if answer == "allow" else "failed"
    assert [row[0] for row in daemon.query(steps, id=client.transport_id)] == [last]
    turns = "SELECT outcome FROM audit_turns WHERE transport_id = :id ORDER BY turn_id"
    assert [row[0] for row in daemon.query(turns, id=client.transport_id)] == ["completed", "completed", "cancelled"]


def test_what_they_left_is_intact(daemon: InstalledDaemon) -> None:
    """Every line maps again to the rows that are stored."""
    report = daemon.verify()
    assert (report.findings, report.not_checked) == ((), ())
