"""The journal's protocol, spoken to a real socket that reads as journald does, and to journald itself."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acp_ledger import journal
from tests.support.datagrams import Datagrams, decoded

if TYPE_CHECKING:
    from collections.abc import Iterator

JOURNALD = Path("/lib/systemd/systemd-journald")


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Datagrams]:
    """A journal of the test's own."""
    with Datagrams(str(tmp_path / "journal")) as found:
        yield found


def test_entry_is_one_datagram(tmp_path: Path, listener: Datagrams) -> None:
    """Every field arrives in order, under its name, the same name twice where there are two values."""
    fields = [("MESSAGE", "a=b"), ("PRIORITY", "6"), ("ACP_SESSION_ID", "one"), ("ACP_SESSION_ID", "two")]
    assert journal.Journal(str(tmp_path / "journal")).send(fields)
    assert listener.entry() == fields


def test_value_with_newlines_forges_no_field(tmp_path: Path, listener: Datagrams) -> None:
    """A value of several lines stays one value, whatever its lines look like."""
    fields = [("MESSAGE", "first\nPRIORITY=0\n\nACP_EVENT=forged\n"), ("PRIORITY", "6")]
    journal.Journal(str(tmp_path / "journal")).send(fields)
    assert listener.entry() == fields


def test_large_entry_goes_as_a_sealed_file(tmp_path: Path, listener: Datagrams) -> None:
    """What no datagram holds arrives whole, in a file that nobody can change any more."""
    fields = [("MESSAGE", "x" * (1 << 22)), ("PRIORITY", "3")]
    assert journal.Journal(str(tmp_path / "journal")).send(fields)
    data, _, fd = listener.receive()
    assert (data, fd is not None) == (b"", True)
    assert fd is not None
    seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    assert seals & fcntl.F_SEAL_WRITE
    assert seals & fcntl.F_SEAL_SHRINK
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        assert decoded(file.read()) == fields


def test_full_journal_drops_and_says_so(tmp_path: Path, listener: Datagrams) -> None:
    """Nobody waits for a journal that does not read; the next entry it takes tells how many it missed."""
    to_journal = journal.Journal(str(tmp_path / "journal"))
    sent = 0
    while not to_journal.dropped:
        assert to_journal.send([("MESSAGE", "x")])
        sent += 1
    assert to_journal.send([("MESSAGE", "y")])
    for _ in range(sent - 1):
        assert listener.entry() == [("MESSAGE", "x")]
    assert to_journal.send([("MESSAGE", "z")])
    assert listener.entry() == [("MESSAGE", "z"), ("ACP_DROPPED", "2")]
    assert to_journal.send([("MESSAGE", "last")])
    assert listener.entry() == [("MESSAGE", "last")]


def test_missing_journal_is_told(tmp_path: Path) -> None:
    """Where nobody listens the entry is not sent, and whoever sent it can write it elsewhere."""
    assert not journal.Journal(str(tmp_path / "nothing")).send([("MESSAGE", "x")])


def test_stream_is_the_journals_by_device_and_inode(tmp_path: Path) -> None:
    """The variable is inherited by everybody, so it counts only for the stream it names."""
    (tmp_path / "stream").touch()
    (tmp_path / "other").touch()
    fd, other = (os.open(tmp_path / name, os.O_WRONLY) for name in ("stream", "other"))
    found = os.fstat(fd)
    environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
    assert journal.is_connected(fd, environ)
    assert not journal.is_connected(other, environ)
    assert not journal.is_connected(fd, {})
    os.close(fd)
    os.close(other)
    assert not journal.is_connected(fd, environ)


def _private_mounts() -> bool:
    if os.getuid() != 0 or not JOURNALD.exists() or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0


SCRIPT = """
set -eu
mount -t tmpfs run /run
mkdir -p /run/log/journal /run/systemd/journal
printf '%s\\n' '[Journal]' Storage=volatile RateLimitBurst=0 Seal=no >"$1/journald.conf"
mount --bind "$1/journald.conf" /etc/systemd/journald.conf
"$2" 2>"$1/journald.log" &
journald=$!
trap 'kill $journald' EXIT
while [ ! -S /run/systemd/journal/socket ]; do kill -0 $journald; done
connected='JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec "$@"'  # as a service manager says it
systemd-cat --identifier=any sh -c "$connected" sh "$3" -c "$4"
journalctl --sync
journalctl --directory=/run/log/journal --output=json ACP_SESSION_ID=two
"""

SENDS = """
from acp_ledger import logs
logs.configure()
log = logs.get_logger(transport_id=7)
log.info(logs.AGENT_SPAWNED, pid=1)
log.info(logs.TRANSPORT_CLOSED, session_id=["one", "two"], close_reason="agent_ended")
try:
    raise OSError(28, "No space left on device")
except OSError:
    log.exception(logs.DAEMON_FAILED, session_id="three")
"""


@pytest.mark.skipif(not _private_mounts(), reason="needs root, unshare and systemd-journald")
def test_journald_finds_an_event_by_its_session(tmp_path: Path) -> None:
    """A program whose standard error leads to journald is found by `journalctl ACP_SESSION_ID=…`, unasked."""
    command = ["unshare", "-m", "sh", "-c", SCRIPT, "sh", str(tmp_path), str(JOURNALD), sys.executable, SENDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    [found] = [json.loads(line) for line in done.stdout.splitlines()]
    assert found["MESSAGE"] == "transport.closed transport_id=7 session_id=one,two close_reason=agent_ended"
    assert found["ACP_SESSION_ID"] == ["one", "two"]
    assert (found["ACP_TRANSPORT_ID"], found["PRIORITY"]) == ("7", "6")
