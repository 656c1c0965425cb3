"""When the ledger cannot commit: a real lock on a real ledger, and what editor, agent and record see of it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from tests.daemon.house import (
    CANCEL,
    CHUNK,
    PROMPT,
    QUESTION,
    House,
    assert_verified,
    greeting,
    is_alive,
    lock,
    open_house,
    request,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HOLD_SECONDS = 2.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A daemon with little patience, on SQLite: that ledger can be locked by anybody."""
    async with held_house(tmp_path) as house:
        yield house


@asynccontextmanager
async def held_house(folder: Path, seconds: float = HOLD_SECONDS) -> AsyncIterator[House]:
    """A daemon that holds for so long."""
    more = {"failure.hold_seconds": seconds}
    async with open_house(f"sqlite:///{folder}/ledger.db", folder, **more) as house:
        yield house


async def trouble(house: House, what: str) -> None:
    """Wait until the daemon says that it is held, or degraded, or neither."""

    def state() -> str:
        """What the daemon says of itself."""
        found = house.daemon.status()["committer"]
        return "degraded" if found["degraded"] else "none" if found["held_seconds"] is None else "held"

    await until(lambda: state() == what)


def pid_of(house: House) -> int:
    """The agent's process id."""
    pid: int = house.rows("SELECT pid FROM transport_events WHERE event = 'spawned'")[-1][0]
    return pid


async def recorded(house: House, event: str) -> None:
    """Wait until an event is in the ledger."""
    await until(lambda: event in house.events())


async def test_short_lock_is_not_felt(house: House) -> None:
    """A lock that is let go within the hold delays the lines and loses none of them."""
    async with house.editor(greeting(["send", "ready"], ["echo"])) as editor:
        await editor.hear(b"ready")
        with closing(lock(house.url)):
            await editor.say(b"hello\n")
            await trouble(house, "held")
            assert b"hello" not in editor.heard
        await editor.hear(b"hello")
        await trouble(house, "none")


async def test_agent_is_not_read_while_the_ledger_is_held(house: House) -> None:
    """What an agent says during a hold stays in its pipe; it is read, recorded and passed on afterwards."""
    folder = house.path.parent
    steps = [["send", "ready"], ["look", f"{folder}/go"], ["send", "late"], ["touch", f"{folder}/gone"], ["echo"]]
    async with house.editor(greeting(*steps)) as editor:
        await editor.hear(b"ready")
        with closing(lock(house.url)):
            await editor.say(b"hello\n")
            await trouble(house, "held")
            before = house.daemon.status()["transports"][0]["numbers"]
            (folder / "go").touch()
            await until((folder / "gone").exists)
            await trio.testing.wait_all_tasks_blocked()
            assert house.daemon.status()["transports"][0]["numbers"] == before
        await editor.hear(b"late\nhello\n")


async def test_answer_is_not_heard_while_the_ledger_is_locked(house: House) -> None:
    """The answer to a question does not reach the agent while it cannot be recorded, in no way and at no time."""
    steps = [["send", QUESTION], ["collect", f"{house.path}.got"]]
    async with house.editor(greeting(*steps)) as editor:
        await editor.hear(b"request_permission")
        with closing(lock(house.url)):
            await editor.say(b'{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"cancelled"}}}\n')
            heard = await editor.rest()
        assert heard.status == 69
    assert house.path.with_name(house.path.name + ".got").read_bytes() == b""
    await recorded(house, "closed")
    assert house.rows("SELECT outcome FROM decisions")[0][0] == "unanswered"


async def test_deadline_tells_the_editor_and_ends_the_agent(house: House) -> None:
    """After the hold each open request is answered with what happened and what mends it, and the agent is gone."""
    steps = [["wait", "prompt"], ["send", "ready"], ["stay"]]
    async with house.editor(greeting(*steps) + PROMPT) as editor:
        await editor.hear(b"ready")
        pid = pid_of(house)
        with closing(lock(house.url)):
            await editor.say(request('"second"', "session/list"))
            heard = await editor.rest()
            assert not is_alive(pid)
    errors = _errors(heard.output)
    assert set(errors) == {7, "second"}
    for error in errors.values():
        assert error["code"] == -32603
        assert "the ledger cannot be written" in error["message"]
        assert "fuser -v" in error["message"], "the command that finds who holds the lock"
        assert error["data"]["reason"] == "ledger_closed"
    assert heard.status == 69
    assert "cannot be recorded" in (heard.fatal or "")


