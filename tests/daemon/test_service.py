"""The daemon under a service manager: what it tells when, in processes of their own with a real notification socket."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio

from acp_ledger import dialogue, handshake
from acp_ledger.daemon.notify import Manager
from acp_ledger.daemon.service import Service
from acp_ledger.daemon.writer import writer_thread
from tests.daemon.house import PATIENCE, PROMPT, Address, greeting, lock, open_house, until
from tests.daemon.test_main import PROGRAM
from tests.support.datagrams import Datagrams
from tests.support.postgres import ON_POSTGRES, ON_SQLITE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from acp_ledger.daemon.writer import Writer

WATCHDOG_USEC = "600000"


class Managed(NamedTuple):
    """A daemon under a service manager of the test's own."""

    process: trio.Process
    address: Address
    manager: Datagrams
    folder: Path

    def hear(self, *names: str, saying: str = "") -> dict[str, str]:
        """Wait for a word of the manager's language, and a text in it; gives the datagram it stands in."""
        until = time.monotonic() + PATIENCE  # over all that is heard meanwhile, for signs of life never end
        while time.monotonic() < until:
            words = self.manager.words()
            if words.keys() >= set(names) and saying in "\n".join(words.values()):
                return words
        raise AssertionError(f"the manager never heard {names} {saying!r}")

    async def stop(self, *numbers: signal.Signals) -> int:
        """Send signals, and give the exit status."""
        for number in numbers:
            self.process.send_signal(number)
        with trio.fail_after(PATIENCE):
            return await self.process.wait()

    async def status(self) -> dict[str, Any]:
        """What `ledgerctl status` asks for."""
        opening = handshake.encode_greeting(handshake.Greeting(handshake.PURPOSE_CONTROL))
        async with await trio.open_unix_socket(self.address.path) as stream:
            await stream.send_all(opening + dialogue.encode_request(dialogue.REQUEST_STATUS))
            reader = dialogue.ControlReader()
            while (answer := reader.feed(await stream.receive_some())) is None:
                pass
        return answer

    async def missed(self, count: int) -> None:
        """Wait until so many signs of life were not given."""
        with trio.fail_after(PATIENCE):
            while (await self.status())["service"]["missed"] < count:  # noqa: ASYNC110  # another process tells
                await trio.sleep(0.01)

    @property
    def config(self) -> Path:
        """The daemon's settings file."""
        return self.folder / "config.toml"


@asynccontextmanager
async def managed(folder: Path, *arguments: str, url: str | None = None, **environ: str) -> AsyncIterator[Managed]:
    """A daemon that a service manager starts, and watches; the settings file may be changed while it runs."""
    address = Address(folder / "s.sock", url or f"sqlite:///{folder}/ledger.db")
    config = folder / "config.toml"
    config.touch(mode=0o600)
    (folder / "notify").unlink(missing_ok=True)
    command = [*PROGRAM, "--config", str(config), "--ledger", address.url, "--socket", str(address.path), *arguments]
    environ = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": WATCHDOG_USEC, **environ}
    with Datagrams(str(folder / "notify")) as manager, (folder / "log").open("wb") as log:
        process = await trio.lowlevel.open_process(command, stderr=log, env=environ)
        try:
            yield Managed(process, address, manager, folder)
        finally:
            process.kill()
            with trio.move_on_after(PATIENCE, shield=True):
                await process.wait()


@ON_SQLITE
async def test_ready_follows_a_committed_write(ledger_url: str, tmp_path: Path) -> None:
    """A ledger that cannot be written to makes a daemon that runs, explains itself and is not ready, until it can."""
    async with open_house(ledger_url, tmp_path):
        pass  # now it is known there
    with closing(lock(ledger_url)) as other:
        async with managed(tmp_path) as daemon:
            daemon.hear("STATUS", saying="not ready: the ledger cannot be written")
            daemon.process.send_signal(signal.SIGHUP)
            await until(lambda: "config.reloaded" in (tmp_path / "log").read_text())
            before = daemon.manager.waiting()
            assert (await daemon.status())["service"]["ready"] is False
            other.execute("ROLLBACK")
            daemon.hear("READY", saying="recording 0 transports")
            assert not any(words.keys() & {"READY", "RELOADING"} for words in before)
            assert (await daemon.status())["service"]["ready"] is True
            assert await daemon.stop(signal.SIGTERM) == 0


