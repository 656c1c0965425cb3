"""The relay between an editor's streams and the daemon's socket, as a process of its own."""

from __future__ import annotations

import fcntl
import os
import random
import select
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from acp_ledger import handshake
from tests.support.fake_daemon import FakeDaemon, Peer
from tests.support.runners import Runners, runners

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["runners"]

PATIENCE = 20.0
BOUND = 1 << 20
"""More than the kernel's buffers and the runner's own, and far less than what is offered."""

NOISE = random.Random(7).randbytes(100_000)  # noqa: S311  # the same noise in every run
LINES = b'{"a":"\\ud800"}\r\n\n\x00\xff\xfe not UTF-8 \xc3(\n' + NOISE + b"no newline"
ONE_LINE = b'{"x":"' + b"y" * (3 << 20) + b'"}\n'

COUNTING = """
import os, sys
from acp_ledger import carry, run
carry._DEAF_MILLISECONDS = 500
rounds, go_round, go = 0, carry.Carrier._round, os._exit

def count(self, timeout):
    global rounds
    rounds += 1
    return go_round(self, timeout)

def tell(status):
    os.write(2, b"%d" % rounds)
    go(status)

carry.Carrier._round, os._exit = count, tell
sys.exit(run.main())
"""
"""A console script that tells how often it woke up, and waits less long for a deaf editor."""

ROUNDS = 1000
"""Far more wakings than there are pieces in what is offered, and far less than a loop that never sleeps has."""

Process = subprocess.Popen[bytes]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    """A daemon that does what the test tells it."""
    with FakeDaemon(tmp_path / "s") as found:
        yield found


def _start(runners: Runners, daemon: FakeDaemon, **options: Any) -> tuple[Process, Peer]:
    process = runners.start("--socket", daemon.path, "--", "agent", **options)
    return process, daemon.accept()


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _write(process: Process, data: bytes, *, end: bool = False) -> None:
    stdin = _stream(process.stdin)
    stdin.write(data)
    stdin.flush()
    if end:
        stdin.close()


def _offer(send: socket.socket | IO[bytes], data: bytes = b"z" * 4096) -> int:
    """Write until nothing was taken for a quarter of a second; give how much was taken."""
    descriptor = send.fileno()
    os.set_blocking(descriptor, False)  # positional only
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    taken = 0
    while taken < 8 * BOUND and poll.poll(250):
        try:
            taken += os.write(descriptor, data)
        except BlockingIOError:
            continue
    os.set_blocking(descriptor, True)  # positional only
    return taken


