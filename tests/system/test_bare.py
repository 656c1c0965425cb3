"""Many editors at once with nothing but PATH, no daemon yet, and then every one of them killed with its group."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.system import bare

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.slow

OWN: Final = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")


def _own_machine(home: Path, command: Sequence[str]) -> list[str]:
    """The command, where the passwd entry alone says that this is the home, and /run and processes are its own."""
    (home.parent / "passwd").write_text(f"me:x:0:0::{home}:/bin/sh\n")
    script = f"mount --bind {home.parent}/passwd /etc/passwd && mount -t tmpfs none /run && exec {shlex.join(command)}"
    return [*OWN, "/bin/sh", "-c", script]


def test_path_alone_and_every_group_killed(tmp_path: Path) -> None:
    """Twenty runners get one daemon and are all served; it outlives them, their agents do not, and the ledger tells."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    if subprocess.run(_own_machine(home, ["/bin/true"]), capture_output=True, check=False).returncode:
        pytest.skip("namespaces cannot be made here; let them: sysctl kernel.apparmor_restrict_unprivileged_userns=0")
    command = _own_machine(home, [sys.executable, "-m", bare.__name__])
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["heard"] == [bare.LINE.decode()] * bare.RUNNERS
    assert len(found["daemons"]) == 1
    assert found["agents"] == bare.RUNNERS
    assert found["descendants"] == [[]] * bare.RUNNERS
    assert found["ended"]
    assert found["closings"] == ["editor_ended"] * bare.RUNNERS
    assert found["still"] == found["daemons"]
    assert found["status"]["status"] == 0, found["status"]
    assert str(home / ".local/share/acp-ledger/ledger.db") in found["status"]["output"]
    assert json.loads(found["transports"]["output"])["sql"] == [{"n": bare.RUNNERS}], found["transports"]
    assert found["again"] == bare.LINE.decode()
    assert sorted(path.name for path in home.iterdir()) == [".local"]