async def test_gap_and_closing_rows_follow_when_writing_works(house: House) -> None:
    """Once the ledger is free again it says what it lacks: the lines given up and the errors nobody recorded."""
    steps = [["wait", "prompt"], ["send", CHUNK, QUESTION, "ready"], ["stay"]]
    async with house.editor(greeting(*steps) + PROMPT) as editor:
        await editor.hear(b"ready")
        with closing(lock(house.url)):
            await editor.say(request("8", "session/list") + request("9", "session/list"))
            await editor.rest()
            await house.quiet()
            assert "gap" not in house.events()
    await recorded(house, "closed")
    assert house.events()[-2:] == ["gap", "closed"]
    assert list(house.rows("SELECT cause, count FROM gaps")) == [("closed", 2 + 3)]
    assert house.rows("SELECT close_reason FROM transport_events WHERE event = 'closed'")[0][0] == "ledger_failure"
    assert house.rows("SELECT outcome FROM turn_ends")[0][0] == "interrupted"
    await trouble(house, "none")
    assert (await house.session(["send", "again"])).output == b"again\n"
    await house.quiet()
    assert_verified(house.url)


async def test_cancel_ends_the_hold_at_once(tmp_path: Path) -> None:
    """A user who stops a turn does not wait for the database: the agent is ended long before the deadline."""
    async with held_house(tmp_path, 600) as house:
        async with house.editor(greeting(["wait", "prompt"], ["send", "ready"], ["stay"]) + PROMPT) as editor:
            await editor.hear(b"ready")
            with closing(lock(house.url)):
                await editor.say(request("8", "session/list"))
                await trouble(house, "held")
                await editor.say(CANCEL)
                heard = await editor.rest()
        assert set(_errors(heard.output)) == {7, 8}
        await recorded(house, "closed")


async def test_stop_ends_the_hold_at_once(tmp_path: Path) -> None:
    """A daemon that is stopped while it holds does not wait for the database either."""
    async with held_house(tmp_path, 600) as house:
        async with house.editor(greeting(["wait", "prompt"], ["send", "ready"], ["stay"]) + PROMPT) as editor:
            await editor.hear(b"ready")
            locked = lock(house.url)
            await editor.say(request("8", "session/list"))
            await trouble(house, "held")
            house.daemon.stop()
            heard = await editor.rest()
            locked.close()
        assert set(_errors(heard.output)) == {7, 8}


async def test_new_runner_is_refused_while_degraded(house: House) -> None:
    """Who comes while the ledger takes nothing hears why at once; who comes afterwards is served."""
    async with house.editor(greeting(["wait", "prompt"], ["send", "ready"], ["stay"]) + PROMPT) as editor:
        await editor.hear(b"ready")
        with closing(lock(house.url)):
            await editor.say(request("8", "session/list"))
            await trouble(house, "degraded")
            heard = await house.session(["send", "never"])
            assert (heard.output, heard.status) == (b"", 69)
            assert "the ledger cannot be written" in (heard.fatal or "")
            assert "fuser -v" in (heard.fatal or "")
    await trouble(house, "none")
    assert (await house.session(["send", "served"])).output == b"served\n"


async def test_new_runner_waits_for_a_short_lock(tmp_path: Path) -> None:
    """Who comes while the ledger is locked for a moment is served when it is free, and nothing runs before."""
    async with held_house(tmp_path, 600) as house:
        locked = lock(house.url)
        async with house.editor(greeting(["send", "served"])) as editor:
            await until(lambda: house.daemon.status()["committer"]["error"])
            assert not house.rows("SELECT 1 FROM transports")
            locked.close()
            assert (await editor.rest()).output == b"served\n"


async def test_idle_session_outlives_a_long_lock(house: House) -> None:
    """An editor that waits for nothing keeps its agent, however long the ledger was locked."""
    async with house.editor(greeting(["send", "ready"], ["echo"])) as idle:
        await idle.hear(b"ready")
        async with house.editor(greeting(["send", "ready"], ["echo"])) as busy:
            await busy.hear(b"ready")
            with closing(lock(house.url)):
                await busy.say(b"hello\n")
                assert (await busy.rest()).status == 69
        await trouble(house, "none")
        await idle.say(b"still here\n")
        await idle.hear(b"still here")


def _errors(output: bytes) -> dict[object, Any]:
    lines = [json.loads(line) for line in output.splitlines() if line.startswith(b"{")]
    return {line["id"]: line["error"] for line in lines if "error" in line}
