"""What an editor starts instead of its agent: carries bytes between the editor and the daemon, and nothing else.

The rules that must not be broken here:

1. Nothing runs unrecorded: without a daemon the editor is told why, and no agent starts.
2. Nothing third-party, and little else, is imported before the first byte: an editor starts us for every conversation.
3. What stands after ``--``, the directory and the environment are handed on as bytes, just as they came.
4. Silent on stderr, unless it must exit with an error of its own: then one line. Some editors never read it.
"""

from __future__ import annotations

import os
import sys

from acp_ledger import handshake, paths
from acp_ledger.carry import STDERR, STDIN, STDOUT, Carrier
from acp_ledger.dial import NoDaemon, dial

TYPE_CHECKING = False  # typing itself would cost more than everything else here
if TYPE_CHECKING:
    import _socket
    import signal as _signal
    from collections.abc import Mapping, Sequence
else:
    import _signal  # the module ``signal`` brings ``enum`` along

USAGE = "acp-ledger-run [--agent NAME] [--label K=V]... [--socket PATH] [-- COMMAND [ARG]...]"
HELP = f"""Usage: {USAGE}

Starts COMMAND, an agent that speaks the Agent Client Protocol, through the acp-ledger daemon, which records it.
Editors run this instead of the agent; everything after -- is handed on untouched.

  --agent NAME    the agent's name in the record; without COMMAND, the [agents.NAME] of the daemon's configuration
  --label K=V     a label for the record; may be given several times
  --socket PATH   the daemon's socket, else $ACP_LEDGER_SOCKET__PATH; a daemon has to listen there.
                  Without either, the configured or default socket, and a daemon is started where none listens
  --version       print the version
  -h, --help      print this

At a terminal, as for an agent's login, the launch alone is recorded: then COMMAND takes our place. With --agent and
without COMMAND, words that follow are appended to the agent's configured command.

Exits with the agent's status (128+N after signal N), 126 or 127 where it cannot be started, 69 without a daemon.
"""


class UsageError(Exception):
    """The command line is not one of ours; the text says how to mend it."""


class Arguments:
    """The command line, read."""

    def __init__(self) -> None:
        self.agent: str | None = None
        self.labels: list[tuple[str, str]] = []
        self.socket: str | None = None
        self.command: list[str] = []
        self.added: list[str] = []
        self.show: str | None = None


def main(argv: Sequence[str] | None = None, *, daemon: Sequence[str] = ()) -> int:
    """Run ``acp-ledger-run`` and give its exit status.

    Args:
        argv: The command line without the program's name; ``sys.argv`` where None.
        daemon: What starts a daemon where none runs, if not this installation's own.
    """
    _hold_three_descriptors()
    terminal = os.isatty(STDIN) and os.isatty(STDOUT)
    _obey_signals(terminal=terminal)
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv, terminal=terminal)
    except UsageError as wrong:
        from acp_ledger.refusal import complain

        complain(f"{wrong}. Usage: {USAGE}")
        return handshake.EXIT_USAGE
    if arguments.show:
        return _show(arguments.show)
    return _launch(arguments, daemon) if terminal else _run(arguments, daemon)


def _obey_signals(*, terminal: bool) -> None:
    """Leave quietly when an editor says so; at a terminal leave it to the kernel, and signals as COMMAND gets them."""
    if not terminal:
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, _leave)
    elif _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it is ignored, and stays so
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _leave(*_: object) -> None:
    os._exit(0)  # no agent runs yet


def _run(arguments: Arguments, daemon: Sequence[str]) -> int:
    try:
        greeting = handshake.encode_greeting(_greeting(arguments, handshake.PURPOSE_RUN))
        carrier = Carrier(_connect(arguments.socket, os.environ, daemon), greeting)
    except (NoDaemon, paths.PathError, handshake.HandshakeError, OSError) as failure:
        from acp_ledger.refusal import refuse

        return refuse(f"cannot record this session: {failure}")
    carrier.carry()
    return _finish(carrier)


def _launch(arguments: Arguments, daemon: Sequence[str]) -> int:
    """Become the command, once its launch is recorded; give the exit status where that cannot be."""
    from acp_ledger.launch import NotLaunched, launch
    from acp_ledger.refusal import refuse

    try:
        greeting = _greeting(arguments, handshake.PURPOSE_TERMINAL)
        launch(_connect(arguments.socket, os.environ, daemon), greeting)
    except NotLaunched as failure:
        return refuse(str(failure), status=failure.status)
    except (NoDaemon, paths.PathError, handshake.HandshakeError, OSError) as failure:
        return refuse(f"cannot record this launch, so nothing was run: {failure}")


