"""`editor setup` and `editor undo`: asking, refusing, and taking back what somebody changed since."""

from __future__ import annotations

import errno
import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from acp_ledger.ctl.editor import editing
from acp_ledger.ctl.editor.plans import plan_setup
from acp_ledger.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from acp_ledger.ctl.editor.catalog import Editor
    from acp_ledger.ctl.editor.plans import Plan, Request
    from tests.ctl.editor.conftest import Desk

GOOSE: Final = (
    b'{\n  "agent_servers": {\n    "Goose": { "type": "custom", "command": "goose", "args": ["acp"] }\n  }\n}\n'
)
JOURNAL: Final = ".local/state/acp-ledger/editors.jsonl"
PATIENCE: Final = 60.0


def backups(file: Path) -> list[Path]:
    """The backups beside a settings file."""
    return sorted(file.parent.glob("*.bak"))


def test_without_a_terminal_only_yes_agrees(desk: Desk) -> None:
    """A script is told of `--yes`, and nothing is written."""
    file = desk.settings("zed", GOOSE)
    done = desk.run("setup", "zed", "--runner", str(desk.runner), stdin="y\n")
    assert done.exit_code == ExitCode.USAGE
    assert "--yes" in done.stderr
    assert '+    "Goose"' in done.stdout
    assert (file.read_bytes(), list(file.parent.iterdir())) == (GOOSE, [file])