@ON_POSTGRES
async def test_ready_on_postgres(ledger_url: str, tmp_path: Path) -> None:
    """The same words come from a daemon whose ledger is a server's."""
    async with managed(tmp_path, url=ledger_url) as daemon:
        daemon.hear("READY", saying="recording 0 transports; 0 numbers committed")
        daemon.hear("WATCHDOG")
        assert await daemon.stop(signal.SIGTERM) == 0


async def test_status_is_live_and_a_held_ledger_lives(tmp_path: Path) -> None:
    """`systemctl status` shows connections, what is committed, how fast, and why not.

    A ledger that answers that it cannot be written is no reason to kill the daemon.
    """
    async with managed(tmp_path, ACP_LEDGER_FAILURE__HOLD_SECONDS="1.5") as daemon:
        daemon.hear("READY", saying="recording 0 transports; 0 numbers committed")
        async with daemon.address.editor(greeting(["send", "ready"], ["stay"])) as editor:
            await editor.hear(b"ready")
            daemon.hear("STATUS", saying="recording 1 transport; 3 numbers committed, commit p99 ")
            with closing(lock(daemon.address.url)):
                await editor.say(PROMPT)
                daemon.hear("STATUS", saying="HOLDING 1 transport: SQLite says SQLITE_BUSY")
                daemon.hear("WATCHDOG")
                daemon.hear("STATUS", saying="NOT RECORDING, new sessions are refused")
                daemon.hear("WATCHDOG")
        daemon.hear("STATUS", saying="recording 0 transports")


@contextmanager
def stuck(writer: Writer) -> Iterator[None]:
    """A call that the writer's thread is in, and gets out of in any case: its thread is waited for."""
    release = threading.Event()
    writer.begin(release.wait)
    try:
        yield
    finally:
        release.set()


async def test_writer_that_is_stuck_is_not_alive() -> None:
    """A round of the writer's thread that does not end is no sign of life; whatever round ends is one."""
    with writer_thread() as writer:
        service = Service(Manager(), writer, lambda: None)
        assert await service.is_alive()
        assert await service.is_alive(), "an idle thread is asked for a round"
        with stuck(writer):
            assert not await service.is_alive()
            assert not await service.is_alive()
        assert service.missed == 2
        await writer.signal()
        writer.collect()
        assert await service.is_alive()


async def test_thread_that_is_never_idle_is_alive() -> None:
    """A writer with always one more call to do is heard of by those it has done, and never waited for."""
    with writer_thread() as writer:
        service = Service(Manager(), writer, lambda: None)
        for _ in range(3):
            writer.begin(lambda: None)
            await writer.signal()
            writer.collect()
            with stuck(writer):
                assert await service.is_alive()
            await writer.signal()
            writer.collect()


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace; on Debian and Ubuntu: sudo apt install strace")
async def test_disk_that_hangs_silences_the_watchdog(tmp_path: Path) -> None:
    """While a flush of the disk does not return, the daemon answers and does not say that it lives."""
    async with managed(tmp_path) as daemon:
        daemon.hear("READY")
        async with daemon.address.editor(greeting(["echo"])) as editor:
            await editor.say(b"first\n")
            await editor.hear(b"first")
            async with hanging_flushes(daemon.process.pid):
                await editor.say(b"second\n")
                await daemon.missed(1)
                daemon.manager.waiting()
                await daemon.missed(4)
                assert not [words for words in daemon.manager.waiting() if "WATCHDOG" in words]
            await editor.hear(b"second")
            daemon.hear("WATCHDOG")


@asynccontextmanager
async def hanging_flushes(pid: int) -> AsyncIterator[None]:
    """Have every flush of a process hang for the time being."""
    inject = "inject=fdatasync,fsync:delay_enter=30000000"
    command = ["strace", "-f", "-qq", "-e", "trace=fdatasync,fsync", "-e", inject, "-o", os.devnull, "-p", str(pid)]
    tracer = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE)
    try:
        await until(lambda: _is_traced(pid))
        yield
    finally:
        tracer.terminate()
        with trio.move_on_after(PATIENCE, shield=True):
            await tracer.wait()


