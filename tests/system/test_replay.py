"""Recordings of agents and clients through the installed relay: the same bytes, and the rows that a count gives.

The expected rows are counted here from the recorded lines with nothing but a JSON parser: no code of the product has a
part in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.support.peers.find import HERE
from tests.support.peers.replay import SAYS, recorded
from tests.system.installed import PATIENCE, InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN: Final = sorted((Path(__file__).parents[1] / "golden").rglob("*.jsonl"))
STRAIGHT: Final = [
    path
    for path in GOLDEN
    if not path.stem.endswith(("-load", "-weird", "-dupid", "-junk", "-session-cancel")) and "-v2-" not in path.stem
]
"""Recordings of one process that keeps to version 1: there a plain count over the lines says what the rows are."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledDaemon]:
    """One daemon for all recordings."""
    with daemon_at(tmp_path_factory.mktemp("daemon")) as running:
        yield running


class Played(NamedTuple):
    """What each side heard, and the transport."""

    to_agent: bytes
    to_client: bytes
    transport_id: int


@pytest.fixture(scope="module")
def played(daemon: InstalledDaemon, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Played]:
    """Every recording, played once."""
    folder = tmp_path_factory.mktemp("heard")
    return {recording: play(daemon, recording, folder) for recording in GOLDEN}


