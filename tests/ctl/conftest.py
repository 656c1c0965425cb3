"""What tests of `ledgerctl` share: a seeded ledger on each engine, and the command as a function."""

from __future__ import annotations

import shutil
import socket
import threading
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from click.testing import CliRunner, Result

from acp_ledger import dialogue, handshake
from acp_ledger.ctl.main import root
from tests.ctl.seeding import seed

if TYPE_CHECKING:
    from pathlib import Path


class Cli(Protocol):
    """`ledgerctl` as a function: arguments and stdin in, output and exit code out."""

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        """Run it once."""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `ledgerctl` in this process, in a home that has no settings and no daemon."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(root, arguments, input=stdin, prog_name="ledgerctl")

    return run


@pytest.fixture
def seeded(ledger_url: str) -> str:
    """A ledger with a session that went well and a hostile one, on each engine in turn."""
    seed(ledger_url)
    return ledger_url


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    seed(f"sqlite:///{folder / 'ledger.db'}")
    return folder


@pytest.fixture
def seeded_file(tmp_path: Path, _template: Path) -> Path:
    """The same as a file of SQLite's."""
    shutil.copytree(_template, tmp_path / "ledger")
    return tmp_path / "ledger" / "ledger.db"


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A socket on which something answers as a daemon would: a line to each who asks, in this order."""
    path = tmp_path / "d.sock"
    monkeypatch.setenv("ACP_LEDGER_SOCKET__PATH", str(path))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    threads: list[threading.Thread] = []

    def answer(*lines: bytes) -> None:
        threads.append(threading.Thread(target=_answer_each, args=(listener, lines)))
        threads[-1].start()

    yield answer
    for thread in threads:
        thread.join(10)
    listener.close()


def _answer_each(listener: socket.socket, lines: tuple[bytes, ...]) -> None:
    for line in lines:
        _answer_once(listener, line)


def _answer_once(listener: socket.socket, line: bytes) -> None:
    guest, _ = listener.accept()
    with guest:
        greeting, control = handshake.GreetingReader(), dialogue.ControlReader()
        while greeting.feed(guest.recv(65_536)) is None:
            pass
        request = control.feed(greeting.rest)
        while request is None:
            request = control.feed(guest.recv(65_536))
        guest.sendall(line)
