"""Every ledger there is can be brought to the newest schema, on both engines, with everything it holds."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, insert, select, text
from sqlalchemy.exc import DBAPIError

from acp_ledger.store import engine, guards, schema, tables, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.store.writer import Writer

FOLDER: Final = schema.scripts()
FILES: Final = sorted((FOLDER / "versions").glob("*.py"))
DATA: Final = Path(__file__).parent / "data"

SECOND: Final = '''"""A second step, that widens."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COMPAT = "0001"


def upgrade() -> None:
    """Add a side table."""
    op.create_table("extras", sa.Column("protocol_revision", sa.Text, nullable=False))
'''


def _revision(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_revisions_are_one_numbered_ladder() -> None:
    """Files are named by their numbers, each follows the one before, and the last is what this program writes."""
    modules = [_revision(path) for path in FILES]
    numbers = [module.revision for module in modules]
    assert numbers == [f"{number:04}" for number in range(1, len(FILES) + 1)]
    assert [module.down_revision for module in modules] == [None, *numbers[:-1]]
    assert all(re.fullmatch(rf"{n}_[a-z_]+", path.stem) for n, path in zip(numbers, FILES, strict=True))
    assert all(module.revision >= module.COMPAT for module in modules)
    assert numbers[-1] == schema.HEAD
    assert ScriptDirectory(str(FOLDER)).get_heads() == [schema.HEAD]


def test_every_revision_has_its_luggage() -> None:
    """Rows that were valid at each revision are kept to be carried up."""
    revisions = [_revision(path).revision for path in FILES]
    assert revisions == [path.stem for path in sorted(DATA.glob("*.json"))]


def test_nothing_goes_down() -> None:
    """Records are never taken back by a downgrade."""
    for path in FILES:
        with pytest.raises(NotImplementedError):
            _revision(path).downgrade()


@pytest.fixture
def writer(database_url: str) -> Iterator[Writer]:
    """A connection to an empty place."""
    with closing(engine.open_writer(database_url)) as opened:
        yield opened


def _load(writer: Writer, number: str) -> None:
    """Insert the rows of a revision by the tables as they are there."""
    there = MetaData()
    there.reflect(writer.connection, resolve_fks=False)
    content: dict[str, list[dict[str, Any]]] = json.loads((DATA / f"{number}.json").read_text(encoding="utf-8"))
    for name, rows in content.items():
        for row in rows:
            columns = {key: bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for key, v in row.items()}
            kinds = tables.metadata.tables[name].columns
            values = {
                key: bool(v) if kinds[key].type.python_type is bool and v is not None else v
                for key, v in columns.items()
            }
            writer.connection.execute(insert(there.tables[name]), values)


def _climb(writer: Writer, folder: Path) -> None:
    with schema._Migrating(writer):
        schema._run(writer, folder)


def _below(path: Path, target: Path, *extra: str) -> Path:
    """A folder of migrations that ends with `path`."""
    shutil.copytree(FOLDER, target, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (target / "versions").glob("*.py"):
        if file.name > path.name:
            file.unlink()
    for content in extra:
        (target / "versions" / "0002_second.py").write_text(content)
    return target


@pytest.mark.parametrize("first", FILES, ids=lambda path: path.stem)
def test_rows_of_each_revision_verify_at_the_top(writer: Writer, tmp_path: Path, first: Path) -> None:
    """A ledger made at any revision, with rows of that time, verifies after the climb, unchanged."""
    number = _revision(first).revision
    _climb(writer, _below(first, tmp_path / "ladder"))
    writer.connection.execute(text("DROP TABLE ledger") if writer.is_sqlite else text("DROP TABLE ledger CASCADE"))
    tables.ledger.create(writer.connection)
    _load(writer, number)
    before = writer.connection.execute(select(tables.frames.c.body, tables.frames.c.chain)).all()
    _climb(writer, FOLDER)
    assert writer.connection.execute(select(tables.frames.c.body, tables.frames.c.chain)).all() == before
    report = verify.verify(writer.connection)
    assert report.findings == ()
    assert report.transports == 1
    assert len(before) == 15


def test_ladder_ends_where_the_tables_say(writer: Writer, database_url: str) -> None:
    """A ledger that climbed has exactly the tables, columns, keys and comments of the code, and every guard."""
    _climb(writer, FOLDER)
    assert schema.check(database_url) == []
    assert set(guards.names(writer.connection.dialect.name)) <= guards.present(writer.connection)


def test_difference_is_found(writer: Writer, database_url: str) -> None:
    """A guard that was dropped, or a column that was added by hand, is named by the check."""
    _climb(writer, FOLDER)
    writer.connection.execute(text("DROP VIEW audit_turns"))
    writer.connection.execute(text("ALTER TABLE daemons ADD COLUMN extra TEXT"))
    found = " ".join(schema.check(database_url))
    assert "audit_turns" in found
    assert "extra" in found


def test_second_step_adds_its_row_and_keeps_the_guards(writer: Writer, tmp_path: Path) -> None:
    """An upgrade leaves a row for its revision, the same ledger id, and every guard made anew."""
    _climb(writer, FOLDER)
    first = schema.current(writer.connection)
    assert first is not None
    _climb(writer, _below(FILES[0], tmp_path / "ladder", SECOND))
    second = schema.current(writer.connection)
    assert second is not None
    assert (second.revision, second.compat, second.ledger_id) == ("0002", "0001", first.ledger_id)
    assert [step.revision for step in schema.history(writer.connection)] == ["0001", "0002"]
    with pytest.raises(DBAPIError, match="only added"):
        writer.connection.execute(text("DELETE FROM ledger"))


def test_failed_step_changes_nothing(writer: Writer, tmp_path: Path) -> None:
    """An upgrade that fails in its middle leaves the schema, its guards and its revision as they were."""
    _climb(writer, FOLDER)
    broken = SECOND + "    op.drop_table('nowhere')\n"
    with pytest.raises(Exception, match="nowhere"):
        _climb(writer, _below(FILES[0], tmp_path / "ladder", broken))
    state = schema.current(writer.connection)
    assert state is not None
    assert state.revision == "0001"
    assert set(guards.names(writer.connection.dialect.name)) <= guards.present(writer.connection)
    assert "extras" not in schema_tables(writer)


def schema_tables(writer: Writer) -> set[str]:
    """Names of the tables there are."""
    there = MetaData()
    there.reflect(writer.connection)
    return set(there.tables)
