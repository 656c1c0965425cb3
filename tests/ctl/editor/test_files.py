"""Replacing a settings file: in one step, as it was in every other way, and never over somebody else's words."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from acp_ledger.ctl.editor import files

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = b"old\n", b"new\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file."""
    path = tmp_path / "settings.json"
    path.write_bytes(OLD)
    return path


def test_replacement_keeps_mode_and_links(file: Path, tmp_path: Path) -> None:
    """Mode, extended attributes and the symbolic links to the file stay; nothing is left beside it."""
    file.chmod(0o640)
    os.setxattr(file, "user.origin", b"home")
    link = tmp_path / "elsewhere" / "link.json"
    link.parent.mkdir()
    link.symlink_to("../settings.json")
    files.replace(files.read(link), NEW)
    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (NEW, 0o640)
    assert os.getxattr(file, "user.origin") == b"home"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "settings.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_replacement_keeps_the_group(file: Path) -> None:
    """The file belongs to whom it belonged before."""
    os.chown(file, os.geteuid(), 4321)
    files.replace(files.read(file), NEW)
    assert (file.read_bytes(), file.stat().st_gid) == (NEW, 4321)


def test_replacement_is_on_disk_before_it_takes_the_place(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut leaves the old file or the new one: first the words, then the step, then the folder that names it."""
    steps: list[tuple[str, int]] = []
    sync, step, folder = os.fsync, type(file).replace, file.parent.stat().st_ino

    def note_sync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        assert found.st_ino == folder or found.st_size == len(NEW)
        steps.append(("on disk", found.st_ino))
        sync(descriptor)

    def note_step(new: Path, target: Path) -> Path:
        steps.append(("in place", new.stat().st_ino))
        return step(new, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(type(file), "replace", note_step)
    files.replace(files.read(file), NEW)
    new = file.stat().st_ino
    assert steps == [("on disk", new), ("in place", new), ("on disk", folder)]


def test_backup_is_on_disk(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What undo needs outlives a power cut, too."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    backup = files.back_up(files.read(file))
    assert backup is not None
    assert synced == [backup.stat().st_ino]


def test_replacement_is_a_new_file(file: Path) -> None:
    """Who has the old file open goes on reading the old one: nothing is ever written into it."""
    with file.open("rb") as reader:
        files.replace(files.read(file), NEW)
        assert reader.read() == OLD
    assert file.read_bytes() == NEW


def test_change_in_the_meantime_is_kept(file: Path) -> None:
    """What another program wrote after we read is not overwritten, and nothing of ours is left behind."""
    settings = files.read(file)
    file.write_bytes(b"theirs\n")
    with pytest.raises(files.EditRefused, match="changed by another program"):
        files.replace(settings, NEW)
    assert file.read_bytes() == b"theirs\n"
    assert list(file.parent.iterdir()) == [file]


def test_link_led_elsewhere_in_the_meantime_is_a_change(file: Path, tmp_path: Path) -> None:
    """A link that leads to another file of the same content by now is no longer the file that was read."""
    other, link = tmp_path / "other.json", tmp_path / "link.json"
    other.write_bytes(OLD)
    link.symlink_to(file)
    settings = files.read(link)
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(files.EditRefused, match="changed by another program"):
        files.replace(settings, NEW)
    assert (file.read_bytes(), other.read_bytes()) == (OLD, OLD)


def test_file_that_appeared_in_the_meantime_is_kept(tmp_path: Path) -> None:
    """Where there was no file, one that somebody made meanwhile stays."""
    settings = files.read(tmp_path / "new" / "acp.json")
    settings.path.parent.mkdir()
    settings.path.write_bytes(OLD)
    with pytest.raises(files.EditRefused, match="changed by another program"):
        files.replace(settings, NEW)
    assert settings.path.read_bytes() == OLD


def test_new_file_is_private(tmp_path: Path) -> None:
    """A settings file that we make, and its directory, are for its user alone: keys may come to stand in it."""
    settings = files.read(tmp_path / "new" / "acp.json")
    files.replace(settings, NEW)
    assert settings.path.read_bytes() == NEW
    assert settings.path.stat().st_mode & 0o777 == 0o600
    assert settings.path.parent.stat().st_mode & 0o777 == 0o700


def test_backups_of_one_second_do_not_overwrite_each_other(file: Path) -> None:
    """Two backups at the same moment are two files, with the mode of the original."""
    file.chmod(0o640)
    first = files.back_up(files.read(file))
    file.write_bytes(NEW)
    second = files.back_up(files.read(file))
    assert first is not None
    assert second is not None
    assert (first.read_bytes(), second.read_bytes()) == (OLD, NEW)
    assert first.stat().st_mode & 0o777 == 0o640


def test_removal_keeps_what_somebody_wrote(file: Path) -> None:
    """A file of ours that was changed is not removed."""
    settings = files.read(file)
    file.write_bytes(b"theirs\n")
    with pytest.raises(files.EditRefused):
        files.remove(settings)
    assert file.read_bytes() == b"theirs\n"


def test_hard_links_are_not_parted(file: Path) -> None:
    """A file with two names is refused, for a replacement would change one of them only."""
    file.with_name("other.json").hardlink_to(file)
    with pytest.raises(files.EditRefused, match="2 names"):
        files.check_writable(files.read(file))


def test_read_only_file_is_refused(file: Path) -> None:
    """A file that its owner, or the system that makes it, protected is not replaced."""
    file.chmod(0o444)
    with pytest.raises(files.ReadOnlySettings, match="read-only"):
        files.check_writable(files.read(file))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_file_of_another_user_is_refused(file: Path) -> None:
    """Not even root replaces another user's settings."""
    os.chown(file, 1234, -1)
    with pytest.raises(files.EditRefused, match="belongs to user id 1234"):
        files.check_writable(files.read(file))


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    """A pipe is not waited for, and a directory not read."""
    pipe = tmp_path / "settings.json"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(files.EditRefused, match="no plain file"):
            files.read(path)


def test_huge_file_is_refused(file: Path) -> None:
    """What is far too large for settings is not read."""
    os.truncate(file, files.LONGEST + 1)
    with pytest.raises(files.EditRefused, match="no settings are that large"):
        files.read(file)
