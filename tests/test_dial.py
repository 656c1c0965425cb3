"""Who listens on a socket is known before anything is sent."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from acp_ledger.dial import NoDaemon, dial
from tests.support.fake_daemon import FakeDaemon

if TYPE_CHECKING:
    from pathlib import Path


def test_dial_reaches_our_daemon(tmp_path: Path) -> None:
    """The connection is the caller's to use."""
    with FakeDaemon(tmp_path / "s"):
        dial(str(tmp_path / "s")).close()


def test_dial_says_when_nobody_ever_listened(tmp_path: Path) -> None:
    """A daemon may then be started."""
    with pytest.raises(NoDaemon, match="No such file") as missing:
        dial(str(tmp_path / "s"))
    assert missing.value.absent


def test_dial_says_when_nobody_listens_any_more(tmp_path: Path) -> None:
    """The socket of a daemon that was killed stays behind."""
    with FakeDaemon(tmp_path / "s"):
        pass
    with pytest.raises(NoDaemon, match="refused") as missing:
        dial(str(tmp_path / "s"))
    assert missing.value.absent


def test_dial_says_when_it_may_not_ask(tmp_path: Path) -> None:
    """What is in the way is no reason to start another daemon."""
    (tmp_path / "file").touch()
    with pytest.raises(NoDaemon) as missing:
        dial(f"{tmp_path}/file/s")
    assert not missing.value.absent


@pytest.mark.skipif(os.getuid() != 0, reason="needs the right to listen as another user")
def test_dial_refuses_another_users_listener(tmp_path: Path) -> None:
    """A greeting carries an editor's environment, so a stranger's socket hears not one byte."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.seteuid(65534)  # the kernel keeps who called listen(2)
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(NoDaemon, match=r"user id 65534 listens on .* not yours") as refused:
            dial(path)
        assert not refused.value.absent
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1000) == b""
