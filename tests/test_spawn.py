"""A runner that finds no daemon gets one: one for all who ask, and nobody's descendant."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger import spawn
from acp_ledger.dial import NoDaemon
from tests.support import fake_daemon
from tests.support.runners import BARE_PATH, Runners, runners

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

__all__ = ["runners"]

PATIENCE = 20.0
SCRIPT = """
import sys
from acp_ledger import paths, run
paths.RUNTIME_ROOT = {runtime!r}
sys.exit(run.main(daemon={daemon!r}))
"""
LINE = b'{"id":1,"method":"initialize"}\n'


class House:
    """A user without a daemon, in a folder of the test's own."""

    def __init__(self, runners: Runners) -> None:
        self.runners = runners
        self.state = runners.folder / ".local" / "state" / "acp-ledger"
        self.socket = self.state / "ledgerd.sock"
        self.report = runners.folder / "report"
        self.daemon = [sys.executable, str(Path(fake_daemon.__file__)), str(self.socket), str(self.report)]

    def script(self) -> str:
        """A console script whose daemon is the house's, and which never looks at the machine's own /run/user."""
        return SCRIPT.format(runtime=str(self.runners.folder / "run"), daemon=self.daemon)

    def start(self, **options: object) -> subprocess.Popen[bytes]:
        """Start a runner that was told no socket."""
        return self.runners.start("--", "agent", script=self.script(), **options)

    def talk(self) -> bytes:
        """Run one conversation that has to succeed."""
        process = self.start()
        output, errors = process.communicate(LINE, timeout=PATIENCE)
        assert (process.returncode, errors) == (0, b"")
        return output

    def daemons(self) -> list[dict[str, Any]]:
        """What every daemon that was started said about itself."""
        return [json.loads(line) for line in self.report.read_text().splitlines()]

    def stop(self) -> None:
        """End the daemon that runs, and wait for its end."""
        if not self.report.exists():
            return
        for facts in self.daemons():
            try:
                ended = os.pidfd_open(facts["pid"])
            except ProcessLookupError:
                continue
            signal.pidfd_send_signal(ended, signal.SIGKILL)
            os.close(ended)


@pytest.fixture
def house(runners: Runners) -> Iterator[House]:
    """A house whose daemon is stopped when the test is over."""
    found = House(runners)
    yield found
    found.stop()


def _says(*lines: str) -> list[str]:
    """Give the command of a daemon that says this and ends."""
    return ["/bin/sh", "-c", "printf '%s\\n' \"$@\" >&2; exit 13", "sh", *lines]


def _leave_stale_socket(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def test_first_runner_starts_a_daemon_and_the_next_finds_it(house: House) -> None:
    """Nobody has to start one by hand."""
    assert house.talk() == LINE
    assert house.talk() == LINE
    assert len(house.daemons()) == 1


def test_racing_runners_get_one_daemon(house: House) -> None:
    """Editors start several agents at once."""
    question = house.runners.folder / "question"
    question.write_bytes(LINE)
    processes = []
    for _ in range(5):
        with question.open("rb") as stdin:
            processes.append(house.start(stdin=stdin))
    for process in processes:
        output, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, output, errors) == (0, LINE, b"")
    assert len(house.daemons()) == 1


def test_daemon_is_nobodys_descendant(house: House) -> None:
    """Editors kill every descendant of what they started, across sessions and groups."""
    process = house.start()
    process.communicate(LINE, timeout=PATIENCE)
    (daemon,) = house.daemons()
    assert daemon["ppid"] not in {process.pid, os.getpid()}
    assert daemon["sid"] not in {daemon["pid"], process.pid, os.getsid(0)}
    assert daemon["cwd"] == "/"


def test_daemon_inherits_no_descriptor(house: House) -> None:
    """A pipe of the editor's that a daemon holds open never ends."""
    kept, ours = os.pipe()
    os.set_inheritable(ours, True)  # noqa: FBT003  # positional only
    house.start(close_fds=False).communicate(LINE, timeout=PATIENCE)
    os.close(ours)
    os.close(kept)
    (daemon,) = house.daemons()
    assert daemon["descriptors"] == [0, 1, 2]


def test_daemon_gets_no_key_of_the_editors(house: House) -> None:
    """One editor's environment is not every editor's daemon's."""
    environment = {"PATH": BARE_PATH, "HOME": str(house.runners.folder), "API_KEY": "s3cret", "ACP_LEDGER_LOG__X": "1"}
    house.start(env=environment).communicate(LINE, timeout=PATIENCE)
    (daemon,) = house.daemons()
    assert "API_KEY" not in daemon["environment"]
    assert daemon["environment"]["ACP_LEDGER_LOG__X"] == "1"
    assert daemon["environment"]["HOME"] == str(house.runners.folder)


def test_stale_socket_is_replaced(house: House) -> None:
    """A daemon that was killed leaves its socket, which nobody should have to remove."""
    _leave_stale_socket(house.socket)
    assert house.talk() == LINE


