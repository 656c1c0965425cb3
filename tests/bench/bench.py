"""The benchmark: what the ledger costs, beside the limit of the machine it runs on, in one run.

Rule: a figure of ours never stands alone. An idle line stands beside one bare durable insert of the same row, a burst
beside one bare `executemany` of the same rows, both into the same schema on the same disk, minutes apart at most.
Nothing here asserts a time: a shared machine would make such a test lie. Run it with `sh deploy/bench.sh`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import select
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SESSION = "bench-session"
BURST = 10_000
LONG_RUN = 200_000
IDLE_LINES = 400
WARM_UP = 40
PAUSE_SECONDS = 0.01
READ_BYTES = 1 << 16
TEXT = "the quick brown fox jumps over the lazy dog, " * 3


def chunk(number: int, stamp: int) -> bytes:
    """One `agent_message_chunk` of some 300 bytes, carrying the monotonic nanosecond at which it was written."""
    update = {
        "sessionUpdate": "agent_message_chunk",
        "messageId": f"m-{number // 100}",
        "content": {"type": "text", "text": TEXT},
        "_meta": {"stamp": stamp},
    }
    return _update(update)


def step(number: int, stamp: int) -> bytes:
    """One `tool_call_update` of some 300 bytes: a frame and a step."""
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": f"call-{number // 4}",
        "status": "in_progress",
        "kind": "execute",
        "title": TEXT[:90],
        "_meta": {"stamp": stamp},
    }
    return _update(update)


def _update(update: Mapping[str, object]) -> bytes:
    message = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": SESSION, "update": update}}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


# -- the scripted agent -------------------------------------------------------------------------------------------


def agent_main() -> None:
    """Answer `initialize` and `session/new`; a prompt's text says what to send: `idle N`, `chunks N` or `steps N`."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                result: object = {"protocolVersion": 1, "agentInfo": {"name": "bench-agent", "version": "1"}}
            case "session/new":
                result = {"sessionId": SESSION}
            case "session/prompt":
                _perform(message["params"]["prompt"][0]["text"], out)
                result = {"stopReason": "end_turn"}
            case _:
                continue
        out.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n")
        out.flush()


def _perform(order: str, out: IO[bytes]) -> None:
    what, count = order.split()
    if what == "idle":
        # A chunk is a frame and nothing else, so that the bare insert is of the very same row.
        for number in range(int(count)):
            # select with a timeout is the pause between two idle lines: an agent that thinks.
            select.select([], [], [], PAUSE_SECONDS)
            out.write(chunk(number, time.monotonic_ns()))
            out.flush()
        return
    make = chunk if what == "chunks" else step
    # Made before the clock starts: what the peers do themselves is no cost of the ledger's.
    rest = b"".join(make(number, 0) for number in range(1, int(count)))
    out.write(make(0, time.monotonic_ns()) + rest)
    out.flush()


# -- the client ---------------------------------------------------------------------------------------------------


class Client:
    """A client at the runner's stdin and stdout, asking one thing at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert isinstance(process.stdout, io.BufferedReader)
        self._stdin, self._stdout, self._next = process.stdin, process.stdout, 0
        self._request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        self._finish()
        self._request("session/new", {"cwd": "/", "mcpServers": []})
        self._finish()

    def _request(self, method: str, params: object) -> None:
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self._next += 1
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()

    def _finish(self) -> None:
        while b'"result"' not in self._line():
            pass

    def _line(self) -> bytes:
        line = self._stdout.readline()
        if not line:
            raise RuntimeError("the session ended in the middle of the benchmark")
        return line

    def _prompt(self, what: str, count: int) -> None:
        prompt = [{"type": "text", "text": f"{what} {count}"}]
        self._request("session/prompt", {"sessionId": SESSION, "prompt": prompt})

    def idle(self, count: int) -> Iterator[float]:
        """Order idle lines and yield the seconds each was on its way; what is done meanwhile is done in its pause."""
        self._prompt("idle", count)
        for _ in range(count):
            line = self._line()
            arrived = time.monotonic_ns()
            yield (arrived - _stamp(line)) / 1e9
        self._finish()

    def burst(self, what: str, count: int) -> float:
        """Order a burst; the seconds from its first byte being written to the prompt's answer behind its last."""
        self._prompt(what, count)
        first = self._line()
        missing = count
        while missing:
            data = self._stdout.read1(READ_BYTES)
            if not data:
                raise RuntimeError("the session ended in the middle of the benchmark")
            missing -= data.count(b"\n")
        return (time.monotonic_ns() - _stamp(first)) / 1e9


def _stamp(line: bytes) -> int:
    stamp: int = json.loads(line)["params"]["update"]["_meta"]["stamp"]
    return stamp


