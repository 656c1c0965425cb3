"""The lists: the same rows in every form, filters, and nothing hostile on a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger.errors import ExitCode
from acp_ledger.store import answers
from tests.ctl.seeding import FORMULA, HOSTILE, PLAIN, WILD

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ctl.conftest import Cli

ROWS = {
    "sessions": answers.Session,
    "events": answers.LedgerEvent,
    "decisions": answers.Decision,
    "agents": answers.AgentRun,
    "coverage": answers.Coverage,
}
OURS = re.compile(r"\x1b\[(?:0|1|31|32|33)m")
"""The colours that we paint ourselves."""

QUESTION = "SELECT *, body FROM frames WHERE body IS NOT NULL"
LISTS = [(name,) for name in ROWS] + [("sql", QUESTION), ("db", "current")]


def _shown(value: object) -> str:
    """Spell a value of the JSON form as a table has it, by rules of the test's own."""
    if value is None:
        return ""
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    text = str(int(value)) if isinstance(value, bool) else str(value)
    return "".join(
        character.encode("ascii", "backslashreplace").decode().replace("\\x", "\\u00")
        if ord(character) > 127 and unicodedata.category(character) in hidden
        else f"\\u{ord(character):04x}"
        if unicodedata.category(character) in hidden
        else character
        for character in text
    )


@pytest.mark.parametrize("command", LISTS, ids=lambda command: command[0])
def test_every_form_holds_the_same_rows(cli: Cli, seeded: str, command: tuple[str, ...]) -> None:
    """json, jsonl, csv and the piped table agree on names, rows and values, on both engines."""
    found = {form: cli(*command, "-L", seeded, "-q", "-o", form) for form in ("json", "jsonl", "csv", "table")}
    assert [result.exit_code for result in found.values()] == [0] * 4
    document = json.loads(found["json"].stdout)
    schema, rows = document.values()
    assert re.fullmatch(r"acp-ledger/[a-z]+/1", schema)
    assert [json.loads(line) for line in found["jsonl"].stdout.split("\n")[:-1]] == rows
    names = list(rows[0])
    cells = [[_shown(value) for value in row.values()] for row in rows]
    table = [line.split("\t") for line in found["table"].stdout.split("\n")[:-1]]
    assert table == [names, *[_offered(names, row, values) for row, values in zip(cells, rows, strict=True)]]
    sheet = list(csv.reader(io.StringIO(found["csv"].stdout_bytes.decode(), newline="")))
    assert sheet == [names, *[[_guarded(text) for text in row] for row in cells]]


def _offered(names: list[str], row: list[str], values: dict[str, Any]) -> list[str]:
    return [
        "(not offered)" if name == "option_kind" and values[name] == "" else text
        for name, text in zip(names, row, strict=True)
    ]


