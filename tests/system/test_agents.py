"""Real coding agents, on a model whose every answer is known, relayed and unattended: the ledger says what happened."""

from __future__ import annotations

import json
import shlex
import signal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import trio

from acp_ledger.client import Observer, Update, open_client
from acp_ledger.errors import ExitCode
from tests.support import clients
from tests.support.model import BEGUN, COMMAND, MADE, SAID, SAID_BEHIND_THE_TOOL, Model, running_model
from tests.support.peers.agents import AGENTS, PARAMETERS, Agent
from tests.system.installed import PATIENCE, PROGRAMS, InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.peers

WORD: Final = BEGUN.strip().encode()
TERM: Final = clients.Way("term", (clients.Step("TERM"),))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledDaemon]:
    """One daemon for all of them."""
    with daemon_at(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    """One model for all of them."""
    with running_model() as running:
        yield running


class Place(NamedTuple):
    """An agent that is set up in a home and a directory of the test's own."""

    agent: Agent
    command: list[str]
    environment: dict[str, str]
    work: Path
    model: Model
    daemon: InstalledDaemon
    started: list[clients.Client]

    def start(self, command: list[str], way: clients.Way = clients.PLAIN) -> clients.Client:
        """Start a client, which does not outlive the test."""
        client = clients.start(command, self.work, self.environment, way)
        self.started.append(client)
        return client

    def prompt(self, mark: str, *options: str) -> clients.Client:
        """`ledgerctl prompt` with that agent."""
        where = ["--socket", str(self.daemon.socket), "--cwd", str(self.work), "--command", shlex.join(self.command)]
        command = [str(PROGRAMS / "ledgerctl"), "prompt", *where, *options, f"[[{mark}]]"]
        return self.start(command)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows about the newest transport, without its number."""
        asked = f"SELECT {statement} AND transport_id = (SELECT MAX(id) FROM transports)"  # noqa: S608  # our own words
        return [tuple(row) for row in self.daemon.query(asked)]

    def ended(self) -> list[tuple[Any, ...]]:
        """How each turn ended."""
        return self.rows("outcome FROM audit_turns WHERE turn_id IS NOT NULL")

    def decided(self) -> list[tuple[Any, ...]]:
        """What was asked, and what was answered by whom."""
        return self.rows("detail, outcome, effect, decided_by, rule FROM audit_decisions WHERE 1 = 1")

    def called(self) -> list[tuple[Any, ...]]:
        """The calls that the agent told of."""
        return self.rows("title, kind, status FROM audit_tool_calls WHERE 1 = 1")

    def said(self) -> str:
        """All that the agent said in the turn."""
        return "".join(text for (text,) in self.rows("text FROM messages WHERE stream = 'agent'"))

    def made(self) -> bool:
        """Whether the command has run."""
        return (self.work / MADE).exists()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, daemon: InstalledDaemon, model: Model) -> Iterator[Place]:
    """The agent that the test is run with, set up."""
    agent: Agent = request.param
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    model.calls.clear()
    found = Place(agent, agent.command(), agent.environment(home, model.url), work, model, daemon, [])
    yield found
    for client in found.started:
        client.give_up()
        client.over()


each_agent = pytest.mark.parametrize("place", PARAMETERS, indirect=True)
codex_alone = pytest.mark.parametrize("place", [pytest.param(AGENTS["codex"], id="codex")], indirect=True)


class Editor:
    """A client that answers every question the same way, and cancels once the agent has begun to speak."""

    def __init__(self, place: Place, answer: str) -> None:
        self._answer = answer
        self._client = place.start(place.daemon.runner(place.command), TERM)
        self._call(1, "initialize", protocolVersion=1, clientCapabilities={})
        opened = self._call(2, "session/new", cwd=str(place.work), mcpServers=[])
        self._session = {"sessionId": opened["sessionId"]}

    def prompt(self, mark: str) -> str:
        """Play a turn; why the agent stopped."""
        blocks = [{"type": "text", "text": f"[[{mark}]]"}]
        return str(self._call(3, "session/prompt", **self._session, prompt=blocks)["stopReason"])

    def close(self) -> None:
        """End the agent, as codex wants it: it goes on behind the end of its input."""
        self._client.stop()
        self._client.over()

    def _say(self, **said: Any) -> None:
        self._client.say(json.dumps({"jsonrpc": "2.0", **said}).encode())

    def _call(self, number: int, method: str, **params: Any) -> dict[str, Any]:
        self._say(id=number, method=method, params=params)
        while True:
            line = self._client.hear(b"")
            heard = json.loads(line)
            if heard.get("method") == "session/request_permission":
                self._reply(heard)
            elif "method" in heard:
                if WORD in line:
                    self._say(method="session/cancel", params=self._session)
            elif heard.get("id") == number:
                result: dict[str, Any] = heard["result"]
                return result

    def _reply(self, question: dict[str, Any]) -> None:
        offered = {each["kind"]: each["optionId"] for each in question["params"]["options"]}
        chosen = {"outcome": "selected", "optionId": offered[f"{self._answer}_once"]}
        self._say(id=question["id"], result={"outcome": chosen})


@each_agent
def test_relayed_agent_may_run_its_command(place: Place) -> None:
    """A command that the person at the editor allows is run, and the ledger has the call, the answer and the turn."""
    editor = Editor(place, "allow")
    assert editor.prompt("shell") == "end_turn"
    editor.close()
    assert (place.made(), len(place.model.calls)) == (True, 1)
    assert place.ended() == [("completed",)]
    assert place.decided() == [(COMMAND, "selected", "allow", "client", None)]
    assert place.called() == [(COMMAND, "execute", "completed")]
    assert place.said().endswith(SAID_BEHIND_THE_TOOL)


@each_agent
def test_relayed_agent_may_not_run_its_command(place: Place) -> None:
    """A command that is rejected is not run; the turn ends as this agent ends it, and the ledger says so."""
    editor = Editor(place, "reject")
    assert editor.prompt("shell") == {"completed": "end_turn"}.get(place.agent.rejected, place.agent.rejected)
    editor.close()
    assert (place.made(), len(place.model.calls)) == (False, 1)
    assert place.ended() == [(place.agent.rejected,)]
    assert place.decided() == [(COMMAND, "selected", "reject", "client", None)]
    assert place.called() == [(COMMAND, "execute", place.agent.left)]


@each_agent
def test_relayed_agent_is_cancelled(place: Place) -> None:
    """A turn that is cancelled in the middle of a word ends at once, and the ledger has what was said of it."""
    editor = Editor(place, "allow")
    assert editor.prompt("hold") == "cancelled"
    editor.close()
    assert place.ended() == [("cancelled",)]
    assert (place.decided(), place.called()) == ([], [])
    assert place.said().endswith(BEGUN)


@each_agent
@pytest.mark.parametrize(
    ("option", "rule"), [(("--allow-kind", "execute"), "allow_tool_kinds"), (("--allow-title", "touch "), "title")]
)
def test_unattended_agent_may_run_its_command(place: Place, option: tuple[str, str], rule: str) -> None:
    """A command that an option of `ledgerctl prompt` grants is run, and the record and the ledger say what happened."""
    prompt = place.prompt("shell", *option, "-o", "json")
    prompt.rest()
    assert prompt.over() == ExitCode.OK, prompt.complaints
    record = json.loads(bytes(prompt.heard))
    assert (record["outcome"], record["stop_reason"], record["decisions"]) == ("completed", "end_turn", 1)
    assert record["final_message"].endswith(SAID_BEHIND_THE_TOOL)
    assert record["text"] == place.said()
    assert (place.made(), len(place.model.calls)) == (True, 1)
    assert place.ended() == [("completed",)]
    ((*asked, by),) = place.decided()
    assert asked == [COMMAND, "selected", "allow", "policy"]
    assert rule in by
    assert place.called() == [(COMMAND, "execute", "completed")]


@each_agent
def test_unattended_agent_may_not_run_its_command(place: Place) -> None:
    """A command that nobody granted is rejected and not run, and the turn ends as this agent ends it."""
    prompt = place.prompt("shell", "-o", "json")
    prompt.rest()
    completed = place.agent.rejected == "completed"
    assert prompt.over() == (ExitCode.OK if completed else ExitCode.TURN_CANCELLED), prompt.complaints
    record = json.loads(bytes(prompt.heard))
    assert (record["outcome"], record["decisions"]) == (place.agent.rejected, 1)
    assert (place.made(), len(place.model.calls)) == (False, 1)
    assert place.ended() == [(place.agent.rejected,)]
    assert [row[:4] for row in place.decided()] == [(COMMAND, "selected", "reject", "policy")]
    assert place.called() == [(COMMAND, "execute", place.agent.left)]


@each_agent
def test_unattended_agent_is_cancelled(place: Place) -> None:
    """Ctrl-C in the middle of an answer ends the turn and not the record: what was said is printed and kept."""
    prompt = place.prompt("hold")
    prompt.hear(WORD)
    prompt.process.send_signal(signal.SIGINT)
    prompt.rest()
    assert prompt.over() == ExitCode.TURN_CANCELLED, prompt.complaints
    assert place.ended() == [("cancelled",)]
    assert (place.decided(), place.called()) == ([], [])
    assert place.said().endswith(BEGUN)
    assert bytes(prompt.heard).decode().endswith(BEGUN)


class Listener(Observer):
    """Tells when the agent has begun to speak."""

    def __init__(self) -> None:
        self.begun = trio.Event()

    def update(self, update: Update) -> None:
        """Hear a chunk."""
        if WORD.decode() in update.text:
            self.begun.set()


@codex_alone
async def test_agent_of_a_program_is_cancelled(place: Place) -> None:
    """A program that cancels a real agent's turn hears its end, and the agent answers the next prompt."""
    listener = Listener()
    opening = open_client(
        place.command, cwd=place.work, env=place.environment, observer=listener, socket=place.daemon.socket
    )
    with trio.fail_after(PATIENCE):
        async with opening as client, trio.open_nursery() as nursery:
            await client.start()

            @nursery.start_soon
            async def cancel() -> None:
                await listener.begun.wait()
                await client.cancel()

            record = await client.prompt_detailed("[[hold]]")
            following = await client.prompt("[[say]]")
    assert record.outcome == "cancelled"
    assert record.text.endswith(BEGUN)
    assert following.endswith(SAID)
    assert place.ended() == [("cancelled",), ("completed",)]


def test_what_agents_left_is_intact(daemon: InstalledDaemon) -> None:
    """Everything real agents said verifies, mapped again and all."""
    report = daemon.verify()
    assert (report.findings, report.not_checked) == ((), ())
