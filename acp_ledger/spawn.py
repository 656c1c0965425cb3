"""Starts a daemon for a runner that found none, and lets many runners that start together get the same one.

The rules that must not be broken here: only the holder of the spawn lock starts a daemon or unlinks a stale socket; and
the daemon is no descendant of ours before the relay starts (the user's service manager starts it, else two forks and a
session of its own), for editors kill every descendant of what they started, even across ``setsid``.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import stat
import sys
import time

from acp_ledger import manager, paths
from acp_ledger.dial import NoDaemon, dial
from acp_ledger.refusal import in_one_line

TYPE_CHECKING = False  # typing itself would cost the runner more than everything else here
if TYPE_CHECKING:
    import _socket
    from collections.abc import Mapping, Sequence

START_SECONDS = 10.0
"""How long a runner waits for the lock and for the daemon together; the most impatient editors give up after ten."""
_RETRY_MILLISECONDS = 20
_LOG_BYTES = 1 << 20
"""A daemon's log over this size is begun anew when the next one is started."""
_TAIL_BYTES = 4096
_WORDS_CHARACTERS = 600
_ERROR = "acp-ledgerd: "
"""How the first line of the error begins that a daemon ends with; its hint stands on the lines below."""

_KEPT = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PYTHONHOME", "PYTHONPATH", "SHELL", "TMPDIR", "TZ", "USER"}
    | {"DBUS_SESSION_BUS_ADDRESS", "SSL_CERT_DIR", "SSL_CERT_FILE", "XDG_RUNTIME_DIR"},
)
_KEPT_PREFIXES = ("ACP_LEDGER_", "LC_", "PG")


