"""What `editor print` prints: word for word what the pages show, and quoted for the language it stands in."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from acp_ledger.ctl.editor.catalog import AGENTS, EDITORS
from acp_ledger.errors import ExitCode
from tests.ctl.editor.conftest import GOLDEN

if TYPE_CHECKING:
    from tests.ctl.editor.conftest import Desk

RUNNER: Final = "/home/mia/.local/bin/acp-ledger-run"
PAGE: Final = Path(__file__).parents[3] / "docs" / "editors.md"
ODD: Final = ("/opt/my agent/run", 'say "hi"', "it's", "back\\slash", "$HOME `x` é 🎈", "--", "")
"""A command whose words are hard to quote."""
NAMES: Final = [editor.name for editor in EDITORS]


def printed(desk: Desk, *arguments: str) -> str:
    """What is printed for the runner of the pages."""
    done = desk.run("print", *arguments[:1], "--runner", RUNNER, *arguments[1:])
    assert done.exit_code == ExitCode.OK, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_snippet_is_the_golden_one_and_that_of_the_page(desk: Desk, name: str) -> None:
    """The pages show what the command prints."""
    text = printed(desk, name)
    assert text == (GOLDEN / "print" / name).read_text(encoding="utf-8")
    shown = re.search(rf"<!-- editor print {name} -->\n```\w*\n(.*?)```\n", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1] == text


def _json(text: str) -> list[str]:
    (entry,) = next(iter(json.loads(text).values())).values()
    return [entry["command"], *entry["args"]]


def _acpx(text: str) -> list[str]:
    settings: dict[str, Any] = json.loads(text)
    words: list[str] = settings["agents"][settings["defaultAgent"]]["argv"]
    return words


def _lua(text: str) -> list[str]:
    strings = [found[1] for line in text.split("\n") for found in re.finditer(r'"((?:[^"\\]|\\\d{3})*)"', line)]
    words = [re.sub(r"\\(\d{3})", lambda found: chr(int(found[1])), string) for string in strings]
    return words[words.index(RUNNER) :]


def _elisp(text: str) -> list[str]:
    quoted = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    return [re.sub(r"\\(.)", r"\1", string) for string in quoted]


def _shell(text: str) -> list[str]:
    words = shlex.split(text)
    return shlex.split(next(word for word in words if RUNNER in word))


READERS: Final = {
    "zed": _json,
    "jetbrains": _json,
    "vscode": _json,
    "codecompanion": _lua,
    "avante": _lua,
    "agent-shell": _elisp,
    "toad": _shell,
    "acpx": _acpx,
    "marimo": _shell,
}


@pytest.mark.parametrize("name", NAMES)
def test_every_word_survives_its_quotes(desk: Desk, name: str) -> None:
    """Whatever the language, what is read back is the command that was given."""
    words = READERS[name](printed(desk, name, "--agent", "mine", "--", *ODD))
    expected = [RUNNER, "--agent", "mine", "--", *ODD]
    assert words[: len(expected)] == expected


def test_runner_is_named_by_its_absolute_path(desk: Desk) -> None:
    """The one beside `ledgerctl` is found, and a relative path is made absolute."""
    found = _json(desk.run("print", "zed").stdout)[0]
    assert found.startswith("/")
    assert Path(found).name == "acp-ledger-run"
    named = _json(desk.run("print", "zed", "--runner", "bin/acp-ledger-run").stdout)[0]
    assert named == str(Path("bin/acp-ledger-run").absolute())


@pytest.mark.parametrize("agent", [agent.name for agent in AGENTS])
def test_known_agents_need_no_command(desk: Desk, agent: str) -> None:
    """For every editor the common agents are known by name alone."""
    for name in NAMES:
        assert f"{agent}" in printed(desk, name, "--agent", agent)


def test_what_would_have_to_be_escaped_is_refused(desk: Desk) -> None:
    """A snippet is never printed as something else than it is, nor are a terminal's control characters."""
    done = desk.run("print", "toad", "--", "/bin/x", "\x1b[2J")
    assert (done.exit_code, done.stdout) == (ExitCode.USAGE, "")
    assert "\x1b" not in done.stderr