def _finish(carrier: Carrier) -> int:
    """Say what has to be said after the relay, and give the exit status."""
    if carrier.leaving:
        os._exit(carrier.status or 0)  # a second signal must not meet an interpreter half taken down
    if carrier.status is not None and carrier.fatal is None:
        return carrier.status
    from acp_ledger.refusal import complain, refuse

    sentence = carrier.fatal or "the daemon ended in the middle of this session. Look with: ledgerctl status"
    if not carrier.spoken:
        return refuse(sentence, heard=bytes(carrier.heard), status=carrier.status)
    complain(sentence)
    return handshake.EXIT_UNAVAILABLE if carrier.status is None else carrier.status


def parse(argv: Sequence[str], *, terminal: bool = False) -> Arguments:
    """Read a command line.

    Args:
        argv: Without the program's name.
        terminal: Whether this is a login: an editor appends its arguments to the command line it has, and where that
            names an agent without its COMMAND, the first word that is none of ours begins them.

    Raises:
        UsageError: It is not one of ours.
    """
    found = Arguments()
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            found.command = rest
            break
        if word in {"-h", "--help", "--version"}:
            found.show = word
            return found
        name, equals, value = word.partition("=")
        if name not in {"--agent", "--label", "--socket"}:
            if terminal and found.agent is not None:
                found.added = [word, *rest]
                break
            raise UsageError(_unknown(word))
        if not equals:
            if not rest or rest[0] == "--":
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        _take_option(found, name, value)
    if not found.command and found.agent is None:
        raise UsageError("no COMMAND after --, and no --agent that names one")
    return found


def _take_option(found: Arguments, name: str, value: str) -> None:
    if not value:
        raise UsageError(f"{name} needs a value that is not empty")
    if name == "--agent":
        found.agent = value
    elif name == "--socket":
        found.socket = value
    else:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise UsageError(f"--label needs KEY=VALUE, not {value!r}")
        found.labels.append((key, text))


def _unknown(word: str) -> str:
    if not word.startswith("-"):
        return f"{word!r} is no option: put -- before the agent's command"
    import difflib

    near = difflib.get_close_matches(
        word.partition("=")[0], ("--agent", "--label", "--socket", "--version", "--help"), 1
    )
    return f"unknown option {word}" + (f"; did you mean {near[0]}?" if near else "")


def _show(what: str) -> int:
    if what == "--version":
        from importlib.metadata import version

        text = f"acp-ledger-run {version('acp-ledger')}\n"
    else:
        text = HELP
    try:
        os.write(STDOUT, text.encode())
    except OSError:
        return 1  # nobody reads
    return 0


def _greeting(arguments: Arguments, purpose: bytes) -> handshake.Greeting:
    parent = os.getppid()
    return handshake.Greeting(
        purpose,
        argv=map(os.fsencode, arguments.command),
        cwd=_directory(),
        env=_environment(),
        agent=None if arguments.agent is None else os.fsencode(arguments.agent),
        labels=[(os.fsencode(key), os.fsencode(value)) for key, value in arguments.labels],
        pid=os.getpid(),
        ppid=parent,
        parent_exe=_executable(parent),
        umask=_umask(),
        added=map(os.fsencode, arguments.added),
    )


def _umask() -> int:
    """Give the umask, which can only be read by setting another one."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def _directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:
        raise paths.PathError("the working directory was removed; open the project again") from None


def _environment() -> dict[bytes, bytes]:
    """Give the environment as the editor gave it: where there is no locale, the interpreter adds ``LC_CTYPE`` to it."""
    try:
        with open("/proc/self/environ", "rb", 0) as file:
            entries = file.readall().split(b"\0")
    except OSError:
        return dict(os.environb)
    found: dict[bytes, bytes] = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if equals and name:
            found.setdefault(name, value)  # of a name given twice, getenv(3) reads the first
    return found


def _executable(pid: int) -> bytes | None:
    try:
        return os.readlink(b"/proc/%d/exe" % pid)
    except OSError:
        return None


def _connect(flag: str | None, environ: Mapping[str, str], daemon: Sequence[str]) -> _socket.socket:
    """Reach the daemon; start one where there is none, unless a flag or the environment named the socket."""
    uid = os.getuid()
    path, is_default = paths.chosen_socket(environ, uid, flag)
    try:
        return dial(path)
    except NoDaemon as missing:
        if not missing.absent:
            raise
        if not is_default:
            raise NoDaemon(f"{missing}. Start one with: acp-ledgerd --socket {path}") from missing
    from acp_ledger.spawn import configured_socket, start_daemon

    return start_daemon(configured_socket(environ, uid) or path, environ, uid, daemon)


def _hold_three_descriptors() -> None:
    """Fill a closed stdin, stdout or stderr, lest the socket to the daemon take its number."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= STDERR:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
