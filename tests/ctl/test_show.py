"""`ledgerctl show`: whatever an id means, and the exact bytes of a frame."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from acp_ledger.errors import ExitCode
from tests.ctl.seeding import PLAIN, plain_lines, wild_lines
from tests.ctl.test_browse import on_terminal
from tests.ctl.test_main import tamper

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ctl.conftest import Cli

CALM, WILD = 1796000000000000, 1796000000000001
FIRST = 3
"""Number of a transport's first line: the events `opened` and `spawned` come before it."""


def seq(place: int) -> int:
    """Give the number of a line by its place in the seed; `negotiated` stands behind the answer to `initialize`."""
    return FIRST + place + (place > 1)


def test_session_is_told_in_order(cli: Cli, seeded: str) -> None:
    """A session's screen has its turns, texts, calls, questions and answers in the order of their frames."""
    text = cli("show", PLAIN, "-L", seeded).stdout
    parts = ["turn 1   completed", "prompted", "Good morning", "tool_call   call-one", "question    call-one"]
    parts += ["decision    call-one", "allow_once (allow), by client", "turn 2   stopped short (max_tokens)"]
    parts += ["not recorded as steps: ", "anomalies", "gaps on this transport: none", "own claim"]
    places = [text.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)


def test_hostile_session_is_told_honestly(cli: Cli, seeded: str) -> None:
    """An unknown stop reason is no completion, an answer never offered is named, an open question stays open."""
    text = cli("show", "--last", "-L", seeded).stdout
    assert 'turn 1   unknown: "max_tokens' in text
    assert "turn 2   running" in text
    assert "(not offered) (unknown), by client" in text
    assert "open: no answer yet" in text
    assert "completed" not in text


def test_session_document_has_every_part(cli: Cli, seeded: str) -> None:
    """As JSON a session has the rows of each view, under the view's own column names."""
    found = json.loads(cli("show", PLAIN, "-o", "json", "-L", seeded).stdout)
    assert found["schema"] == "acp-ledger/show/1"
    counts = {name: len(rows) for name, rows in found.items() if name not in {"schema", "coverage"}}
    expected = {"sessions": 1, "turns": 2, "messages": 1, "tool_calls": 1, "decisions": 1, "anomalies": 0, "gaps": 0}
    assert counts == expected
    assert found["messages"][0]["text"] == "Good morning"
    assert found["messages"][0]["truncated"] == 0


def test_tool_call_shows_the_agents_word(cli: Cli, seeded: str) -> None:
    """A status nobody knows counts as pending, and is shown as the agent wrote it."""
    text = cli("show", "call-one", "-L", seeded).stdout
    assert 'tool call call-one   execute   "npm test"   pending ("queued")' in text
    assert "allow_once,reject_once -> allow_once (allow), by client" in text
    assert cli("show", "call-o", "--session", PLAIN, "-L", seeded).stdout == text
    elsewhere = cli("show", "call-one", "--session", "sess-wild", "-L", seeded)
    assert elsewhere.exit_code == ExitCode.FAILED


def test_transport_shows_its_sessions(cli: Cli, seeded: str) -> None:
    """A transport's screen has its own row and the sessions on it."""
    text = cli("show", str(CALM), "-L", seeded).stdout
    assert "close_reason       editor_ended" in text
    assert f"session {PLAIN}   2 turns   last truncated" in text


def test_frame_shows_row_rows_and_body(cli: Cli, seeded: str) -> None:
    """A frame's screen has its own row, every row it gave rise to, and the body."""
    text = cli("show", f"{CALM}:{seq(8)}", "-L", seeded).stdout
    assert "\ndecisions\n" in text
    assert "body as stored, " in text
    assert '"optionId": "yes"' in text
    found = json.loads(cli("show", f"{CALM}:{seq(8)}", "-o", "json", "-L", seeded).stdout)
    assert [row["table"] for row in found["rows"]] == ["decisions"]
    assert bytes.fromhex(found["frame"]["body"]) == plain_lines()[8][1]


def test_event_is_shown(cli: Cli, seeded: str) -> None:
    """A number that is no line's may be an event's; one that is nobody's is said to be."""
    assert "opened" in cli("show", f"{CALM}:1", "-L", seeded).stdout
    assert cli("show", f"{CALM}:999", "-L", seeded).exit_code == ExitCode.FAILED
    assert cli("show", "7:1", "-L", seeded).exit_code == ExitCode.FAILED


@pytest.mark.parametrize("number", range(4))
def test_raw_body_is_exact(seeded_file: Path, number: int) -> None:
    """Into a pipe go the bytes of the line and nothing else, however hostile they are."""
    lines = [line for _, line in wild_lines()]
    place = (0, 4, 9, 10)[number]
    arguments = ("-L", str(seeded_file), "show", f"{WILD}:{seq(place)}", "--raw")
    command = [sys.executable, "-m", "acp_ledger.ctl.main", *arguments]
    assert subprocess.run(command, capture_output=True, check=True).stdout == lines[place]


def test_raw_body_needs_force_on_a_terminal(seeded_file: Path) -> None:
    """A terminal gets raw bytes only from somebody who insists."""
    place = ("show", f"{WILD}:{seq(10)}", "--raw")
    refused = on_terminal(seeded_file, place, expected=ExitCode.USAGE)
    assert refused.startswith("error: ")
    assert "add --force" in refused
    assert "\x1b" not in refused
    assert "\x1b[2J" in on_terminal(seeded_file, (*place, "--force"))


def test_raw_body_of_an_event_is_refused(cli: Cli, seeded_file: Path) -> None:
    """What has no body cannot be written: an event, a session, an erased line."""
    assert cli("show", f"{CALM}:1", "--raw", "-L", str(seeded_file)).exit_code == ExitCode.FAILED
    tamper(seeded_file, "UPDATE frames SET body = NULL, salt = NULL, body_state = 'erased'")
    result = cli("show", f"{CALM}:{FIRST}", "--raw", "-L", str(seeded_file))
    assert (result.exit_code, result.stdout) == (ExitCode.FAILED, "")
    assert "erased" in result.stderr
    assert "no body: it is erased" in cli("show", f"{CALM}:{FIRST}", "-L", str(seeded_file)).stdout


def test_call_id_that_occurs_twice_needs_its_transport(cli: Cli, seeded_file: Path) -> None:
    """Agents reuse their ids; the candidates are listed in the form that can be typed."""
    tamper(seeded_file, "UPDATE tool_call_steps SET tool_call_id = 'call-same'")
    result = cli("show", "call-same", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.USAGE
    assert f"{CALM}/call-same, {WILD}/call-same" in result.stderr
    assert cli("show", f"{CALM}/call-same", "-L", str(seeded_file)).exit_code == ExitCode.OK
