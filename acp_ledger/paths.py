"""Where the ledger, its settings, its state and its socket lie: one answer for all three programs.

An editor may hand on an environment of ``PATH`` alone, a shell a rich one, systemd a third; whoever asks must get the
same answer, or a runner starts a second daemon beside the first. So only ``HOME`` is consulted, else the passwd entry,
and ``/run/user/UID`` where it is ours. ``XDG_*`` never counts. The rule that must not be broken here: nothing but the
standard library, and nothing slow, for the runner imports this module before its first byte.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # typing itself would cost the runner more than everything else here
if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_VARIABLE = "ACP_LEDGER_SOCKET__PATH"
"""The environment's spelling of the setting ``socket.path``; the runner reads it itself."""

SOCKET_PATH_BYTES = 107
"""Longest path a Unix socket can have on Linux: ``sun_path`` is 108 bytes with its closing NUL."""

SYSTEM_CONFIG = "/etc/acp-ledger/config.toml"
RUNTIME_ROOT = "/run/user"


class PathError(Exception):
    """A path cannot be worked out or must not be used; the text says which, why and what to do."""


def home(environ: Mapping[str, str], uid: int) -> str:
    """Give the home directory: an absolute ``HOME``, else the passwd entry of ``uid``.

    Raises:
        PathError: There is neither.
    """
    named = environ.get("HOME", "")
    if named.startswith("/"):
        return named
    import pwd  # read only where the environment is bare

    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        raise PathError(f"no home directory: HOME is not set and user id {uid} has no passwd entry; set HOME") from None


def config_files(environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Give the places of the configuration file, first to be looked at first."""
    return (_under_home(environ, uid, ".config/acp-ledger/config.toml"), SYSTEM_CONFIG)


def default_ledger_file(environ: Mapping[str, str], uid: int) -> str:
    """Give the SQLite file that is the ledger where no setting names another."""
    return _under_home(environ, uid, ".local/share/acp-ledger/ledger.db")


def default_ledger_url(environ: Mapping[str, str], uid: int) -> str:
    """Give the same as an SQLAlchemy URL."""
    return "sqlite:///" + default_ledger_file(environ, uid)


def state_directory(environ: Mapping[str, str], uid: int) -> str:
    """Give the directory of what a daemon keeps beside its ledger: its id, its spawn lock, its log."""
    return _under_home(environ, uid, ".local/state/acp-ledger")


def spawn_lock(environ: Mapping[str, str], uid: int) -> str:
    """Give the file whose flock decides which runner may start the daemon and unlink a stale socket."""
    return state_directory(environ, uid) + "/spawn.lock"


def daemon_log(environ: Mapping[str, str], uid: int) -> str:
    """Give the file that takes the stderr of a daemon which a runner started."""
    return state_directory(environ, uid) + "/daemon.log"


def daemon_id_file(environ: Mapping[str, str], uid: int) -> str:
    """Give the file that holds this installation's ``daemon_id``."""
    return state_directory(environ, uid) + "/daemon-id"


def instance_lock(ledger_file: str) -> str:
    """Give the lock of the one daemon that may write ``ledger_file``: beside its real path, whatever link led to it."""
    return os.path.realpath(ledger_file) + ".lock"


def runtime_directory(uid: int) -> str | None:
    """Give ``/run/user/UID`` where it is a directory of ``uid`` that nobody else may write to, else None."""
    path = f"{RUNTIME_ROOT}/{uid}"
    return path if _is_private(path, uid) else None


def socket_path(environ: Mapping[str, str], uid: int) -> str:
    """Give the default socket: in the runtime directory where it is ours, else in the state directory."""
    runtime = runtime_directory(uid)
    folder = f"{runtime}/acp-ledger" if runtime else state_directory(environ, uid)
    return folder + "/ledgerd.sock"


def chosen_socket(environ: Mapping[str, str], uid: int, flag: str | None = None) -> tuple[str, bool]:
    """Choose the socket: the flag, else ``ACP_LEDGER_SOCKET__PATH``, else the default one.

    Returns:
        The path, and whether it is the default one. Only for the default one may a daemon be started unasked.

    Raises:
        PathError: The path cannot be that of a Unix socket.
    """
    named = flag or environ.get(SOCKET_VARIABLE, "")
    path = os.path.abspath(named) if named else socket_path(environ, uid)
    check_socket_path(path)
    return path, not named


def check_socket_path(path: str) -> None:
    """Refuse a path no Unix socket can have.

    Raises:
        PathError: It is longer than 107 bytes, or holds NUL.
    """
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_BYTES:
        raise PathError(
            f"the socket path has {size} bytes and a Unix socket allows {SOCKET_PATH_BYTES}: {path}; "
            f"name a shorter one with --socket or {SOCKET_VARIABLE}",
        )
    if "\0" in path:
        raise PathError(f"the socket path holds a NUL byte: {path!r}")


def make_private_directory(path: str, uid: int) -> None:
    """Make ``path`` (and what is missing above it) with mode 0700, or accept it where it is ours alone to write.

    Raises:
        PathError: It cannot be made, is no directory, is another user's, or others may write to it.
    """
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as failure:
        raise PathError(f"cannot make the directory {path}: {failure.strerror}") from failure
    if not _is_private(path, uid):
        raise PathError(f"{path} is not a directory that only you may write to; mend it with: chmod go-w {path}")


def _is_private(path: str, uid: int) -> bool:
    """Tell whether ``path`` is a directory of ``uid`` that neither its group nor others may write to."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o022


def _under_home(environ: Mapping[str, str], uid: int, name: str) -> str:
    return home(environ, uid).rstrip("/") + "/" + name
