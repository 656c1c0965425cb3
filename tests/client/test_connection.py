"""The Python API under either library: who runs when, what a cancelled call leaves, and what the other end may do."""

from __future__ import annotations

import asyncio  # noqa: TID251  # half of the programs that hold a client run on it
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pytest
import trio

import acp_ledger
from acp_ledger import dialogue
from acp_ledger.client import CallFailed, Client, Observer, PermissionReply, PermissionRequest, Update, open_client
from acp_ledger.errors import AgentNotFound, ConfigError, DaemonUnreachable, PeerFault, UsageError
from tests.support.fake_daemon import FakeDaemon
from tests.support.shell_agents import agent, chunk, end, line, question
from tests.system.installed import PATIENCE, InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator
    from pathlib import Path

ASYNCIO, TRIO = "asyncio", "trio"
both = pytest.mark.parametrize("library", [ASYNCIO, TRIO])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledDaemon]:
    """A daemon for all of them."""
    with daemon_at(tmp_path_factory.mktemp("api")) as found:
        yield found


def run(library: str, program: Callable[[], Awaitable[Any]]) -> Any:
    """Run a program under one of the two, which has to come to its end."""

    async def bounded() -> Any:
        """End it where it hangs."""
        if library == TRIO:
            with trio.fail_after(PATIENCE):
                return await program()
        return await asyncio.wait_for(program(), PATIENCE)

    return trio.run(bounded) if library == TRIO else asyncio.run(bounded())


async def together(library: str, *programs: Callable[[], Awaitable[Any]]) -> None:
    """Run some tasks at once, up to the end of all."""
    if library == TRIO:
        async with trio.open_nursery() as nursery:
            for program in programs:
                nursery.start_soon(program)
    else:
        await asyncio.gather(*(program() for program in programs))


def event_of(library: str) -> Any:
    """An event of the library's own."""
    return trio.Event() if library == TRIO else asyncio.Event()


