"""Setup and undo on the settings files of `tests/golden/editors`: the change, the words, and the way back."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pytest

from acp_ledger.ctl.editor import jsonc
from acp_ledger.errors import ExitCode
from tests.ctl.editor.conftest import GOLDEN, Desk

if TYPE_CHECKING:
    from pathlib import Path

ADD_CLAUDE: Final = ("--agent", "claude")
ARGUMENTS: Final = {
    "zed-comments-only": ADD_CLAUDE,
    "zed-empty": ADD_CLAUDE,
    "zed-no-agents": ADD_CLAUDE,
    "zed-new": ADD_CLAUDE,
    "jetbrains-other": ("--agent", "mine", "--title", "My agent", "--", "/opt/mine/agent", 'say "hi"', "C:\\x"),
    "jetbrains-new": ADD_CLAUDE,
    "vscode-none": ADD_CLAUDE,
}
"""What is given to `setup` beside the editor."""

CASES: Final = sorted(path.name for path in GOLDEN.iterdir() if (path / "after").exists())
BEFORE: Final = sorted(path.name for path in GOLDEN.iterdir() if (path / "before").exists())
BACKUP: Final = re.compile(rb"backup: \S+")


class Case:
    """A golden case, set up in a home directory; without a file `before` there are no settings yet."""

    def __init__(self, name: str, desk: Desk) -> None:
        self.editor = name.partition("-")[0]
        self.folder: Path = GOLDEN / name
        self.desk = desk
        self.before = desk.here((self.folder / "before").read_bytes()) if name in BEFORE else None
        self.file = desk.settings(self.editor, self.before)
        self.arguments = ARGUMENTS.get(name, ())

    def set_up(self) -> tuple[bytes, bytes, bytes]:
        """Set up; the settings afterwards, the diff and what was said, as the golden files have it."""
        done = self.desk.setup(self.editor, *self.arguments)
        assert done.exit_code == ExitCode.OK, done.stderr
        said = BACKUP.sub(b"backup: BACKUP", done.stderr.encode())
        return tuple(map(self.desk.golden, (self.file.read_bytes(), done.stdout.encode(), said)))  # type: ignore[return-value]  # three in, three out


def edited(content: bytes) -> bytes:
    """Settings after their user wrote something above everything else."""
    return content.replace(b"{", b'{ // mine\n "user.wrote": [1, 2,], ', 1)


@pytest.mark.parametrize("name", CASES)
def test_setup_makes_the_golden_change(desk: Desk, name: str) -> None:
    """Settings, diff and words are the golden ones."""
    case = Case(name, desk)
    after, diff, said = case.set_up()
    assert after == (case.folder / "after").read_bytes()
    assert diff == (case.folder / "diff").read_bytes()
    assert said == (case.folder / "said").read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_second_setup_changes_nothing(desk: Desk, name: str) -> None:
    """What is set up already stays, to the byte, and no second backup is made."""
    case = Case(name, desk)
    case.set_up()
    before = {path: path.read_bytes() for path in case.file.parent.iterdir()}
    again = desk.setup(case.editor, *case.arguments)
    assert (again.exit_code, again.stdout) == (ExitCode.OK, "")
    assert again.stderr.endswith("already set\n")
    assert {path: path.read_bytes() for path in case.file.parent.iterdir()} == before


@pytest.mark.parametrize("name", CASES)
def test_undo_leaves_every_byte_as_it_was(desk: Desk, name: str) -> None:
    """Undo gives the file back as it was, mode and all, and leaves nothing beside it."""
    case = Case(name, desk)
    if case.before is not None:
        case.file.chmod(0o640)
    case.set_up()
    done = desk.undo(case.editor)
    assert done.exit_code == ExitCode.OK, done.stderr
    if case.before is None:
        assert list(case.file.parent.iterdir()) == []
        return
    assert case.file.read_bytes() == case.before
    assert case.file.stat().st_mode & 0o777 == 0o640
    assert list(case.file.parent.iterdir()) == [case.file]


@pytest.mark.parametrize("name", [name for name in BEFORE if name not in {"zed-comments-only", "zed-empty"}])
def test_undo_takes_only_our_part_from_what_the_user_edited(desk: Desk, name: str) -> None:
    """With an edit in between the file becomes what it was before, with that edit."""
    case = Case(name, desk)
    case.set_up()
    case.file.write_bytes(edited(case.file.read_bytes()))
    done = desk.undo(case.editor)
    assert done.exit_code == ExitCode.OK, done.stderr
    assert "only our part is taken out" in done.stderr
    assert case.before is not None
    assert case.file.read_bytes() == edited(case.before)


def test_undo_takes_the_comma_that_only_our_entry_needed(desk: Desk) -> None:
    """What the user wrote before our entry ends the object afterwards, as plain JSON."""
    case = Case("zed-empty", desk)
    case.set_up()
    case.file.write_bytes(case.file.read_bytes().replace(b"{", b'{\n  "user.wrote": true,', 1))
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert case.file.read_bytes() == b'{\n  "user.wrote": true\n}\n'


@pytest.mark.parametrize("name", BEFORE)
def test_everything_else_stays_as_it_was(desk: Desk, name: str) -> None:
    """No comment and no value outside the agents differs after a setup."""
    case = Case(name, desk)
    case.set_up()
    old, new = (jsonc.parse(content) for content in (case.before or b"", case.file.read_bytes()))
    assert [old.text(comment) for comment in old.comments] == [new.text(comment) for comment in new.comments]
    keys = {"agent_servers", "acp.agents"}
    rests = [{key: value for key, value in _root(document).items() if key not in keys} for document in (old, new)]
    assert rests[0] == rests[1]


def _root(document: jsonc.Document) -> dict[str, jsonc.Value]:
    return document.root.value if document.root and isinstance(document.root.value, dict) else {}


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("jetbrains")])
def test_plain_json_stays_plain_json(desk: Desk, name: str) -> None:
    """Settings that a strict parser reads are read by it afterwards too."""
    case = Case(name, desk)
    case.set_up()
    entries = json.loads(case.file.read_bytes())["agent_servers"].values()
    assert {entry["command"] for entry in entries} == {str(desk.runner)}
