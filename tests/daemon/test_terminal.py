"""A login at a terminal, with a real runner on a real terminal: what is recorded of it, and what it may not touch."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager, closing, contextmanager
from typing import TYPE_CHECKING, Any

import trio

from acp_ledger import handshake
from acp_ledger.daemon.agent import Command
from acp_ledger.daemon.streams import Descriptor
from acp_ledger.daemon.terminal import ENDED, NEVER_HEARD, NEVER_TOLD, STOPPED, UNSEEN, Terminal
from tests.daemon.house import PATIENCE, House, assert_verified, is_alive, lock, open_house, until
from tests.support.runners import BARE_PATH, Runners, runners
from tests.support.seed import new_transport
from tests.support.terminals import seated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.terminals import Seat

__all__ = ["runners"]


@contextmanager
def login(runners: Runners, house: House, *command: str) -> Iterator[Seat]:
    """A runner at a terminal, for this command. Its status is not to be had: this process's daemon reaps what dies."""
    words = runners.command("--socket", str(house.path), "--label", "why=login", "--", *command)
    with seated(words, env={"PATH": BARE_PATH, "HOME": str(runners.folder)}) as seat:
        yield seat


def events(house: House) -> list[tuple[Any, ...]]:
    """Every event of the ledger with why the transport closed."""
    return [tuple(row) for row in house.rows("SELECT event, close_reason, detail FROM transport_events ORDER BY 1")]


def gaps(house: House) -> list[tuple[Any, ...]]:
    """Every gap: its cause, its count, and whether it lasts from the opening to the end."""
    whole = (
        "SELECT g.cause, g.count, g.from_at = o.at AND g.to_at = c.at FROM gaps g"
        " JOIN transport_events o ON o.transport_id = g.transport_id AND o.event = 'opened'"
        " JOIN transport_events c ON c.transport_id = g.transport_id AND c.event IN ('closed', 'interrupted')"
    )
    return [(cause, count, bool(lasts)) for cause, count, lasts in map(tuple, house.rows(whole))]


async def test_launch_is_recorded_and_its_end_is_seen(house: House, runners: Runners) -> None:
    """The command stands in the ledger before it runs, and its content does not."""
    script = 'read answer; printf "%s of %s\\n" "$answer" "$ACP_LEDGER_TRANSPORT"'
    with login(runners, house, "/bin/sh", "-c", script, "--login") as seat:
        await until(lambda: house.events() == ["opened"])
        ((number, mode, argv, label),) = map(tuple, house.rows("SELECT id, mode, argv, label FROM transports"))
        assert (mode, "--login" in argv, "login" in label) == ("terminal", True, True)
        (shown,) = house.daemon.status()["transports"]
        assert (shown["mode"], shown["pid"]) == ("terminal", seat.process.pid)
        seat.type(b"secret\n")
        _, screen = await trio.to_thread.run_sync(seat.leave)
    assert b"secret of %d" % number in screen
    await house.quiet()
    assert sorted(house.events()) == ["closed", "gap", "opened"]
    assert ("closed", *ENDED[:2]) in events(house)
    assert gaps(house) == [("terminal", None, True)]
    assert house.rows("SELECT 1 FROM frames") == []
    assert_verified(house.url)


async def test_command_that_cannot_be_run_leaves_no_gap(sqlite_house: House, runners: Runners) -> None:
    """Nothing ran, so nothing is missing; the record says why."""
    with login(runners, sqlite_house, "nonesuch") as seat:
        await trio.to_thread.run_sync(seat.leave)
    await sqlite_house.quiet()
    (closed, opened) = events(sqlite_house)
    assert (opened[0], closed[:2]) == ("opened", ("closed", "agent_not_started"))
    assert "not found: nonesuch" in closed[2]
    assert gaps(sqlite_house) == []
    assert_verified(sqlite_house.url)


async def test_nothing_is_run_while_the_ledger_is_locked(tmp_path: Path, runners: Runners) -> None:
    """Nothing ever runs unrecorded: the person reads why, and what mends it."""
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, **{"failure.hold_seconds": 0.5}) as house:
        with closing(lock(house.url)), login(runners, house, "touch", str(tmp_path / "ran")) as seat:
            _, screen = await trio.to_thread.run_sync(seat.leave)
    assert b"database is locked" in screen
    assert b"fuser -v" in screen
    assert not (tmp_path / "ran").exists()