def test_undo_that_is_only_shown_does_not_read_as_done(desk: Desk) -> None:
    """Without a terminal nothing is taken back, and no sentence says that it was."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    after = file.read_bytes()
    done = desk.run("undo", "zed", stdin="")
    assert (done.exit_code, file.read_bytes()) == (ExitCode.USAGE, after)
    assert "this makes it what it was before, to the byte" in done.stderr
    assert "nothing was changed" in done.stderr


def test_dry_run_shows_and_writes_nothing(desk: Desk) -> None:
    """With `--dry-run` the difference is shown and everything stays, whatever else is said."""
    file = desk.settings("zed", GOOSE)
    done = desk.setup("zed", "--dry-run")
    assert done.exit_code == ExitCode.OK
    assert '-    "Goose": { "type": "custom", "command": "goose"' in done.stdout
    assert (file.read_bytes(), list(file.parent.iterdir())) == (GOOSE, [file])


def test_half_a_line_in_the_journal_takes_no_setup_with_it(desk: Desk) -> None:
    """A program that was killed in the middle of its line costs that line alone."""
    file = desk.settings("zed", GOOSE)
    journal = desk.home / JOURNAL
    journal.parent.mkdir(parents=True, mode=0o700)
    journal.write_text('{"at": "2026-11-30T23')
    assert desk.setup("zed").exit_code == ExitCode.OK
    assert file.read_bytes() != GOOSE
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert file.read_bytes() == GOOSE


def test_agent_of_that_title_with_another_command_is_not_already_set(desk: Desk) -> None:
    """The same again changes nothing; another command is never dropped without a word."""
    file = desk.settings("zed", GOOSE)
    assert desk.setup("zed", "--agent", "mine", "--", "one").exit_code == ExitCode.OK
    after = file.read_bytes()
    assert desk.setup("zed", "--agent", "mine", "--", "one").exit_code == ExitCode.OK
    other = desk.setup("zed", "--agent", "mine", "--", "two")
    assert (other.exit_code, "with another command" in other.stderr) == (ExitCode.USAGE, True)
    assert file.read_bytes() == after


class Terminal:
    """`ledgerctl` on a terminal: what it shows can be waited for, and answered."""

    def __init__(self, desk: Desk, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "HOME": str(desk.home), "TERM": "dumb"}
        command = [sys.executable, "-m", "acp_ledger.ctl.main", "editor", *arguments]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        self.shown = b""

    def wait_for(self, text: bytes) -> None:
        """Read until a text was shown."""
        while text not in self.shown:
            self._read()

    def answer(self, text: bytes) -> int:
        """Type, and wait for the end; the status."""
        os.write(self._ours, text)
        status = self.process.wait(PATIENCE)
        while select.select([self._ours], [], [], 0)[0]:
            try:
                self._read()
            except OSError:
                break  # the other end of a terminal is gone
        os.close(self._ours)
        return status

    def _read(self) -> None:
        if not select.select([self._ours], [], [], PATIENCE)[0]:
            raise AssertionError(f"nothing more was shown after {self.shown!r}")
        self.shown += os.read(self._ours, 65_536)


def test_on_a_terminal_it_asks(desk: Desk) -> None:
    """The change is shown, asked for, and made once the answer is yes."""
    file = desk.settings("zed", GOOSE)
    terminal = Terminal(desk, "setup", "zed", "--runner", str(desk.runner))
    terminal.wait_for(b"Apply? [y/N]")
    assert file.read_bytes() == GOOSE
    assert terminal.answer(b"y\n") == ExitCode.OK
    assert b"saved." in terminal.shown
    assert str(desk.runner).encode() in file.read_bytes()


def test_no_is_no(desk: Desk) -> None:
    """Any other answer changes nothing."""
    file = desk.settings("zed", GOOSE)
    terminal = Terminal(desk, "setup", "zed", "--runner", str(desk.runner))
    terminal.wait_for(b"Apply? [y/N]")
    assert terminal.answer(b"\n") == ExitCode.FAILED
    assert b"nothing was changed" in terminal.shown
    assert (file.read_bytes(), list(file.parent.iterdir())) == (GOOSE, [file])


def test_change_while_it_asks_is_kept(desk: Desk) -> None:
    """What the editor saves while the question stands is not overwritten."""
    file = desk.settings("zed", GOOSE)
    terminal = Terminal(desk, "setup", "zed", "--runner", str(desk.runner))
    terminal.wait_for(b"Apply? [y/N]")
    theirs = GOOSE.replace(b"goose", b"duck")
    file.write_bytes(theirs)
    assert terminal.answer(b"y\n") == ExitCode.FAILED
    assert b"changed by another program" in terminal.shown
    assert (file.read_bytes(), list(file.parent.iterdir())) == (theirs, [file])
    again = desk.undo("zed")
    assert (again.exit_code, "no setup of Zed to undo" in again.stderr) == (ExitCode.FAILED, True)


@pytest.mark.parametrize(
    ("old", "new"), [(b'"theme": 1', b'"theme": 2'), (b"// mine", b"// ours"), (b'"command": "b"', b'"command": "c"')]
)
def test_plan_that_touches_more_is_not_carried_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, old: bytes, new: bytes
) -> None:
    """Should the planner ever err, the last look refuses its plan, and no file, backup or journal is written."""
    before = b'{"theme": 1, // mine\n"agent_servers": {"A": {"command": "a"}, "B": {"command": "b"}}}'
    file = desk.settings("jetbrains", before)

    def err(content: bytes, editor: Editor, request: Request) -> Plan:
        plan = plan_setup(content, editor, request)
        return plan._replace(content=plan.content.replace(old, new))

    monkeypatch.setattr(editing, "plan_setup", err)
    done = desk.setup("jetbrains", "--only", "A")
    assert (done.exit_code, file.read_bytes(), list(file.parent.iterdir())) == (ExitCode.FAILED, before, [file])
    assert "would touch more than our entries, so nothing was changed" in done.stderr
    assert not (desk.home / JOURNAL).exists()


def test_journal_knows_a_setup_before_the_settings_do(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at the step itself, a setup can be undone; one that the disk refused is withdrawn, its backup removed."""
    file = desk.settings("zed", GOOSE)
    known: list[str] = []

    def refuse(new: Path, target: Path) -> None:
        known.append((desk.home / JOURNAL).read_text().splitlines()[-1])
        assert new.read_bytes() != GOOSE
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        done = desk.setup("zed")
    assert [(line["do"], line["file"]) for line in map(json.loads, known)] == [("setup", str(file))]
    assert (done.exit_code, file.read_bytes(), list(file.parent.iterdir())) == (ExitCode.FAILED, GOOSE, [file])
    again = desk.undo("zed")
    assert (again.exit_code, "no setup of Zed to undo" in again.stderr) == (ExitCode.FAILED, True)


