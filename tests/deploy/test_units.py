"""The units as systemd reads them: understood by the oldest one we ship for, confined as far as agents stand it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from acp_ledger import paths

FOLDER: Final = Path(__file__).parents[2] / "deploy/systemd"
USER: Final = FOLDER / "user/acp-ledgerd.service"
SYSTEM: Final = FOLDER / "system/acp-ledgerd@.service"
DAEMON: Final = Path(sys.executable).with_name("acp-ledgerd")

BREAKS_AGENTS: Final = {
    "ProtectKernelTunables": "a sandbox that mounts its own /proc",
    "ProtectKernelLogs": "likewise",
    "ProtectProc": "likewise, and agents look at processes",
    "ProcSubset": "likewise",
    "ProtectControlGroups": "containers without root",
    "RestrictNamespaces": "bubblewrap, podman, every agent's own sandbox",
    "MemoryDenyWriteExecute": "Node, Java, .NET",
    "LockPersonality": "gdb, rr and ThreadSanitizer, which switch address randomization off",
    "ProtectHome": "the project",
    "PrivateTmp": "files shared with the editor",
    "PrivateUsers": "files of other owners",
    "PrivateDevices": "GPU, KVM, FUSE",
    "DevicePolicy": "likewise",
    "ProtectClock": "likewise",
    "PrivateNetwork": "the model",
    "IPAddressDeny": "likewise",
    "RestrictSUIDSGID": "tar -p, package builds",
    "ProtectHostname": "bwrap --hostname",
    "LimitCORE": "debugging a crash",
    "LimitNOFILE": "build tools",
    "LimitNPROC": "likewise",
    "MemoryMax": "likewise",
}
"""What confines a daemon and would break its children, and what of theirs."""

NEEDED_CALLS: Final = {
    *("ptrace", "mount", "umount2", "pivot_root", "chroot", "seccomp", "unshare", "setns", "clone", "clone3", "bpf"),
    *("landlock_create_ruleset", "perf_event_open", "personality", "memfd_create", "io_uring_setup", "keyctl"),
}
"""System calls of sandboxes, containers and debuggers."""

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze; on Debian and Ubuntu: sudo apt install systemd"
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A home into which pipx has put the daemon, and the runtime directory that a user's manager has."""
    (tmp_path / ".local/bin").mkdir(parents=True)
    (tmp_path / ".local/bin/acp-ledgerd").symlink_to(DAEMON)
    (tmp_path / "run").mkdir(mode=0o700)
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}