def _guarded(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


@pytest.mark.parametrize(("name", "row"), ROWS.items())
def test_columns_are_those_of_the_view(cli: Cli, seeded_file: Path, name: str, row: Any) -> None:
    """`--columns help` lists exactly the fields of the view, and so does the header."""
    fields = [field.rstrip("_") for field in row._fields]
    assert cli(name, "--columns", "help", "-L", str(seeded_file)).stdout.split() == fields
    assert cli(name, "-o", "csv", "-L", str(seeded_file)).stdout.splitlines()[0].split(",") == fields


def test_stored_text_survives_json(cli: Cli, seeded_file: Path) -> None:
    """Escaping is of the form alone: a JSON reader gets the title back, lossy only where the ledger is."""
    rows = json.loads(cli("decisions", "-o", "json", "-L", str(seeded_file)).stdout)["decisions"]
    assert [row["detail"] for row in rows] == ["npm test", HOSTILE.replace("\ud800", "\ufffd"), FORMULA]


def test_formula_is_disarmed_in_csv(cli: Cli, seeded_file: Path) -> None:
    """A title that a spreadsheet would run is text to it."""
    text = cli("decisions", "-o", "csv", "--columns", "detail", "-g", "calc", "-L", str(seeded_file)).stdout
    assert text.splitlines() == ["detail", f"'{FORMULA}"]


def test_never_offered_answer_is_named(cli: Cli, seeded_file: Path) -> None:
    """An answer that was not on offer, and a question without one, are shown for what they are."""
    result = cli("decisions", "-L", str(seeded_file), "--columns", "outcome,option_kind,effect")
    assert result.stdout.splitlines()[1:] == [
        "selected\tallow_once\tallow",
        "selected\t(not offered)\tunknown",
        "open\t\t",
    ]
    assert "1 open" in result.stderr


def test_list_says_what_it_does_not_cover(cli: Cli, seeded_file: Path) -> None:
    """Beside the sessions stand the kinds that are no steps, anomalies and gaps; `--quiet` leaves them out."""
    notes = cli("sessions", "-L", str(seeded_file)).stderr
    assert "2 sessions" in notes
    assert r"not recorded as steps: 2 agent_message_chunk, 1 \u001b[31mkind\u202e, 1 opaque" in notes
    assert re.search(r"anomalies: [1-9]\d*; declared gaps: 0", notes)
    assert cli("sessions", "-q", "-L", str(seeded_file)).stderr == ""
    assert cli("sessions", "-o", "json", "-L", str(seeded_file)).stderr == ""


# --- filters


def _numbers(cli: Cli, ledger: Path, *more: str) -> list[int]:
    result = cli("events", "-L", str(ledger), "-o", "jsonl", *more)
    assert result.exit_code == ExitCode.OK, result.stderr
    return [json.loads(line)["frame_seq"] for line in result.stdout.split("\n")[:-1]]


def test_newest_rows_stay_in_order(cli: Cli, seeded_file: Path) -> None:
    """`-n` takes the newest rows and shows them oldest first; `-r` turns them round."""
    everything = _numbers(cli, seeded_file, "--agent", "calm")
    assert everything == list(range(1, len(everything) + 1))
    assert _numbers(cli, seeded_file, "--agent", "calm", "-n", "3") == everything[-3:]
    assert _numbers(cli, seeded_file, "--agent", "calm", "-n", "3", "-r") == everything[:-4:-1]
    assert _numbers(cli, seeded_file, "--agent", "calm", "-r") == everything[::-1]
    assert _numbers(cli, seeded_file, "-n", "0") == []


def test_pattern_is_applied_before_the_count(cli: Cli, seeded_file: Path) -> None:
    """`-g` with `-n` gives the newest rows that match, not the matches among the newest rows."""
    asked = _numbers(cli, seeded_file, "--agent", "calm", "-g", "request_permission")
    assert len(asked) == 2
    assert _numbers(cli, seeded_file, "--agent", "calm", "-g", "request_permission", "-n", "1") == asked[-1:]


def test_times_narrow_every_list(cli: Cli, seeded_file: Path) -> None:
    """`-S` is inclusive, `-U` is not, on views and on events alike."""
    edge = "2026-11-30T00:53:20.005Z"
    late = _numbers(cli, seeded_file, "--agent", "calm", "-S", edge)
    early = _numbers(cli, seeded_file, "--agent", "calm", "-U", edge)
    assert early + late == _numbers(cli, seeded_file, "--agent", "calm")
    assert late[0] > early[-1]
    assert _numbers(cli, seeded_file, "--agent", "calm", "-S", edge, "-n", "1") == late[-1:]
    none = cli("sessions", "-S", "2027-01-01", "--require-match", "-L", str(seeded_file))
    assert none.exit_code == ExitCode.NOTHING_MATCHED


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (("--session", PLAIN), ["calm"]),
        (("--session", "sess-p"), ["calm"]),
        (("--session", "1796000000000000"), ["calm"]),
        (("--session", "1796000000000000/sess-plain"), ["calm"]),
        (("--session", WILD), ["wild"]),
        (("--last",), ["wild"]),
        (("--last", "--agent", "calm"), ["calm"]),
        (("--agent", "calm"), ["calm"]),
        (("--agent", "none"), []),
        (("--editor", "ed"), ["calm", "wild"]),
        (("--editor", "ed", "--agent", "wild"), ["wild"]),
        (("--editor", "vi"), []),
        (("--cwd", "/src/../src/"), ["calm", "wild"]),
        (("--cwd", "/"), []),
        (("--last", "--cwd", "/src", "--editor", "ed"), ["wild"]),
        ((), ["calm", "wild"]),
    ],
)
def test_sessions_are_chosen(cli: Cli, seeded: str, selection: tuple[str, ...], expected: list[str]) -> None:
    """A session is chosen by its id, by a unique beginning, by its transport, its agent, or as the last one."""
    result = cli("sessions", "-q", "--columns", "agent", "-L", seeded, *selection)
    assert result.stdout.split()[1:] == expected