def test_what_cannot_be_read_is_refused_with_the_place(desk: Desk) -> None:
    """A file with an error is left alone; line, column and a remedy are told."""
    file = desk.settings("zed", GOOSE.replace(b": {", b" {", 1))
    done = desk.setup("zed")
    assert done.exit_code == ExitCode.FAILED
    assert done.stderr.splitlines() == [
        f'error: {file}, line 2, column 19: a ":" is expected here; nothing was changed',
        "hint: mend the file at that place, then try again",
    ]
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[]", "line 1, column 1: the settings must be an object in braces"),
        (b'{"agent_servers": []}', 'line 1, column 19: "agent_servers" must be an object in braces'),
        (b'{"agent_servers": {}, "agent_servers": {}}', 'line 1, column 23: "agent_servers" is given twice'),
    ],
)
def test_unexpected_settings_are_refused(desk: Desk, content: bytes, words: str) -> None:
    """Where it is not certain what the editor would read, nothing is changed."""
    file = desk.settings("zed", content)
    done = desk.setup("zed", "--agent", "claude")
    assert (done.exit_code, file.read_bytes()) == (ExitCode.FAILED, content)
    assert words in done.stderr


def test_read_only_settings_are_shown_the_change(desk: Desk) -> None:
    """Settings that something else makes get the change printed, to be made there."""
    file = desk.settings("zed", GOOSE)
    file.chmod(0o444)
    done = desk.setup("zed")
    assert (done.exit_code, file.read_bytes()) == (ExitCode.FAILED, GOOSE)
    assert f'"command": "{desk.runner}"' in done.stdout
    assert "read-only" in done.stderr


def test_agents_that_cannot_be_set_up_are_named(desk: Desk) -> None:
    """What stays unrecorded is told, with a remedy where there is one, and the status is that of a job not all done."""
    desk.settings(
        "zed",
        b'{"agent_servers": {"new-acp": {"type": "registry"}, "Odd": {"type": "custom", "command": ["x"]},'
        b' "Twice": 1, "Twice": 2, "Goose": {"type": "custom", "command": "goose"}}}',
    )
    done = desk.setup("zed")
    assert done.exit_code == ExitCode.INCOMPLETE
    assert '"new-acp" is started by Zed itself and is NOT recorded' in done.stderr
    assert "ledgerctl editor setup zed --agent new-acp -- COMMAND" in done.stderr
    assert 'agent "Odd" is left as it is: it has a command that is no text' in done.stderr
    assert 'agent "Twice" is left as it is: it is given twice' in done.stderr
    again = desk.setup("zed")
    assert (again.exit_code, again.stdout) == (ExitCode.INCOMPLETE, "")


def test_only_the_named_agent_is_set_up(desk: Desk) -> None:
    """`--only` leaves every other agent as it is; a name that is not there is an error that lists the names."""
    file = desk.settings("jetbrains", b'{"agent_servers": {"A": {"command": "a"}, "B": {"command": "b"}}}')
    assert desk.setup("jetbrains", "--only", "B").exit_code == ExitCode.OK
    commands = {name: entry["command"] for name, entry in json.loads(file.read_bytes())["agent_servers"].items()}
    assert commands == {"A": "a", "B": str(desk.runner)}
    wrong = desk.setup("jetbrains", "--only", "C")
    assert wrong.exit_code == ExitCode.USAGE
    assert "no agent is named C there (there are: A, B)" in wrong.stderr


