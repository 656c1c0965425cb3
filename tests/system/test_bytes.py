"""Whatever the bytes are, they pass as they are and are stored as they are, in both directions."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from acp_ledger.store.verify import Found, verify
from tests.support.ledgers import tampered
from tests.support.peers.find import HERE
from tests.system.installed import PATIENCE, InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

LINES = 10_000
HUGE = 20
"""Lines of hundreds of kilobytes among them."""

SEED = 20_261_130

METHODS = ("session/update", "session/prompt", "session/request_permission", "initialize", "x/y", "session/load", "")
IDS = (0, 1, "1", "", None, 1.0, True, 2**53 + 1, -1, "0")


def _random_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(0, 60)).replace(b"\n", b"\r")


def _message(chance: random.Random) -> bytes:
    update = {"sessionUpdate": chance.choice(("tool_call", "plan", "?", "agent_message_chunk")), "toolCallId": "c"}
    message = {
        "jsonrpc": "2.0",
        "id": chance.choice(IDS),
        "method": chance.choice(METHODS),
        "params": {"sessionId": chance.choice(("s", "t", "\x00", 5)), "update": update, "options": "?"},
    }
    for name in chance.sample(sorted(message), chance.randrange(0, 3)):
        del message[name]
    return json.dumps(message, ensure_ascii=chance.random() < 0.5).encode()


def _answer(chance: random.Random) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": chance.choice(IDS), chance.choice(("result", "error")): None}).encode()


def _cut(chance: random.Random) -> bytes:
    whole = _message(chance)
    return whole[: chance.randrange(len(whole))]


def _twice(chance: random.Random) -> bytes:
    return b'{"id":1,"id":%d,"method":"a","method":"session/prompt","params":{},"params":[]}' % chance.randrange(3)


def _number(chance: random.Random) -> bytes:
    word = chance.choice((b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"-0", b"1.0000000000000000001"))
    return b'{"jsonrpc":"2.0","id":' + word + b',"method":"session/prompt","params":{"sessionId":"s"}}'


def _text(chance: random.Random) -> bytes:
    odd = chance.choice(
        (b"\xe2\x80\xa8", b"\\ud800", b"\\u0000", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc2\x85")
    )
    chunk = b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a' + odd + b'b"}}'
    return b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":' + chunk + b"}}"


def _blank(chance: random.Random) -> bytes:
    return chance.choice((b"", b"\r", b" ", b"\t", b"42", b"null", b"[]", b"[{}]", b"{}", b'""', b"{", b"\x00", b"]"))


def _carriage_return(chance: random.Random) -> bytes:
    return _message(chance) + b"\r"


def _deep(chance: random.Random) -> bytes:
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return b'{"id":1,"params":' + opening * 100_000 + closing * chance.choice((0, 100_000)) + b"}"


KINDS: tuple[Callable[[random.Random], bytes], ...] = (
    _random_bytes,
    _message,
    _answer,
    _cut,
    _twice,
    _number,
    _text,
    _blank,
    _carriage_return,
)


def odd_lines(count: int, seed: int) -> list[bytes]:
    """Lines of every odd kind, in a random order."""
    chance = random.Random(seed)  # noqa: S311  (variety, not secrecy)
    lines = [chance.choice(KINDS)(chance) for _ in range(count - HUGE)]
    lines += [_deep(chance) for _ in range(HUGE)]
    chance.shuffle(lines)
    return lines


def relay(daemon: InstalledDaemon, folder: Path, to_agent: bytes, to_client: bytes) -> tuple[bytes, bytes]:
    """Pass bytes through the relay in both directions at once; what the agent and what the client got."""
    said, heard = folder / "said", folder / "heard"
    said.write_bytes(to_client)
    agent = [sys.executable, "-S", "-E", str(HERE / "scripted_agent.py"), "pour", str(said), str(heard)]
    runner = subprocess.Popen(
        daemon.runner(agent), env=daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    got = bytearray()
    complete = threading.Event()
    # What has no newline is no line before the agent's end.
    wanted = to_client.count(b"\n")

    def listen(stream: int) -> None:
        passed = 0
        while data := os.read(stream, 1 << 16):
            got.extend(data)
            passed += data.count(b"\n")
            if passed == wanted:
                complete.set()
        complete.set()

    assert runner.stdin is not None
    assert runner.stdout is not None
    listener = threading.Thread(target=listen, args=(runner.stdout.fileno(),))
    listener.start()
    view = memoryview(to_agent)
    while view:
        view = view[runner.stdin.write(view) :]
    assert complete.wait(PATIENCE)
    runner.stdin.close()
    listener.join(PATIENCE)
    assert runner.wait(PATIENCE) == 0
    runner.stdout.close()
    daemon.wait_for("transport.closed")
    return heard.read_bytes(), bytes(got)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_odd_lines_pass_and_are_stored(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Ten thousand lines no parser likes pass unchanged, are stored exactly, and map again to the same rows."""
    url = request.getfixturevalue("cluster").create() if engine == "postgres" else None
    to_agent, to_client = odd_lines(LINES // 2, SEED), odd_lines(LINES // 2, SEED + 1)
    with daemon_at(tmp_path / "daemon", url) as daemon:
        heard, got = relay(daemon, tmp_path, _joined(to_agent), _joined(to_client) + b"no newline")
        assert heard == _joined(to_agent)
        assert got == _joined(to_client) + b"no newline"
        for direction, lines in (("client_to_agent", to_agent), ("agent_to_client", [*to_client, b"no newline"])):
            stored = daemon.query(
                "SELECT body, body_state, byte_count, terminated FROM frames WHERE direction = :direction"
                " ORDER BY frame_seq",
                direction=direction,
            )
            assert [bytes(row[0]) for row in stored] == lines
            assert {row[1] for row in stored} == {"exact"}
            assert [row[2] for row in stored] == [len(line) for line in lines]
            assert [bool(row[3]) for row in stored] == [line != b"no newline" for line in lines]
        report = daemon.verify()
        assert (report.findings, report.not_checked) == ((), ())


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def test_lines_are_as_odd_as_they_are_said_to_be() -> None:
    """The lines hold everything they are meant to hold, so that passing them means something."""
    everything = _joined(odd_lines(LINES // 2, SEED))
    wanted = (b"9" * 5000, b"[" * 100_000, b"NaN", b"\xe2\x80\xa8", b"\\ud800", b"\xff\xfe", b"\x00", b"\r\n", b"\n\n")
    assert [part for part in wanted if part not in everything] == []


def test_one_changed_byte_is_noticed(tmp_path: Path) -> None:
    """The negative control: one byte of ten thousand lines that is stored otherwise is found."""
    lines = odd_lines(100, SEED)
    with daemon_at(tmp_path / "daemon") as daemon:
        relay(daemon, tmp_path, _joined(lines), _joined(lines))
        change = "UPDATE frames SET body = CAST('x' AS BLOB) WHERE frame_seq = 50"
        with tampered(daemon.url, change) as connection:
            assert [finding.kind for finding in verify(connection).findings] == [Found.BODY_MISMATCH]
