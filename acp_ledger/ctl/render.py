"""The output contract: one listing, four forms, the same field names everywhere.

What must not be broken here: the form never changes by itself; field names are the columns of the view; stdout carries
data alone; json and jsonl hold every value as stored, table and csv hold foreign text escaped; a table that is not
drawn on a terminal is neither cut nor coloured unasked.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from acp_ledger.ctl.text import escape, escape_json, wants_color
from acp_ledger.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from acp_ledger.ctl.options import Options

Value: TypeAlias = str | bytes | int | float | bool | None
Row: TypeAlias = "tuple[Value, ...]"

FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a cell that starts with one of these."""

NOT_OFFERED: Final = "(not offered)"
"""How a table shows the empty `option_kind`: the answer names an option that was never offered."""

UNCUT: Final = ("at", "event")
"""Columns a narrow terminal shows whole, as it does every time: cut, they say nothing."""

WIDEST_LIVE: Final = 60
"""A longer value moves the rest of its own line, and of no other."""

GUTTER: Final = 2
"""Blanks between two columns of a drawn table."""

STYLES: Final = {
    "completed": "green",
    "allow": "green",
    "cancelled": "yellow",
    "truncated": "yellow",
    "refused": "yellow",
    "reject": "yellow",
    "failed": "red",
    "auth_required": "red",
    "protocol_error": "red",
    "stream_ended": "red",
    "transport_failed": "red",
    "interrupted": "red",
    "unanswered": "red",
    "unknown": "red",
    "malformed": "red",
}
_SGR: Final = {"green": "32", "yellow": "33", "red": "31"}


@dataclass(frozen=True)
class Listing:
    """Rows under one name: `name` is the word of the schema, `narrow` the columns that fit on a terminal.

    `live` rows come as they come: each is written at once.
    """

    name: str
    columns: tuple[str, ...]
    rows: Iterable[Row]
    narrow: tuple[str, ...] = ()
    live: bool = False


def emit(listing: Listing, options: Options) -> int:
    """Write a listing to stdout in the form asked for, and return the number of rows written."""
    if options.columns == "help":
        sys.stdout.write("".join(f"{escape(column)}\n" for column in listing.columns))
        return 0
    counter = itertools.count()
    chosen = _choose(listing, options)
    # A ledger may turn out to be none at its first row: nothing is written before that one is there.
    rows = iter(chosen.rows)
    begun = itertools.chain(list(itertools.islice(rows, 1)), rows)
    counted = replace(chosen, rows=_counted(begun, counter))
    _FORMS[options.output](counted, options)
    return next(counter)


def document(name: str, content: dict[str, Any], options: Options) -> None:
    """Write one JSON document: indented for `json`, one line for `jsonl`.

    Raises:
        UsageError: Another form was asked for; a document has no rows.
    """
    if options.output not in {"json", "jsonl"}:
        raise UsageError(f"`{name}` is no list of rows: -o {options.output} cannot hold it", hint="use -o json")
    indent = 2 if options.output == "json" else None
    text = json.dumps({"schema": _schema(name), **content}, ensure_ascii=False, indent=indent, default=_plain)
    sys.stdout.write("\n".join(escape_json(line) for line in text.split("\n")) + "\n")


def note(text: str, options: Options) -> None:
    """Say something beside the data, on stderr; `--quiet` leaves it out."""
    if not options.quiet:
        sys.stderr.write(f"{escape(text)}\n")


def draws(options: Options) -> bool:
    """Tell whether a table is drawn for a person: the form is `table` and stdout is a terminal."""
    return options.output == "table" and sys.stdout.isatty()


def cell(column: str, value: Value) -> str:
    """Write a value as a table shows it: nothing for NULL, hex for bytes, foreign text escaped."""
    if value is None:
        return ""
    if column.endswith("option_kind") and value == "":
        return NOT_OFFERED
    return escape(value) if isinstance(value, str) else str(_plain(value) if isinstance(value, bytes) else value)


def _counted(rows: Iterable[Row], counter: Iterator[int]) -> Iterator[Row]:
    """Count rows on their way; a boolean is 0 or 1, as the views have it, whatever the engine says."""
    for row in rows:
        next(counter)
        yield tuple(int(value) if isinstance(value, bool) else value for value in row)


def _choose(listing: Listing, options: Options) -> Listing:
    """Reduce a listing to the columns asked for; on a terminal to the narrow ones."""
    if options.columns:
        wanted = tuple(name.strip() for name in options.columns.split(","))
    elif draws(options) and listing.narrow:
        wanted = listing.narrow
    else:
        return listing
    unknown = [name for name in wanted if name not in listing.columns]
    if unknown:
        raise UsageError(f"no column {', '.join(unknown)} in `{listing.name}`", hint="list them with --columns help")
    places = [listing.columns.index(name) for name in wanted]
    return replace(listing, columns=wanted, rows=(tuple(row[place] for place in places) for row in listing.rows))


def _schema(name: str) -> str:
    return f"acp-ledger/{name}/1"


def _plain(value: object) -> object:
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return str(value)


def _object(listing: Listing, row: Row) -> str:
    content = dict(zip(listing.columns, row, strict=True))
    return escape_json(json.dumps(content, ensure_ascii=False, default=_plain))


