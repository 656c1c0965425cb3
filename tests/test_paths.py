"""One answer for three programs, whatever environment they are given."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from acp_ledger import paths

if TYPE_CHECKING:
    from pathlib import Path

UID = os.getuid()


@pytest.fixture
def no_runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a directory of ours under /run/user, and the place to make one."""
    monkeypatch.setattr(paths, "RUNTIME_ROOT", str(tmp_path))
    return tmp_path / str(UID)


def test_home_is_what_the_environment_says() -> None:
    """HOME counts first, as everywhere."""
    assert paths.home({"HOME": "/home/mia"}, UID) == "/home/mia"


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_home_missing_is_the_passwd_entry(environ: dict[str, str]) -> None:
    """An editor that hands on PATH alone gets the same paths as a shell."""
    assert paths.home(environ, UID) == pwd.getpwuid(UID).pw_dir


def test_home_nowhere_is_an_error() -> None:
    """A user id without an entry is told what to set."""
    with pytest.raises(paths.PathError, match="set HOME"):
        paths.home({}, 4_000_000_000)


def test_xdg_variables_change_nothing(no_runtime: Path) -> None:
    """Of two programs one may have them and the other not, and both must meet."""
    assert not no_runtime.exists()
    bare = {"HOME": "/h"}
    rich = {**bare, **{f"XDG_{name}": "/x" for name in ("RUNTIME_DIR", "STATE_HOME", "DATA_HOME", "CONFIG_HOME")}}
    for path in (paths.socket_path, paths.state_directory, paths.default_ledger_url, paths.config_files):
        assert path(rich, UID) == path(bare, UID)


def test_files_lie_where_the_documentation_says(no_runtime: Path) -> None:
    """Backups and unit files name these paths."""
    assert not no_runtime.exists()
    environ = {"HOME": "/home/mia/"}
    state = "/home/mia/.local/state/acp-ledger"
    assert paths.default_ledger_url(environ, UID) == "sqlite:////home/mia/.local/share/acp-ledger/ledger.db"
    assert paths.config_files(environ, UID) == (
        "/home/mia/.config/acp-ledger/config.toml",
        "/etc/acp-ledger/config.toml",
    )
    assert paths.socket_path(environ, UID) == f"{state}/ledgerd.sock"
    assert paths.spawn_lock(environ, UID) == f"{state}/spawn.lock"
    assert paths.daemon_log(environ, UID) == f"{state}/daemon.log"
    assert paths.daemon_id_file(environ, UID) == f"{state}/daemon-id"


def test_socket_prefers_a_runtime_directory_of_ours(no_runtime: Path) -> None:
    """It is emptied at logout, and no other user can write there."""
    no_runtime.mkdir(mode=0o700)
    assert paths.socket_path({"HOME": "/h"}, UID) == f"{no_runtime}/acp-ledger/ledgerd.sock"


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_socket_avoids_a_runtime_directory_others_write_to(no_runtime: Path, mode: int) -> None:
    """Whoever can write there can put a socket of his own in the way."""
    no_runtime.mkdir()
    no_runtime.chmod(mode)
    assert paths.socket_path({"HOME": "/h"}, UID) == "/h/.local/state/acp-ledger/ledgerd.sock"


def test_socket_avoids_a_runtime_directory_of_another(no_runtime: Path) -> None:
    """The number in its name is no proof of whose it is."""
    no_runtime.mkdir(mode=0o700)
    (no_runtime.parent / str(UID + 1)).mkdir(mode=0o700)
    assert paths.runtime_directory(UID + 1) is None


def test_chosen_socket_asks_flag_then_environment_then_default(no_runtime: Path) -> None:
    """Only where neither named it may a daemon be started unasked."""
    assert not no_runtime.exists()
    environ = {"HOME": "/h", "ACP_LEDGER_SOCKET__PATH": "/env.sock"}
    assert paths.chosen_socket(environ, UID, "/flag.sock") == ("/flag.sock", False)
    assert paths.chosen_socket(environ, UID) == ("/env.sock", False)
    assert paths.chosen_socket({"HOME": "/h"}, UID) == ("/h/.local/state/acp-ledger/ledgerd.sock", True)


def test_chosen_socket_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A daemon changes its directory, so the words it is told must not depend on one."""
    monkeypatch.chdir(tmp_path)
    assert paths.chosen_socket({"HOME": "/h"}, UID, "near.sock") == (f"{tmp_path}/near.sock", False)


def test_socket_path_is_bounded_in_bytes() -> None:
    """The kernel counts bytes, and its own error says nothing."""
    paths.check_socket_path("/" + "a" * 106)
    with pytest.raises(paths.PathError, match="108 bytes"):
        paths.check_socket_path("/" + "a" * 107)
    with pytest.raises(paths.PathError, match="109 bytes"):
        paths.check_socket_path("/" + "é" * 54)


def test_socket_path_with_nul_is_refused() -> None:
    """The kernel would cut it there and listen somewhere else."""
    with pytest.raises(paths.PathError, match="NUL"):
        paths.check_socket_path("/a\0b")


def test_instance_lock_follows_links(tmp_path: Path) -> None:
    """Two names of one ledger must not let in two daemons."""
    real = tmp_path / "real.db"
    link = tmp_path / "link.db"
    link.symlink_to(real)
    assert paths.instance_lock(str(link)) == paths.instance_lock(str(real)) == f"{real}.lock"


def test_private_directory_is_made_for_us_alone(tmp_path: Path) -> None:
    """Prompts and keys pass through what lies in it."""
    wanted = tmp_path / "a" / "b"
    paths.make_private_directory(str(wanted), UID)
    paths.make_private_directory(str(wanted), UID)
    assert wanted.stat().st_mode & 0o777 == 0o700


def test_private_directory_refuses_what_others_write_to(tmp_path: Path) -> None:
    """The sentence holds the command that mends it."""
    tmp_path.chmod(0o777)
    with pytest.raises(paths.PathError, match=f"chmod go-w {tmp_path}"):
        paths.make_private_directory(str(tmp_path), UID)


def test_private_directory_refuses_a_file(tmp_path: Path) -> None:
    """What is in the way is named, not removed."""
    wanted = tmp_path / "file"
    wanted.touch()
    with pytest.raises(paths.PathError, match="file"):
        paths.make_private_directory(str(wanted), UID)
    with pytest.raises(paths.PathError, match="cannot make the directory"):
        paths.make_private_directory(f"{wanted}/below/there", UID)