def test_ambiguous_beginning_lists_candidates(cli: Cli, seeded_file: Path) -> None:
    """A beginning that may mean two sessions is refused with both; one that is too short is not tried."""
    result = cli("events", "--session", "sess-", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.USAGE
    assert f"/{PLAIN}" in result.stderr
    assert "0002" in result.stderr
    assert "\x1b" not in result.stderr
    assert cli("events", "--session", "ses", "-L", str(seeded_file)).exit_code == ExitCode.FAILED


def test_agents_are_listed_with_the_name_they_give_themselves(cli: Cli, seeded_file: Path) -> None:
    """Beside the name they were started under, which says little where that is an interpreter's."""
    rows = json.loads(cli("agents", "-L", str(seeded_file), "-o", "json").stdout)["agents"]
    assert {row["reported_name"] for row in rows} == {"a"}
    assert "a" not in {row["agent"] for row in rows}


# --- terminals

SCREENS = [
    ("sessions",),
    ("events", "-n", "500"),
    ("decisions",),
    ("agents",),
    ("agents", "--columns", "label,host,os_user,client,agent_version,stderr_tail,reported_name"),
    ("coverage",),
    ("show", "--last"),
    ("show", "call-two"),
    ("show", "1796000000000001"),
    ("show", "1796000000000001:8"),
    ("show", "1796000000000001:13"),
    ("sql", "SELECT * FROM tool_call_steps"),
    ("sql", "SELECT CAST(body AS TEXT) AS body FROM frames"),
    ("sessions", "-o", "csv"),
    ("decisions", "-o", "json"),
    ("events", "-o", "jsonl"),
    ("show", "--last", "-o", "json"),
    ("events", "-f", "-n", "500", "-U", "2026-11-30T00:54:00Z"),
    ("sql", "--named", "tool-calls-unasked"),
    ("sql", "--named", "between", "--param", "transport=1796000000000001", "-o", "csv"),
    ("verify", "--full", "-q"),
]


def on_terminal(
    ledger: Path, arguments: tuple[str, ...], pager: str = "", expected: int = ExitCode.OK, **environ: str
) -> str:
    """Run `ledgerctl` with all three streams on a terminal, and give everything that reached it."""
    main, side = pty.openpty()
    command = [sys.executable, "-m", "acp_ledger.ctl.main", "-L", str(ledger), *arguments]
    given = {**os.environ, "HOME": str(ledger.parent), "TERM": "xterm-256color", "COLUMNS": "160", **environ}
    given["LEDGERCTL_PAGER"] = pager
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=given) as process:
        os.close(side)
        received = bytearray()
        try:
            while data := os.read(main, 65_536):
                received += data
        except OSError:  # how Linux says that the other side is closed
            pass
        assert process.wait() == expected, received.decode()
    os.close(main)
    return received.decode(errors="replace")


@pytest.mark.parametrize("arguments", SCREENS, ids=" ".join)
def test_no_control_character_reaches_a_terminal(seeded_file: Path, arguments: tuple[str, ...]) -> None:
    """Whatever form, whatever column: of all control characters only line ends arrive on the terminal."""
    text = on_terminal(seeded_file, arguments, NO_COLOR="1").replace("\r\r\n", "\n").replace("\r\n", "\n")
    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert {character for character in text if unicodedata.category(character) in bad} == {"\n"}
    assert len(text) > 40


@pytest.mark.parametrize("width", ["100", "72"])
def test_narrow_terminal_shows_time_and_event_whole(seeded_file: Path, width: str) -> None:
    """Where not everything fits, the time and the name of the event are not what is cut, and no line is too long."""
    lines = on_terminal(seeded_file, ("events", "-q"), NO_COLOR="1", COLUMNS=width).splitlines()
    assert all(re.match(r"\S+ +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines[1:])
    assert any("negotiated" in line for line in lines)
    assert max(map(len, lines)) <= int(width)


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("arguments", [("sessions",), ("decisions",), ("show", "--last")], ids=" ".join)
def test_plain_terminal_gets_no_escape_byte(
    seeded_file: Path, arguments: tuple[str, ...], environ: dict[str, str]
) -> None:
    """A terminal that wants no colour gets no escape sequence at all."""
    assert "\x1b" not in on_terminal(seeded_file, arguments, "", ExitCode.OK, **environ)


@pytest.mark.parametrize("arguments", [("sessions",), ("decisions",)], ids=" ".join)
def test_colors_change_no_other_byte(seeded_file: Path, arguments: tuple[str, ...]) -> None:
    """With colour the same text arrives, our own colours between."""
    colored = on_terminal(seeded_file, arguments)
    assert "\x1b[" in colored
    assert OURS.sub("", colored) == on_terminal(seeded_file, arguments, NO_COLOR="1")


def test_long_screen_goes_through_the_pager(seeded_file: Path, tmp_path: Path) -> None:
    """What is longer than the terminal is handed to the pager, whole."""
    pager = f"tee {tmp_path / 'paged'}"
    shown = on_terminal(seeded_file, ("coverage", "-n", "100"), pager=pager, LINES="5", NO_COLOR="1")
    paged = (tmp_path / "paged").read_text()
    assert paged.count("\n") > 10
    assert paged.replace("\n", "\r\n") in shown


@pytest.mark.parametrize(
    "arguments",
    [(name,) for name in ROWS] + [("show", "--last"), ("sql", "--list"), ("events", "-f"), ("events", "-o", "jsonl")],
    ids=" ".join,
)
def test_reader_that_is_gone_hears_nothing(seeded_file: Path, arguments: tuple[str, ...]) -> None:
    """A pipe that nobody reads ends every command without a word, with the status a shell expects."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "acp_ledger.ctl.main", "-q", "-L", str(seeded_file), *arguments]
    environ = {**os.environ, "HOME": str(seeded_file.parent)}
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, env=environ, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (ExitCode.PIPE_CLOSED, b"")
