"""Makes docs/sql-cookbook.md from the files of questions and from the answers that the tests expect.

What must not be broken here: the statements are those that `ledgerctl sql --named` runs, to the letter, and the answers
are those that the tests compare with, so that the page cannot say anything that was not run on both engines.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_ledger.ctl import cookbook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.ctl.cookbook import Question

ANSWERS: Final = Path(__file__).parent.parent / "tests" / "golden" / "cookbook"
GIVEN: Final[dict[str, dict[str, str]]] = {
    "between": {"transport": "1796000100000000", "first": "18", "last": "21"},
    "recording-at": {"at": "2026-11-30T00:55:10Z"},
}
"""Values for the answers on the page of the parameters that have no default."""

_RUN: Final = (
    "<!-- test: not run; tests/ctl/test_cookbook.py runs it on both engines, with values for its parameters -->"
)
_ENGINES: Final = {"any": "", "sqlite": "On SQLite:", "postgresql": "On Postgres:"}

HEAD: Final = """# Questions and their SQL

{made}
After this page you can ask a ledger what auditors ask most, and write questions of your own.

```console
$ ledgerctl sql --list
NAME …
…
$ ledgerctl sql --named turns-not-completed --param since=2000-01-01
…
```

`--param NAME=VALUE` gives a value for a `:NAME` in the statement; it is bound, never written into it. A *time* is any
word that `--since` takes, from `2h` to RFC 3339, and reaches the statement as the UTC text of the views. `--param` goes
with a statement of your own too: `ledgerctl sql 'SELECT … WHERE agent = :agent' --param agent=claude`. A file
`~/.config/acp-ledger/queries/NAME.sql` is a question of your own; the comments at its head are written as in the
files of [acp_ledger/cookbook](../acp_ledger/cookbook), and one with a name from here takes the place of ours.

A question that reads `views` needs no more than a reader's right to the `audit_` views; one that reads `tables` too is
for an auditor. Columns: [schema.md](schema.md). The answers below are those of a small ledger that the tests fill and
count by hand: four transports, `1796000000000000` and the like. Where the engines spell something differently there is
a statement for each.
"""


def page(made: str) -> str:
    """Every question with its statement and an answer."""
    found = [
        cookbook.parse(file.stem, file.read_text(encoding="utf-8")) for file in sorted(cookbook.SHIPPED.glob("*.sql"))
    ]
    lines = [HEAD.format(made=made), "| name | question | reads |", "|---|---|---|"]
    lines += [f"| [{each.name}](#{each.name}) | {each.question} | {each.reads} |" for each in found]
    for each in found:
        lines += ["", *_section(each)]
    return "\n".join(lines) + "\n"


def _section(question: Question) -> Iterator[str]:
    yield f"## {question.name}"
    yield ""
    yield f"**{question.question}** {question.explanation}".rstrip()
    yield ""
    if question.parameters:
        yield from ("| parameter | kind | default | meaning |", "|---|---|---|---|")
        for one in question.parameters:
            yield f"| `{one.name}` | {one.kind} | {f'`{one.default}`' if one.default else 'required'} | {one.words} |"
        yield ""
    for engine, statement in question.statements.items():
        if _ENGINES[engine]:
            yield from (_ENGINES[engine], "")
        yield from (_RUN, "```sql", statement, "```", "")
    yield from _answer(question)


def _answer(question: Question) -> Iterator[str]:
    with (ANSWERS / f"{question.name}.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    given = ", ".join(f"`{name}={value}`" for name, value in GIVEN.get(question.name, {}).items())
    yield f"An answer{f' for {given}' if given else ''}:"
    yield ""
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
