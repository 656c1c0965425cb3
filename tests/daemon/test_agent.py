"""The agent's process: every rung of the ladder that ends it, and nothing of it left."""

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from acp_ledger.daemon import processes
from acp_ledger.daemon.agent import Agent, Children, Command
from acp_ledger.errors import AgentFault, AgentNotFound
from tests.daemon.house import PATIENCE, command, is_alive, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

ENVIRON = {b"PATH": os.environb[b"PATH"]}
CALM = 30.0
"""Longer than any test: an agent that ends within it did so by itself."""


@asynccontextmanager
async def running(*steps: Sequence[Any], transport_id: int = 4711) -> AsyncIterator[Agent]:
    """An agent, waited for."""
    children = Children(0o022)
    agent = await children.spawn(Command(command(*steps), b"/", ENVIRON), transport_id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.wait)
        nursery.start_soon(agent.drain_stderr, lambda _data: None)
        yield agent
        agent.close()
        nursery.cancel_scope.cancel()


def descriptors() -> list[str]:
    """What this process holds open."""
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


async def hear(agent: Agent, word: bytes) -> None:
    """Read the agent's output until it says a word."""
    data = b""
    with trio.fail_after(PATIENCE):
        while word not in data:
            data += await agent.stdout.receive_some()


async def ended(agent: Agent, patience: float) -> None:
    """End it."""
    with trio.fail_after(PATIENCE):
        await agent.end(patience, trio.Event())


async def test_first_rung_is_the_end_of_input() -> None:
    """An agent that leaves when its input is closed gets no signal."""
    async with running(["send", "ready"], ["wait", "never"]) as agent:
        await hear(agent, b"ready")
        await ended(agent, CALM)
        assert agent.ending == (0, None)


async def test_second_rung_is_term() -> None:
    """An agent that does not mind its input gets TERM when its time is up."""
    async with running(["send", "ready"], ["stay"]) as agent:
        await hear(agent, b"ready")
        await ended(agent, 0)
        assert agent.ending == (None, 15)


async def test_last_rung_is_kill() -> None:
    """An agent that ignores TERM is killed, and is gone when its end returns."""
    async with running(["ignore", "SIGTERM"], ["send", "ready"], ["stay"]) as agent:
        await hear(agent, b"ready")
        await ended(agent, 0)
        assert agent.ending == (None, 9)


async def test_hurry_skips_the_waiting() -> None:
    """A daemon in a hurry does not wait for an agent to leave by itself."""
    hurry = trio.Event()
    async with running(["send", "ready"], ["stay"]) as agent, trio.open_nursery() as nursery:
        await hear(agent, b"ready")
        nursery.start_soon(agent.end, CALM, hurry)
        hurry.set()
        with trio.fail_after(PATIENCE):
            await agent.exited.wait()


@pytest.mark.parametrize(
    "escape",
    [{}, {"hold": True}, {"setsid": True, "hold": True}, {"setsid": True, "double": True}],
    ids=["group", "holds-stdout", "setsid", "setsid-double-fork"],
)
async def test_nothing_of_an_agent_survives(escape: dict[str, bool], tmp_path: Path) -> None:
    """Whatever an agent started, and wherever that went, is gone when its transport is; its output ends with it."""
    steps: list[list[Any]] = [
        ["child", str(tmp_path / "pid"), {**escape, "steps": [["ignore", "SIGTERM"]]}],
        ["send", "ready"],
        ["stay"],
    ]
    async with running(*steps) as agent:
        await hear(agent, b"ready")
        pid = int((tmp_path / "pid").read_text())
        assert is_alive(pid)
        await ended(agent, 0)
        assert not is_alive(pid)
        with trio.fail_after(PATIENCE):
            assert await agent.stdout.receive_some() == b""


async def test_survivor_of_an_agent_that_left_is_ended(tmp_path: Path) -> None:
    """An agent that exits by itself leaves nothing behind either."""
    steps: list[list[Any]] = [
        ["child", str(tmp_path / "pid"), {"setsid": True, "double": True, "hold": True}],
        ["leave", 0],
    ]
    async with running(*steps) as agent:
        await agent.exited.wait()
        pid = int((tmp_path / "pid").read_text())
        await ended(agent, CALM)
        assert not is_alive(pid)


async def test_another_agents_child_is_left_alone(tmp_path: Path) -> None:
    """The sweep ends what carries its own transport's mark, and nobody else's."""
    steps: list[list[Any]] = [
        ["child", str(tmp_path / "pid"), {"setsid": True, "double": True}],
        ["send", "ready"],
        ["stay"],
    ]
    async with running(*steps, transport_id=1) as other:
        await hear(other, b"ready")
        pid = int((tmp_path / "pid").read_text())
        async with running(["leave", 0], transport_id=11) as agent:
            await ended(agent, CALM)
        assert is_alive(pid)
        await ended(other, 0)
        assert not is_alive(pid)


async def test_facts_name_the_process() -> None:
    """Number, start time and boot name the process; the group is its own."""
    async with running(["send", "ready"], ["stay"]) as agent:
        found = processes.stat(agent.facts.pid)
        assert found is not None
        assert agent.facts.start_time == found.start_time
        assert agent.facts.pgid == found.pgid == found.pid
        assert agent.facts.boot_id == processes.boot_id()
        await ended(agent, 0)


async def test_reused_number_is_not_signalled() -> None:
    """A signal goes to the process that was looked at, never to another under its number."""
    async with running(["send", "ready"], ["stay"]) as agent:
        await hear(agent, b"ready")
        found = processes.stat(agent.facts.pid)
        assert found is not None
        assert not processes.send(found._replace(start_time=found.start_time + 1), signal.SIGKILL)
        assert is_alive(found.pid)
        await ended(agent, 0)


@pytest.mark.parametrize(
    ("argv", "cwd", "error"),
    [
        ((b"no-such-program",), b"/", AgentNotFound),
        ((b"/etc/passwd",), b"/", AgentFault),
        ((b"true",), b"/no/such/place", AgentFault),
        ((b"tr\0ue",), b"/", AgentFault),
    ],
    ids=["missing", "no-program", "no-directory", "nul"],
)
async def test_what_cannot_start_is_told(argv: tuple[bytes, ...], cwd: bytes, error: type[AgentFault]) -> None:
    """A command that does not start is an error with a sentence, and leaves no descriptor open."""
    before = descriptors()
    with pytest.raises(error) as caught:
        await Children(0o022).spawn(Command(argv, cwd, ENVIRON), 1)
    assert type(caught.value) is error
    assert descriptors() == before


async def test_orphans_are_reaped() -> None:
    """A child that nobody waits for leaves no zombie; one that somebody waits for keeps its status."""
    children = Children(0o022)
    pid = os.fork()
    if not pid:
        os._exit(0)
    agent = await children.spawn(Command(command(["leave", 5]), b"/", ENVIRON), 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.wait)

        def reaped() -> bool:
            """Whether nothing is left of it."""
            children.reap_now()
            return processes.stat(pid) is None

        await until(reaped)
        await agent.exited.wait()
    assert agent.ending == (5, None)
    agent.close()
