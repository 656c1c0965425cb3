"""What is installed: the three programs, the packages they need, the migrations they carry.

What must not be broken here: only programs of ours are run, with `--version` and nothing else.
"""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import subprocess
import sysconfig
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_ledger.ctl.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.ctl.doctor.finding import Case

PROGRAMS: Final = ("acp-ledgerd", "acp-ledger-run", "ledgerctl")
VERSION_SECONDS: Final = 20.0
_HEAD_BYTES: Final = 4096
_INSTALL: Final = "pip install --force-reinstall acp-ledger"


def programs(_case: Case) -> Iterator[Finding]:
    """The three programs are found, and are of this version."""
    version = metadata.version("acp-ledger")
    yield Finding("ok", "programs", f"acp-ledger {version} on Python {platform.python_version()}")
    folder = Path(sysconfig.get_path("scripts"))
    missing = [name for name in PROGRAMS if not (folder / name).exists() and shutil.which(name) is None]
    if missing:
        yield Finding("fail", "programs", f"not installed: {', '.join(missing)}", _INSTALL)
    unseen = [name for name in PROGRAMS if shutil.which(name) is None and name not in missing]
    if unseen:
        sentence = f"not on PATH, so that editors need the full path: {', '.join(unseen)} in {folder}"
        yield Finding("warn", "programs", sentence, f'export PATH="{folder}:$PATH"')
    for name in PROGRAMS:
        if (found := shutil.which(name)) is not None:
            yield _program(name, found, folder / name, version)


def _program(name: str, found: str, ours: Path, version: str) -> Finding:
    if ours.exists() and Path(found).samefile(ours):
        return Finding("ok", "programs", f"{name} is {found}")
    if not _is_ours(Path(found)):
        sentence = f"another program is called {name} and comes first on PATH: {found}"
        mend = f"call {ours}, or acp-ledgerctl" if name == "ledgerctl" else f'export PATH="{ours.parent}:$PATH"'
        return Finding("warn", "programs", sentence, mend)
    return _other(name, found, version)


def _is_ours(program: Path) -> bool:
    """Whether a program is a script that starts this package, of whatever version."""
    try:
        with program.open("rb") as script:
            return b"acp_ledger" in script.read(_HEAD_BYTES)
    except OSError:
        return False


def _other(name: str, found: str, version: str) -> Finding:
    """A program of another installation: fine when it is the same version."""
    said = _version_of(found)
    if said == version:
        return Finding("ok", "programs", f"{name} is {found}, of another installation, also {version}")
    sentence = f"{name} on PATH is another version ({said or 'it does not say which'}): {found}"
    return Finding("fail", "programs", sentence, f"install {version} there too, or take it off PATH")


def _version_of(program: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603  # a program of ours, by its full path
            [program, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    words = done.stdout.split()
    return words[-1] if words else None


def runner(_case: Case) -> Iterator[Finding]:
    """What editors start works, and how long it takes to start."""
    program = Path(sysconfig.get_path("scripts")) / "acp-ledger-run"
    if not program.exists():
        return  # told among the programs
    begun = time.perf_counter()
    if _version_of(str(program)) is None:
        yield Finding("fail", "runner", f"{program} does not start", f"try it: {program} --version")
    else:
        yield Finding("ok", "runner", f"acp-ledger-run starts in {(time.perf_counter() - begun) * 1000:.0f} ms")


def migrations(_case: Case) -> Iterator[Finding]:
    """The schema's history is part of the installation, for a new ledger is made from it."""
    from acp_ledger.store import schema

    folder = schema.scripts()
    if any(folder.glob(f"versions/{schema.HEAD}*.py")):
        yield Finding("ok", "migrations", f"the migrations are installed, up to schema {schema.HEAD}")
    else:
        yield Finding("fail", "migrations", f"{folder} does not reach schema {schema.HEAD}", _INSTALL)


def home(_case: Case) -> Iterator[Finding]:
    """HOME and the passwd entry agree: an editor may hand on no HOME, and must find the same daemon."""
    named = os.environ.get("HOME", "")
    try:
        entry = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        entry = named
    if named.startswith("/") and os.path.realpath(named) != os.path.realpath(entry):
        sentence = (
            f"HOME is {named!r}, and the passwd entry says {entry!r}: an editor that hands on no HOME takes the latter"
        )
        yield Finding(
            "warn", "home", sentence, "set the same HOME everywhere, or name ledger and socket in the settings"
        )
    else:
        yield Finding("ok", "home", f"HOME is {named or entry!r}, with or without an environment")