def is_alive(path: Path) -> bool:
    """Whether the agent that wrote its number there still runs."""
    try:
        os.kill(int(path.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


class Slow(Observer):
    """Gives way to others in each callback, and keeps what it hears; grants every question."""

    def __init__(self, library: str) -> None:
        self.heard: list[str] = []
        self._library = library

    async def _give_way(self) -> None:
        if self._library == TRIO:
            await trio.lowlevel.checkpoint()
        else:
            await asyncio.sleep(0)

    async def update(self, update: Update) -> None:
        """Keep its text."""
        await self._give_way()
        self.heard.append(update.text)

    async def answer(self, request: PermissionRequest) -> PermissionReply:
        """Grant it."""
        await self._give_way()
        self.heard.append(request.outcome)
        return PermissionReply("selected", request.options[0].option_id)

    async def commit(self, request: PermissionRequest) -> None:
        """Keep what was decided, and by whom."""
        await self._give_way()
        self.heard.append(f"{request.option_id} by {request.decided_by}")


@both
def test_callbacks_are_awaited_in_order_inside_the_call(daemon: InstalledDaemon, library: str) -> None:
    """Under either library; a question is asked, answered, and told once it is decided."""
    observer = Slow(library)
    command = agent(chunk("a"), question(), then={'"optionId":"allow"': [chunk("b"), end()]})

    async def program() -> str:
        """Hold a client."""
        async with open_client(command, observer=observer, socket=daemon.socket) as client:
            await client.start()
            return await client.prompt("go")

    assert run(library, program) == "ab"
    assert observer.heard == ["a", "pending", "allow by client", "b"]


class Broken(Observer):
    """Fails at the second update."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def update(self, update: Update) -> None:
        """Keep the first."""
        if self.texts:
            raise ZeroDivisionError("no room")
        self.texts.append(update.text)


@both
def test_exception_of_a_callback_is_the_cause_of_the_failure(daemon: InstalledDaemon, library: str) -> None:
    """The text that had joined is in the error; the client can be used again."""
    command = agent(chunk("a"), chunk("b"), end())

    async def program() -> CallFailed:
        """Hold a client."""
        async with open_client(command, observer=Broken(), socket=daemon.socket) as client:
            await client.start()
            with pytest.raises(CallFailed) as failed:
                await client.prompt("go")
            assert (await client.reader_status()).phase == "steady"
            return failed.value

    failure = run(library, program)
    assert (failure.kind, failure.record and failure.record.text) == ("observer", "a")
    assert isinstance(failure.__cause__, ZeroDivisionError)
    assert "ZeroDivisionError: no room" in failure.message


@both
def test_prompt_is_cancelled_from_another_task_and_made_one_at_a_time(daemon: InstalledDaemon, library: str) -> None:
    """The one that waits gets the agent's own end; a second one meanwhile is refused, and cancel alone does nothing."""
    command = agent(chunk("half"), then={"session/cancel": [end("cancelled")]})

    async def program() -> str | None:
        """Hold a client."""
        came = event_of(library)
        ends: list[str | None] = []

        class Watch(Observer):
            """Tells that an update came."""

            def update(self, update: Update) -> None:
                """Do so at the first update."""
                del update
                came.set()

        async with open_client(command, observer=Watch(), socket=daemon.socket) as client:
            await client.cancel()
            await client.start()

            async def prompt() -> None:
                """Wait for the end."""
                ends.append((await client.prompt_detailed("go")).outcome)

            async def cancel() -> None:
                """Try another call, then cancel."""
                await came.wait()
                with pytest.raises(CallFailed, match="not over yet"):
                    await client.prompt("me too")
                await client.cancel()

            await together(library, prompt, cancel)
        return ends[0]

    assert run(library, program) == "cancelled"


@both
def test_call_that_is_cancelled_leaves_the_client_stopped(
    daemon: InstalledDaemon, library: str, tmp_path: Path
) -> None:
    """A later call fails at once, and where the block ends nothing of the agent runs any more."""
    told = tmp_path / "pid"
    command = agent(chunk("half"), before=f"echo $$ > {told}; trap '' TERM")

    async def program() -> None:
        """Hold a client."""
        scope = trio.CancelScope()
        tasks: list[asyncio.Task[Any]] = []

        class Quitting(Observer):
            """Cancels the call from inside."""

            def update(self, update: Update) -> None:
                """Do so at the first update."""
                del update
                scope.cancel() if library == TRIO else tasks[0].cancel()

        async with open_client(command, observer=Quitting(), socket=daemon.socket) as client:
            await client.start()
            if library == TRIO:
                with scope:
                    await client.prompt("go")
            else:
                tasks.append(asyncio.get_running_loop().create_task(client.prompt("go")))
                with pytest.raises(asyncio.CancelledError):
                    await tasks[0]
            with pytest.raises(CallFailed) as failed:
                await client.prompt("again")
            assert failed.value.kind == "stopped"

    run(library, program)
    assert not is_alive(told)


@both
def test_stop_fails_the_call_that_waits_and_every_later_one(
    daemon: InstalledDaemon, library: str, tmp_path: Path
) -> None:
    """Also from inside a callback; the text that had come is in the error."""
    told = tmp_path / "pid"
    command = agent(chunk("half"), before=f"echo $$ > {told}")

    async def program() -> CallFailed:
        """Hold a client."""
        clients: list[Client] = []

        class Stopping(Observer):
            """Stops the client from inside."""

            async def update(self, update: Update) -> None:
                """Do so at the first update."""
                del update
                await clients[0].stop()

        async with open_client(command, observer=Stopping(), socket=daemon.socket) as client:
            clients.append(client)
            await client.start()
            with pytest.raises(CallFailed) as failed:
                await client.prompt("go")
            for call in (client.start, client.reader_status):
                with pytest.raises(CallFailed) as later:
                    await call()
                assert later.value.kind == "stopped"
            await client.stop()
            return failed.value

    assert run(library, program).kind == "stopped"
    assert not is_alive(told)


@both
def test_error_in_the_block_waits_for_the_agents_end(daemon: InstalledDaemon, library: str, tmp_path: Path) -> None:
    """And is what comes out of it."""
    told = tmp_path / "pid"

    async def program() -> None:
        """Hold a client."""
        async with open_client(agent(before=f"echo $$ > {told}"), socket=daemon.socket) as client:
            await client.start()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(library, program)
    assert not is_alive(told)


class Told(Observer):
    """Is told of updates that nothing waits for, and fails at one."""

    told_only: ClassVar[Collection[str]] = ("update",)

    def update(self, update: Update) -> None:
        """Fail."""
        raise BrokenPipeError(update.text)


@both
def test_what_is_only_told_raises_what_it_fails_with(daemon: InstalledDaemon, library: str) -> None:
    """Not a failed call: the program's own error, and a client that is stopped."""

    async def program() -> None:
        """Hold a client."""
        async with open_client(agent(chunk("a"), end()), observer=Told(), socket=daemon.socket) as client:
            await client.start()
            with pytest.raises(BrokenPipeError, match="a"):
                await client.prompt("go")
            with pytest.raises(CallFailed, match="cut off"):
                await client.start()

    run(library, program)


# ---- what the agent gets

OPEN = """
import acp_ledger, asyncio, sys
async def program():
    async with acp_ledger.open_client(sys.argv[2:], socket=sys.argv[1] or None) as client:
        await client.start()
        print(client.transport_id)
asyncio.run(program())
"""


def test_agent_gets_the_programs_environment_and_umask_and_nothing_more(
    daemon: InstalledDaemon, tmp_path: Path
) -> None:
    """Where there is no locale the interpreter sets one for itself; the agent never hears of it."""
    told = tmp_path / "umask"
    command = [sys.executable, "-c", OPEN, str(daemon.socket), *agent(before=f"umask > {told}")]
    given = {"PATH": os.environ["PATH"], "ONLY_HERE": "1"}
    done = subprocess.run(command, env=given, capture_output=True, check=True, timeout=PATIENCE, umask=0o027)
    names = daemon.query("SELECT env_names FROM transports WHERE id = :id", id=int(done.stdout))[0][0]
    assert sorted(json.loads(names)) == sorted(given)
    assert told.read_text() == "0027\n"


def test_daemon_is_started_where_none_runs(tmp_path: Path) -> None:
    """As the runner does it, with the settings of its user; it outlives the program."""
    path = tmp_path / "own.sock"
    settings = tmp_path / ".config/acp-ledger/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[socket]\npath = "{path}"\n')
    given = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, "-c", OPEN, "", *agent()]
    subprocess.run(command, env=given, capture_output=True, check=True, timeout=PATIENCE)
    lock = (tmp_path / ".local/share/acp-ledger/ledger.db.lock").read_text()
    started = os.pidfd_open(int(lock.split()[0]))
    signal.pidfd_send_signal(started, signal.SIGTERM)
    os.close(started)


# ---- what the other end may do


class Scripted:
    """A daemon's end that says these pieces to its first guest, one for each thing it hears.

    Then it closes, or hears the guest to its end; `heard` is all of it.
    """

    def __init__(self, folder: Path, *said: bytes, stays: bool = False) -> None:
        self.path = folder / "d.sock"
        self.heard = b""
        self._listener = FakeDaemon(self.path)
        self._said = said
        self._stays = stays
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(PATIENCE)

    def _serve(self) -> None:
        with self._listener:
            peer = self._listener.accept()
            for piece in self._said:
                self.heard += peer.read()
                peer.connection.sendall(piece)
            if self._stays:
                self.heard += peer.read_to_end()


OPENED = dialogue.encode(event="opened", transport_id=1, epoch=2, pid=3, unheard_of=True)


@both
def test_daemon_that_dies_in_a_call_ends_the_client(library: str, tmp_path: Path) -> None:
    """What it says that nobody knows is skipped, in whatever pieces it comes; then its end is the call's."""

    async def program() -> CallFailed:
        """Hold a client."""
        async with open_client(["agent"], socket=other.path) as client:
            with pytest.raises(CallFailed) as failed:
                await client.start()
            with pytest.raises(CallFailed):
                await client.start()
            return failed.value

    with Scripted(tmp_path, OPENED, b'{"event":"novelty"}\n{"event":"sta') as other:
        failure = run(library, program)
    assert (failure.kind, failure.hint) == ("stopped", "ledgerctl status")


@both
def test_call_after_a_stop_asks_nobody(library: str, tmp_path: Path) -> None:
    """The agent may take its time to end; the program is told at once, and a second stop says nothing either."""
    update = dialogue.encode(event="update", number=1, update_sequence=1, epoch=2, **dict.fromkeys(WORDS, "x"))
    failed = dialogue.encode(event="failed", kind="stopped", message="the agent was stopped")

    async def program() -> None:
        """Hold a client."""
        clients: list[Client] = []

        class Stopping(Observer):
            """Stops the client from inside."""

            async def update(self, update: Update) -> None:
                """Do so at the first update."""
                del update
                await clients[0].stop()

        async with open_client(["agent"], observer=Stopping(), socket=other.path) as client:
            clients.append(client)
            for _ in range(2):
                with pytest.raises(CallFailed, match="was stopped"):
                    await client.start()
            await client.stop()

    with Scripted(tmp_path, OPENED, update, failed, stays=True) as other:
        run(library, program)
    assert (other.heard.count(b'"call":"start"'), other.heard.count(b'"call":"stop"')) == (1, 1)


WORDS = ("acp_session_id", "kind", "text", "joined", "replay", "envelope")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (dialogue.encode(event="refused", error="no agent", hint=None, status=127), AgentNotFound),
        (dialogue.encode(event="refused", error="no", hint="try", status=78), ConfigError),
        (dialogue.encode(event="refused", error="stopping", hint=None, status=69), DaemonUnreachable),
        (b"no object\n", PeerFault),
        (b"", DaemonUnreachable),
    ],
)
def test_client_that_is_not_opened_says_why(tmp_path: Path, said: bytes, error: type[Exception]) -> None:
    """By a kind of error for each kind of reason."""

    async def program() -> None:
        """Hold a client."""
        async with open_client(["agent"], socket=other.path):
            raise AssertionError

    with Scripted(tmp_path, said) as other, pytest.raises(error):
        run(ASYNCIO, program)


