"""Where events go: to the journal with fields, to a stream as lines, and nowhere in a way that hurts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import structlog

from acp_ledger import journal, logs
from tests.support.datagrams import Datagrams

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANARY = "canary-4711"


@pytest.fixture(autouse=True)
def _defaults_afterwards() -> Iterator[None]:
    """Leave structlog as it was found."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Datagrams]:
    """A journal of the test's own, to which every event goes."""
    with Datagrams(str(tmp_path / "journal")) as found:
        logs.configure(form="journal", level="debug", journal_socket=str(tmp_path / "journal"))
        yield found


def test_event_has_fields_an_operator_can_ask_for(listener: Datagrams) -> None:
    """Message, priority, program, event, and each fact under a name of its own."""
    logs.get_logger(transport_id=7).warning(logs.AGENT_EXITED, status=3, signal=None, committed=True)
    assert listener.entry() == [
        ("MESSAGE", "agent.exited transport_id=7 status=3 committed=true"),
        ("PRIORITY", "4"),
        ("SYSLOG_IDENTIFIER", "acp-ledgerd"),
        ("ACP_EVENT", "agent.exited"),
        ("ACP_TRANSPORT_ID", "7"),
        ("ACP_STATUS", "3"),
        ("ACP_COMMITTED", "true"),
    ]


@pytest.mark.parametrize(("level", "priority"), [("debug", "7"), ("info", "6"), ("warning", "4"), ("error", "3")])
def test_priority_is_syslogs(listener: Datagrams, level: str, priority: str) -> None:
    """`journalctl -p err` shows our errors and not our news."""
    getattr(logs.get_logger(), level)(logs.DAEMON_READY)
    assert ("PRIORITY", priority) in listener.entry()


def test_connection_of_several_sessions_is_found_by_each(listener: Datagrams) -> None:
    """A field of several values is there once for each."""
    logs.get_logger(session_id=["sess_1", "sess_2"]).info(logs.TRANSPORT_CLOSED)
    found = listener.entry()
    assert [value for name, value in found if name == "ACP_SESSION_ID"] == ["sess_1", "sess_2"]


@pytest.mark.parametrize("hostile", ["two\nlines", "a b", "x" * 129, "", "\x1b[2J", "naïve", "a\n"])
def test_session_id_that_is_not_plain_is_withheld(listener: Datagrams, hostile: str) -> None:
    """An agent makes up its ids: one that might be anything else is not logged."""
    logs.get_logger(session_id=[hostile]).info(logs.SESSION_SEEN)
    [shown] = [value for name, value in listener.entry() if name == "ACP_SESSION_ID"]
    assert shown == f"[withheld: str, {len(hostile)}]"


def test_content_never_reaches_the_journal(listener: Datagrams) -> None:
    """What the log withholds, and what it masks, it does for the journal too."""
    address = f"postgresql://ann:{CANARY}@db/acp"
    logs.get_logger(body=CANARY, title=[CANARY], env={CANARY: 1}, database=address).info(logs.AGENT_SPAWNED)
    text = repr(listener.entry())
    assert CANARY not in text
    assert "ann:***@db" in text


def test_traceback_is_part_of_the_message(listener: Datagrams) -> None:
    """Whoever reads the journal without asking for fields sees where it happened."""
    logs.get_logger().error(logs.DAEMON_FAILED, exc_info=OSError(28, "No space left on device"))
    found = dict(listener.entry())
    assert found["MESSAGE"].startswith("daemon.failed\n")
    assert found["MESSAGE"].endswith("OSError: No space left on device")
    assert found["PRIORITY"] == "3"


def test_stream_of_the_journal_is_recognized(tmp_path: Path) -> None:
    """`auto` sends fields where standard error leads to the journal, and lines where it does not."""
    with Datagrams(str(tmp_path / "journal")) as listener, (tmp_path / "stream").open("w") as stream:
        found = os.fstat(stream.fileno())
        for named in (f"{found.st_dev}:{found.st_ino}", "1:1"):
            os.environ[journal.VARIABLE] = named
            logs.configure(stream=stream, journal_socket=str(tmp_path / "journal"))
            logs.get_logger().info(logs.DAEMON_READY, pid=len(named))
        del os.environ[journal.VARIABLE]
        assert ("ACP_EVENT", "daemon.ready") in listener.entry()
        assert listener.waiting() == []
    [line] = (tmp_path / "stream").read_text().splitlines()
    assert json.loads(line)["pid"] == len("1:1")


def test_missing_journal_leaves_lines_with_priorities(tmp_path: Path) -> None:
    """Without a journal an event is a line that begins with its priority, as journald reads it from a stream."""
    with (tmp_path / "stream").open("w") as stream:
        logs.configure(form="journal", stream=stream, journal_socket=str(tmp_path / "nothing"))
        logs.get_logger().error(logs.DAEMON_FAILED, pid=7)
    line = (tmp_path / "stream").read_text()
    assert line.startswith('<3>{"')
    assert json.loads(line[3:])["event"] == "daemon.failed"


@pytest.mark.parametrize("form", ["json", "console", "journal"])
@pytest.mark.parametrize("sink", ["full disk", "gone reader"])
def test_log_that_cannot_be_written_fails_nobody(tmp_path: Path, form: str, sink: str) -> None:
    """The program goes on and ends with its own status, though its log takes nothing."""
    script = """
import sys
from acp_ledger import logs
logs.configure(form=sys.argv[1], journal_socket=sys.argv[2])
for _ in range(3):
    logs.get_logger().error(logs.DAEMON_FAILED, pid=7)
print("went on")
"""
    if sink == "full disk":
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, stderr = os.pipe()
        os.close(reader)
    try:
        command = [sys.executable, "-c", script, form, str(tmp_path / "nothing")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, check=False)
    finally:
        os.close(stderr)
    assert (done.returncode, done.stdout) == (0, b"went on\n")
