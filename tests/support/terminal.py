"""A user's shell in a home of its own: runs the blocks of a page as somebody would who types them.

The shell stands in a copy of the checkout made of links, with our programs first on its PATH; what its commands say
goes to a terminal of a hundred columns. `cd` and `export` hold until the page ends.
What must not be broken here: nothing of the user who runs the tests is read or changed, and nothing that a page
started outlives it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_ledger import paths
from tests.support.pages import PageError, fits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.pages import Block, Command, Page

CHECKOUT: Final = Path(__file__).parents[2]
PROGRAMS: Final = Path(sys.executable).parent
PATIENCE: Final = 120.0
COLUMNS: Final = 100
_PROMPT: Final = "\x1ethe command is over: "
_NOT_LINKED: Final = {".git", ".venv", ".cache"}


class Terminal:
    """One user's shell, and what it started."""

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self.checkout = folder / "acp-ledger"
        _link_checkout(self.checkout)
        self.environment = {
            "PATH": os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]),
            "HOME": str(self.home),
            "TERM": "dumb",
            "COLUMNS": str(COLUMNS),
            "PAGER": "",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "EDITOR": "true",
            **_own_socket(folder),
            **(more or {}),
        }
        self._typed = folder / "typed"
        self._background: list[subprocess.Popen[bytes]] = []
        self._screen, screen = pty.openpty()
        _shape(screen)
        self._shell = self._start(["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=screen)
        os.close(screen)

    def _start(self, command: list[str], *, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=self.checkout,
            env=self.environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stdout if stdout != subprocess.PIPE else subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, text: str) -> tuple[int, str]:
        """Type a command; its status and everything it said."""
        self._typed.write_text(text + "\n", encoding="utf-8")
        stdin = self._shell.stdin
        if stdin is None:
            raise AssertionError("the shell has no input")
        line = f". {shlex.quote(str(self._typed))} </dev/null; printf '{_PROMPT}%d\\n' \"$?\"\n"
        stdin.write(line.encode())
        stdin.flush()
        said, _, status = self._until_prompt(text).rpartition(_PROMPT)
        # What a line said before a carriage return is written over.
        lines = said.replace("\r\n", "\n").split("\n")
        return int(status), "\n".join(line.rpartition("\r")[2] for line in lines)

    def _until_prompt(self, text: str) -> str:
        """Everything up to the prompt and the status behind it."""
        said = b""
        while not (_PROMPT.encode() in said and said.endswith(b"\n")):
            ready, _, _ = select.select([self._screen], [], [], PATIENCE)
            if not ready:
                raise AssertionError(f"nothing for {PATIENCE:.0f} seconds of: {text}\n{said.decode(errors='replace')}")
            said += os.read(self._screen, 65536)
        return said.decode(errors="replace")

    def go_on(self, text: str, word: str) -> None:
        """Start a command that goes on, and wait until it has said a word."""
        process = self._start(["bash", "-c", text], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._background.append(process)
        said: list[bytes] = []
        heard = threading.Event()

        def listen() -> None:
            for line in process.stdout or ():
                said.append(line)
                if word.encode() in line:
                    heard.set()
            said.append(b"")
            heard.set()

        threading.Thread(target=listen, daemon=True).start()
        if not heard.wait(PATIENCE) or said[-1] == b"":
            raise AssertionError(f"{text} did not say {word!r}: {b''.join(said).decode(errors='replace')}")

    def close(self) -> None:
        """End everything that was started, a daemon that a runner started too."""
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        for process in (*self._background, self._shell):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE)
        for process in self._background:
            if process.stdout is not None:
                process.stdout.close()
        os.close(self._screen)
        end_daemon(paths.chosen_socket(self.environment, os.getuid())[0])


def _shape(screen: int) -> None:
    """Give the terminal its size, and let it not repeat what is typed."""
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))


def _own_socket(folder: Path) -> dict[str, str]:
    """A socket of the page's own where a daemon of the user who runs the tests could be asked instead."""
    if paths.runtime_directory(os.getuid()) is None:
        return {}
    return {paths.SOCKET_VARIABLE: str(folder / "ledgerd.sock")}


def _link_checkout(folder: Path) -> None:
    """Make a folder that looks like the checkout, with our programs installed in its `.venv`."""
    (folder / ".venv").mkdir(parents=True)
    for path in CHECKOUT.iterdir():
        if path.name not in _NOT_LINKED:
            (folder / path.name).symlink_to(path)
    (folder / ".venv" / "bin").symlink_to(PROGRAMS)
    # Installing is what the suite itself was started by; here its script finds that done.
    mark = ". deploy/environment.sh && find_python && fingerprint >.venv/installed"
    subprocess.run(["sh", "-c", mark], cwd=folder, check=True)


def end_daemon(path: str) -> bool:
    """End the daemon that listens on a socket, and wait for its end; whether there was one."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            return False
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        daemon = os.pidfd_open(struct.unpack("3i", credentials)[0])
    signal.pidfd_send_signal(daemon, signal.SIGTERM)
    if not select.select([daemon], [], [], PATIENCE)[0]:
        raise AssertionError(f"the daemon of {path} does not end")
    os.close(daemon)
    return True


def run_page(page: Page, terminal: Terminal) -> None:
    """Run the blocks of a page in order.

    Raises:
        PageError: A command ended or spoke otherwise than the page says.
    """
    for block in page.runnable():
        where = f"{page.path.name}, line "
        if block.language == "sql":
            _check(terminal, _sql(block), block, where)
            continue
        for command in block.commands():
            if "background" in block.marks:
                terminal.go_on(command.text, block.marks["background"])
            else:
                _check(terminal, command, block, where)


def _sql(block: Block) -> Command:
    """The command that runs an SQL block."""
    from tests.support.pages import Command  # noqa: PLC0415  # a type everywhere else here

    program = "psql -X -q -v ON_ERROR_STOP=1" if "psql" in block.marks else "ledgerctl sql -"
    return Command(block.line, f"{program} <<'END OF BLOCK'\n{block.text}\nEND OF BLOCK", ())


def _check(terminal: Terminal, command: Command, block: Block, where: str) -> None:
    status, said = terminal.run(command.text)
    if status != block.status:
        raise PageError(f"{where}{command.line}: {command.text}\nended with {status}, not {block.status}:\n{said}")
    if command.shown and not fits(command.shown, said, loose="loose" in block.marks):
        shown = "\n".join(command.shown)
        raise PageError(f"{where}{command.line}: {command.text}\nsays\n{said}\nand the page shows\n{shown}")