def _write_json(listing: Listing, _options: Options) -> None:
    sys.stdout.write(f'{{"schema": {json.dumps(_schema(listing.name))}, {json.dumps(listing.name)}: [')
    separator = "\n"
    for row in listing.rows:
        sys.stdout.write(f"{separator}  {_object(listing, row)}")
        separator = ",\n"
    sys.stdout.write("\n]}\n")


def _write_jsonl(listing: Listing, _options: Options) -> None:
    for row in listing.rows:
        sys.stdout.write(f"{_object(listing, row)}\n")


def _write_csv(listing: Listing, _options: Options) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\r\n")
    writer.writerow(listing.columns)
    for row in listing.rows:
        writer.writerow([_csv_cell(value) for value in row])


def _csv_cell(value: Value) -> object:
    """Write a value for a spreadsheet: a text that it would run as a formula is led by an apostrophe."""
    if not isinstance(value, str):
        return value if value is None or not isinstance(value, bytes) else value.hex()
    guard = "'" if value.startswith(FORMULA_STARTS) else ""
    return guard + escape(value)


def _write_table(listing: Listing, options: Options) -> None:
    if draws(options):
        (_draw_live if listing.live else _draw)(listing, options)
        return
    color = wants_color(options.color, sys.stdout)
    sys.stdout.write("\t".join(listing.columns) + "\n")
    for row in listing.rows:
        cells = [cell(name, value) for name, value in zip(listing.columns, row, strict=True)]
        sys.stdout.write("\t".join(_painted(text) if color else text for text in cells) + "\n")


def _painted(text: str) -> str:
    style = STYLES.get(text)
    return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if style else text


def _draw(listing: Listing, options: Options) -> None:
    """Draw a table for a person; rich is imported here and nowhere else."""
    import io
    import shutil

    from rich.cells import cell_len  # 120 ms nobody pays who draws nothing
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    color = wants_color(options.color, sys.stdout)
    width = shutil.get_terminal_size().columns
    rows = [
        [cell(name, local_time(name, value, options)) for name, value in zip(listing.columns, row, strict=True)]
        for row in listing.rows
    ]
    natural = {name: cell_len(name) for name in listing.columns}
    for cells in rows:
        natural.update({name: max(natural[name], cell_len(text)) for name, text in zip(natural, cells, strict=True)})
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, widest in fitting(natural, width - GUTTER * (len(natural) - 1)).items():
        table.add_column(Text(name.upper()), overflow="ellipsis", no_wrap=True, max_width=widest)
    for cells in rows:
        table.add_row(*(Text(text, style=STYLES.get(text, "") if color else "") for text in cells))
    drawn = io.StringIO()
    # Without a colour system rich writes no escape sequence at all, bold included.
    system: Literal["standard"] | None = "standard" if color else None
    Console(file=drawn, force_terminal=color, color_system=system, width=width, highlight=False).print(table)
    page(drawn.getvalue(), options)


def _draw_live(listing: Listing, options: Options) -> None:
    """Write rows for a person as they come: nothing is cut, and a column only ever grows wider."""
    from rich.cells import cell_len

    widths = [len(name) for name in listing.columns]
    sys.stdout.write("  ".join(name.upper() for name in listing.columns) + "\n")
    for row in listing.rows:
        texts = [cell(name, local_time(name, value, options)) for name, value in zip(listing.columns, row, strict=True)]
        widths = [max(width, min(cell_len(text), WIDEST_LIVE)) for width, text in zip(widths, texts, strict=True)]
        padded = [text + " " * (width - cell_len(text)) for width, text in zip(widths, texts, strict=True)]
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def fitting(natural: dict[str, int], room: int) -> dict[str, int]:
    """Give the width of each column so that all fit into `room` characters: the widest are narrowed first.

    What must not be cut (`UNCUT`, times) keeps its width, in a room that is too small for anything as well.
    """
    widths = {name: min(width, max(room, 1)) for name, width in natural.items()}
    yielding = [name for name in widths if name not in UNCUT and not name.endswith("_at")]
    while sum(widths.values()) > room and yielding:
        widest = max(yielding, key=widths.__getitem__)
        if widths[widest] == 1:
            break
        widths[widest] -= 1
    return widths


def local_time(column: str, value: Value, options: Options) -> Value:
    """Turn the RFC 3339 text of a time column into local time for a person; `--utc` leaves it."""
    if options.utc or not isinstance(value, str) or not (column == "at" or column.endswith("_at")):
        return value
    from datetime import datetime  # only a terminal needs it

    try:
        return datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return value


def page(text: str, options: Options) -> None:
    """Write text to a terminal, through the pager when it is longer than the screen."""
    import shlex
    import shutil
    import subprocess

    command = os.environ.get("LEDGERCTL_PAGER", os.environ.get("PAGER", "less -FRSX"))
    words = shlex.split(command)
    fits = text.count("\n") < shutil.get_terminal_size().lines
    if not options.pager or fits or not words or not sys.stdout.isatty() or shutil.which(words[0]) is None:
        sys.stdout.write(text)
        return
    sys.stdout.flush()
    with subprocess.Popen(words, stdin=subprocess.PIPE, text=True) as pager:  # noqa: S603  # the user's own choice
        try:
            pager.communicate(text)
        except BrokenPipeError:
            return  # the reader has seen enough


_FORMS: Final[dict[str, Callable[[Listing, Options], None]]] = {
    "table": _write_table,
    "json": _write_json,
    "jsonl": _write_jsonl,
    "csv": _write_csv,
}