def start_daemon(path: str, environ: Mapping[str, str], uid: int, command: Sequence[str] = ()) -> _socket.socket:
    """Connect to the daemon at ``path``, starting it first where nobody listens.

    Args:
        path: Its socket. A daemon is never started for one that was named by a flag or the environment.
        environ: The runner's environment; the daemon gets the few variables of it that it needs.
        uid: Our user id.
        command: What starts the daemon, where it is not the one of this installation.

    Raises:
        NoDaemon: It did not start in ``START_SECONDS``, or another user listens.
        paths.PathError: The state directory cannot be used.
    """
    deadline = time.monotonic() + START_SECONDS
    paths.make_private_directory(paths.state_directory(environ, uid), uid)
    lock = os.open(paths.spawn_lock(environ, uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(lock, deadline)
        found = _dial_or_unlink(path, uid)
        if found is not None:
            return found  # whoever held the lock before us started it
        log = _Log(paths.daemon_log(environ, uid))
        started = _start(list(command) or daemon_command(), daemon_environment(environ, uid), uid, log)
        os.close(log.descriptor)
        return _await(path, started, deadline, log)
    finally:
        os.close(lock)


def configured_socket(environ: Mapping[str, str], uid: int) -> str | None:
    """Give ``socket.path`` of the configuration files, if one has it; what is wrong in one is the daemon's to say."""
    import tomllib

    for name in paths.config_files(environ, uid):
        try:
            with open(name, "rb") as file:
                path = tomllib.load(file)["socket"]["path"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        path = str(path)
        path = paths.home(environ, uid) + path[1:] if path.startswith("~/") else path
        paths.check_socket_path(path)
        return path
    return None


def daemon_command() -> list[str]:
    """Give the command of this installation's daemon: our own interpreter, whatever ``PATH`` an editor hands on."""
    return [sys.executable, "-P", "-m", "acp_ledger.daemon.main"]


def daemon_environment(environ: Mapping[str, str], uid: int) -> dict[str, str]:
    """Give what a daemon needs of an editor's environment, and no more: it may hold keys that are not the daemon's."""
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    return {**kept, "HOME": paths.home(environ, uid)}


def _take(lock: int, deadline: float) -> None:
    """Take the spawn lock; NoDaemon at the deadline."""
    pause = select.poll()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise NoDaemon("another acp-ledger-run is still starting the daemon; retry in a moment") from None
            pause.poll(_RETRY_MILLISECONDS)
        else:
            return


def _dial_or_unlink(path: str, uid: int) -> _socket.socket | None:
    """Connect, or unlink the socket a dead daemon left: ours, a socket, refusing, and still the one that refused."""
    before = _our_socket(path, uid)
    try:
        return dial(path)
    except NoDaemon as missing:
        if not missing.absent:
            raise
    if before is not None and _our_socket(path, uid) == before:
        os.unlink(path)
    return None


def _our_socket(path: str, uid: int) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) and found.st_uid == uid else None


def _start(command: list[str], environment: dict[str, str], uid: int, log: _Log) -> _Started:
    """Start a daemon that is no descendant of ours: by the user's service manager, else by ourselves."""
    runtime = paths.runtime_directory(uid)
    if runtime is None or not manager.is_there(runtime):
        return _Started(_fork(command, environment, log.descriptor))
    try:
        pid = manager.start(command, environment, runtime, log.path)
    except manager.Unanswered:
        _fork(command, environment, log.descriptor)  # where both come, one finds the ledger taken and ends
        return _Started(None)
    if pid is None:
        return _Started(_fork(command, environment, log.descriptor))
    return _Started(None if pid < 0 else pid)


class _Started:
    """What is known of a daemon that was started: whether it has ended, where that can be known."""

    def __init__(self, pid: int | None) -> None:
        """Take its process id; None where there is no telling, and it, or another one, may still come."""
        self._process = -1
        self._ended = False
        if pid is None:
            return
        try:
            self._process = os.pidfd_open(pid)
        except OSError:
            self._ended = True

    def ends(self, milliseconds: int) -> bool:
        """Wait so long, or until it has ended; tell whether it has."""
        poll = select.poll()
        if self._process >= 0:
            poll.register(self._process, select.POLLIN)
        return bool(poll.poll(milliseconds)) or self._ended

    def close(self) -> None:
        """Watch it no more."""
        if self._process >= 0:
            os.close(self._process)


def _fork(command: list[str], environment: dict[str, str], log: int) -> int:
    """Start a detached process, adopted by init before this returns; give its process id."""
    answer, report = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            grandchild = os.fork()
            if grandchild:
                os.write(report, b"%d" % grandchild)
            else:
                _become(command, environment, log)
        finally:
            os._exit(0)
    os.close(report)
    os.waitpid(child, 0)
    pid = os.read(answer, 20)
    os.close(answer)
    return int(pid or b"0")


def _become(command: list[str], environment: dict[str, str], log: int) -> None:
    """Turn the forked process into the daemon; what goes wrong stands in the log, where the runner looks."""
    os.umask(0o077)
    nothing = os.open(os.devnull, os.O_RDWR)
    for source, target in ((nothing, 0), (nothing, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execve(command[0], command, environment)  # noqa: S606  # no shell is wanted: the command is a list
    except OSError as failure:
        os.write(2, f"cannot start {command[0]}: {failure.strerror}\n".encode("utf-8", "backslashreplace"))


def _await(path: str, started: _Started, deadline: float, log: _Log) -> _socket.socket:
    """Wait until the daemon accepts on ``path``; NoDaemon when it ended before, or at the deadline."""
    gone = False
    try:
        while True:
            try:
                return dial(path)
            except NoDaemon as missing:
                if not missing.absent:
                    raise
            if gone:
                raise NoDaemon(log.explain("the daemon ended before it could be reached"))
            if time.monotonic() >= deadline:
                raise NoDaemon(log.explain(f"the daemon was not ready after {START_SECONDS:.0f} seconds"))
            gone = started.ends(_RETRY_MILLISECONDS)
    finally:
        started.close()


class _Log:
    """The file of a daemon's stderr, and where in it the daemon we start begins to write."""

    def __init__(self, path: str) -> None:
        self.path = path
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.start = os.fstat(descriptor).st_size
        if self.start > _LOG_BYTES:
            os.ftruncate(descriptor, 0)
            self.start = 0
        self.descriptor = descriptor

    def explain(self, sentence: str) -> str:
        """Add the daemon's last words to ``sentence``, which end in what mends it, and where to read them all."""
        words = self._last_words()
        if not words:
            return f"{sentence} (log: {self.path}). To see why, start it by hand: acp-ledgerd"
        return f"{sentence}: {words} (log: {self.path})"

    def _last_words(self) -> str:
        """Give the error a daemon ended with, hint and all, fit for a terminal; else the last line; else nothing."""
        with open(self.path, "rb") as file:
            file.seek(max(self.start, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
        filled = [line.strip() for line in lines if line.strip()]
        errors = [number for number, line in enumerate(filled) if line.startswith(_ERROR)]
        last = in_one_line("\n".join(filled[errors[-1] if errors else -1 :])).removeprefix(_ERROR)
        return "".join(c for c in last if c.isprintable())[:_WORDS_CHARACTERS]
