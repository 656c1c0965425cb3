"""What tests of `ledgerctl` share: a seeded ledger on each engine, and the command as a function."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol

import pytest
from click.testing import CliRunner, Result

from acp_ledger.ctl.main import root
from tests.ctl.seeding import seed

if TYPE_CHECKING:
    from pathlib import Path


class Cli(Protocol):
    """`ledgerctl` as a function: arguments and stdin in, output and exit code out."""

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        """Run it once."""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `ledgerctl` in this process, in a home that has no settings and no daemon."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(root, arguments, input=stdin, prog_name="ledgerctl")

    return run


@pytest.fixture
def seeded(ledger_url: str) -> str:
    """A ledger with a session that went well and a hostile one, on each engine in turn."""
    seed(ledger_url)
    return ledger_url


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    seed(f"sqlite:///{folder / 'ledger.db'}")
    return folder


@pytest.fixture
def seeded_file(tmp_path: Path, _template: Path) -> Path:
    """The same as a file of SQLite's."""
    shutil.copytree(_template, tmp_path / "ledger")
    return tmp_path / "ledger" / "ledger.db"
