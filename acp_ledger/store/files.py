"""The file of a SQLite ledger: that it is ours alone, that it stays where it was, and that one daemon writes it.

What must not be broken here: no descriptor on the database file is opened and closed while SQLite has it open, for
closing one drops SQLite's POSIX locks. So a file is told by its device and inode, and the lock is a file of its own.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from acp_ledger import paths
from acp_ledger.errors import DatabaseRefused, LedgerLocked, NoLedger
from acp_ledger.store.faults import MEND_NO_LEDGER, LedgerMoved

if TYPE_CHECKING:
    from types import TracebackType

NETWORK: Final = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("smb2", "smb3", "smbfs"),
        *("fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
"""Filesystems on which SQLite's write-ahead log does not work: it needs memory shared with every other reader."""

MEND_MOVED: Final = "put the file back, or restart acp-ledgerd to begin a new ledger; nothing was forwarded meanwhile"


LOG_BYTES: Final = 4 << 20
"""How far the write-ahead log is laid out when a ledger is opened: some hundred idle lines."""


class FileIdentity(NamedTuple):
    """Which file a path leads to."""

    device: int
    inode: int


def prepare(path: Path) -> None:
    """Make the ledger's directory (0700) and file (0600) where they are missing, and refuse unsafe ones.

    Raises:
        DatabaseRefused: The file or its directory cannot be ours alone, or lies on a network filesystem.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as failure:
        raise DatabaseRefused(
            f"the ledger's directory {path.parent} cannot be made: {failure.strerror}",
            hint="name another place with ACP_LEDGER_DATABASE__URL, or mend its rights",
        ) from failure
    refuse_network(path.parent)
    _refuse_open_directory(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        check_file(path)
    except OSError as failure:
        raise DatabaseRefused(
            f"the ledger's file {path} cannot be made: {failure.strerror}",
            hint=f"see who may write there: ls -ld {path.parent}",
        ) from failure
    else:
        os.close(descriptor)


def check_file(path: Path) -> FileIdentity:
    """Refuse a file that another name leads to, or that others may write to.

    Raises:
        NoLedger: There is no file.
        DatabaseRefused: It is a link, has a second name, is no file, or others may write to it.
    """
    try:
        found = path.lstat()
    except FileNotFoundError as missing:
        raise NoLedger(f"there is no ledger at {path}", hint=MEND_NO_LEDGER) from missing
    except OSError as failure:
        raise DatabaseRefused(f"{path} cannot be read: {failure.strerror}", hint=f"ls -l {path}") from failure
    _refuse_kind(path, found.st_mode)
    if found.st_nlink != 1:
        raise DatabaseRefused(
            f"{path} has {found.st_nlink} names (hard links), so others may write to it under another",
            hint=f"find them with: find / -xdev -inum {found.st_ino}",
        )
    if found.st_uid != os.geteuid():
        raise DatabaseRefused(
            f"{path} belongs to the user with id {found.st_uid}",
            hint=f"run the command as that user: sudo -u '#{found.st_uid}' …",
        )
    if found.st_mode & 0o022:
        raise DatabaseRefused(f"others may write to {path}", hint=f"chmod 600 {path}")
    return FileIdentity(found.st_dev, found.st_ino)


def refuse_strange(path: Path) -> None:
    """For a reader: refuse what leads to no file, in the words the daemon has for it. A missing path passes.

    Raises:
        DatabaseRefused: The path is a directory or another thing that is no file, or a symbolic link to nothing.
    """
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) and path.exists():
            mode = path.stat().st_mode
    except OSError:
        return  # whoever opens it says why it cannot be opened
    _refuse_kind(path, mode)


def _refuse_kind(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise DatabaseRefused(f"{path} is a symbolic link", hint=f"name the file itself: {os.path.realpath(path)}")
    if stat.S_ISDIR(mode):
        raise DatabaseRefused(
            f"{path} is a directory", hint=f"name a file for the ledger, such as {path / 'ledger.db'}"
        )
    if not stat.S_ISREG(mode):
        raise DatabaseRefused(f"{path} is not a file", hint="name a file for the ledger")


def _refuse_open_directory(folder: Path) -> None:
    mode = folder.stat().st_mode
    if mode & 0o002 and not mode & stat.S_ISVTX:
        raise DatabaseRefused(f"everybody may replace files in {folder}", hint=f"chmod o-w {folder}")


def refuse_network(folder: Path, mounts: str | None = None) -> None:
    """Refuse a folder on a network filesystem; `mounts` has the words of /proc/self/mountinfo.

    Raises:
        DatabaseRefused: The folder lies on one.
    """
    kind = filesystem(folder, mounts)
    if kind in NETWORK:
        raise DatabaseRefused(
            f"{folder} is on a network filesystem ({kind}), where SQLite cannot keep a ledger safely",
            hint="put the ledger on a local disk, or use Postgres (ACP_LEDGER_DATABASE__URL)",
        )


def filesystem(folder: Path, mounts: str | None = None) -> str | None:
    """The type of the filesystem a folder lies on, None where the system does not tell."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    real = os.path.realpath(folder)
    best, kind = -1, None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:  # noqa: PLR2004  # the mount point is the fifth word of a line
            continue
        point = fields[4].encode("utf-8", "surrogateescape").decode("unicode_escape", "replace")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), right.split(" ")[0]
    return kind