def test_what_cannot_be_asked_for_is_refused_here(tmp_path: Path) -> None:
    """A command that is no list, and a socket where nobody listens."""

    async def program(command: Any) -> None:
        """Hold a client."""
        async with open_client(command, socket=tmp_path / "none"):
            raise AssertionError

    with pytest.raises(UsageError, match="a list"):
        run(TRIO, lambda: program("agent --acp"))
    with pytest.raises(DaemonUnreachable, match="no daemon listens") as missing:
        run(TRIO, lambda: program(["agent"]))
    assert "acp-ledgerd --socket" in str(missing.value.hint)


def test_package_itself_opens_a_client() -> None:
    """By a name that costs nothing before it is used; and it has no other."""
    assert acp_ledger.open_client is open_client
    with pytest.raises(AttributeError):
        acp_ledger.nothing  # type: ignore[attr-defined]  # noqa: B018  # there is none, and that is the point


@both
def test_login_that_a_session_needs_is_named_to_the_program(daemon: InstalledDaemon, library: str) -> None:
    """The start failed, and the agent's answer to `initialize` can be read all the same."""
    login = line(id=1, error={"code": -32000, "message": "who are you"})
    command = agent(initialize={"authMethods": [{"id": "key", "name": "API key"}]}, answers={"session/new": login})

    async def program() -> None:
        """Try to open a session."""
        async with open_client(command, socket=daemon.socket) as client:
            with pytest.raises(CallFailed, match="API key") as caught:
                await client.start()
            assert (caught.value.kind, client.acp_session_id) == ("auth_required", None)
            assert client.initialize is not None
            assert client.initialize["auth_methods"] == [{"id": "key", "name": "API key"}]

    run(library, program)
