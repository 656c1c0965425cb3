"""What pages show can be typed: every console block and every SQL block of every page runs, in order, page by page.

Each page has a home of its own with the demo recorded in it, a shell in a copy of the checkout, and a terminal of a
hundred columns. A command has to end with 0, and to say what the page shows below it. Marks above a block change that,
and leave one out for a reason: `tests/support/pages.py` names them all. To run one page:

    python -m pytest tests/docs/test_blocks.py -k quickstart
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

import pytest
from sqlalchemy import text

from acp_ledger.store import engine
from tests.support.pages import Page, PageError, fits, read
from tests.support.postgres import fresh_cluster
from tests.support.terminal import CHECKOUT, PROGRAMS, Terminal, run_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import Cluster

PAGES: Final = sorted(
    path for folder in (".", "docs", "migrations", "deploy", "deploy/*") for path in CHECKOUT.glob(f"{folder}/*.md")
)
LANGUAGES: Final = {"console", "sql", "text", "json", "elisp", "lisp", "lua", "toml", "ini", "python", "mermaid"}
LEDGER: Final = ".local/share/acp-ledger"


def _named(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def record(url: str, home: Path) -> None:
    """Record the demo into a ledger."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    command = [str(PROGRAMS / "ledgerctl"), "demo", "--url", url]
    subprocess.run(command, env=environment, check=True, capture_output=True)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ledger with the demo in it."""
    folder = tmp_path_factory.mktemp("demo")
    record(f"sqlite:///{folder}/ledger.db", folder)
    return folder


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A Postgres that is new."""
    with fresh_cluster("-page") as found:
        yield found


def terminal_for(page: Page, folder: Path, request: pytest.FixtureRequest) -> Terminal:
    """The shell that a page starts with."""
    more = {}
    if "postgres" in page.marks:
        server: Cluster = request.getfixturevalue("own_cluster")
        path = os.pathsep.join([str(PROGRAMS), str(server.programs), os.environ["PATH"]])
        more = {"PATH": path, "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres"}
    terminal = Terminal(folder, more)
    if "empty" not in page.marks:
        shutil.copytree(request.getfixturevalue("demo"), terminal.home / LEDGER)
        (terminal.home / LEDGER).chmod(0o700)
    return terminal


