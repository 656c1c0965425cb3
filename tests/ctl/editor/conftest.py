"""What tests of `ledgerctl editor` share: a home directory with a runner in it, and the golden settings files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from click.testing import Result

    from tests.ctl.conftest import Cli

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "editors"
PLACES: Final = {
    "zed": ".config/zed/settings.json",
    "jetbrains": ".jetbrains/acp.json",
    "vscode": ".config/Code/User/settings.json",
}
"""Where the editors look, below the home directory."""

MIA: Final = "/home/mia"
"""The home directory in the golden files."""


class Desk:
    """A home directory and `ledgerctl editor` in it."""

    def __init__(self, home: Path, cli: Cli) -> None:
        self.home = home
        self._cli = cli
        self.runner = home / ".local/bin/acp-ledger-run"
        self.runner.parent.mkdir(parents=True)
        self.runner.write_text("#!/bin/sh\n")
        self.runner.chmod(0o755)

    def settings(self, editor: str, content: bytes | None = None) -> Path:
        """The settings file of an editor, with this content if one is given."""
        file = self.home / PLACES[editor]
        if content is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return file

    def setup(self, editor: str, *arguments: str) -> Result:
        """`editor setup` without asking."""
        return self._cli("editor", "setup", editor, "--yes", "--runner", str(self.runner), *arguments)

    def undo(self, editor: str, *arguments: str) -> Result:
        """`editor undo` without asking."""
        return self._cli("editor", "undo", editor, "--yes", *arguments)

    def run(self, *arguments: str, stdin: str | None = None) -> Result:
        """Any command of `ledgerctl editor`."""
        return self._cli("editor", *arguments, stdin=stdin)

    def here(self, golden: bytes) -> bytes:
        """A golden content, in this home directory."""
        return golden.replace(b"RUNNER", str(self.runner).encode()).replace(MIA.encode(), os.fsencode(self.home))

    def golden(self, content: bytes) -> bytes:
        """A content of this home directory, as the golden files have it."""
        return content.replace(os.fsencode(self.home), MIA.encode())


@pytest.fixture
def desk(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A home directory of the test's own, which is also where `ledgerctl` looks."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return Desk(tmp_path, cli)