def analyze(environ: dict[str, str], *arguments: str | Path) -> tuple[int, str]:
    """Ask systemd-analyze; gives its status and its words."""
    command = ["systemd-analyze", *map(str, arguments)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def copied(unit: Path, folder: Path, *drop_ins: str) -> Path:
    """A unit, and those beside it, where a test may change them; the daemon is where this one is installed."""
    folder = folder / "units"
    shutil.copytree(unit.parent, folder)
    for name in drop_ins:
        (folder / f"{unit.name}.d").mkdir(exist_ok=True)
        shutil.copy(FOLDER / "drop-in" / name, folder / f"{unit.name}.d")
    made = folder / unit.name
    made.write_text(made.read_text().replace("/opt/acp-ledger/bin/acp-ledgerd", str(DAEMON)))
    return made


def settings_of(unit: Path) -> dict[str, str]:
    """The directives of a unit."""
    return dict(re.findall(r"(?m)^(\w+)=(.*)$", unit.read_text()))


@pytest.mark.parametrize("drop_ins", [(), ("allow-privileges.conf",)], ids=["alone", "with privileges"])
def test_user_units_are_understood(environ: dict[str, str], tmp_path: Path, drop_ins: tuple[str, ...]) -> None:
    """A user's manager has nothing to say to the service, its socket and its drop-in."""
    unit = copied(USER, tmp_path, *drop_ins)
    found = analyze(environ, "--user", "verify", "--man=no", unit, unit.with_suffix(".socket"))
    assert found == (0, "")


@pytest.mark.parametrize("drop_ins", [(), ("hardened.conf",)], ids=["alone", "hardened"])
def test_system_units_are_understood(environ: dict[str, str], tmp_path: Path, drop_ins: tuple[str, ...]) -> None:
    """The system's manager has nothing to say to the template of service and socket, and to its drop-in."""
    unit = copied(SYSTEM, tmp_path, *drop_ins)
    found = analyze(environ, "verify", "--man=no", unit, unit.with_suffix(".socket"))
    assert found == (0, "")


def test_verification_finds_what_is_wrong(environ: dict[str, str], tmp_path: Path) -> None:
    """The control: a directive that systemd 252 does not know, and a program that is not there, are found."""
    unit = copied(USER, tmp_path)
    unit.write_text(unit.read_text().replace("RestartSec=2s", "RestartSec=2s\nRestartStepz=3"))
    assert "RestartStepz" in analyze(environ, "--user", "verify", "--man=no", unit)[1]
    (tmp_path / ".local/bin/acp-ledgerd").unlink()
    assert analyze(environ, "--user", "verify", "--man=no", unit)[0] != 0


def exposure(environ: dict[str, str], unit: Path, *manager: str) -> float:
    """How exposed systemd finds a unit, from 0 to 10."""
    status, words = analyze(environ, *manager, "security", "--offline=true", "--no-pager", unit)
    assert status == 0, words
    return float(re.findall(r"exposure level for .*: ([\d.]+)", words)[0])


def test_exposure_is_bounded(environ: dict[str, str], tmp_path: Path) -> None:
    """As little exposed as units can be whose children are coding agents."""
    assert exposure(environ, USER, "--user") <= 7.8
    assert exposure(environ, SYSTEM) <= 4.7
    assert exposure(environ, copied(SYSTEM, tmp_path, "hardened.conf")) < exposure(environ, SYSTEM)


@pytest.mark.parametrize("unit", [USER, SYSTEM], ids=["user", "system"])
def test_nothing_breaks_agents(unit: Path) -> None:
    """No directive is set that agents, who inherit it, do not stand."""
    assert not BREAKS_AGENTS.keys() & settings_of(unit).keys()
    assert settings_of(unit).get("ProtectSystem", "full") == "full"


@pytest.mark.parametrize("unit", [USER, SYSTEM], ids=["user", "system"])
def test_filter_leaves_sandboxes_and_debuggers_their_calls(environ: dict[str, str], unit: Path) -> None:
    """None of the sets that are denied holds a system call that sandboxes, containers or debuggers need."""
    denied = settings_of(unit)["SystemCallFilter"]
    assert denied.startswith("~")
    status, words = analyze(environ, "syscall-filter", "--no-pager", *denied.removeprefix("~").split())
    assert status == 0
    assert not NEEDED_CALLS & set(words.split())


def test_socket_is_where_runners_look(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's socket unit listens at the path that runner and `ledgerctl` take by default."""
    runtime = tmp_path / str(os.getuid())
    runtime.mkdir(mode=0o700)
    monkeypatch.setattr(paths, "RUNTIME_ROOT", str(tmp_path))
    listen = settings_of(USER.with_suffix(".socket"))["ListenStream"]
    assert listen.replace("%t", str(runtime)) == paths.socket_path(environ, os.getuid())


@pytest.mark.parametrize("unit", [USER, SYSTEM], ids=["user", "system"])
def test_manager_and_daemon_agree(unit: Path) -> None:
    """Statuses that no restart mends are not restarted; the daemon is notified of, watched, reloaded by HUP."""
    found = settings_of(unit)
    assert found["Type"] == "notify"
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert found["RestartPreventExitStatus"] == "2 13 78"
    assert found["KillMode"] == "mixed"
    assert "StateDirectory" not in settings_of(USER), "it would be another directory than the daemon's own"