def lay_log(path: Path, size: int = LOG_BYTES) -> None:
    """Give SQLite's write-ahead log `size` bytes of disk before anybody waits for a commit.

    A commit into bytes that the file already has flushes half as much as one that makes the file longer. What lies
    behind the log's last valid frame means nothing to SQLite. This only saves time, so that it may fail.
    """
    with suppress(OSError):
        descriptor = os.open(f"{path}-wal", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            end = os.fstat(descriptor).st_size
            if end < size:
                os.pwrite(descriptor, bytes(size - end), end)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)  # locks of this process are on other files, so that none is lost by it


class FileWatch:
    """Tells after each commit whether SQLite still writes to the files the ledger's path leads to.

    SQLite commits happily into a file that was deleted or renamed. The write-ahead log is watched with the file: a
    commit in a deleted log is lost with the last connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._log = self._path + "-wal"
        self._files = check_file(path)
        self._logs: FileIdentity | None = None

    def check_database(self) -> None:
        """Compare the database's file with the one that was opened.

        Raises:
            LedgerMoved: They differ.
        """
        self._compare(self._path, self._files)

    def check(self) -> None:
        """After a commit, compare the database's file and its log with those that were opened.

        Raises:
            LedgerMoved: They differ.
        """
        self._compare(self._path, self._files)
        self._logs = self._compare(self._log, self._logs)

    def _compare(self, path: str, expected: FileIdentity | None) -> FileIdentity:
        try:
            found = os.lstat(path)
        except OSError as failure:
            raise LedgerMoved(
                f"{path} is gone while the ledger is open: {failure.strerror}", hint=MEND_MOVED
            ) from failure
        identity = FileIdentity(found.st_dev, found.st_ino)
        if found.st_nlink != 1 or (expected is not None and identity != expected):
            raise LedgerMoved(f"{path} was replaced while the ledger is open", hint=MEND_MOVED)
        return identity


class InstanceLock:
    """The lock of the one daemon that may write a SQLite ledger, beside the file's real path.

    It is held as long as the process lives; the file stays behind.
    """

    def __init__(self, ledger_file: Path) -> None:
        self._path = paths.instance_lock(os.fspath(ledger_file))
        self._descriptor = self._take(ledger_file)

    def _take(self, ledger_file: Path) -> int:
        while True:
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except OSError as failure:
                raise DatabaseRefused(
                    f"the lock {self._path} cannot be opened: {failure.strerror}",
                    hint=f"see who owns it: ls -l {self._path}",
                ) from failure
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as held:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                os.close(descriptor)
                raise LedgerLocked(
                    f"another daemon (pid {holder or 'unknown'}) is the writer of {ledger_file}",
                    hint="talk to it with ledgerctl status" + (f", or stop it: kill {holder}" if holder else ""),
                ) from held
            if self._is_current(descriptor):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
                return descriptor
            os.close(descriptor)

    def _is_current(self, descriptor: int) -> bool:
        """Whether the file we locked is still the one the path leads to."""
        ours = os.fstat(descriptor)
        try:
            there = os.lstat(self._path)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    def release(self) -> None:
        """Let the next daemon in."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
