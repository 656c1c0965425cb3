"""`ledgerctl demo`: a real daemon, a real runner and a scripted pair of peers on a ledger of their own.

What must not be broken here: the demo touches no socket, no state and no ledger but its own, and it succeeds only when
every stored row equals the script and every byte that either peer sent or heard equals a stored body.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from acp_ledger.ctl import demo_agent
from acp_ledger.ctl.demo_client import DemoError, Recording, converse
from acp_ledger.ctl.options import Command, current_options
from acp_ledger.ctl.render import document
from acp_ledger.ctl.text import escape
from acp_ledger.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.ctl.demo_check import Finding

AGENT: Final = "demo-agent"
START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02
_TAIL_BYTES: Final = 2_000
_RUNNER: Final = "import sys; from acp_ledger.run import main; sys.exit(main())"
"""What the installed `acp-ledger-run` does, by the interpreter that runs us and not by one found on PATH."""


@click.command(
    cls=Command,
    examples=(
        "ledgerctl demo",
        "ledgerctl demo --keep ./demo-ledger",
        "ledgerctl demo --url postgresql://localhost/demo",
    ),
)
@click.option("--keep", metavar="DIR", help="Play in this directory and leave it; it must be empty or missing.")
@click.option("--url", metavar="URL", help="Record into this database instead of a new SQLite file.")
def demo(keep: str | None, url: str | None) -> int:
    """Record a scripted session through a daemon of its own, and check every stored row against the script.

    Succeeds only when the stored rows equal the script, the stored bytes equal what both peers sent and heard, and
    the ledger verifies.
    """
    from acp_ledger.ctl import demo_check

    options = current_options()
    directory = _directory(keep)
    try:
        recording = record(directory, url)
        finding = demo_check.examine(recording)
    except BaseException:
        _say(f"the demo's files are in {directory}")
        raise
    if options.output == "table":
        _tell(recording, finding)
    else:
        document("demo", finding.as_document(), options)
    return _conclude(recording, finding, keep=keep, own=url is None)


def record(directory: Path, url: str | None = None) -> Recording:
    """Start a daemon in `directory`, play the script through the runner, and stop the daemon.

    Raises:
        DemoError: The daemon did not start, or the conversation broke off.
    """
    from acp_ledger.ctl.demo_witness import Witness
    from acp_ledger.ctl.reading import as_url

    ledger = as_url(url) if url else f"sqlite:///{directory / 'ledger.db'}"
    label = secrets.token_hex(8)
    with _running_daemon(directory, ledger) as daemon, Witness(ledger, label) as witness:
        conversation = converse(_runner(directory, label), _environ(directory), str(directory), witness.see)
        return Recording(directory, ledger, label, conversation, daemon.pid, witness.seen)


def _directory(keep: str | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="acp-ledger-demo."))
    directory = Path(keep).absolute()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty", hint="name a new directory: ledgerctl demo --keep DIR")
    return directory


def _environ(directory: Path) -> dict[str, str]:
    """Give the environment of all the demo starts: its own home, so that nothing of the user's is read or written."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACP_LEDGER_")}
    return {**kept, "HOME": str(directory)}


def _program(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


def _runner(directory: Path, label: str) -> list[str]:
    agent = _program(demo_agent.__name__, str(directory))
    socket = str(_socket_of(directory))
    options = ("--agent", AGENT, "--label", f"demo={label}", "--socket", socket)
    return [sys.executable, "-P", "-c", _RUNNER, *options, "--", *agent]


def _socket_of(directory: Path) -> Path:
    return directory / "ledgerd.sock"


@contextmanager
def _running_daemon(directory: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the demo's own daemon, and stop it again as systemd would."""
    socket, log = _socket_of(directory), directory / "daemon.log"
    command = _program("acp_ledger.daemon.main", "--ledger", url, "--socket", str(socket))
    with log.open("wb") as sink:
        daemon = subprocess.Popen(  # noqa: S603  # our own program
            command, env=_environ(directory), cwd=directory, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
        )
    try:
        _await_socket(daemon, socket, log)
        yield daemon
        _stop(daemon, log)
    finally:
        daemon.kill()
        daemon.wait()


def _await_socket(daemon: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    """Wait until the daemon accepts connections."""
    from acp_ledger.dial import NoDaemon, dial

    for _ in range(int(START_SECONDS / _LOOK_SECONDS)):
        try:
            dial(str(socket)).close()
        except NoDaemon:
            if _ends_within(daemon, _LOOK_SECONDS):
                break
        else:
            return
    raise DemoError(f"the daemon did not start: {_tail(log)}")


def _stop(daemon: subprocess.Popen[bytes], log: Path) -> None:
    daemon.send_signal(signal.SIGTERM)
    if not _ends_within(daemon, STOP_SECONDS):
        raise DemoError(f"the daemon did not stop within {STOP_SECONDS:g} s: {_tail(log)}")
    if daemon.returncode != 0:
        raise DemoError(f"the daemon ended with status {daemon.returncode}: {_tail(log)}")


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _tail(log: Path) -> str:
    return log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").strip() or "it said nothing"


def _say(text: str) -> None:
    sys.stdout.write(escape(text) + "\n")


def _tell(recording: Recording, finding: Finding) -> None:
    _say(f"  daemon    acp-ledgerd pid {recording.daemon_pid}, ledger {finding.ledger}")
    _say(f'  editor    scripted ACP client -> acp-ledger-run -> scripted agent "{AGENT} 1.0"')
    for line in finding.lines:
        _say(f"  {line}")
    _say("")
    for line in finding.table:
        _say(f"  {line}")
    _say("")


def _conclude(recording: Recording, finding: Finding, *, keep: str | None, own: bool) -> int:
    """Say where the ledger is and what to try next; a difference is an error and keeps everything."""
    for difference in finding.differences:
        sys.stderr.write(f"error: {escape(difference)}\n")
    if finding.differences:
        sys.stderr.write(f"hint: the demo's files are kept in {recording.directory}\n")
        return finding.exit_code
    if keep is None:
        shutil.rmtree(recording.directory)
    if current_options().output == "table":
        ledger = str(recording.directory / "ledger.db") if own else "URL"
        ourselves = "ledgerctl" if shutil.which("ledgerctl") else sys.argv[0]  # the first run is often out of a .venv
        _say(
            f"Look at it:  {ourselves} -L {ledger} show --last"
            if keep or not own
            else f"Keep one:  {ourselves} demo --keep DIR"
        )
        _say("Record your own:  put `acp-ledger-run --` before the agent's command in your editor's settings")
    return ExitCode.OK
