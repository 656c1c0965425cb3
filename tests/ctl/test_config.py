"""`ledgerctl config`: what holds, where it comes from, and what is wrong with it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger import paths, settings, sources
from acp_ledger.ctl.config import line_of
from acp_ledger.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ctl.conftest import Cli

FILE = """
[database]
url = "postgresql://mia:se%40cret@db/acp"  # the team's

[agents.claude]
command = "npx"
env = { KEY = "sk-secret" }

[agents.claude.policy]
never_always = true
"""


@pytest.fixture
def usual(tmp_path: Path) -> Path:
    """The user's own settings file."""
    file = tmp_path / ".config/acp-ledger/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(FILE)
    file.chmod(0o600)
    return file


def shown(cli: Cli, *arguments: str) -> dict[str, dict[str, Any]]:
    """What `config show --origin` tells of every key."""
    result = cli("config", "show", "--origin", "-o", "json", *arguments)
    assert result.exit_code == ExitCode.OK, result.stderr
    return {row["key"]: row for row in json.loads(result.stdout)["settings"]}


def test_every_key_has_a_value_and_an_origin(cli: Cli, usual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag, a variable, a file's line and a default are told apart, and no key is left out."""
    monkeypatch.setenv("ACP_LEDGER_RELAY__STOP_SECONDS", "3")
    found = shown(cli)
    named = {key.replace("NAME", "claude") for key in sources.keys(settings.Settings)}
    # A table of settings within an agent is shown where it was given.
    assert {key for key in named if key.count(".") == 1} <= found.keys()
    assert found["relay.stop_seconds"]["origin"] == "ACP_LEDGER_RELAY__STOP_SECONDS"
    assert found["agents.claude.command"] == {
        "key": "agents.claude.command",
        "value": "npx",
        "origin": f"{usual}:6",
    }
    assert found["log.level"]["origin"] == "the default"
    own = [key for key in found if key.startswith("agents.claude.policy.")]
    assert own == ["agents.claude.policy.never_always"], "what an agent's own table does not say is as [policy] says"
    assert shown(cli, "-L", "/tmp/l.db")["database.url"]["origin"] == "a flag"  # noqa: S108  # a name, never opened


def test_line_is_told_of_a_file_that_is_named_from_here(cli: Cli, usual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However `--config` names the file, the origin says where it is, with the line."""
    monkeypatch.chdir(usual.parent)
    for name in (str(usual), usual.name, f"../{usual.parent.name}/{usual.name}"):
        origin = shown(cli, "--config", name)["agents.claude.command"]["origin"]
        file, _, line = origin.rpartition(":")
        assert (os.path.normpath(file), line) == (str(usual), "6")


def test_no_secret_is_shown(cli: Cli, usual: Path) -> None:
    """A password and an agent's variables are masked, in every form."""
    del usual
    for form in ("table", "json", "jsonl", "csv"):
        result = cli("config", "show", "--origin", "-o", form)
        assert "se%40cret" not in result.output
        assert "sk-secret" not in result.output
        assert "postgresql+psycopg://mia:***@db/acp" in result.stdout


def test_unset_socket_is_shown_as_the_path_that_is_used(cli: Cli, tmp_path: Path) -> None:
    """What people look for is where the daemon listens, set or not."""
    expected = paths.socket_path({"HOME": str(tmp_path)}, os.getuid())
    assert shown(cli)["socket.path"]["value"] == expected


def test_check_tells_every_problem_with_the_key_that_was_meant(cli: Cli, tmp_path: Path) -> None:
    """All of them at once, on stdout, and the status of a setting that cannot be used."""
    file = tmp_path / "new.toml"
    file.write_text('[databse]\nurl = "x"\n[limits]\nline_bytes = 0\n')
    result = cli("config", "check", str(file), "-o", "json")
    assert result.exit_code == ExitCode.USAGE
    problems = [row["problem"] for row in json.loads(result.stdout)["problems"]]
    assert problems[0] == f"{file}: databse.url: there is no such setting; did you mean database.url?"
    assert problems[1].startswith(f"{file}: limits.line_bytes: ")


def test_check_of_good_settings_is_quiet(cli: Cli, usual: Path) -> None:
    """Nothing but the header on stdout, and 0; a file that others may read is told of, with 3."""
    good = cli("config", "check")
    assert (good.exit_code, good.stdout) == (ExitCode.OK, "severity\tproblem\thint\n")
    usual.chmod(0o644)
    exposed = cli("config", "check")
    assert exposed.exit_code == ExitCode.INCOMPLETE
    assert f"chmod 600 {usual}" in exposed.stdout


def test_check_warns_of_a_ledger_without_a_socket(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon whose ledger comes from the environment would not start with these settings."""
    monkeypatch.setenv("ACP_LEDGER_DATABASE__URL", "sqlite:////nowhere/ledger.db")
    result = cli("config", "check")
    assert result.exit_code == ExitCode.INCOMPLETE
    assert "needs a socket of its own" in result.stdout


def test_path_tells_which_files_are_read(cli: Cli, usual: Path, tmp_path: Path) -> None:
    """In the order in which they count; a file that was named takes the place of both."""
    result = cli("config", "path")
    assert result.stdout.splitlines()[1] == f"{usual}\tread"
    named = tmp_path / "named.toml"
    assert cli("config", "path", "--config", str(named)).stdout.splitlines()[1:] == [f"{named}\tnot there"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[a]\nb = 1", 2),
        ("[ a ] # table\n\n b=1", 3),
        ("[x]\nb = 1\n[a]\nc = 1", None),
        ("a.b = 1", 1),
        ("a = { b = 1 }", None),
        ("[a]\nb = 1\n[a]\nb = 2", None),
        ("[a]\n# b = 1", None),
    ],
)
def test_line_is_told_only_where_it_is_plain(tmp_path: Path, text: str, line: int | None) -> None:
    """A wrong line is worse than none."""
    file = tmp_path / "c.toml"
    file.write_text(text)
    assert line_of(file, "a.b") == line