@pytest.mark.parametrize("arguments", [("--only", "Goose", "--agent", "claude"), ("--title", "X")])
def test_contradictory_wishes_are_refused(desk: Desk, arguments: tuple[str, ...]) -> None:
    """Nothing that was typed is passed over in silence."""
    file = desk.settings("zed", GOOSE)
    assert desk.setup("zed", *arguments).exit_code == ExitCode.USAGE
    assert file.read_bytes() == GOOSE


def test_title_that_is_taken_is_refused(desk: Desk) -> None:
    """A new agent never takes the place of one that is there."""
    file = desk.settings("jetbrains", b'{"agent_servers": {"Mine": {"command": "a"}}}')
    done = desk.setup("jetbrains", "--title", "Mine", "--", "b")
    assert (done.exit_code, "setup jetbrains --title TITLE" in done.stderr) == (ExitCode.USAGE, True)
    assert file.read_bytes() == b'{"agent_servers": {"Mine": {"command": "a"}}}'


@pytest.mark.parametrize("rest", [(), ("--title", "Mine"), ("--", "/opt/claude")])
def test_new_agent_takes_over_what_its_registry_twin_is_set_to(desk: Desk, rest: tuple[str, ...]) -> None:
    """Named or not, it gets the settings of the one that the editor starts itself: a key in `env` goes along."""
    twin = b'{"agent_servers": {"claude-acp": {"type": "registry", "env": {"A": "1"}, "default_model": "m"}}}'
    file = desk.settings("zed", twin)
    done = desk.setup("zed", "--agent", "claude", *rest)
    (added,) = (entry for entry in json.loads(file.read_bytes())["agent_servers"].values() if entry["type"] == "custom")
    assert (added["env"], added["default_model"]) == ({"A": "1"}, "m")
    title = {"--title": "Mine", "--": "claude (ledger)"}.get("".join(rest[:1]), "Claude (ledger)")
    said = f'agent "claude-acp" is started by Zed itself and is NOT recorded; use "{title}" instead'
    assert said in done.stderr
    assert said in desk.setup("zed", "--agent", "claude", *rest).stderr
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert file.read_bytes() == twin


def test_named_agent_becomes_what_a_plain_setup_makes_of_it(desk: Desk) -> None:
    """`--agent claude` beside its registry entry gives the very bytes that a setup of all agents gives."""
    twin = b'{"agent_servers": {"claude-acp": {"type": "registry", "env": {"A": "1"}}}}'
    file = desk.settings("zed", twin)
    desk.setup("zed")
    plain = file.read_bytes()
    file.write_bytes(twin)
    assert desk.setup("zed", "--agent", "claude").exit_code == ExitCode.OK
    assert file.read_bytes() == plain


def test_agent_of_an_unknown_registry_keeps_its_settings(desk: Desk) -> None:
    """The command that is told for an agent we do not know takes its `env` along too."""
    file = desk.settings("zed", b'{"agent_servers": {"new-acp": {"type": "registry", "env": {"A": "1"}}}}')
    assert desk.setup("zed", "--agent", "new-acp", "--", "x").exit_code == ExitCode.OK
    assert json.loads(file.read_bytes())["agent_servers"]["new-acp (ledger)"]["env"] == {"A": "1"}


def test_configured_agent_needs_no_command(desk: Desk) -> None:
    """An agent of the ledger's own settings is named alone, for the daemon knows its command."""
    config = desk.home / ".config/acp-ledger/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[agents.mine]\ncommand = "/opt/mine/agent"\n')
    printed = desk.run("print", "jetbrains", "--agent", "mine", "--runner", str(desk.runner))
    assert json.loads(printed.stdout)["agent_servers"]["mine (ledger)"]["args"] == ["--agent", "mine"]


def test_no_agent_is_no_guess(desk: Desk) -> None:
    """Settings without agents, and agents without a known command, are asked for."""
    none = desk.setup("zed")
    assert (none.exit_code, "--agent claude" in none.stderr) == (ExitCode.USAGE, True)
    unknown = desk.setup("zed", "--agent", "nobody")
    assert (unknown.exit_code, "--agent nobody -- COMMAND" in unknown.stderr) == (ExitCode.USAGE, True)