@pytest.mark.parametrize("path", [path for path in PAGES if read(path).runnable()], ids=_named)
def test_blocks_run(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Whoever types what the page shows, from its top to its end, sees what it shows."""
    page = read(path)
    terminal = terminal_for(page, tmp_path, request)
    try:
        run_page(page, terminal)
    finally:
        terminal.close()


@pytest.mark.parametrize("path", PAGES, ids=_named)
def test_every_block_says_what_it_is(path: Path) -> None:
    """No command hides from being run in a block of another language, and each that is not run says why."""
    for block in read(path).blocks:
        assert block.language in LANGUAGES or block.left_out, (
            f"line {block.line}: a block of commands is `console`, of SQL `sql`"
        )
        if block.language != "console":
            assert not block.text.startswith("$ "), f"line {block.line}: a block of commands is `console`"


def test_sql_blocks_run_on_postgres(cluster: Cluster, tmp_path: Path) -> None:
    """The questions of all pages are understood by the other engine too."""
    url = cluster.create()
    record(url, tmp_path)
    reader = engine.open_reader(url)
    asked = 0
    with reader.connect() as connection:
        for path in PAGES:
            for block in read(path).runnable():
                if block.language == "sql" and "psql" not in block.marks:
                    connection.execute(text(block.text.rstrip().rstrip(";")))
                    asked += 1
    reader.dispose()
    assert asked


GOOD: Final = """
# A page

```console
$ cd docs && export WORD=there
$ echo "hello $WORD" \\
    twice
hello there twice
$ pwd | sed 's|.*/||'
docs
```

<!-- test: status 2 -->
```console
$ ledgerctl sessions --no-such-option
…
```

<!-- test: loose -->
```console
$ ledgerctl sql "SELECT count(*) AS n, min(acp_session_id) AS id FROM audit_sessions"
 N   ID
 9   demo-session
…
```

```sql
SELECT outcome FROM audit_turns
```
"""
TYPED: Final = 'echo "hello $WORD" \\\n    twice'


@pytest.fixture
def terminal(tmp_path: Path, demo: Path) -> Iterator[Terminal]:
    """A shell with the demo."""
    found = Terminal(tmp_path)
    shutil.copytree(demo, found.home / LEDGER)
    (found.home / LEDGER).chmod(0o700)
    yield found
    found.close()


def written(folder: Path, text: str) -> Page:
    """A page with this text."""
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return read(path)


def test_good_page_passes(terminal: Terminal, tmp_path: Path) -> None:
    """What is so passes: a directory and a variable that last, a command over two lines, a status, SQL."""
    page = written(tmp_path, GOOD)
    assert page.blocks[0].commands()[1].text == TYPED
    run_page(page, terminal)


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("```console\n$ false\n```", "ended with 1, not 0"),
        ("<!-- test: status 1 -->\n```console\n$ true\n```", "ended with 0, not 1"),
        ("```console\n$ echo this\nthat\n```", "and the page shows"),
        ("```console\n$ echo 12\n13\n```", "and the page shows"),
        ("```sql\nSELECT nothing FROM nowhere\n```", "ended with 2"),
        ("```console\nno command\n```", "a console block begins with a command"),
    ],
)
def test_page_that_is_wrong_is_noticed(terminal: Terminal, tmp_path: Path, block: str, complaint: str) -> None:
    """A command that fails, a status that is another, output that differs: each names its line."""
    with pytest.raises(PageError, match=complaint) as failed:
        run_page(written(tmp_path, f"# Page\n\n{block}\n"), terminal)
    assert "line " in str(failed.value)


@pytest.mark.parametrize(
    "text",
    [
        "<!-- test: not run -->\n```console\n$ true\n```",
        "<!-- test: not run; because -->\n```console\n$ true\n```",
        "<!-- test: nuts -->\n```console\n$ true\n```",
        "<!-- test page: full -->\n",
        "```console\n$ true\n",
    ],
)
def test_mark_without_meaning_is_refused(tmp_path: Path, text: str) -> None:
    """Nothing is left out by a mark that is misspelt or gives no reason."""
    with pytest.raises(PageError):
        written(tmp_path, text)


def test_block_that_is_argued_away_is_left_out(terminal: Terminal, tmp_path: Path) -> None:
    """A block is not run where a comment above it says why."""
    page = written(tmp_path, "<!-- test: not run; it would restart the machine -->\n```console\n$ false\n```\n")
    assert page.runnable() == []
    run_page(page, terminal)


def test_background_is_waited_for_and_ended(terminal: Terminal, tmp_path: Path) -> None:
    """A daemon started by hand is there for the next block."""
    started = "<!-- test: background daemon.ready -->\n```console\n$ acp-ledgerd --log-format json\n```\n"
    page = written(tmp_path, f"{started}\n```console\n$ ledgerctl status\ndaemon …\n…\n```\n")
    run_page(page, terminal)


@pytest.mark.parametrize(
    ("shown", "said", "loose", "fitting"),
    [
        ("a … c", "a b c", False, True),
        ("a\n…", "a\nb\nc\n", False, True),
        ("a\n…", "a\n", False, True),
        ("a\n…\nd", "a\nb\n", False, False),
        ("took 12 ms", "took 7 ms", False, False),
        ("took 12 ms", "took 7 ms", True, True),
        ("took 12 ms", "took no ms", True, False),
        ("ID  ab12…9f", "ID      0c77…01", True, True),
        ("one line", "one line\nand another", True, False),
    ],
)
def test_output_is_compared(shown: str, said: str, *, loose: bool, fitting: bool) -> None:
    """An ellipsis stands for anything, and loosely figures and widths are free; words never are."""
    assert fits(tuple(shown.split("\n")), said, loose=loose) is fitting
