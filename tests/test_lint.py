"""The linters, as tests: one run says everything, and nothing that they find is left for later."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = Path(sys.executable).parent

TRIO = sorted(
    str(path)
    for folder in ("acp_ledger", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if re.search(r"\basync (def|with|for)\b", path.read_text(encoding="utf-8"))
)
"""Where there is something to find: it takes a second a file."""

COMMANDS = {
    "ruff finds nothing": ["ruff", "check", "--no-cache", "."],
    "ruff would format nothing": ["ruff", "format", "--no-cache", "--check", "."],
    "mypy is content": ["mypy"],
    "flake8-async finds nothing": ["flake8-async", "--startable-in-context-manager=run", *TRIO],
    "interrogate finds every test described": ["interrogate", "--quiet", "tests"],
}


@pytest.mark.lint
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_tree_is_clean(command: list[str]) -> None:
    """What a linter says is the reason of the failure."""
    script = str(SCRIPTS / command[0])
    done = subprocess.run([script, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