def test_editors_that_are_code_are_only_printed(desk: Desk) -> None:
    """Nobody's Lua or Lisp is edited."""
    done = desk.setup("codecompanion")
    assert (done.exit_code, "ledgerctl editor print codecompanion" in done.stderr) == (ExitCode.USAGE, True)
    assert desk.setup("ed").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("runner", ["missing/acp-ledger-run", "/bin/sh"])
def test_runner_that_is_none_is_refused(desk: Desk, runner: str) -> None:
    """An editor is never told to start what is not there, or what nobody would know again."""
    file = desk.settings("zed", GOOSE)
    done = desk.run("setup", "zed", "--yes", "--runner", runner)
    assert (done.exit_code, file.read_bytes()) == (ExitCode.USAGE, GOOSE)


def test_settings_may_be_elsewhere(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The editors' own `XDG_CONFIG_HOME` is followed, `--file` names any file, and undo finds what was set up."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(desk.home / "xdg"))
    moved, project = desk.home / "xdg/zed/settings.json", desk.home / "project/.zed/settings.json"
    for file in (moved, project):
        file.parent.mkdir(parents=True)
        file.write_bytes(GOOSE)
    assert desk.setup("zed").exit_code == ExitCode.OK
    assert moved.read_bytes() != GOOSE
    done = desk.setup("zed", "--file", str(project))
    assert f"ledgerctl editor undo zed --file {project}" in done.stderr
    assert desk.undo("zed", "--file", str(project)).exit_code == ExitCode.OK
    assert (project.read_bytes(), moved.read_bytes() == GOOSE) == (GOOSE, False)
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert moved.read_bytes() == GOOSE


def test_settings_of_a_sister_editor_are_named(desk: Desk) -> None:
    """Where two editors of a family are there, the usual one is set up and the other is told."""
    settings = b'{"acp.agents": {"A": {"command": "a"}}}'
    usual, other = desk.settings("vscode", settings), desk.home / ".config/Cursor/User/settings.json"
    other.parent.mkdir(parents=True)
    other.write_bytes(settings)
    done = desk.setup("vscode")
    assert (usual.read_bytes() == settings, other.read_bytes()) == (False, settings)
    assert f"{other} is there too" in done.stderr


def test_undo_takes_every_setup_back(desk: Desk) -> None:
    """Two setups one after the other are undone at once, to the byte."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    desk.setup("zed", "--agent", "claude")
    assert len(backups(file)) == 2
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert (file.read_bytes(), backups(file)) == (GOOSE, [])
    again = desk.undo("zed")
    assert (again.exit_code, "no setup of Zed to undo" in again.stderr) == (ExitCode.FAILED, True)


def test_undo_with_an_edit_between_two_setups(desk: Desk) -> None:
    """What the user wrote between two setups stays, and so does the backup of what undo found."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    file.write_bytes(b"// mine\n" + file.read_bytes())
    desk.setup("zed", "--agent", "claude")
    found = file.read_bytes()
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert file.read_bytes() == b"// mine\n" + GOOSE
    assert found in [backup.read_bytes() for backup in backups(file)]


@pytest.mark.parametrize("spoil", [Path.unlink, lambda backup: backup.write_bytes(b"other")])
def test_undo_without_its_backup(desk: Desk, spoil: Callable[[Path], object]) -> None:
    """A backup that is gone, or is not what it was, is not needed and not believed."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    (backup,) = backups(file)
    spoil(backup)
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert file.read_bytes() == GOOSE


def test_undo_leaves_what_is_no_longer_ours(desk: Desk) -> None:
    """An entry that its user made into something else is left and named."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    desk.setup("zed", "--agent", "claude")
    theirs = file.read_bytes().replace(str(desk.runner).encode(), b"/opt/other", 1)
    file.write_bytes(theirs)
    done = desk.undo("zed")
    assert done.exit_code == ExitCode.INCOMPLETE
    assert 'agent "Goose" is left as it is' in done.stderr
    assert file.read_bytes() == GOOSE.replace(b'"goose", "args": [', b'"/opt/other", "args": ["--", "goose", ')


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (b"RUNNER", b"/opt/other"),
        (b"  }\n}", b'  , "Claude (ledger)": {"command": "RUNNER", "args": ["--", "x"]}}\n}'),
        (b'"args"', b'"command": "/opt/other",\n      "args"'),
    ],
)
def test_undo_leaves_an_added_entry_that_is_no_longer_ours(desk: Desk, ours: bytes, theirs: bytes) -> None:
    """An entry that we added and that starts something else by now, or that is there twice, is not removed."""
    file = desk.settings("jetbrains")
    desk.setup("jetbrains", "--agent", "claude")
    changed = file.read_bytes().replace(desk.here(ours), desk.here(theirs))
    file.write_bytes(changed)
    done = desk.undo("jetbrains")
    assert (done.exit_code, file.read_bytes()) == (ExitCode.INCOMPLETE, changed)
    assert 'agent "Claude (ledger)" is left as it is' in done.stderr


