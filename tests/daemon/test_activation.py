"""Socket activation, with the program systemd ships for trying it out, and the daemon as it is installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest
import trio

from tests.daemon.house import PATIENCE, Address, greeting, until
from tests.daemon.test_main import PROGRAM, stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None,
    reason="no systemd-socket-activate; on Debian and Ubuntu: sudo apt install systemd",
)


@asynccontextmanager
async def activated(folder: Path, *sockets: str) -> AsyncIterator[tuple[trio.Process, Address]]:
    """What systemd does with a socket unit: it listens, and becomes the daemon when somebody connects."""
    address = Address(folder / "a.sock", f"sqlite:///{folder}/ledger.db")
    listens = [f"--listen={folder / name}" for name in ("a.sock", *sockets)]
    names = ":".join(["ledgerd", *(f"other{number}" for number in range(len(sockets)))])
    command = ["systemd-socket-activate", *listens, f"--fdname={names}", *(f"--setenv={name}" for name in os.environ)]
    daemon = [*PROGRAM, "--ledger", address.url, "--log-format", "json"]
    with (folder / "log").open("wb") as log:
        process = await trio.lowlevel.open_process([*command, *daemon], stderr=log)
    try:
        await until(address.path.exists)
        yield process, address
    finally:
        process.kill()
        with trio.move_on_after(PATIENCE, shield=True):
            await process.wait()


def events_of_log(folder: Path) -> list[dict[str, object]]:
    """The events of the daemon's log."""
    lines = (folder / "log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


async def test_first_editor_starts_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects first has the daemon started and is served, over the one of several sockets that is ours.

    Nothing of what the manager passed, descriptors or variables, reaches the agent.
    """
    names = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000", "JOURNAL_STREAM": "1:1"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    async with activated(tmp_path, "b.sock") as (process, address):
        inode = address.path.stat().st_ino
        facts = tmp_path / "facts"
        assert (await address.session(["note", str(facts)], ["send", "served"])).output == b"served\n"
        assert address.path.stat().st_ino == inode
        [ready] = [event for event in events_of_log(tmp_path) if event["event"] == "daemon.ready"]
        assert ready["socket"] == str(address.path)
        assert await stopped(process, signal.SIGTERM) == 0
    assert address.path.exists(), "the socket is the manager's"
    told = {*names, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"}
    agent = json.loads(facts.read_text())
    assert agent["descriptors"] == [0, 1, 2]
    assert not told & agent["env"].keys()


async def test_editor_that_came_while_it_stopped_is_served_by_the_next(tmp_path: Path) -> None:
    """A connection waits in the socket that the manager keeps, and the next daemon takes it."""
    with socket.socket(socket.AF_UNIX) as kept:
        kept.bind(str(tmp_path / "a.sock"))
        kept.listen()
        address = Address(tmp_path / "a.sock", f"sqlite:///{tmp_path}/ledger.db")
        async with _started(tmp_path, address, kept) as first:
            assert (await address.session(["send", "first"])).output == b"first\n"
            assert await stopped(first, signal.SIGTERM) == 0
        async with address.editor(greeting(["send", "second"])) as editor, _started(tmp_path, address, kept):
            await editor.hear(b"second\n")


@asynccontextmanager
async def _started(folder: Path, address: Address, kept: socket.socket) -> AsyncIterator[trio.Process]:
    """The daemon with a socket as a manager starts it: the variables name the very process that becomes it."""
    script = f'exec 3<&{kept.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
    daemon = [*PROGRAM, "--ledger", address.url, "--log-format", "json"]
    with (folder / "log").open("wb") as log:
        process = await trio.lowlevel.open_process(
            ["bash", "-c", script, "sh", *daemon], stderr=log, pass_fds=[kept.fileno()]
        )
    try:
        yield process
    finally:
        process.kill()
        with trio.move_on_after(PATIENCE, shield=True):
            await process.wait()


TAKES: Final = """
import os, sys
from acp_ledger.daemon.activation import passed_socket
from acp_ledger.errors import ConfigError
try:
    taken = passed_socket(os.environ, os.getpid())
except ConfigError as fault:
    sys.exit(fault.message)
print(taken.fileno(), [os.get_inheritable(fd) for fd in (3, 4)], [name for name in os.environ if "LISTEN" in name])
"""


def take(script: str, *kept: socket.socket) -> subprocess.CompletedProcess[str]:
    """Take what was passed, in a process whose descriptors and variables a shell has prepared."""
    command = ["bash", "-c", f'{script}; exec "$@"', "sh", sys.executable, "-c", TAKES]
    fds = [each.fileno() for each in kept]
    return subprocess.run(command, pass_fds=fds, capture_output=True, text=True, check=False)


def test_taken_socket_is_for_us_alone(tmp_path: Path) -> None:
    """Of several the one with our name is taken; none is inherited, and no variable is left to be misunderstood."""
    with socket.socket(socket.AF_UNIX) as kept:
        kept.bind(str(tmp_path / "a.sock"))
        kept.listen()
        fd = kept.fileno()
        done = take(f"exec 3<&{fd} 4<&{fd}; export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=other:ledgerd", kept)
    assert (done.stdout, done.stderr) == ("4 [False, False] []\n", "")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec 3</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1", "is no socket"),
        ("exec 3<&-; export LISTEN_PID=$$ LISTEN_FDS=1", "is not there"),
        ("exec 3</dev/null 4</dev/null; export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=a:b", "one is wanted"),
        ("exec 3<&{fd}; export LISTEN_PID=$$ LISTEN_FDS=1", "not a listening Unix stream socket"),
    ],
)
def test_what_is_no_listening_socket_is_told(script: str, reason: str) -> None:
    """A unit that passes something else ends the start with a sentence that says what."""
    with socket.socket(socket.AF_UNIX) as kept:
        done = take(script.replace("{fd}", str(kept.fileno())), kept)
    assert (done.returncode, reason in done.stderr) == (1, True), done.stderr


async def test_descriptors_of_another_process_are_left_alone(tmp_path: Path) -> None:
    """Variables that name another process, inherited from whoever was meant, count for nothing."""
    address = Address(tmp_path / "own.sock", f"sqlite:///{tmp_path}/ledger.db")
    script = 'exec 3</dev/null; LISTEN_PID=1 LISTEN_FDS=1 exec "$@"'
    daemon = [*PROGRAM, "--ledger", address.url, "--socket", str(address.path)]
    process = await trio.lowlevel.open_process(["sh", "-c", script, "sh", *daemon], stderr=subprocess.DEVNULL)
    with trio.fail_after(PATIENCE):
        await until(address.path.exists)
    assert (await address.session(["send", "served"])).output == b"served\n"
    assert await stopped(process, signal.SIGTERM) == 0


async def test_socket_elsewhere_than_runners_look_is_logged(tmp_path: Path) -> None:
    """The unit's path and the settings' path differ: both are named, with what mends it."""
    with socket.socket(socket.AF_UNIX) as kept:
        kept.bind(str(tmp_path / "a.sock"))
        kept.listen()
        (tmp_path / ".config/acp-ledger").mkdir(parents=True)
        (tmp_path / ".config/acp-ledger/config.toml").write_text(f'[socket]\npath = "{tmp_path}/other.sock"\n')
        address = Address(tmp_path / "a.sock", f"sqlite:///{tmp_path}/ledger.db")
        async with _started(tmp_path, address, kept):
            assert (await address.session(["send", "served"])).output == b"served\n"
    [differed] = [event for event in events_of_log(tmp_path) if event["event"] == "socket.differed"]
    assert (differed["socket"], differed["path"]) == (f"{tmp_path}/a.sock", f"{tmp_path}/other.sock")
