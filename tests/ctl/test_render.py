"""The output contract: one listing in four forms."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

from acp_ledger.ctl.options import Options
from acp_ledger.ctl.render import Listing, document, emit
from acp_ledger.errors import UsageError

if TYPE_CHECKING:
    from acp_ledger.ctl.render import Row

COLUMNS = ("transport_id", "title", "option_kind", "digest")
ROWS: tuple[Row, ...] = (
    (1764518403000000, "npm test", "allow_once", b"\x00\xff"),
    (2, "\x1b[31m=cmd|' /C calc'!A0\u202e", "", None),
    (3, None, None, b""),
    (4, 'a "quoted", text\nof two lines', "reject_once", None),
)


def written(capsys: pytest.CaptureFixture[str], output: str, rows: tuple[Row, ...] = ROWS, **more: str) -> str:
    """Write the rows in a form, and give what was written."""
    options = Options(output=output, **more)  # type: ignore[arg-type]  # only text options are used here
    assert emit(Listing("things", COLUMNS, rows), options) == len(rows)
    return capsys.readouterr().out


def test_json_is_one_document_with_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """The rows stand under the name of the list, beside its schema, with bytes as hex."""
    found = json.loads(written(capsys, "json"))
    assert found["schema"] == "acp-ledger/things/1"
    assert [tuple(row) for row in found["things"]] == [COLUMNS] * 4
    assert found["things"][0]["digest"] == "00ff"
    assert found["things"][1]["title"] == ROWS[1][1]


def test_jsonl_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line is an object of its own, equal to that of the document."""
    lines = written(capsys, "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == json.loads(written(capsys, "json"))["things"]


def test_csv_reads_back_with_header(capsys: pytest.CaptureFixture[str]) -> None:
    """A CSV reader finds the same columns and as many rows, lines ending as RFC 4180 wants."""
    text = written(capsys, "csv")
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert tuple(rows[0]) == COLUMNS
    assert rows[1] == ["1764518403000000", "npm test", "allow_once", "00ff"]
    assert rows[4][1] == 'a "quoted", text\\u000aof two lines'
    assert text.count("\r\n") == len(ROWS) + 1


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_disarms_formulas(capsys: pytest.CaptureFixture[str], start: str) -> None:
    """A text that a spreadsheet would run as a formula is led by an apostrophe; a negative number is none."""
    rows = list(csv.reader(io.StringIO(written(capsys, "csv", ((-5, f"{start}1+1", None, None),)))))
    assert rows[1][0] == "-5"
    assert rows[1][1].startswith("'")


def test_piped_table_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal a table is a line a row, cells apart by tabs, nothing cut, no escape byte."""
    long = "x" * 5_000
    text = written(capsys, "table", (*ROWS, (5, long, None, None)))
    lines = text.split("\n")
    assert lines[0].split("\t") == list(COLUMNS)
    assert lines[2].split("\t") == ["2", r"\u001b[31m=cmd|' /C calc'!A0\u202e", "(not offered)", ""]
    assert lines[5].split("\t")[1] == long
    assert "\x1b" not in text
    assert len(lines) == len(ROWS) + 3


def test_forced_color_paints_words_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Colour that is asked for into a pipe paints known words, and changes no other byte."""
    plain = written(capsys, "table", ((1, "completed", None, None),), color="never")
    painted = written(capsys, "table", ((1, "completed", None, None),), color="always")
    assert painted == plain.replace("completed", "\x1b[32mcompleted\x1b[0m")


def test_columns_are_chosen_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """`--columns` picks columns, and their order, in every form."""
    assert written(capsys, "table", columns="title, transport_id").startswith("title\ttransport_id\nnpm test\t1764")
    assert json.loads(written(capsys, "jsonl", columns="title").splitlines()[0]) == {"title": "npm test"}


def test_unknown_column_is_refused() -> None:
    """A column that is not there is an error that says how to list them."""
    with pytest.raises(UsageError, match="no column nonsense") as caught:
        emit(Listing("things", COLUMNS, ROWS), Options(columns="title,nonsense"))
    assert caught.value.hint == "list them with --columns help"


def test_columns_help_lists_names(capsys: pytest.CaptureFixture[str]) -> None:
    """`--columns help` names the columns and reads no row."""
    emit(Listing("things", COLUMNS, iter(ROWS)), Options(columns="help"))
    assert capsys.readouterr().out.splitlines() == list(COLUMNS)


def test_rows_are_streamed(capsys: pytest.CaptureFixture[str]) -> None:
    """A row is written before the next one is read, so that a list of any length needs no memory."""
    seen: list[str] = []

    def rows() -> object:
        for number in range(3):
            yield (number, None, None, None)
            seen.append(capsys.readouterr().out)

    emit(Listing("things", COLUMNS, rows()), Options(output="jsonl"))  # type: ignore[arg-type]  # a generator of rows
    assert [json.loads(text)["transport_id"] for text in seen] == [0, 1, 2]


def test_document_has_no_csv_form() -> None:
    """What is no list of rows cannot be written as CSV, and says what can be done."""
    with pytest.raises(UsageError) as caught:
        document("show", {}, Options(output="csv"))
    assert caught.value.hint == "use -o json"