async def test_stopped_daemon_leaves_the_command_alone(tmp_path: Path, runners: Runners) -> None:
    """It is the person's own; the record says that it may have gone on."""
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path) as house:
        with login(runners, house, "/bin/cat") as seat:
            seat.type(b"before\n")
            await trio.to_thread.run_sync(seat.see, b"before\r\nbefore\r\n")
            house.daemon.stop()
            await house.quiet()
            seat.type(b"after\n")
            await trio.to_thread.run_sync(seat.see, b"after\r\nafter\r\n")
            assert is_alive(seat.process.pid)
        assert ("closed", *STOPPED[:2]) in events(house)
        assert gaps(house) == [("terminal", None, True)]
        assert_verified(house.url)


async def test_runner_that_is_killed_before_it_hears_runs_nothing(sqlite_house: House, runners: Runners) -> None:
    """Somebody ended it while it waited, so there is no content that could be missing."""
    with closing(lock(sqlite_house.url)):
        with login(runners, sqlite_house, "/bin/true") as seat:
            await until(lambda: sqlite_house.daemon.status()["committer"]["error"])
            seat.process.kill()
        assert not is_alive(seat.process.pid)
    await until(lambda: "closed" in sqlite_house.events())
    assert ("closed", *NEVER_HEARD[:2]) in events(sqlite_house)
    assert gaps(sqlite_house) == []
    assert_verified(sqlite_house.url)


async def test_ledger_that_fails_during_a_login_is_told_afterwards(tmp_path: Path, runners: Runners) -> None:
    """Its end comes late, and the gap is still the terminal's."""
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, **{"failure.hold_seconds": 1.5}) as house:
        with login(runners, house, "/bin/cat") as seat:
            seat.type(b"x\n")
            await trio.to_thread.run_sync(seat.see, b"x\r\nx\r\n")
            with closing(lock(house.url)):
                seat.type(b"\x04")
                await trio.to_thread.run_sync(seat.leave)
                await until(lambda: house.daemon.status()["committer"]["degraded"])
            await until(lambda: "closed" in house.events())
        assert gaps(house) == [("terminal", None, True)]
        ((reason,),) = house.rows("SELECT close_reason FROM transport_events WHERE event = 'closed'")
        assert reason == "ledger_failure"
        assert_verified(house.url)


async def test_login_of_a_named_agent_joins_its_words_to_the_settings(tmp_path: Path, runners: Runners) -> None:
    """The command is the settings', with its environment; the login's arguments stand behind it, in the record too."""
    agents = {"agents.claude": {"command": "/bin/sh", "args": ["-c", 'echo "$KEY: $*"', "sh"], "env": {"KEY": "mine"}}}
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, **agents) as house:
        words = runners.command("--socket", str(house.path), "--agent", "claude", "--login", "now")
        with seated(words, env={"PATH": BARE_PATH, "HOME": str(runners.folder)}) as seat:
            _, screen = await trio.to_thread.run_sync(seat.leave)
        assert screen == b"mine: --login now\r\n"
        await house.quiet()
        ((agent, argv),) = map(tuple, house.rows("SELECT agent, argv FROM transports"))
        assert agent == "claude"
        assert argv.endswith('"sh","--login","now"]')


@asynccontextmanager
async def strange_login(house: House) -> AsyncIterator[trio.SocketStream]:
    """A login whose process the daemon cannot see, as in a container; gives the runner's end."""
    inside = house.daemon._house
    opened = await inside.committer.open(new_transport(mode="terminal"))
    ours, theirs = socket.socketpair()
    terminal = Terminal(inside, opened.id, Descriptor(theirs.detach()), 0)
    async with trio.open_nursery() as nursery, trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as runner:
        nursery.start_soon(terminal.live, Command((b"/bin/true",), b"/", {}))
        yield runner


async def heard(runner: trio.SocketStream) -> list[bytes]:
    """The kinds of what a runner is told, up to its status."""
    packets = handshake.PacketReader()
    kinds: list[bytes] = []
    with trio.fail_after(PATIENCE):
        while handshake.EXIT not in kinds and (data := await runner.receive_some()):
            kinds += [kind for kind, _ in packets.feed(data)]
    return kinds


async def test_process_that_cannot_be_seen_ends_with_its_launch(sqlite_house: House) -> None:
    """Nobody waits for an end that nobody can see, and the record says so."""
    async with strange_login(sqlite_house) as runner:
        assert await heard(runner) == [handshake.LAUNCH, handshake.EXIT]
    assert ("closed", *UNSEEN[:2]) in events(sqlite_house)
    assert gaps(sqlite_house) == [("terminal", None, True)]


async def test_daemon_that_is_stopping_launches_nothing(sqlite_house: House) -> None:
    """A login that was let in at the last moment is refused, and nothing is missing from the record."""
    sqlite_house.daemon.stop()
    async with strange_login(sqlite_house) as runner:
        assert await heard(runner) == [handshake.FATAL, handshake.EXIT]
    assert ("closed", *NEVER_TOLD[:2]) in events(sqlite_house)
    assert gaps(sqlite_house) == []
