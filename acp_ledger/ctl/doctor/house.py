"""The daemon's house: its settings, its socket, itself, its service.

What must not be broken here: a daemon that cannot commit is never in order, and nothing is asked of it but `status`.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import stat
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acp_ledger.ctl.doctor.finding import Finding
from acp_ledger.errors import DaemonUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from acp_ledger.ctl.doctor.finding import Case, Level

UNIT: Final = "acp-ledgerd"
SYSTEMCTL_SECONDS: Final = 10.0
_BOOTED: Final = Path("/run/systemd/system")
_LINGERING: Final = Path("/var/lib/systemd/linger")

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def configuration(case: Case) -> Iterator[Finding]:
    """The settings can be used, and nobody else may read a password in them."""
    from acp_ledger.settings import EXPOSED

    if case.settings is None:
        message = case.problem.message if case.problem else "the settings cannot be read"
        for line in message.splitlines():
            yield Finding("fail", "configuration", line, "see every problem: ledgerctl config check")
        return
    yield Finding("ok", "configuration", "the settings can be used; see them with ledgerctl config show --origin")
    if (exposed := case.settings.exposed_file()) is not None:
        mend = f"chmod 600 {shlex.quote(os.fspath(exposed))}"
        yield Finding("warn", "configuration", f"{exposed}: {EXPOSED}", mend)


def socket(case: Case) -> Iterator[Finding]:
    """The socket is one that only this user may connect to, where only this user may put another in its place."""
    from acp_ledger import paths

    if case.socket is None:
        return  # the daemon's silence says why
    try:
        paths.check_socket_path(case.socket)
    except paths.PathError as fault:
        yield Finding("fail", "socket", str(fault), "name a shorter one: [socket] path in the settings")
        return
    path = Path(case.socket)
    try:
        found, folder = path.lstat(), path.parent.stat()
    except FileNotFoundError:
        yield Finding("ok", "socket", f"there is no socket at {path}; a daemon makes it")
        return
    yield _socket_fault(path, found, folder) or Finding(
        "ok", "socket", f"the socket is {path}, mode {stat.S_IMODE(found.st_mode):04o}"
    )


def _socket_fault(path: Path, found: os.stat_result, folder: os.stat_result) -> Finding | None:
    quoted = shlex.quote(str(path))
    if not stat.S_ISSOCK(found.st_mode):
        return Finding("fail", "socket", f"{path} is no socket", f"look at it, then move it away: ls -l {quoted}")
    if found.st_uid != os.getuid():
        return Finding("fail", "socket", f"{path} belongs to user id {found.st_uid}, not to you", f"ls -l {quoted}")
    if folder.st_mode & _OTHERS_WRITE and not folder.st_mode & stat.S_ISVTX:
        sentence = f"others may put another socket into {path.parent}"
        return Finding("fail", "socket", sentence, f"chmod go-w {shlex.quote(str(path.parent))}")
    if found.st_mode & _OTHERS:
        return Finding("warn", "socket", f"others may connect to {path}", f"chmod 600 {quoted}")
    return None


def daemon(case: Case) -> Iterator[Finding]:
    """A daemon answers, of this version, with this ledger, and it commits; with none, a runner starts one."""
    from acp_ledger.ctl.operate import TROUBLE, duration, trouble

    if case.daemon is None:
        level: Level = "warn" if isinstance(case.silence, DaemonUnreachable) else "fail"
        message = case.silence.message if case.silence else "no daemon answers"
        yield Finding(level, "daemon", message, case.silence.hint if case.silence else None)
        return
    told = case.daemon
    sentence = f"the daemon answers: pid {told.get('pid')}, up {duration(told.get('uptime_seconds'))}"
    yield Finding("ok", "daemon", f"{sentence}, {len(told.get('transports', ()))} open transports{_managed(told)}")
    yield from _differences(case, told)
    if told.get("trouble"):
        mend = "see what holds: ledgerctl config check; then reload or restart the daemon"
        yield Finding("warn", "daemon", f"the daemon says: {told['trouble']}", mend)
    if kind := trouble(told):
        reason = (told.get("committer") or {}).get("error") or "no reason given"
        yield Finding("fail", "daemon", f"{TROUBLE[kind]}: {reason}", "mend that; the daemon goes on by itself")


def _managed(told: Mapping[str, Any]) -> str:
    """Whether a service manager looks after it, and how closely."""
    service = told.get("service") or {}
    if not service.get("managed"):
        return ""
    watchdog = service.get("watchdog_seconds")
    watched = f", watchdog {watchdog:.0f} s, missed {service.get('missed', 0)} times" if watchdog else ""
    return f", managed as a service{watched}"


def _differences(case: Case, told: Mapping[str, object]) -> Iterator[Finding]:
    version = metadata.version("acp-ledger")
    if told.get("version") != version:
        sentence = f"the daemon is version {told.get('version')}, this is {version}"
        yield Finding(
            "warn", "daemon", sentence, f"restart it: kill {told.get('pid')}; the next runner starts the new one"
        )
    if case.url is not None and told.get("ledger") != str(case.url):
        sentence = f"the daemon writes to {told.get('ledger')}, and these settings name {case.url}"
        mend = f"restart it if the settings changed: kill {told.get('pid')}"
        yield Finding("warn", "daemon", sentence, mend)


def service(_case: Case) -> Iterator[Finding]:
    """Where systemd runs: is there a user unit, and does it outlive a logout? Neither is needed."""
    if not _BOOTED.is_dir() or shutil.which("systemctl") is None:
        yield Finding("ok", "service", "no systemd runs here; the first runner starts the daemon")
        return
    units = {name: _unit(f"{UNIT}.{name}") for name in ("socket", "service")}
    if all(unit.get("LoadState") != "loaded" for unit in units.values()):
        yield Finding("ok", "service", f"no user unit {UNIT} is installed; the first runner starts the daemon")
        return
    for name, unit in units.items():
        if unit.get("ActiveState") == "failed":
            sentence = f"the user unit {UNIT}.{name} failed ({unit.get('Result')})"
            yield Finding("fail", "service", sentence, f"journalctl --user -u {UNIT} -n 20")
    words = ", ".join(
        f"{name} {unit.get('UnitFileState') or '-'}/{unit.get('ActiveState')}" for name, unit in units.items()
    )
    yield Finding("ok", "service", f"the user unit {UNIT} is installed: {words}")
    if not (_LINGERING / _user()).exists():
        sentence = "the daemon ends when you log out, and agents in a terminal multiplexer with it"
        yield Finding("warn", "service", sentence, "loginctl enable-linger")


def _unit(name: str) -> dict[str, str]:
    wanted = "LoadState,ActiveState,UnitFileState,Result"
    try:
        done = subprocess.run(  # noqa: S603  # fixed words
            ["systemctl", "--user", "show", "-p", wanted, name],  # noqa: S607  # from PATH, as people run it
            capture_output=True,
            text=True,
            timeout=SYSTEMCTL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {key: value for key, _, value in pairs}


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
