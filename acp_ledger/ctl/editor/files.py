"""Settings files of others: read whole, backed up, and replaced in one step.

What must not be broken here: nothing is written over what somebody else wrote since it was read; a reader sees the old
file or the new one and never half; mode, owner and every link that leads to the file stay as they are.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from acp_ledger.errors import LedgerError

LONGEST: Final = 16 * 2**20
"""Bytes of the largest file that is taken for settings."""

_STORES: Final = ("/nix/store/", "/gnu/store/")
_NOBODY_ELSE: Final = 0o600


class EditRefused(LedgerError):
    """A settings file is one we must not change. Nothing was changed."""


class ReadOnlySettings(EditRefused):
    """The file is made by something else, or must not be written: the user has to add our words where it is made."""


class Settings(NamedTuple):
    """A settings file as it was read: the path it is known by, where it really is, and its bytes (None: no file)."""

    named: Path
    path: Path
    content: bytes | None


def read(named: Path) -> Settings:
    """Read a settings file, through links; one that is not there has no content.

    Raises:
        EditRefused: It is no plain file, or larger than any settings.
        OSError: It cannot be read.
    """
    path = Path(os.path.realpath(named))
    return Settings(named, path, _content(path))


def _content(path: Path) -> bytes | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise EditRefused(f"{path} is no plain file")
    if found.st_size > LONGEST:
        raise EditRefused(f"{path} has {found.st_size:,} bytes, and no settings are that large")
    return path.read_bytes()


def check_writable(settings: Settings) -> None:
    """Refuse a file that we must not replace.

    Raises:
        ReadOnlySettings: It is read-only, or lies in the store of a system that makes it.
        EditRefused: It is another user's, or has several names, of which a replacement would leave all but one.
    """
    path = settings.path
    if settings.content is None:
        return
    found = path.stat()
    if str(path).startswith(_STORES) or not found.st_mode & stat.S_IWUSR or not os.access(path.parent, os.W_OK):
        raise ReadOnlySettings(
            f"{path} is read-only, so nothing was changed",
            hint="make the change that is shown above where the file is made, or make it writable and try again",
        )
    if found.st_uid != os.geteuid():
        raise EditRefused(f"{path} belongs to user id {found.st_uid}; run this command as that user")
    if found.st_nlink > 1:
        raise EditRefused(
            f"{path} has {found.st_nlink} names (hard links), and replacing it would part them",
            hint="name one of them with a symbolic link instead, or add the entry by hand",
        )


def back_up(settings: Settings, now: datetime | None = None) -> Path | None:
    """Copy the file beside itself, with its mode and owner, and give the copy's path; None where there is no file."""
    if settings.content is None:
        return None
    moment = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    stem = f"{settings.path.name}.acp-ledger-{moment}"
    for name in (f"{stem}.bak", *(f"{stem}-{count}.bak" for count in range(2, 100))):
        with suppress(FileExistsError):
            return _write_beside(settings.path, name, settings.content)
    raise EditRefused(f"there are too many backups of this second beside {settings.path}")


def replace(settings: Settings, content: bytes) -> None:
    """Put new content in the file's place, in one step.

    Between the last look at the file and the step there is a moment in which another program's write would be lost; it
    is as short as it can be made, and the backup is of what was read.

    Raises:
        EditRefused: Somebody changed the file since it was read.
    """
    if settings.content is None:
        settings.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = _write_beside(settings.path, f".{settings.path.name}.acp-ledger-{os.getpid()}.new", content)
    try:
        _check_unchanged(settings)
        if settings.content is None:
            os.link(new, settings.path)  # fails where somebody made the file meanwhile
            new.unlink()
        else:
            new.replace(settings.path)
    except FileExistsError:
        new.unlink()
        raise _changed(settings) from None
    except BaseException:
        new.unlink()
        raise
    _sync(settings.path.parent)


def remove(settings: Settings) -> None:
    """Remove a file that we made.

    Raises:
        EditRefused: Somebody changed it since it was read.
    """
    _check_unchanged(settings)
    settings.path.unlink()
    _sync(settings.path.parent)


def _check_unchanged(settings: Settings) -> None:
    if os.path.realpath(settings.named) != str(settings.path) or _content(settings.path) != settings.content:
        raise _changed(settings)


def _changed(settings: Settings) -> EditRefused:
    return EditRefused(
        f"{settings.path} was changed by another program in the meantime, so nothing was written",
        hint="save and close it in the editor, then run the same command again",
    )


def _write_beside(model: Path, name: str, content: bytes) -> Path:
    """Write a new file beside another, on disk when this returns, with the mode and the owner of that other."""
    path = model.with_name(name)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _NOBODY_ELSE)
    try:
        with open(descriptor, "wb", closefd=True) as file:  # noqa: PTH123  # a descriptor, no path
            file.write(content)
            file.flush()
            _take_after(model, path, descriptor)
            os.fsync(descriptor)
    except BaseException:
        path.unlink()
        raise
    return path


def _take_after(model: Path, path: Path, descriptor: int) -> None:
    """Give a file the owner, mode and extended attributes of another, but a time of its own."""
    if not model.exists():
        return
    wanted, found = model.stat(), os.fstat(descriptor)
    if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
        os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
    shutil.copystat(model, path)
    os.utime(path)


def _sync(folder: Path) -> None:
    """Make sure that a name reached the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