def _is_traced(pid: int) -> bool:
    return all("TracerPid:\t0" not in status.read_text() for status in Path("/proc").glob(f"{pid}/task/*/status"))


async def test_stopping_is_told_with_the_time_it_may_take(tmp_path: Path) -> None:
    """The manager hears that the daemon stops, that agents may take their patience, and watches on meanwhile."""
    async with managed(tmp_path, ACP_LEDGER_RELAY__STOP_SECONDS="600") as daemon:
        daemon.hear("READY")
        script = greeting(["ignore", "SIGTERM"], ["send", "ready"], ["stay"])
        async with daemon.address.editor(script) as editor:
            await editor.hear(b"ready")
            daemon.process.send_signal(signal.SIGTERM)
            words = daemon.hear("STOPPING", saying="stopping, 1 transport to end")
            assert int(words["EXTEND_TIMEOUT_USEC"]) > 4 * 600_000_000
            daemon.hear("WATCHDOG")
            assert await daemon.stop(signal.SIGTERM) == 0, "the second signal shortens it"


GRANTS = '[policy]\nmode = "enforce"\nallow_tool_kinds = ["read"]\n'
"""Settings that answer what the agent below asks."""

_QUESTION = (
    '{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c",'
    '"kind":"read"},"options":[{"optionId":"y","name":"Y","kind":"allow_once"}]}}'
)
ASKS = (
    ["send", "ready"],
    ["wait", "go"],
    ["send", _QUESTION],
    ["wait", '"optionId":"y"'],
    ["send", '"heard an answer"'],
    ["stay"],
)
"""An agent that asks when it is told to go."""


async def test_reload_counts_for_what_opens_later(tmp_path: Path) -> None:
    """HUP has the settings read: agents and limits count for the next connection, and the manager hears both ends."""
    async with managed(tmp_path) as daemon:
        daemon.hear("READY")
        async with daemon.address.editor(greeting(["echo"])) as before:
            await before.say(b"first\n")
            await before.hear(b"first")
            daemon.config.write_text(
                '[limits]\nline_bytes = 100\n[log]\nlevel = "warning"\n[database]\nsynchronous = "normal"\n'
                '[agents.mine]\ncommand = "/bin/echo"\nargs = ["reloaded"]\n'
            )
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            daemon.process.send_signal(signal.SIGHUP)
            assert int(daemon.hear("RELOADING")["MONOTONIC_USEC"]) >= now
            daemon.hear("READY", saying="restart to change database.synchronous")
            await before.say(b"x" * 200 + b"\n")
            await before.hear(b"x" * 200)
        async with daemon.address.editor(greeting(argv=(), agent=b"mine")) as named:
            assert (await named.rest()).output == b"reloaded\n"
        assert b"limits.line_bytes (100 bytes)" in (await daemon.address.session(["flood", 1, 200], say=PROMPT)).output
        rows = daemon.address.rows("SELECT limits FROM transports ORDER BY id")
        assert ["100" in row[0] for row in rows] == [False, True, True]
        assert await daemon.stop(signal.SIGTERM) == 0
    log = (tmp_path / "log").read_text()
    [reloaded] = [line for line in log.splitlines() if "config.reloaded" in line]
    for key in ("limits.line_bytes", "log.level", "agents.mine", "database.synchronous"):
        assert key in reloaded
    assert "daemon.stopped" not in log, "the log's level counts at once"


async def test_reload_counts_for_policy_and_relay(tmp_path: Path) -> None:
    """After HUP the next connection has the policy and the strictness that were read; an open one keeps its own."""
    async with managed(tmp_path) as daemon:
        daemon.hear("READY")
        async with daemon.address.editor(greeting(*ASKS)) as before:
            await before.say(b"junk\n")
            await before.hear(b"ready")
            daemon.config.write_text(f"{GRANTS}[relay]\nstrict = true\n")
            daemon.process.send_signal(signal.SIGHUP)
            daemon.hear("RELOADING")
            daemon.hear("READY")
            await before.say(b"more junk, go\n")
            await before.hear(b"request_permission")
            async with daemon.address.editor(greeting(["echo"])) as after:
                await after.say(b"junk\n")
                await after.hear(b"-32700")
        [first, second] = daemon.address.rows("SELECT policy_digest FROM transports ORDER BY id")
        assert first != second


