"""`acp-ledger-run --agent NAME`: the command, the variables and the policy of a name are the settings' own."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio

from tests.daemon.house import AGENT, PATIENCE, House, open_house, request
from tests.daemon.test_policy import answer, ask
from tests.support.runners import BARE_PATH, Runners, runners

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["runners"]

INITIALIZE = request("0", "initialize", protocolVersion=1)
GRANTS = {"mode": "enforce", "allow_tool_kinds": ["read"]}


def script(folder: Path) -> tuple[str, ...]:
    """The words behind an interpreter: an agent that asks, and notes what it was given once it has its answer."""
    steps = [["send", ask()], ["wait", "outcome"], ["note", str(folder / "noted")], ["leave", 0]]
    return "-I", str(AGENT), json.dumps(steps)


class Ran(NamedTuple):
    """What a runner left."""

    status: int
    output: bytes
    complaint: str


@pytest.fixture
async def named(tmp_path: Path) -> AsyncIterator[House]:
    """A daemon that knows one agent whole, and of another the policy alone."""
    mine = {"command": sys.executable, "args": list(script(tmp_path)), "env": {"KEY": "v"}, "policy": GRANTS}
    agents: dict[str, Any] = {"mine": mine, "bare": {"policy": GRANTS}}
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, agents=agents) as house:
        yield house


async def ran(house: House, runners: Runners, *words: str, say: bytes = b"") -> Ran:
    """Run a runner in an environment of PATH alone; its editor says something and stays until it has ended."""
    command = runners.command("--socket", str(house.path), *words)
    environment = {"PATH": BARE_PATH, "HOME": os.environ["HOME"]}
    reading, writing = os.pipe()
    os.write(writing, say)
    try:
        with trio.fail_after(PATIENCE):
            done = await trio.run_process(
                command, stdin=reading, capture_stdout=True, capture_stderr=True, check=False, env=environment
            )
    finally:
        os.close(reading)
        os.close(writing)
    return Ran(done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.parametrize("with_command", [False, True])
async def test_name_brings_its_policy(named: House, runners: Runners, tmp_path: Path, *, with_command: bool) -> None:
    """Its questions are answered here, whether the settings name its command or the editor does."""
    words = ("--agent", "bare", "--", sys.executable, *script(tmp_path)) if with_command else ("--agent", "mine")
    assert await ran(named, runners, *words) == Ran(0, b"", "")
    assert answer("1", "<allow_once>") in named.bodies("client_to_agent")
    assert named.rows("SELECT agent FROM transports")[0][0] == words[1]
    given = json.loads((tmp_path / "noted").read_text())["env"]
    assert given.get("KEY") == (None if with_command else "v")
    stored = named.rows("SELECT env_names FROM transports")[0][0]
    assert ("KEY" in stored, '"v"' in stored) == (not with_command, False)


@pytest.mark.parametrize("name", ["x" * 129, "two\nlines", "\x1b[2J"])
async def test_name_that_is_no_name_is_refused(named: House, runners: Runners, name: str) -> None:
    """Names stand in lists that people read."""
    done = await ran(named, runners, "--agent", name, "--", "cat", say=INITIALIZE)
    assert (done.status, "up to 128 printable characters" in done.complaint) == (2, True)
    assert named.rows("SELECT count(*) FROM transports")[0][0] == 0


@pytest.mark.parametrize(
    ("name", "what"), [("other", "no agent is named other"), ("bare", "[agents.bare] has no command")]
)
async def test_name_without_a_command_is_explained_to_the_editor(
    named: House, runners: Runners, name: str, what: str
) -> None:
    """The editor's first request is answered with what is wrong, in which file, and the names there are."""
    done = await ran(named, runners, "--agent", name, say=INITIALIZE)
    heard = json.loads(done.output)
    message = heard["error"]["message"]
    assert (done.status, heard["id"], heard["error"]["code"]) == (69, 0, -32603)
    assert f"{what} in {os.environ['HOME']}/.config/acp-ledger/config.toml (with one there are: mine)" in message
    assert f"acp-ledger-run --agent {name} -- COMMAND" in message
    assert done.complaint.count("\n") == 1
    assert what in done.complaint
    assert named.rows("SELECT count(*) FROM transports")[0][0] == 0, "nothing ran, and nothing was opened"