def play(daemon: InstalledDaemon, recording: Path, folder: Path) -> Played:
    """Play a recording's client against its agent, with the runner and the daemon between them."""
    program = [sys.executable, "-S", "-E", str(HERE / "replay.py")]
    heard = {side: folder / f"{recording.stem}-{side}" for side in SAYS}
    agent = [*program, "agent", str(recording), str(heard["agent"])]
    client = [*program, "client", str(recording), str(heard["client"])]
    with (
        subprocess.Popen(
            daemon.runner(agent), env=daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as runner,
        subprocess.Popen(client, stdin=runner.stdout, stdout=runner.stdin) as side,
    ):
        assert runner.stdin is not None
        runner.stdin.close()
        assert side.wait(PATIENCE) == 0, f"{recording.stem}: the client heard something else"
        runner.wait(PATIENCE)
    return Played(heard["agent"].read_bytes(), heard["client"].read_bytes(), daemon.transports()[-1])


def said(recording: Path, side: str) -> bytes:
    """What a side says in a recording, as it is on the wire."""
    return b"".join(line + b"\n" for direction, line in recorded(str(recording)) if direction == SAYS[side])


@pytest.mark.parametrize("recording", GOLDEN, ids=[path.stem for path in GOLDEN])
def test_recording_passes_byte_for_byte(daemon: InstalledDaemon, played: dict[Path, Played], recording: Path) -> None:
    """Both sides hear exactly what the other said, and that is what is stored, but for values that are redacted."""
    result = played[recording]
    assert result.to_agent == said(recording, "client")
    assert result.to_client == said(recording, "agent")
    states = "SELECT body_state, COUNT(*) FROM frames WHERE transport_id = :id GROUP BY 1"
    if {row[0] for row in daemon.query(states, id=result.transport_id)} == {"exact"}:
        assert daemon.lines(result.transport_id, "client_to_agent") == result.to_agent
    assert daemon.lines(result.transport_id, "agent_to_client") == result.to_client


class Count:
    """What a recording holds, counted from its lines."""

    def __init__(self, recording: Path) -> None:
        self.lines = recorded(str(recording))
        self.agent = [_parsed(line) for direction, line in self.lines if direction == SAYS["agent"]]
        self.client = [_parsed(line) for direction, line in self.lines if direction == SAYS["client"]]

    def prompts(self) -> list[Any]:
        """Ids of the prompts."""
        return [message["id"] for message in self.client if message.get("method") == "session/prompt"]

    def stops(self) -> list[str]:
        """How turns ended, in the agent's words, in the order of the answers."""
        ids = {json.dumps(number) for number in self.prompts()}
        answers = [m for m in self.agent if "method" not in m and json.dumps(m.get("id")) in ids]
        words = [(m.get("result") or {}).get("stopReason") for m in answers]
        return [word for word in words if isinstance(word, str)]

    def questions(self) -> list[dict[str, Any]]:
        """The permission questions."""
        return [m for m in self.agent if m.get("method") == "session/request_permission" and "id" in m]

    def chosen(self) -> Counter[tuple[str, str | None]]:
        """What was answered to them: the outcome's word and the option."""
        ids = [json.dumps(question["id"]) for question in self.questions()]
        found: Counter[tuple[str, str | None]] = Counter()
        for message in self.client:
            if "method" in message or json.dumps(message.get("id")) not in ids:
                continue
            ids.remove(json.dumps(message["id"]))
            outcome = (message.get("result") or {}).get("outcome") or {}
            word = "error" if "error" in message else outcome["outcome"]
            found[word, outcome.get("optionId")] += 1
        return found

    def steps(self) -> Counter[tuple[str, str | None]]:
        """Steps of tool calls: id and status, those that came with a question included."""
        updates = [m["params"]["update"] for m in self.agent if m.get("method") == "session/update"]
        calls = [
            u for u in updates if u.get("sessionUpdate") in {"tool_call", "tool_call_update"} and "toolCallId" in u
        ]
        asked = [m["params"]["toolCall"] for m in self.questions() if "status" in m["params"]["toolCall"]]
        return Counter((call["toolCallId"], call.get("status")) for call in (*calls, *asked))

    def words(self) -> Counter[str]:
        """Kinds of updates."""
        return Counter(
            m["params"]["update"]["sessionUpdate"] for m in self.agent if m.get("method") == "session/update"
        )


def _parsed(line: bytes) -> dict[str, Any]:
    message = json.loads(line)
    assert isinstance(message, dict)
    return message


@pytest.mark.parametrize("recording", STRAIGHT, ids=[path.stem for path in STRAIGHT])
def test_rows_are_what_a_count_gives(daemon: InstalledDaemon, played: dict[Path, Played], recording: Path) -> None:
    """Turns, how they ended, questions, answers, steps and kinds are what counting the recorded lines gives."""
    count, here = Count(recording), {"id": played[recording].transport_id}

    def ask(statement: str) -> list[Any]:
        return [tuple(row) if len(row) > 1 else row[0] for row in daemon.query(statement, **here)]

    assert ask("SELECT COUNT(*) FROM frames WHERE transport_id = :id") == [len(count.lines)]
    assert ask("SELECT COUNT(*) FROM turns WHERE transport_id = :id") == [len(count.prompts())]
    stops = ask(
        "SELECT stop_reason FROM turn_ends WHERE transport_id = :id AND stop_reason IS NOT NULL ORDER BY frame_seq"
    )
    assert stops == count.stops()
    assert ask("SELECT COUNT(*) FROM permission_requests WHERE transport_id = :id") == [len(count.questions())]
    answered = "SELECT outcome, option_id FROM decisions WHERE transport_id = :id AND outcome <> 'unanswered'"
    assert Counter(ask(answered)) == count.chosen()
    assert ask("SELECT COUNT(*) FROM decisions WHERE transport_id = :id") == [len(count.questions())]
    steps = "SELECT tool_call_id, status_raw FROM tool_call_steps WHERE transport_id = :id"
    assert Counter(ask(steps)) == count.steps()
    kinds = (
        "SELECT session_update, COUNT(*) FROM frames WHERE transport_id = :id AND session_update IS NOT NULL GROUP BY 1"
    )
    assert dict(ask(kinds)) == dict(count.words())


def test_everything_played_is_intact(daemon: InstalledDaemon, played: dict[Path, Played]) -> None:
    """After all recordings the ledger verifies, mapped again and all."""
    report = daemon.verify()
    assert (report.findings, report.not_checked) == ((), ())
    assert report.transports == len(played)


def test_recordings_hold_what_they_are_for() -> None:
    """The recordings that are counted have questions, answers of each kind, steps and cancelled turns among them."""
    counts = [Count(recording) for recording in STRAIGHT]
    outcomes = {word for count in counts for word, _option in count.chosen()}
    assert {"selected", "cancelled", "error"} <= outcomes
    assert {"end_turn", "cancelled"} <= {stop for count in counts for stop in count.stops()}
    assert sum(len(count.steps()) for count in counts) > 20
