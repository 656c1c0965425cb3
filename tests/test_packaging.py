"""What is shipped: the wheel holds the package, its migrations, its types and its programs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path
from typing import Final

import pytest

from docs import man

ROOT: Final = Path(__file__).parent.parent
PROGRAMS: Final = {"acp-ledgerd", "ledgerctl", "acp-ledgerctl"}
RUNNER: Final = "scripts/acp-ledger-run"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files in a folder of their own, away from the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_wheel_holds_migrations_and_types(wheel: Path) -> None:
    """Every revision of the checkout is in the wheel, with what Alembic runs, the roles' SQL and the mark of types."""
    names = set(zipfile.ZipFile(wheel).namelist())
    revisions = {f"acp_ledger/_migrations/versions/{path.name}" for path in (ROOT / "migrations/versions").glob("*.py")}
    assert revisions
    others = {"acp_ledger/_migrations/env.py", "acp_ledger/_postgres/roles.sql", "acp_ledger/py.typed"}
    assert revisions | others <= names


def test_wheel_holds_the_units(wheel: Path) -> None:
    """The units for systemd are installed beside the programs, every one of them."""
    names = {name.partition(".data/data/")[2] for name in zipfile.ZipFile(wheel).namelist()}
    folder = ROOT / "deploy/systemd"
    places = {"user": "share/systemd/user", "system": "share/acp-ledger/systemd/system"}
    places["drop-in"] = "share/acp-ledger/systemd/drop-in"
    wanted = {f"{place}/{path.name}" for kind, place in places.items() for path in (folder / kind).iterdir()}
    assert len(wanted) == 6
    assert wanted <= names


def test_wheel_holds_the_manual(wheel: Path) -> None:
    """Every manual page is installed where `man` looks for it."""
    names = {name.partition(".data/data/")[2] for name in zipfile.ZipFile(wheel).namelist()}
    wanted = {f"share/man/man{page.rpartition('.')[2]}/{page}" for page in man.NAMES}
    assert wanted == {name for name in names if name.startswith("share/man/")}


def test_wheel_holds_the_cookbook(wheel: Path) -> None:
    """Every question of the checkout is in the wheel, for `ledgerctl sql --named` reads it from there."""
    questions = {f"acp_ledger/cookbook/{path.name}" for path in (ROOT / "acp_ledger/cookbook").glob("*.sql")}
    assert questions
    assert questions <= set(zipfile.ZipFile(wheel).namelist())


def test_wheel_holds_nothing_else(wheel: Path) -> None:
    """Tests, pages and caches stay in the checkout."""
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    (scripts,) = [top for top in tops if top.endswith(".data")]
    assert {top for top in tops if not top.endswith(".dist-info")} == {"acp_ledger", scripts}
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "__pycache__" in name]


def test_wheel_installs_every_program(installed: Path) -> None:
    """Each program's entry point can be imported from what was shipped."""
    (metadata,) = installed.glob("*.dist-info/entry_points.txt")
    parser = ConfigParser()
    parser.read(metadata)
    scripts = dict(parser["console_scripts"])
    assert set(scripts) == PROGRAMS
    for target in scripts.values():
        module, _, name = target.partition(":")
        assert _python(installed, f"import {module} as m; print(m.__file__, callable(m.{name}))") == (
            f"{installed / module.replace('.', '/')}.py True"
        )


def test_wheel_holds_the_runners_own_script(installed: Path) -> None:
    """The runner is no entry point, and its first line is one that installers replace by their interpreter."""
    (script,) = installed.glob(f"*.data/{RUNNER}")
    assert script.read_text() == (ROOT / "deploy" / "acp-ledger-run").read_text()
    assert script.read_text().startswith("#!python\n")


def test_installed_wheel_creates_a_ledger(installed: Path, tmp_path: Path) -> None:
    """Away from the checkout the package finds its migrations, and makes a ledger of its newest revision."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    code = (
        "from acp_ledger.store import engine, schema; "
        f"writer = engine.open_writer({url!r}); print(schema.prepare(writer).revision == schema.HEAD); writer.close()"
    )
    assert _python(installed, code) == "True"


def _python(installed: Path, code: str) -> str:
    """Run code with the shipped package first on the path, from a folder where the checkout is not."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ACP_LEDGER_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environ | {"PYTHONPATH": str(installed)},
        cwd=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("shell", "path"),
    [("bash", ROOT / ".ci/run"), *(("sh", path) for path in sorted((ROOT / "deploy").glob("*.sh")))],
    ids=lambda each: each.name if isinstance(each, Path) else each,
)
def test_script_parses(shell: str, path: Path) -> None:
    """Every script is one its shell can read to the end."""
    assert subprocess.run([shell, "-n", str(path)], check=False).returncode == 0
