"""Completion: the scripts are run by the shells they are for, and give our words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from acp_ledger.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ctl.conftest import Cli

HEAVY: Final = (
    "sqlalchemy",
    "alembic",
    "pydantic",
    "pydantic_settings",
    "rich",
    "trio",
    "structlog",
    "psycopg",
    "asyncio",
)

ASKING: Final = {
    "bash": """
source SCRIPT
complete -p ledgerctl acp-ledgerctl >&2
read -r -a COMP_WORDS <<< "$1"
[[ $1 == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_ledgerctl_completion "${COMP_WORDS[0]}"
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
compdef() { print -u2 compdef "$@"; }
compadd() { print -l -- ${(P)@[-1]}; }
_describe() { print -l -- ${${(P)3}%%:*}; }
source SCRIPT
words=(${(s: :)1})
[[ $1 == *' ' ]] && words+=('')
CURRENT=$#words
_ledgerctl_completion
""",
    "fish": """
source SCRIPT
complete -c ledgerctl >&2
complete -C "$argv[1]" | string split -f1 \\t; true
""",
}
"""How each shell is asked for the words that may follow a line; zsh's own helpers only print what they are given."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with `ledgerctl` in it."""
    script = tmp_path / "bin" / "ledgerctl"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m acp_ledger.ctl.main "$@"\n')
    script.chmod(0o755)
    return script


def completed(shell: str, program: Path, line: str) -> list[str]:
    """Ask a shell for the words that may follow a line."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here (apt install {shell})")
    environ = {**os.environ, "HOME": str(program.parent), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    made = subprocess.run([program, "completion", shell], capture_output=True, text=True, check=True, env=environ)
    assert made.stderr == ""
    script = program.with_name(f"completion.{shell}")
    script.write_text(made.stdout)
    asking = program.with_name(f"asking.{shell}")
    asking.write_text(ASKING[shell].replace("SCRIPT", str(script)))
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    command = [shell, *flags, str(asking), line]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert "acp-ledgerctl" in made.stdout
    return found.stdout.split()


@pytest.mark.parametrize("shell", ASKING)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ledgerctl se", ["sessions"]),
        ("ledgerctl db cu", ["current"]),
        ("ledgerctl sessions --requ", ["--require-match"]),
        ("ledgerctl sql --named turns-l", ["turns-longest"]),
        ("ledgerctl editor setup z", ["zed"]),
    ],
    ids=["command", "nested", "option", "named", "editor"],
)
def test_shell_completes_our_words(program: Path, shell: str, line: str, words: list[str]) -> None:
    """Commands, commands of groups, options and named questions are completed in each shell."""
    assert sorted(completed(shell, program, line)) == sorted(words)


@pytest.mark.parametrize("shell", ASKING)
def test_values_of_an_option_are_completed(program: Path, shell: str) -> None:
    """Behind -o stand the forms."""
    assert sorted(completed(shell, program, "ledgerctl sessions -o ")) == ["csv", "json", "jsonl", "table"]


@pytest.mark.parametrize(
    ("line", "words"), [("ledgerctl sql --named ", "plain,turns-longest"), ("ledgerctl prompt -o ", "plain,text")]
)
def test_completing_imports_nothing_heavy(program: Path, line: str, words: str) -> None:
    """A Tab costs click and the standard library, nothing more."""
    code = (
        "import atexit, sys\nfrom acp_ledger.ctl.main import main\n"
        f"atexit.register(lambda: print(sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr))\nmain()"
    )
    asked = {"_LEDGERCTL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "3"}
    environ = {**os.environ, "HOME": str(program.parent), **asked}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ)
    assert done.stderr == "[]\n"
    assert words in done.stdout


def test_other_shell_is_wrong_usage(cli: Cli) -> None:
    """What click cannot complete is refused with what it can."""
    result = cli("completion", "tcsh")
    assert result.exit_code == ExitCode.USAGE
    assert "'bash', 'zsh', 'fish'" in result.stderr
