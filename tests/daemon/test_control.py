"""The daemon's door: who is let in, and what it costs when nonsense comes."""

from __future__ import annotations

import os
import socket
import stat
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio

from acp_ledger import dialogue, handshake
from acp_ledger.daemon.control import listening
from acp_ledger.errors import ConfigError, LedgerLocked
from tests.daemon.house import House, greeting, open_house

if TYPE_CHECKING:
    from pathlib import Path


async def ask(house: House, request: str) -> dict[str, Any]:
    """Ask a control request as `ledgerctl` does."""
    opening = handshake.encode_greeting(handshake.Greeting(handshake.PURPOSE_CONTROL))
    async with await trio.open_unix_socket(house.path) as stream:
        await stream.send_all(opening + dialogue.encode_request(request))
        reader = dialogue.ControlReader()
        while True:
            data = await stream.receive_some()
            assert data
            if (answer := reader.feed(data)) is not None:
                return answer


async def test_socket_is_ours_alone(sqlite_house: House) -> None:
    """Nobody else may connect: the socket is 0600."""
    found = await trio.Path(sqlite_house.path).stat()
    assert stat.S_IMODE(found.st_mode) == 0o600


async def test_status_tells_daemon_ledger_and_sessions(sqlite_house: House) -> None:
    """One answer holds all that `ledgerctl status` shows of a running daemon."""
    async with sqlite_house.editor(greeting(["send", "ready"], ["stay"])) as editor:
        await editor.hear(b"ready")
        answer = await ask(sqlite_house, dialogue.REQUEST_STATUS)
        assert answer["ok"] is True
        assert answer["pid"] == os.getpid()
        assert answer["ledger"] == sqlite_house.url
        [transport] = answer["transports"]
        assert transport["pid"] == sqlite_house.rows("SELECT pid FROM transport_events WHERE event = 'spawned'")[0][0]
        assert answer["committer"]["entries"] in {2, 3}, "the line itself is counted a moment after it was sent"
        assert answer["committer"]["degraded"] is False


async def test_shutdown_stops_the_daemon(sqlite_house: House) -> None:
    """A shutdown is what TERM is."""
    assert (await ask(sqlite_house, dialogue.REQUEST_SHUTDOWN))["ok"] is True
    assert sqlite_house.daemon.stopped.is_set()


async def test_unknown_request_is_refused(sqlite_house: House) -> None:
    """A word this daemon does not know gets a sentence that names the daemon's version, and what to do."""
    answer = await ask(sqlite_house, "dance")
    assert (answer["ok"], answer["status"]) == (False, 1)
    assert "does not know the request 'dance'" in answer["error"]
    assert "restart acp-ledgerd" in answer["hint"]


@pytest.mark.parametrize(
    "nonsense", [b"GET / HTTP/1.1\r\n\r\n", b"acp-ledger/9\n", handshake.MAGIC + b"\xff\xff\xff\xff", b""]
)
async def test_nonsense_costs_nobody_anything(sqlite_house: House, nonsense: bytes) -> None:
    """Whoever talks nonsense is told so or left, and the next one is served."""
    async with await trio.open_unix_socket(sqlite_house.path) as stream:
        await stream.send_all(nonsense)
        if nonsense:
            assert handshake.FATAL in [kind for kind, _ in handshake.PacketReader().feed(await stream.receive_some())]
    assert (await sqlite_house.session(["send", "served"])).output == b"served\n"


async def test_greeting_in_pieces_is_heard(sqlite_house: House) -> None:
    """A greeting may come byte by byte, and the first line with its end."""
    whole = greeting(["echo"]) + b"first\n"
    async with sqlite_house.editor(whole[:1]) as editor:
        await editor.say(whole[1:20])
        await trio.lowlevel.checkpoint()
        await editor.say(whole[20:])
        await editor.hear(b"first\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_another_user_is_refused(sqlite_house: House, tmp_path: Path) -> None:
    """A process of another user is not heard, even where file modes would let it in."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    sqlite_house.path.chmod(0o666)
    script = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as door:
    door.connect(sys.argv[1])
    try:
        door.sendall(b"nonsense, which is answered where it is heard\\n")
        print(len(door.recv(1)))
    except ConnectionError:
        print(0)
"""
    result = await trio.run_process([sys.executable, "-I", "-c", script, str(sqlite_house.path)], capture_stdout=True)
    assert result.stdout == b"0\n"


async def test_control_line_is_bounded(sqlite_house: House) -> None:
    """A control request without end is refused."""
    opening = handshake.encode_greeting(handshake.Greeting(handshake.PURPOSE_CONTROL))
    async with await trio.open_unix_socket(sqlite_house.path) as stream:
        with pytest.raises(trio.BrokenResourceError):  # noqa: PT012  # any of the writes may be the one that fails
            await stream.send_all(opening)
            for _ in range(100):
                await stream.send_all(b"x" * 65536)


def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    """The socket of a daemon that was killed is taken away."""
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(path) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        listener.accept()[0].close()
    assert not path.exists()


def test_socket_of_a_living_daemon_is_left_alone(tmp_path: Path) -> None:
    """A socket somebody listens on is not taken over."""
    path = tmp_path / "s.sock"
    with listening(path), pytest.raises(LedgerLocked), listening(path):
        pass


def test_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """What is no socket of ours stays, and is told of."""
    path = tmp_path / "s.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="no socket of ours"), listening(path):
        pass
    assert path.read_text() == "precious"


def test_long_path_is_told(tmp_path: Path) -> None:
    """A path that no Unix socket can have is an error that says so."""
    with pytest.raises(ConfigError, match="107"), listening(tmp_path / ("x" * 120)):
        pass


def test_open_directory_is_refused(tmp_path: Path) -> None:
    """A socket is not made where others could put another one in its place."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="only you may write"), listening(folder / "s.sock"):
        pass


async def test_many_runners_at_once(tmp_path: Path) -> None:
    """Editors start several agents at the same moment; every one of them is served."""
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path) as house:
        served = []

        async def one(number: int) -> None:
            """Be one of the runners."""
            served.append((await house.session(["send", f"agent {number}"])).output)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(one, number)
        assert sorted(served) == sorted(f"agent {number}\n".encode() for number in range(8))
        assert house.rows("SELECT count(DISTINCT id) FROM transports")[0][0] == 8