def test_undo_leaves_a_wrapped_agent_that_was_wrapped_again(desk: Desk) -> None:
    """Where our runner is not what the editor starts first, taking our words out could take others along."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    runner = str(desk.runner).encode()
    changed = file.read_bytes().replace(b'"%s", "args": [' % runner, b'"env", "args": ["A=b", "%s", ' % runner)
    file.write_bytes(changed)
    done = desk.undo("zed")
    assert (done.exit_code, file.read_bytes()) == (ExitCode.INCOMPLETE, changed)


@pytest.mark.parametrize("empty", [b"{ }\n", b"{\n}\n", b'{"agent_servers": {\n  }}', b'{"agent_servers": {}, "a": 1}'])
def test_undo_leaves_an_empty_object_as_empty_as_it_was(desk: Desk, empty: bytes) -> None:
    """The white space of an object that held nothing comes back, whatever is written elsewhere since."""
    file = desk.settings("zed", empty)
    desk.setup("zed", "--agent", "claude")
    file.write_bytes(file.read_bytes() + b"// mine\n")
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert file.read_bytes() == empty + b"// mine\n"


def test_undo_keeps_what_the_user_changed_in_a_wrapped_agent(desk: Desk) -> None:
    """Arguments, and even a command, that were changed since go on without us."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    file.write_bytes(file.read_bytes().replace(b'"goose", "acp"', b'"duck", "acp", "--loud"'))
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert file.read_bytes() == GOOSE.replace(b'"goose"', b'"duck"').replace(b'"acp"', b'"acp", "--loud"')


def test_undo_of_a_removed_entry(desk: Desk) -> None:
    """Where the user removed our part already, nothing is left to do, once."""
    file = desk.settings("zed", b"{}\n")
    desk.setup("zed", "--agent", "claude")
    file.write_bytes(b'{ "theme": "x" }\n')
    done = desk.undo("zed")
    assert (done.exit_code, done.stdout) == (ExitCode.OK, "")
    assert "nothing of ours is there any more" in done.stderr
    assert desk.undo("zed").exit_code == ExitCode.FAILED


