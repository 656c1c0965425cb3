"""A daemon from the user's service manager, where one answers; and no harm from one that is missing, fails or hangs.

No service manager can be started in a test, for it wants a login session; so programs named `systemd-run` and
`systemctl` stand in for one that works: they do what the real ones do of what is asked of them, which is to start a
command in a session of its own, with the environment and the log it was given. That the real ones take these very
options is tested with the real ones, which find no manager here and say so.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger import manager
from tests.support.runners import BARE_PATH, Runners, runners
from tests.test_spawn import LINE, PATIENCE, House, _says

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["runners"]

RUN = """#!{python} -I
import json, os, signal, sys
at = sys.argv.index("--")
options, command = sys.argv[1:at], [word.replace("$$", "$") for word in sys.argv[at + 1:]]
given = [option.split("=", 1)[1] for option in options if option.startswith("--setenv=")]
log = next(option.split("append:", 1)[1] for option in options if "StandardError=append:" in option)
with open({told!r}, "a") as file:
    file.write(json.dumps({{"options": options, "environment": dict(os.environ)}}) + "\\n")
{mischief}
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number, name in ((0, os.devnull), (1, os.devnull), (2, log)):
            os.dup2(os.open(name, os.O_RDWR | os.O_APPEND), number)
        os.chdir("/")
        with open({pid!r} + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename({pid!r} + ".new", {pid!r})
        os.execve(command[0], command, {{name: os.environ[name] for name in given}})
    os._exit(0)
os.wait()
while not os.path.exists({pid!r}):
    pass
"""
SHOW = """#!{python} -I
import os
pid = open({pid!r}).read()
print(pid if os.path.exists("/proc/" + pid) else 0)
"""


BUS = """
<busconfig>
  <type>session</type>
  <listen>unix:path={}</listen>
  <policy context="default"><allow send_destination="*"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>
"""
"""A bus on which anybody may speak and nobody is started."""


class Managed:
    """A house whose user has a service manager."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.runtime = house.runners.folder / "run" / str(os.getuid())
        self.programs = house.runners.folder / "bin"
        self.environment = {"PATH": f"{self.programs}:{BARE_PATH}", "HOME": str(house.runners.folder), "KEY": "s3cret"}
        (self.runtime / "systemd").mkdir(parents=True, mode=0o700)
        self.runtime.chmod(0o700)
        self.programs.mkdir()
        # With a runtime directory the socket is there.
        house.socket = self.runtime / "acp-ledger" / "ledgerd.sock"
        house.socket.parent.mkdir(mode=0o700)
        house.daemon[2] = str(house.socket)
        with socket.socket(socket.AF_UNIX) as nobody:
            nobody.bind(str(self.runtime / "systemd" / "private"))

    def install(self, mischief: str = "") -> None:
        """Put the manager's programs in place; `mischief` is what goes wrong with the first."""
        folder = self.house.runners.folder
        words = {"python": sys.executable, "told": str(folder / "told"), "pid": str(folder / "pid")}
        for name, text in (("systemd-run", RUN), ("systemctl", SHOW)):
            (self.programs / name).write_text(text.format(mischief=mischief, **words))
            (self.programs / name).chmod(0o755)

    def talk(self) -> subprocess.CompletedProcess[bytes]:
        """Run one conversation."""
        process = self.house.start(env=self.environment)
        output, errors = process.communicate(LINE, timeout=PATIENCE)
        return subprocess.CompletedProcess([], process.returncode, output, errors)

    def told(self) -> list[dict[str, Any]]:
        """What the manager was asked, time by time."""
        return [json.loads(line) for line in (self.house.runners.folder / "told").read_text().splitlines()]


@pytest.fixture
def managed(runners: Runners) -> Iterator[Managed]:
    """Such a house; its daemon is stopped when the test is over."""
    house = House(runners)
    yield Managed(house)
    house.stop()


def test_manager_starts_the_daemon(managed: Managed) -> None:
    """It is the manager's child, gets what a daemon needs, and no secret stands in a command line."""
    managed.install()
    managed.environment["PGPASSWORD"] = "pw-canary"
    assert managed.talk().stdout == LINE
    (asked,) = managed.told()
    assert {"--user", "--collect", "--property=Type=exec", "--setenv=PGPASSWORD"} <= set(asked["options"])
    assert "pw-canary" not in json.dumps(asked["options"])
    assert asked["environment"]["XDG_RUNTIME_DIR"] == str(managed.runtime)
    assert "KEY" not in asked["environment"]
    (daemon,) = managed.house.daemons()
    assert daemon["pid"] == int((managed.house.runners.folder / "pid").read_text())
    assert daemon["environment"]["PGPASSWORD"] == "pw-canary"
    assert daemon["cwd"] == "/"


def test_daemon_of_a_manager_that_dies_at_once_is_explained(managed: Managed) -> None:
    """Its last words are in the answer, long before patience ends."""
    managed.install()
    managed.house.daemon = _says("acp-ledgerd: schema differs", "ledgerctl db upgrade")
    found = managed.talk()
    assert found.returncode == 69
    assert b"the daemon ended before it could be reached: schema differs. ledgerctl db upgrade (log: " in found.stdout


@pytest.mark.parametrize("mischief", ["sys.exit(1)", "os.kill(os.getpid(), 9)"])
def test_manager_that_refuses_leaves_it_to_the_runner(managed: Managed, mischief: str) -> None:
    """A manager that is going down, or has no room, keeps nobody from a daemon."""
    managed.install(mischief)
    assert managed.talk().stdout == LINE
    assert len(managed.told()) == len(managed.house.daemons()) == 1


def test_manager_that_hangs_is_not_waited_for(managed: Managed) -> None:
    """Its program is ended, and the runner starts the daemon itself."""
    hung_in = managed.house.runners.folder / "hung"
    managed.install(f"open({str(hung_in)!r}, 'w').write(str(os.getpid())); signal.pause()")
    assert managed.talk().stdout == LINE
    hung = int(hung_in.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(hung, 0)
    assert len(managed.house.daemons()) == 1


def test_missing_programs_are_no_manager(managed: Managed) -> None:
    """A socket without its programs starts nothing."""
    managed.environment["PATH"] = str(managed.programs)
    assert managed.talk().stdout == LINE
    assert len(managed.house.daemons()) == 1


def _needs(*programs: str) -> None:
    for name in programs:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is missing; on Debian and Ubuntu: sudo apt install systemd dbus-daemon")


def test_real_systemd_run_without_a_manager_costs_little(managed: Managed) -> None:
    """It finds nobody behind the socket, and the runner starts the daemon itself."""
    _needs("systemd-run")
    log = str(managed.runtime / "log")
    assert manager.start(["/bin/true"], managed.environment, str(managed.runtime), log) is None
    assert managed.talk().stdout == LINE
    assert len(managed.house.daemons()) == 1


@pytest.mark.parametrize(
    ("more", "complaint"),
    [([], "Failed to start transient service unit"), (["--property=Nonsense=1"], "Unknown assignment: Nonsense=1")],
)
def test_real_systemd_run_takes_our_options(tmp_path: Path, more: list[str], complaint: str) -> None:
    """With a bus that knows no manager it reads them all, and fails only when it asks."""
    _needs("systemd-run", "dbus-daemon")
    options = manager._options("acp-ledgerd-1.service", {"PATH": BARE_PATH}, str(tmp_path / "log"))
    (tmp_path / "bus.conf").write_text(BUS.format(tmp_path / "bus"))
    bus = ["dbus-daemon", f"--config-file={tmp_path}/bus.conf", "--nofork", "--print-address"]
    with subprocess.Popen(bus, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        address = running.stdout.readline().decode().strip()
        environment = {"PATH": BARE_PATH, "XDG_RUNTIME_DIR": str(tmp_path), "DBUS_SESSION_BUS_ADDRESS": address}
        command = ["systemd-run", *options, *more, "--", "/bin/true"]
        said = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, check=False)
        running.terminate()
    assert complaint in said.stderr.decode()
    assert said.returncode == 1


def test_manager_is_looked_for_at_its_socket_alone(managed: Managed) -> None:
    """Where there is none no program is run for it."""
    assert manager.is_there(str(managed.runtime))
    (managed.runtime / "systemd" / "private").unlink()
    assert not manager.is_there(str(managed.runtime))
    assert not manager.is_there(None)
    managed.install()
    assert managed.talk().stdout == LINE
    assert not (managed.house.runners.folder / "told").exists()