class Daemon(NamedTuple):
    """A daemon of the benchmark's own: its process, its socket and its ledger."""

    process: subprocess.Popen[bytes]
    socket: Path
    ledger: Path

    def memory_kib(self) -> int:
        """Resident memory of the daemon in KiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise RuntimeError("the daemon is gone")


@contextmanager
def daemon(folder: Path) -> Iterator[Daemon]:
    """Start `acp-ledgerd` on a new SQLite ledger in `folder`, and stop it."""
    ledger, socket = folder / "ledger.db", folder / "d.sock"
    command = [_program("acp-ledgerd"), "--ledger", f"sqlite:///{ledger}", "--socket", str(socket)]
    with (folder / "daemon.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while not socket.exists():
            if process.poll() is not None:
                raise RuntimeError((folder / "daemon.log").read_text())
            select.select([], [], [], 0.02)
        yield Daemon(process, socket, ledger)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def client(running: Daemon) -> Iterator[Client]:
    """Start the runner with the scripted agent, and end both."""
    command = [_program("acp-ledger-run"), "--socket", str(running.socket), "--"]
    command += [sys.executable, "-S", __file__, "--agent"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Client(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


# -- the limits ---------------------------------------------------------------------------------------------------


class Bare:
    """The same frames rows, written by nothing but `sqlite3` into a copy of the same schema, equally durable."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        with sqlite3.connect(f"file:{model}?mode=ro", uri=True) as source:
            query = "SELECT sql FROM sqlite_master WHERE tbl_name = 'frames' AND type IN ('table', 'index')"
            for (sql,) in source.execute(f"{query} AND sql IS NOT NULL ORDER BY type DESC"):
                self._database.execute(sql)
            last = source.execute("SELECT max(transport_id) FROM frames").fetchone()[0]
            rows = source.execute("SELECT * FROM frames WHERE transport_id = ? ORDER BY frame_seq", (last,))
            self._rows = [list(row) for row in rows.fetchall()]
        self._insert = f"INSERT INTO frames VALUES ({','.join('?' * len(self._rows[0]))})"  # noqa: S608 - a count
        self._transport = 0

    def single(self) -> float:
        """Insert one row and commit; the seconds it took."""
        self._transport += 1
        row = [self._transport, *self._rows[len(self._rows) // 2][1:]]
        begun = time.perf_counter()
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute(self._insert, row)
        self._database.execute("COMMIT")
        return time.perf_counter() - begun

    def many(self, count: int) -> float:
        """Insert `count` rows by one `executemany` in one transaction; the seconds it took."""
        self._transport += 1
        rows = [[self._transport, number, *self._rows[number % len(self._rows)][2:]] for number in range(count)]
        begun = time.perf_counter()
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany(self._insert, rows)
        self._database.execute("COMMIT")
        return time.perf_counter() - begun


# -- the figures --------------------------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def idle(user: Client, bare: Bare) -> None:
    """Print what an idle line waits, beside a bare insert."""
    waits: list[float] = []
    limits: list[float] = []
    for number, wait in enumerate(user.idle(IDLE_LINES)):
        # The bare insert comes out of the same silence as the line did: half a pause after it.
        select.select([], [], [], PAUSE_SECONDS / 2)
        limit = bare.single()
        if number >= WARM_UP:
            waits.append(wait)
            limits.append(limit)
    print(f"\nidle line, agent to client, {len(waits)} lines ({PAUSE_SECONDS * 1e3:.0f} ms apart)")
    print(f"  {'':28}{'p50':>10}{'p99':>10}")
    for name, figures in (("through the ledger", waits), ("one bare durable insert", limits)):
        print(f"  {name:28}{percentile(figures, 0.5) * 1e6:>7.0f} us{percentile(figures, 0.99) * 1e6:>7.0f} us")
    print(f"  {'ratio':28}{percentile(waits, 0.5) / percentile(limits, 0.5):>10.2f}", end="")
    print(f"{percentile(waits, 0.99) / percentile(limits, 0.99):>10.2f}")


def burst(user: Client, bare: Bare, what: str) -> None:
    """Print the rate of a burst, beside a bare `executemany`."""
    taken, limit = user.burst(what, BURST), bare.many(BURST)
    print(f"\nburst of {BURST:,} {what}, mapped and durable before they arrive")
    print(f"  {'through the ledger':28}{BURST / taken:>10,.0f} lines/s")
    print(f"  {'bare executemany, one commit':28}{BURST / limit:>10,.0f} rows/s")


def memory(user: Client, running: Daemon) -> None:
    """Print the daemon's memory along a long run."""
    print(f"\nmemory of the daemon over {LONG_RUN:,} updates")
    for done in range(0, LONG_RUN, LONG_RUN // 4):
        print(f"  after {done:>9,}: {running.memory_kib() / 1024:8.1f} MiB")
        user.burst("steps", LONG_RUN // 8)
        user.burst("chunks", LONG_RUN // 8)
    print(f"  after {LONG_RUN:>9,}: {running.memory_kib() / 1024:8.1f} MiB")


def runner(running: Daemon) -> None:
    """Print the runner's CPU for a whole short session, beside a bare interpreter."""
    figures: list[float] = []
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with client(running):
            pass
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    limits: list[float] = []
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        limits.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print("\nrunner, CPU of a whole session (user and system)")
    print(f"  {'acp-ledger-run':28}{percentile(figures, 0.5) * 1e3:>7.1f} ms")
    print(f"  {'python -c pass':28}{percentile(limits, 0.5) * 1e3:>7.1f} ms")


def main() -> None:
    """Run every measure once and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="leave out the long run")
    parser.add_argument("--folder", help="where the throw-away ledger lies (its disk is what is measured)")
    options = parser.parse_args()
    if options.agent:
        agent_main()
        return
    python = sys.version.split()[0]
    print(f"SQLite {sqlite3.sqlite_version}, WAL, synchronous=FULL; Python {python}; {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(dir=options.folder) as name, daemon(Path(name)) as running:
        with client(running) as user:
            user.burst("chunks", 1000)
            bare = Bare(running.ledger, Path(name))
            idle(user, bare)
            burst(user, bare, "chunks")
            burst(user, bare, "steps")
            if not options.quick:
                memory(user, running)
        runner(running)


if __name__ == "__main__":
    main()