@pytest.mark.parametrize("agent", [("--agent", "claude"), ()])
def test_undo_names_an_entry_of_ours_that_was_renamed(desk: Desk, agent: tuple[str, ...]) -> None:
    """An agent that goes on through the ledger under another name is told of, and is no job done."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed", *agent)
    renamed = file.read_bytes().replace(b'"Claude (ledger)"' if agent else b'"Goose"', b'"Mine"')
    file.write_bytes(renamed)
    done = desk.undo("zed")
    assert (done.exit_code, file.read_bytes()) == (ExitCode.INCOMPLETE, renamed)
    assert 'agent "Mine" runs through acp-ledger-run and is left as it is' in done.stderr
    assert "nothing of ours is there any more" not in done.stderr


def test_undo_of_two_setups_names_the_renamed_entry_alone(desk: Desk) -> None:
    """What undo can take out goes, and only what stays is named."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    desk.setup("zed", "--agent", "claude")
    file.write_bytes(file.read_bytes().replace(b'"Claude (ledger)"', b'"Mine"'))
    done = desk.undo("zed")
    agents = json.loads(file.read_bytes())["agent_servers"]
    assert (done.exit_code, list(agents), agents["Goose"]["command"]) == (
        ExitCode.INCOMPLETE,
        ["Goose", "Mine"],
        "goose",
    )
    assert done.stderr.count("is left as it is") == 1
    assert '"Mine" runs through acp-ledger-run and is left as it is' in done.stderr


def test_undo_of_what_was_not_renamed_names_no_entry_made_by_hand(desk: Desk) -> None:
    """Where all that we set up is found, an entry that somebody else put behind the ledger is none of our business."""
    file = desk.settings("zed", desk.here(b'{"agent_servers": {"Own": {"type": "custom", "command": "RUNNER"}}}'))
    desk.setup("zed", "--agent", "claude")
    file.write_bytes(b"// mine\n" + file.read_bytes())
    done = desk.undo("zed")
    assert (done.exit_code, "Own" in done.stderr) == (ExitCode.OK, False)


def test_undo_asks_too(desk: Desk) -> None:
    """Nothing is taken back unasked, and a dry run takes nothing back."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    after = file.read_bytes()
    assert desk.run("undo", "zed").exit_code == ExitCode.USAGE
    assert desk.undo("zed", "--dry-run").exit_code == ExitCode.OK
    assert file.read_bytes() == after
    assert desk.undo("zed").exit_code == ExitCode.OK


def test_journal_is_private_and_survives_a_torn_line(desk: Desk) -> None:
    """Nobody else reads the journal, and half a line of a killed program spoils nothing."""
    file = desk.settings("zed", GOOSE)
    desk.setup("zed")
    journal = desk.home / JOURNAL
    assert journal.stat().st_mode & 0o777 == 0o600
    journal.write_bytes(journal.read_bytes() + b'[]\n{"do": "setup", "editor": "zed", "file": ')
    assert desk.undo("zed").exit_code == ExitCode.OK
    assert file.read_bytes() == GOOSE


def test_hostile_settings_do_not_reach_the_terminal(desk: Desk) -> None:
    """What a settings file holds is shown with its control characters made visible."""
    desk.settings("zed", GOOSE.replace(b'"Goose"', '"Goo\u202ese"'.encode()).replace(b"{\n", b"{ // \x1b[2J\n", 1))
    done = desk.setup("zed", "--dry-run")
    assert (done.exit_code, "\\u001b[2J" in done.stdout, "\\u202e" in done.stdout) == (ExitCode.OK, True, True)
    assert not {"\x1b", "\u202e"} & set(done.stdout + done.stderr)


def test_list_counts_what_is_recorded(desk: Desk) -> None:
    """Each editor's settings, how many agents they name, and which of them bypass the ledger."""
    desk.settings(
        "zed", b'{"agent_servers": {"claude-acp": {"type": "registry"}, "G": {"type": "custom", "command": "g"}}}'
    )
    desk.settings("vscode", b"{,}")
    desk.setup("zed")
    rows = {row["editor"]: row for row in json.loads(desk.run("list", "-o", "json").stdout)["editors"]}
    assert (rows["zed"]["agents"], rows["zed"]["recorded"]) == (3, 2)
    assert rows["zed"]["state"] == "not recorded: claude-acp"
    assert rows["vscode"]["state"].startswith("cannot be read: line 1, column 2")
    assert rows["jetbrains"]["state"] == "no settings found"
    assert rows["toad"]["state"] == "print only"
