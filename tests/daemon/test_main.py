"""The program `acp-ledgerd`: its statuses, its signals, and what it does about a daemon that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from acp_ledger.daemon import processes, survivors
from acp_ledger.errors import ExitCode
from acp_ledger.store.recovery import Process, Recovered
from tests.daemon.house import CHUNK, PATIENCE, PROMPT, QUESTION, Address, assert_verified, greeting, is_alive, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PROGRAM = [sys.executable, "-m", "acp_ledger.daemon.main"]


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environ}
    )


@asynccontextmanager
async def daemon(folder: Path, url: str | None = None) -> AsyncIterator[tuple[trio.Process, Address]]:
    """A daemon of its own process, ready; it is killed in the end where it still runs."""
    address = Address(folder / "s.sock", url or f"sqlite:///{folder}/ledger.db")
    arguments = ["--ledger", address.url, "--socket", str(address.path), "--log-format", "json"]
    process = await trio.lowlevel.open_process([*PROGRAM, *arguments], stderr=subprocess.PIPE)
    assert process.stderr is not None
    log = b""
    with trio.fail_after(PATIENCE * 2):
        while b"daemon.ready" not in log:
            data = await process.stderr.receive_some()
            assert data, log
            log += data
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_drain, process)
        yield process, address
        process.kill()
        await process.wait()
        nursery.cancel_scope.cancel()


async def _drain(process: trio.Process) -> None:
    assert process.stderr is not None
    async for _ in process.stderr:
        pass


async def stopped(process: trio.Process, number: signal.Signals) -> int:
    """Send a signal, and give the exit status."""
    process.send_signal(number)
    with trio.fail_after(PATIENCE):
        return await process.wait()


def test_version_is_told() -> None:
    """The program says which one it is."""
    done = run("--version")
    assert (done.returncode, done.stdout.startswith("acp-ledgerd 0.")) == (0, True)


def test_unknown_option_is_usage() -> None:
    """A flag there is not is wrong usage."""
    assert run("--frobnicate").returncode == 2


def test_bad_setting_is_78(tmp_path: Path) -> None:
    """A setting that cannot be used ends the start with the status systemd shows by name, and with all of them."""
    (tmp_path / "c.toml").write_text("[relay]\nstop_secnods = 1\n[log]\nlevel = 'loud'\n")
    done = run("--config", str(tmp_path / "c.toml"))
    assert done.returncode == 78
    assert "stop_seconds" in done.stderr
    assert "log.level" in done.stderr


def test_ledger_of_a_flag_needs_a_socket(tmp_path: Path) -> None:
    """A daemon for another ledger never takes the default socket."""
    done = run("--ledger", f"sqlite:///{tmp_path}/other.db")
    assert (done.returncode, "--socket" in done.stderr) == (78, True)
    assert not (tmp_path / "other.db").exists()


def test_unreachable_database_is_12(tmp_path: Path) -> None:
    """A database that lets nobody in is told without its password."""
    url = "postgresql+psycopg://me:s3cret@127.0.0.1:1/nothing"
    done = run("--ledger", url, "--socket", str(tmp_path / "s.sock"))
    assert done.returncode == 12
    assert "s3cret" not in done.stderr


def test_check_creates_nothing(tmp_path: Path) -> None:
    """Looking at settings and ledger changes neither."""
    done = run("--check", "--ledger", f"sqlite:///{tmp_path}/l.db", "--socket", str(tmp_path / "s.sock"))
    assert (done.returncode, "does not exist yet" in done.stdout) == (0, True)
    assert not (tmp_path / "l.db").exists()


async def test_term_drains_and_exits_0(ledger_url: str, tmp_path: Path) -> None:
    """TERM ends the agents, records their ends, lets everything go, and leaves with 0."""
    async with daemon(tmp_path, ledger_url) as (process, address):
        async with address.editor(greeting(["wait", "prompt"], ["send", "ready"], ["stay"]) + PROMPT) as editor:
            await editor.hear(b"ready")
            process.send_signal(signal.SIGTERM)
            heard = await editor.rest()
            assert b"was stopped" in heard.output
        assert await stopped(process, signal.SIGTERM) == 0
        assert address.events()[-1] == "closed"
        assert not address.path.exists()
        assert_verified(address.url)
    wal = tmp_path / "ledger.db-wal"
    assert not wal.exists() or wal.stat().st_size == 0


async def test_second_signal_hurries(tmp_path: Path) -> None:
    """A daemon that is told twice does not wait for an agent that takes its time."""
    async with (
        daemon(tmp_path) as (process, address),
        address.editor(greeting(["ignore", "SIGTERM"], ["send", "ready"], ["stay"])) as editor,
    ):
        await editor.hear(b"ready")
        process.send_signal(signal.SIGINT)
        assert await stopped(process, signal.SIGINT) == 0


async def test_second_daemon_is_locked_out(tmp_path: Path) -> None:
    """A ledger has one writer: the second daemon leaves with 11 and names the first."""
    async with daemon(tmp_path) as (process, address):
        done = await trio.run_process(
            [*PROGRAM, "--ledger", address.url, "--socket", str(tmp_path / "t.sock")],
            capture_stderr=True,
            check=False,
        )
        assert done.returncode == 11
        assert str(process.pid).encode() in done.stderr


def test_hidden_process_is_not_dumpable() -> None:
    """Memory, environment and descriptors of a hidden process are closed to others of its user."""
    script = "import ctypes; from acp_ledger.daemon import processes as p; p.hide(); print(ctypes.CDLL(None).prctl(3))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"0\n"


async def test_files_are_the_daemons_own(tmp_path: Path) -> None:
    """Nobody else may read what the daemon writes."""
    async with daemon(tmp_path) as (_, address):
        async with address.editor(greeting(["leave", 0])) as editor:
            await editor.rest()
        for name in ("ledger.db", "ledger.db-wal"):
            assert (tmp_path / name).stat().st_mode & 0o077 == 0


async def test_killed_daemon_is_tidied_up_after(ledger_url: str, tmp_path: Path) -> None:
    """The next start closes what a killed one left open, and ends its agent, for that one is proven to be its own."""
    script = [["ignore", "SIGTERM"], ["wait", "prompt"], ["send", CHUNK, QUESTION], ["send", "ready"], ["stay"]]
    async with daemon(tmp_path, ledger_url) as (process, address):
        async with address.editor(greeting(*script) + PROMPT) as editor:
            await editor.hear(b"ready")
            pid = address.rows("SELECT pid FROM transport_events WHERE event = 'spawned'")[0][0]
            assert await stopped(process, signal.SIGKILL) == -signal.SIGKILL
        assert is_alive(pid)
    async with daemon(tmp_path, ledger_url) as (process, address):
        assert not is_alive(pid)
        assert address.events() == ["opened", "spawned", "interrupted"]
        assert address.rows("SELECT outcome FROM turn_ends")[0][0] == "interrupted"
        assert address.rows("SELECT outcome FROM decisions")[0][0] == "unanswered"
        assert (await address.session(["send", "served"])).output == b"served\n"
        assert await stopped(process, signal.SIGTERM) == 0
        assert_verified(address.url)


async def test_stranger_under_the_number_is_left_alone() -> None:
    """A process that has the number of an agent of a killed daemon, and is another one, is not touched."""
    stranger = await trio.lowlevel.open_process(["sleep", "60"])
    found = processes.stat(stranger.pid)
    assert found is not None
    ours = Process(found.pid, found.start_time, processes.boot_id(), found.pid, processes.cgroup(found.pid))
    assert survivors.is_proven(ours)
    for other in (
        ours._replace(start_time=found.start_time - 1),
        ours._replace(boot_id="another"),
        ours._replace(boot_id=None),
        ours._replace(cgroup="/another"),
    ):
        assert not survivors.is_proven(other)
        survivors.end([Recovered(1, "a", 1, 0, 0, other)])
    assert is_alive(stranger.pid)
    stranger.kill()
    await stranger.wait()


async def test_logs_hold_no_content(tmp_path: Path) -> None:
    """Whatever passes, the log has ids and counts of it."""
    address = Address(tmp_path / "s.sock", f"sqlite:///{tmp_path}/ledger.db")
    with (tmp_path / "log").open("wb") as log:
        process = await trio.lowlevel.open_process(
            [*PROGRAM, "--ledger", address.url, "--socket", str(address.path), "--log-level", "debug"], stderr=log
        )
        await until(address.path.exists)
        env = {b"PATH": os.environb[b"PATH"], b"KEY": b"canary-env"}
        first = greeting(["stderr", "canary-stderr"], ["send", '"canary-line"'], ["leave", 1], env=env)
        async with address.editor(first + b"canary-editor\n") as editor:
            assert b"canary-line" in (await editor.rest()).output
        assert await stopped(process, signal.SIGTERM) == 0
    text = (tmp_path / "log").read_text()
    assert "transport.closed" in text
    assert "canary" not in text


def test_settings_file_that_gives_a_password_away_is_logged(tmp_path: Path) -> None:
    """Others may read the password: the log names the file and what mends it, and the daemon goes on."""
    config = tmp_path / "config.toml"
    config.write_text('[database]\nurl = "postgresql://me:CANARY@127.0.0.1:1/db"\n', encoding="utf-8")
    config.chmod(0o644)
    exposed = run("--check", "--config", str(config), "--log-format", "json")
    assert '"event": "config.exposed"' in exposed.stderr
    assert f'"hint": "chmod 600 {config}"' in exposed.stderr
    assert exposed.returncode == ExitCode.REFUSED, "what the server says, whoever may read the file"
    assert "CANARY" not in exposed.stderr
    config.chmod(0o600)
    assert "config.exposed" not in run("--check", "--config", str(config), "--log-format", "json").stderr
