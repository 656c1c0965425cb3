"""Whatever goes wrong at an agent or a client, both are told through the relay what they would be told without it.

Each fault is played twice by the same two peers, directly and through runner and daemon. What the client hears and the
status it gets are the same, but for one thing: a request that nobody can answer any more gets an error of the daemon's,
for several clients wait for ever on a bare end of file. The record names those errors as the daemon's, and invents
neither an answer nor the end of a turn.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.support.clients import PLAIN, Client, Way, scripted, start
from tests.support.wrongs import INIT, WRONGS, Wrong
from tests.system.installed import InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

AT_ONCE: Final = 6


class Played(NamedTuple):
    """What a client heard, and the status it got."""

    heard: bytes
    status: int
    complaints: bytes
    transport_id: int = 0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledDaemon]:
    """One daemon for all of them."""
    with daemon_at(tmp_path_factory.mktemp("daemon")) as running:
        yield running


def converse(wrong: Wrong, command: list[str], daemon: InstalledDaemon, way: Way = PLAIN) -> Played:
    """Play the client's part."""
    client = start(command, daemon.folder, daemon.environment, way)
    try:
        for step in wrong.client:
            _take(client, step)
        client.rest()
        client.end()
    except BaseException:
        client.give_up()
        raise
    finally:
        status = client.over()
    return Played(bytes(client.heard), status, client.complaints)


def _take(client: Client, step: bytes | str) -> None:
    if step == "":
        client.end()
    elif isinstance(step, str):
        client.hear(step.encode())
    else:
        client.say(step)


@pytest.fixture(scope="module")
def played(daemon: InstalledDaemon) -> dict[str, tuple[Played, Played]]:
    """Each fault, direct and relayed, some at once as of several editors."""

    def play(wrong: Wrong) -> tuple[Played, Played]:
        agent = scripted(*wrong.agent)
        command = daemon.runner(agent)
        command[1:1] = ["--label", f"case={wrong.name}"]
        return converse(wrong, agent, daemon), converse(wrong, command, daemon)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        pairs = list(pool.map(play, WRONGS))
    daemon.wait_for("transport.closed", len(WRONGS))
    found = {label: number for number, label in daemon.query("SELECT id, label FROM transports")}
    return {
        wrong.name: (direct, relayed._replace(transport_id=found[f'{{"case":"{wrong.name}"}}']))
        for wrong, (direct, relayed) in zip(WRONGS, pairs, strict=True)
    }


@pytest.mark.parametrize("wrong", WRONGS, ids=[wrong.name for wrong in WRONGS])
def test_client_is_told_the_same(played: dict[str, tuple[Played, Played]], wrong: Wrong) -> None:
    """The same bytes and the same status; then an error for each request that nobody can answer any more."""
    direct, relayed = played[wrong.name]
    assert (direct.status, relayed.status) == (wrong.status, wrong.status)
    assert (direct.complaints, relayed.complaints) == (b"", b"")
    assert relayed.heard.startswith(direct.heard)
    errors = [json.loads(line) for line in relayed.heard.removeprefix(direct.heard).splitlines()]
    assert [error["id"] for error in errors] == list(wrong.unanswered)
    assert [error["error"]["data"]["reason"] for error in errors] == ["agent_ended"] * len(errors)


@pytest.mark.parametrize("wrong", WRONGS, ids=[wrong.name for wrong in WRONGS])
def test_record_is_what_happened(
    daemon: InstalledDaemon, played: dict[str, tuple[Played, Played]], wrong: Wrong
) -> None:
    """Every line is there in its order, the daemon's own are named as its own, and no answer or end is invented."""
    direct, relayed = played[wrong.name]

    def ask(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in daemon.query(statement, id=relayed.transport_id)]

    assert daemon.lines(relayed.transport_id, "client_to_agent") == said(wrong)
    assert daemon.lines(relayed.transport_id, "agent_to_client") == relayed.heard
    own = "SELECT body FROM frames WHERE transport_id = :id AND origin = 'daemon' ORDER BY frame_seq"
    assert b"".join(bytes(row[0]) + b"\n" for row in ask(own)) == relayed.heard.removeprefix(direct.heard)
    turns = "SELECT outcome, stop_reason FROM audit_turns WHERE transport_id = :id ORDER BY turn_id"
    assert tuple(ask(turns)) == wrong.turns
    answers = "SELECT outcome, effect, decided_by FROM audit_decisions WHERE transport_id = :id ORDER BY frame_seq"
    assert tuple(ask(answers)) == wrong.decisions
    odd = "SELECT class FROM audit_anomalies WHERE transport_id = :id ORDER BY frame_seq"
    assert tuple(row[0] for row in ask(odd)) == wrong.anomalies
    assert ask("SELECT close_reason FROM audit_transports WHERE transport_id = :id") == [(wrong.reason,)]


def said(wrong: Wrong) -> bytes:
    """What the client says."""
    return b"".join(step + b"\n" for step in wrong.client if isinstance(step, bytes))


def test_ledger_of_wrongs_is_intact(daemon: InstalledDaemon, played: dict[str, tuple[Played, Played]]) -> None:
    """After all of it the daemon still runs, and the ledger verifies."""
    assert len(played) == len(WRONGS)
    assert not daemon.is_over()
    report = daemon.verify()
    assert (report.findings, report.not_checked) == ((), ())


def unstartable(folder: Path, kind: str) -> str:
    """A command that cannot be started."""
    path = folder / "agent"
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_text("#!/nowhere/python\n" if kind == "interpreter" else "#!/bin/sh\n")
        path.chmod(0o600 if kind == "forbidden" else 0o700)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "status"), [("missing", 127), ("forbidden", 126), ("folder", 126), ("interpreter", 127)]
)
def test_agent_that_cannot_be_started(daemon: InstalledDaemon, tmp_path: Path, kind: str, status: int) -> None:
    """Where a client would get an error of the system's, the relay answers its request, and exits as `env` would."""
    command = [unstartable(tmp_path, kind)]
    with pytest.raises(OSError, match="agent"):
        start(command, tmp_path, daemon.environment)
    before = len(daemon.transports())
    relayed = converse(Wrong(kind, (), (INIT,)), daemon.runner(command), daemon)
    assert relayed.status == status
    answer = json.loads(relayed.heard)
    assert answer["id"] == 0
    assert command[0] in answer["error"]["message"]
    assert relayed.complaints.count(b"\n") == 1
    daemon.wait_for("transport.closed", before + 1)
    reason = "SELECT close_reason, exit_status FROM audit_transports ORDER BY transport_id DESC LIMIT 1"
    assert [tuple(row) for row in daemon.query(reason)] == [("agent_not_started", None)]


DEAF: Final = Way("reads-no-stderr", PLAIN.stop, stderr="unread")


def test_stderr_that_nobody_reads_holds_nothing_up(daemon: InstalledDaemon) -> None:
    """A client that never reads stderr, which blocks an agent that writes much of it, gets its answer."""
    flood = (["wait", "initialize"], ["stderr", "x" * 1024, 512], ["send", INIT.decode()], ["wait", "never"])
    relayed = converse(Wrong("stderr", (), (INIT, "initialize", "")), daemon.runner(scripted(*flood)), daemon, DEAF)
    assert relayed.status == 0
    assert relayed.heard == INIT + b"\n"