async def test_connection_opens_with_the_settings_as_the_files_have_them(tmp_path: Path) -> None:
    """Whoever writes a policy needs no HUP: the next question has its answer, and an open connection keeps its own."""
    async with managed(tmp_path) as daemon:
        daemon.hear("READY")
        async with daemon.address.editor(greeting(*ASKS)) as before:
            await before.hear(b"ready")
            daemon.config.write_text(GRANTS)
            async with daemon.address.editor(greeting(*ASKS)) as after:
                await after.say(b"go\n")
                assert b"request_permission" not in await after.hear(b"heard an answer")
            await before.say(b"go\n")
            await before.hear(b"request_permission")
        daemon.config.write_text("[policy]\nmode = 7\n")
        async with daemon.address.editor(greeting(*ASKS)) as third:
            await third.say(b"go\n")
            await third.hear(b"heard an answer")
            assert "SETTINGS NOT RELOADED" in str((await daemon.status())["trouble"])
        assert await daemon.stop(signal.SIGTERM) == 0
    rows = [
        tuple(row) for row in daemon.address.rows("SELECT outcome, decided_by FROM decisions ORDER BY transport_id")
    ]
    assert rows == [("unanswered", "nobody"), ("selected", "policy"), ("selected", "policy")]


async def test_bad_file_keeps_the_settings(tmp_path: Path) -> None:
    """A file that cannot be used changes nothing: it is named in the log and the status, until a good one is read."""
    async with managed(tmp_path) as daemon:
        daemon.hear("READY")
        daemon.config.write_text('[limits]\nline_bytes = 100\n[relay]\nstop_secnods = "canary"\n')
        daemon.process.send_signal(signal.SIGHUP)
        daemon.hear("RELOADING")
        told = daemon.hear("READY", saying="SETTINGS NOT RELOADED: ")["STATUS"]
        assert "stop_seconds" in told
        assert "canary" not in told
        line = b'{"pad":"' + b"x" * 200 + b'"}\n'
        assert (await daemon.address.session(["wait", "pad"], ["send", "served"], say=line)).output == b"served\n"
        daemon.config.write_text("[limits]\nline_bytes = 100\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.hear("RELOADING")
        assert "SETTINGS" not in daemon.hear("READY")["STATUS"]
        assert await daemon.stop(signal.SIGTERM) == 0
    log = (tmp_path / "log").read_text()
    assert log.count("config.refused") == 1
    assert "canary" not in log


async def test_start_that_fails_is_explained(tmp_path: Path) -> None:
    """`systemctl status` says why the daemon did not start."""
    with sqlite3.connect(tmp_path / "ledger.db") as foreign:
        foreign.execute("CREATE TABLE alembic_version (version_num TEXT)")
        foreign.execute("INSERT INTO alembic_version VALUES ('9999')")
    foreign.close()
    async with managed(tmp_path) as daemon:
        daemon.hear("STATUS", saying="not running: ")
        assert await daemon.process.wait() == 12


async def test_hangup_at_a_terminal_stops(tmp_path: Path) -> None:
    """Where the daemon was started by hand, a hangup says that its terminal is gone; it ends in good order."""
    ours, terminal = os.openpty()
    address = Address(tmp_path / "s.sock", f"sqlite:///{tmp_path}/ledger.db")
    command = [*PROGRAM, "--ledger", address.url, "--socket", str(address.path)]
    process = await trio.lowlevel.open_process(command, stderr=terminal)
    os.close(terminal)
    try:
        await until(address.path.exists)
        process.send_signal(signal.SIGHUP)
        with trio.fail_after(PATIENCE):
            assert await process.wait() == 0
    finally:
        process.kill()
        os.close(ours)
    assert not address.path.exists()