def test_file_in_the_way_is_left_alone(house: House) -> None:
    """What is no socket of ours is not ours to remove."""
    house.socket.parent.mkdir(parents=True, mode=0o700)
    house.socket.write_text("precious")
    process = house.start()
    _, errors = process.communicate(b"", timeout=PATIENCE)
    assert process.returncode == 69
    assert b"Address already in use" in errors
    assert house.socket.read_text() == "precious"


def test_living_socket_is_never_unlinked(house: House) -> None:
    """Only a refused connect makes a socket stale; where one is taken, it is the conversation's own."""
    house.socket.parent.mkdir(parents=True, mode=0o700)
    with fake_daemon.FakeDaemon(house.socket):
        spawn.start_daemon(str(house.socket), {"HOME": str(house.runners.folder)}, os.getuid(), ["/bin/false"]).close()
        assert house.socket.exists()


@pytest.mark.parametrize(
    ("daemon", "words"),
    [
        (["/nonexistent/acp-ledgerd"], "cannot start /nonexistent/acp-ledgerd: No such file or directory (log: "),
        (
            _says("one", "acp-ledgerd: schema differs", "ledgerctl db upgrade", ""),
            ": schema differs. ledgerctl db upgrade (",
        ),
        (_says("one", "two"), ": two (log: "),
        (["/bin/true"], "could be reached (log: "),
        (["/bin/true"], "To see why, start it by hand: acp-ledgerd"),
    ],
)
def test_daemon_that_does_not_start_is_explained(house: House, daemon: list[str], words: str) -> None:
    """Its own last words, and the command that shows the rest, are in the answer to the editor."""
    house.daemon = daemon
    process = house.start()
    output, errors = process.communicate(LINE, timeout=PATIENCE)
    assert process.returncode == 69
    message = json.loads(output)["error"]["message"]
    assert words in message
    assert errors.decode() == f"acp-ledger-run: {message.removeprefix('acp-ledger: ')}\n"


def test_last_words_of_an_earlier_daemon_are_not_told_again(house: House) -> None:
    """An old reason would send people after the wrong thing."""
    house.state.mkdir(parents=True, mode=0o700)
    (house.state / "daemon.log").write_text("disk full\n")
    house.daemon = ["/bin/true"]
    _, errors = house.start().communicate(b"", timeout=PATIENCE)
    assert b"disk full" not in errors


def test_daemon_that_never_listens_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The most impatient editors wait ten seconds for an answer."""
    monkeypatch.setattr(spawn, "START_SECONDS", 0.2)
    with pytest.raises(NoDaemon, match="not ready after"):
        spawn.start_daemon(str(house.socket), {"HOME": str(house.runners.folder)}, os.getuid(), ["/bin/sleep", "1"])


def test_signal_ends_a_waiting_runner(house: House) -> None:
    """A runner that waits for a daemon leaves as quickly as one that relays."""
    fifo = house.runners.folder / "fifo"
    os.mkfifo(fifo)
    house.daemon = ["/bin/sh", "-c", f"echo started > {fifo}; exec sleep 2"]
    process = house.start()
    assert fifo.read_text() == "started\n"
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_killed_starter_leaves_the_start_to_the_next(house: House) -> None:
    """The lock goes with its holder, and nobody waits for a daemon that nobody starts."""
    fifo = house.runners.folder / "fifo"
    os.mkfifo(fifo)
    daemon, house.daemon = house.daemon, ["/bin/sh", "-c", f"echo started > {fifo}; exec sleep 2"]
    first = house.start()
    assert fifo.read_text() == "started\n"
    house.daemon = daemon
    second = house.start()
    first.kill()
    output, _ = second.communicate(LINE, timeout=PATIENCE)
    assert output == LINE


def test_configured_socket_is_asked_before_one_is_started(house: House) -> None:
    """A daemon whose configuration names a socket listens nowhere else."""
    config = house.runners.folder / ".config" / "acp-ledger" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[socket]\npath = "~/s"\n')
    with fake_daemon.FakeDaemon(house.runners.folder / "s") as daemon:
        process = house.start()
        peer = daemon.accept()
        peer.end(0)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert not house.report.exists()


@pytest.mark.parametrize("text", ["", "[socket]\n", "socket = 3\n", "[socket\n", "[socket]\nother = 1\n"])
def test_configuration_without_a_socket_names_none(tmp_path: Path, text: str) -> None:
    """What is wrong in the file is for the daemon to say."""
    config = tmp_path / ".config" / "acp-ledger" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(text)
    assert spawn.configured_socket({"HOME": str(tmp_path)}, os.getuid()) is None


def test_state_directory_others_write_to_is_refused(house: House) -> None:
    """Whoever can write there could put a lock or a socket of his own in place."""
    house.state.mkdir(parents=True)
    house.state.chmod(0o777)
    process = house.start()
    _, errors = process.communicate(b"", timeout=PATIENCE)
    assert process.returncode == 69
    assert f"chmod go-w {house.state}".encode() in errors


def test_daemon_of_this_installation_is_started_by_our_interpreter() -> None:
    """An editor's PATH may hold another one, or none."""
    assert spawn.daemon_command() == [sys.executable, "-P", "-m", "acp_ledger.daemon.main"]
