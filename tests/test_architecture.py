"""The house's rules, kept by machines: who imports whom, how long things are, and who alone may do what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "acp_ledger"
MODULES: Final = sorted(PACKAGE.rglob("*.py"))
EVERYTHING: Final = [*MODULES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "migrations").rglob("*.py"))]

LONGEST_MODULE: Final = 400
LONGEST_FUNCTION: Final = 60
TABLES: Final = {"protocol/records.py", "store/tables.py"}
"""Modules that are one entry per table of the ledger and nothing else: they are looked up in, not read."""

THREADS: Final = {
    "daemon/writer.py": "the one door to the store",
    "daemon/agent.py": "reads all of /proc, which takes the longer the more processes there are",
}
"""Who may hand work to a thread, and why."""


def _name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _called(node: ast.AST) -> str | None:
    """The last name of what is called: `send_all` of `stream.send_all(x)`."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def _callers(*names: str) -> set[str]:
    return {_name(path) for path in MODULES for node in _nodes(path) if _called(node) in names}


def test_imports_run_down_the_house() -> None:
    """Every import contract of the project file holds."""
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(script), "--no-cache", "--config", "pyproject.toml"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_module_says_what_it_is_for(path: Path) -> None:
    """Whoever opens a module reads first what it is for; only an empty one has nothing to say."""
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)) or not text.strip()


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_module_and_its_functions_are_short(path: Path) -> None:
    """A module fits in a head and a function on a screen."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST_MODULE or _name(path) in TABLES
    long = [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
    ]
    assert long == []


def test_streams_alone_send_to_peers() -> None:
    """Nothing else writes to an editor or an agent, so nothing else can forward what is not committed."""
    writers = {name for name in _callers("send_all", "sendall", "send_some", "sendmsg") if name.startswith("daemon/")}
    for path in MODULES:
        if path.parent.name == "daemon" and any(_writes_to_a_descriptor(node) for node in _nodes(path)):
            writers.add(_name(path))
    assert writers == {"daemon/streams.py"}


def _writes_to_a_descriptor(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {"os.write", "os.writev", "os.sendfile"}


def test_committer_alone_makes_receipts() -> None:
    """A receipt means that a line is durable; only who committed it can say so."""
    assert _callers("Receipt") <= {"daemon/committer.py"}


def test_threads_are_few_and_argued() -> None:
    """The store is reached through one thread, and nobody starts another without a reason written here."""
    assert _callers("run_sync", "start_thread_soon", "Thread") <= set(THREADS)
    users = {_name(path) for path in MODULES if "to_thread" in path.read_text(encoding="utf-8")}
    assert users <= set(THREADS)


def test_commits_are_never_abandoned() -> None:
    """A cancelled wait for a commit waits on: its outcome must be known."""
    keywords = {
        _name(path)
        for path in MODULES
        for node in _nodes(path)
        if isinstance(node, ast.keyword) and node.arg is not None
        if node.arg in {"abandon_on_cancel", "cancellable"}
    }
    assert keywords == set()


def test_daemon_speaks_to_the_store_alone() -> None:
    """The daemon knows no database; `ledgerctl` may hold a connection that the store opened for reading."""
    users = {
        _name(path)
        for path in MODULES
        for node in _nodes(path)
        for name in _imported(node)
        if name.partition(".")[0] in {"sqlalchemy", "sqlite3", "psycopg", "alembic"}
    }
    assert {name for name in users if not name.startswith(("store/", "ctl/"))} == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


@pytest.mark.parametrize("path", EVERYTHING, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_excuse_has_a_reason(path: Path) -> None:
    """Who silences a tool says why, on the same line."""
    excuse = re.compile(r"#\s*(?:ruff:\s*)?(?:noqa(?::[A-Z0-9,\s]+)?|type:\s*ignore(?:\[[^]]*])?)$")
    found = [line for line in path.read_text(encoding="utf-8").splitlines() if excuse.search(line)]
    assert found == []
