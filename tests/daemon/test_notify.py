"""What a service manager hears: every word whole, over a real socket, and nobody waits for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from acp_ledger.daemon.notify import Manager
from tests.support.datagrams import Datagrams

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Datagrams]:
    """A service manager of the test's own."""
    with Datagrams(str(tmp_path / "notify")) as found:
        yield found


def test_words_arrive_in_one_datagram_from_us(tmp_path: Path, listener: Datagrams) -> None:
    """The manager hears each word, and the kernel says that it comes from the main process."""
    Manager(str(tmp_path / "notify")).tell(READY=1, STATUS="recording")
    data, sender, _ = listener.receive()
    assert data == b"READY=1\nSTATUS=recording\n"
    assert sender.pid == os.getpid()


def test_abstract_socket_is_reached() -> None:
    """A name that begins with `@` is one without a file."""
    name = f"acp-ledger-test-{os.getpid()}"
    with Datagrams(b"\0" + name.encode()) as listener:
        Manager(f"@{name}").tell(STOPPING=1)
        assert listener.words() == {"STOPPING": "1"}


@pytest.mark.parametrize("hostile", ["x\nREADY=1", "x\r\nMAINPID=1", "\x1b[2J"])
def test_value_forges_no_word(tmp_path: Path, listener: Datagrams, hostile: str) -> None:
    """Whatever an error says, it is one value, and a terminal that shows it is not steered."""
    Manager(str(tmp_path / "notify")).tell(STATUS=hostile)
    assert listener.receive()[0] == b"STATUS=" + hostile.encode("unicode_escape") + b"\n"


def test_full_manager_gets_the_newest_words_later(tmp_path: Path, listener: Datagrams) -> None:
    """Telling does not wait for a manager that does not read, and nothing it has to know is lost."""
    manager = Manager(str(tmp_path / "notify"))
    count = 0
    while not manager._owed:
        assert count < 100_000, "what a full manager had no room for is forgotten"
        manager.tell(STATUS=count)
        count += 1
    manager.tell(READY=1)
    manager.tell(STATUS=count)
    for heard in range(count - 1):
        assert listener.words() == {"STATUS": str(heard)}
    manager.tell(WATCHDOG=1)
    assert listener.words() == {"STATUS": str(count), "READY": "1", "WATCHDOG": "1"}
    manager.tell(WATCHDOG=1)
    assert listener.words() == {"WATCHDOG": "1"}


def test_manager_that_is_gone_fails_nobody(tmp_path: Path) -> None:
    """A manager that went away, or never was, is no reason to stop recording."""
    with Datagrams(str(tmp_path / "notify")):
        manager = Manager(str(tmp_path / "notify"))
    manager.tell(WATCHDOG=1)
    Manager(str(tmp_path / "never")).tell(READY=1)
    Manager().tell(READY=1)
    with Datagrams(str(tmp_path / "again")) as listener:
        (tmp_path / "notify").unlink()
        (tmp_path / "notify").symlink_to(tmp_path / "again")
        manager.tell(STOPPING=1)
        assert listener.words() == {"WATCHDOG": "1", "STOPPING": "1"}


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_watchdog_is_ours_when_it_says_so(variables: dict[str, str], seconds: float | None) -> None:
    """The time within which we have to be heard counts for the process it names, and for no other."""
    environ = {"NOTIFY_SOCKET": "/run/notify", "PATH": "/bin", **variables}
    assert Manager.of(environ, 7).watchdog == seconds
    assert environ == {"PATH": "/bin"}, "nobody else is meant"


def test_without_a_manager_there_is_no_watchdog() -> None:
    """Who cannot be told does not watch."""
    manager = Manager.of({"WATCHDOG_USEC": "30000000"}, 7)
    assert (manager.listens, manager.watchdog) == (False, None)