def _peak_bytes(process: Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@contextmanager
def _asleep(process: Process) -> Iterator[None]:
    """Hold the process still, so that all that is done meanwhile meets it at once."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    yield
    process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("data", [LINES, ONE_LINE], ids=["any bytes", "one line of 3 MiB"])
def test_input_arrives_byte_for_byte(runners: Runners, daemon: FakeDaemon, data: bytes) -> None:
    """What an editor writes is not a text to the relay."""
    process, peer = _start(runners, daemon)
    writer = threading.Thread(target=_write, args=(process, data), kwargs={"end": True})
    writer.start()
    assert peer.read_to_end() == data
    writer.join()
    peer.end(0)
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("data", [LINES, ONE_LINE], ids=["any bytes", "one line of 3 MiB"])
def test_output_arrives_byte_for_byte(runners: Runners, daemon: FakeDaemon, data: bytes) -> None:
    """What an agent writes is not a text to the relay either, and a status does not overtake it."""
    process, peer = _start(runners, daemon)

    def answer() -> None:
        peer.send(handshake.OUTPUT, data)
        peer.end(3)

    writer = threading.Thread(target=answer)
    writer.start()
    assert _stream(process.stdout).read() == data
    writer.join()
    assert process.wait(PATIENCE) == 3
    assert _stream(process.stderr).read() == b""


def test_streams_may_be_sockets(runners: Runners, daemon: FakeDaemon) -> None:
    """Node and Neovim hand on socket pairs."""
    (ours_in, theirs_in), (ours_out, theirs_out) = socket.socketpair(), socket.socketpair()
    with ours_in, ours_out:
        process, peer = _start(runners, daemon, stdin=theirs_in, stdout=theirs_out)
        theirs_in.close()
        theirs_out.close()
        ours_in.sendall(b"question\n")
        ours_in.shutdown(socket.SHUT_WR)
        assert peer.read_to_end() == b"question\n"
        peer.send(handshake.OUTPUT, LINES)
        peer.end(0)
        with ours_out.makefile("rb") as answer:
            assert answer.read() == LINES
    assert process.wait(PATIENCE) == 0


def test_streams_may_be_files(runners: Runners, daemon: FakeDaemon, tmp_path: Path) -> None:
    """A shell may redirect them, and poll(2) says of a file that it is always ready."""
    (tmp_path / "in").write_bytes(LINES)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as sink:
        process, peer = _start(runners, daemon, stdin=source, stdout=sink, stderr=subprocess.DEVNULL)
    assert peer.read_to_end() == LINES
    peer.send(handshake.ERROR, b"lost")
    peer.send(handshake.OUTPUT, LINES)
    peer.end(0)
    assert process.wait(PATIENCE) == 0
    assert (tmp_path / "out").read_bytes() == LINES


def test_streams_may_be_closed(runners: Runners, daemon: FakeDaemon) -> None:
    """The number of a closed stdin or stderr must not become that of the socket."""

    def close_two() -> None:
        os.close(0)
        os.close(2)

    process, peer = _start(runners, daemon, stdin=None, stderr=None, preexec_fn=close_two)
    assert peer.read_to_end() == b""
    peer.send(handshake.ERROR, b"nobody reads this")
    peer.send(handshake.OUTPUT, b"out")
    peer.end(0)
    assert _stream(process.stdout).read() == b"out"
    assert process.wait(PATIENCE) == 0


def test_descriptors_stay_blocking(runners: Runners, daemon: FakeDaemon) -> None:
    """The editor shares them, and would find its own writes fail."""
    pairs = [os.pipe() for _ in range(3)]
    process, peer = _start(runners, daemon, stdin=pairs[0][0], stdout=pairs[1][1], stderr=pairs[2][1])
    peer.send(handshake.OUTPUT, b"o")
    assert os.read(pairs[1][0], 1) == b"o"
    held = (pairs[0][0], pairs[1][1], pairs[2][1])
    assert not any(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_NONBLOCK for descriptor in held)
    peer.end(0)
    assert process.wait(PATIENCE) == 0
    for descriptor in (end for pair in pairs for end in pair):
        os.close(descriptor)


def test_input_waits_for_a_daemon_that_does_not_read(runners: Runners, daemon: FakeDaemon) -> None:
    """What cannot be passed on is not read, so nothing piles up; the agent's lines pass all the while."""
    process, peer = _start(runners, daemon)
    taken = _offer(_stream(process.stdin))
    assert 0 < taken < BOUND
    peer.send(handshake.OUTPUT, b"still here\n")
    assert _stream(process.stdout).readline() == b"still here\n"
    assert peer.read_exactly(taken) == b"z" * taken
    peer.end(0)
    assert process.wait(PATIENCE) == 0


def test_output_waits_for_an_editor_that_does_not_read(runners: Runners, daemon: FakeDaemon) -> None:
    """A full pipe holds up the agent's lines alone: the editor's pass all the while."""
    process, peer = _start(runners, daemon)
    packet = b"".join(handshake.encode_packets(handshake.OUTPUT, b"z" * 4091))
    taken = _offer(peer.connection, packet)
    assert 0 < taken < BOUND
    _write(process, b"still here\n")
    assert peer.read_exactly(11) == b"still here\n"


@pytest.mark.parametrize("gone", [False, True], ids=["daemon stays", "daemon gone"])
def test_editor_that_is_deaf_and_through_leaves_no_runner(runners: Runners, daemon: FakeDaemon, *, gone: bool) -> None:
    """An editor that ended its input and takes no output either does not keep a runner alive, nor a processor busy."""
    process, peer = _start(runners, daemon, script=COUNTING)
    _offer(peer.connection, b"".join(handshake.encode_packets(handshake.OUTPUT, b"z" * 4091)))
    if gone:
        peer.connection.close()
    _stream(process.stdin).close()
    assert process.wait(PATIENCE) == 0
    assert int(_stream(process.stderr).read()) < ROUNDS


def test_errors_are_dropped_where_nobody_reads_them(runners: Runners, daemon: FakeDaemon) -> None:
    """A client that never empties the agent's stderr neither hangs it nor makes the runner grow."""
    process, peer = _start(runners, daemon)
    peer.send(handshake.OUTPUT, b"hello\n")
    assert _stream(process.stdout).readline() == b"hello\n"
    before = _peak_bytes(process)
    peer.send(handshake.ERROR, b"e" * (16 * BOUND))
    peer.send(handshake.OUTPUT, b"still here\n")
    assert _stream(process.stdout).readline() == b"still here\n"
    assert _peak_bytes(process) - before < 2 * BOUND
    peer.end(0)
    assert process.wait(PATIENCE) == 0
    assert 0 < len(_stream(process.stderr).read()) < BOUND


def test_errors_arrive_where_somebody_reads_them(runners: Runners, daemon: FakeDaemon) -> None:
    """The last words of an agent are on stderr when it has ended."""
    process, peer = _start(runners, daemon)
    peer.send(handshake.ERROR, b"Traceback\n")
    peer.end(1)
    assert _stream(process.stderr).read() == b"Traceback\n"
    assert process.wait(PATIENCE) == 1


def test_end_of_input_is_passed_on_and_output_still_comes(runners: Runners, daemon: FakeDaemon) -> None:
    """The daemon closes when the end is committed, not the runner."""
    process, peer = _start(runners, daemon)
    _write(process, b"last\n", end=True)
    assert peer.read_to_end() == b"last\n"
    peer.send(handshake.OUTPUT, b"answer\n")
    assert _stream(process.stdout).readline() == b"answer\n"
    assert process.poll() is None
    peer.end(0)
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("status", [0, 1, 127, 137, 255])
def test_status_is_the_agents(runners: Runners, daemon: FakeDaemon, status: int) -> None:
    """An editor sees what it would have seen."""
    process, peer = _start(runners, daemon)
    peer.end(status)
    assert process.wait(PATIENCE) == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("blocked", [False, True], ids=["idle", "stdout full"])
def test_signal_ends_it_while_the_daemon_stays(
    runners: Runners, daemon: FakeDaemon, number: signal.Signals, *, blocked: bool
) -> None:
    """Editors kill what lingers, so it does not; what was written before still reaches the daemon."""
    process, peer = _start(runners, daemon)
    if blocked:
        _offer(peer.connection, b"".join(handshake.encode_packets(handshake.OUTPUT, b"z" * 4091)))
    with _asleep(process):
        _write(process, b"last words\n")
        process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert peer.read_to_end() == b"last words\n"


def test_signals_back_to_back_end_it_once(runners: Runners, daemon: FakeDaemon) -> None:
    """Jupyter sends INT and TERM together."""
    process, peer = _start(runners, daemon)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert peer.read_to_end() == b""
    assert _stream(process.stderr).read() == b""


def test_sigkill_is_seen_by_the_daemon(runners: Runners, daemon: FakeDaemon) -> None:
    """Zed kills without a word, and the socket closes alone."""
    process, peer = _start(runners, daemon)
    process.kill()
    assert peer.read_to_end() == b""


def test_editor_that_reads_no_more_ends_it_quietly(runners: Runners, daemon: FakeDaemon) -> None:
    """A broken pipe is how editors leave; what they wrote before still counts."""
    process, peer = _start(runners, daemon)
    with _asleep(process):
        _stream(process.stdout).close()
        peer.send(handshake.OUTPUT, b"nobody hears\n")
        _write(process, b"last words\n")
    assert process.wait(PATIENCE) == 0
    assert _stream(process.stderr).read() == b""
    assert peer.read_to_end() == b"last words\n"


def test_daemon_that_dies_is_named(runners: Runners, daemon: FakeDaemon) -> None:
    """After the agent spoke, one line on stderr and 69 say why nothing follows."""
    process, peer = _start(runners, daemon)
    peer.send(handshake.OUTPUT, b"hello\n")
    peer.connection.close()
    assert process.wait(PATIENCE) == 69
    assert _stream(process.stdout).read() == b"hello\n"
    said = _stream(process.stderr).read()
    assert said.startswith(b"acp-ledger-run: the daemon ended in the middle of this session")
    assert said.count(b"\n") == 1


def test_daemon_that_sends_nonsense_is_left(runners: Runners, daemon: FakeDaemon) -> None:
    """Bytes that are no packet reach nobody."""
    process, peer = _start(runners, daemon)
    peer.send(handshake.OUTPUT, b"hello\n")
    peer.connection.sendall(b"HTTP/1.1 400\r\n")
    assert process.wait(PATIENCE) == 69
    assert _stream(process.stdout).read() == b"hello\n"
    assert b"unknown kind" in _stream(process.stderr).read()
