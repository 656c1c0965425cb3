"""The tables hold the records, and every row says which revision it was read under."""

from __future__ import annotations

import re
from typing import Any, Final, get_type_hints

import pytest
from sqlalchemy import Boolean, LargeBinary, Table, Text

from acp_ledger.protocol import records
from acp_ledger.protocol.records import ERASABLE, TABLE_OF
from acp_ledger.store import tables
from acp_ledger.store.chain import SHAPES

TABLES: Final = tables.metadata.sorted_tables
DIGESTS: Final = ["facts", "private", "private_salt", "chain"]


def _name(value: object) -> str:
    return str(value)


@pytest.mark.parametrize(("record", "name"), TABLE_OF.items(), ids=_name)
def test_table_has_its_records_fields(record: type, name: str) -> None:
    """Names and order of the columns behind `transport_id` are those of the record, then its digests."""
    columns = [column.name for column in tables.metadata.tables[name].columns]
    fields = [field.rstrip("_") for field in get_type_hints(record)]
    behind = {"frames": ["commitment", *DIGESTS, "salt", "body"], "transport_events": DIGESTS}.get(name, [])
    assert columns == ["transport_id", *fields, *behind]


@pytest.mark.parametrize(("record", "name"), TABLE_OF.items(), ids=_name)
def test_column_takes_what_its_record_may_hold(record: type, name: str) -> None:
    """A field that may be None, or that an erasure blanks, has a nullable column, and no other has."""
    table = tables.metadata.tables[name]
    for field, kind in get_type_hints(record).items():
        column = table.columns[field.rstrip("_")]
        may_be_none = type(None) in getattr(kind, "__args__", ())
        assert column.nullable == (may_be_none or column.name in ERASABLE.get(name, ())), column
        assert isinstance(column.type, Boolean) == (kind is bool or bool in getattr(kind, "__args__", ())), column


@pytest.mark.parametrize("table", TABLES, ids=_name)
def test_protocol_revision_is_always_given(table: Table) -> None:
    """No table lets a row go without a revision, or makes one up."""
    column = table.columns["protocol_revision"]
    assert not column.nullable
    assert column.default is None
    assert column.server_default is None


@pytest.mark.parametrize("table", TABLES, ids=_name)
def test_every_column_is_described(table: Table) -> None:
    """The schema's page is made from these sentences."""
    assert table.comment
    assert all(column.comment for column in table.columns)


def test_no_column_has_a_default() -> None:
    """What a row says was said by somebody."""
    assert [c for table in TABLES for c in table.columns if c.default is not None or c.server_default is not None] == []


def test_every_record_has_a_table_and_a_shape() -> None:
    """No table of records is outside the digests."""
    assert {table.name for table in tables.RECORD_TABLES} == set(TABLE_OF.values())
    assert set(SHAPES) == {*TABLE_OF.values(), "transports"}


@pytest.mark.parametrize("name", SHAPES)
def test_every_column_is_in_one_digest(name: str) -> None:
    """A column is under facts or under private, unless it is the local key or part of the evidence itself."""
    shape = SHAPES[name]
    apart = {"transport_id", "id", "commitment", *DIGESTS, "salt", "body"}
    columns = {column.name for column in tables.metadata.tables[name].columns}
    assert set(shape.facts) | set(shape.erasable) == columns - apart
    assert not set(shape.facts) & set(shape.erasable)
    assert list(shape.facts) == sorted(shape.facts)


def test_erasure_blanks_text_and_its_salts() -> None:
    """What may be blanked is what is erasable, the salts that would let it be guessed, and the body."""
    assert tables.blankable(tables.frames) == ("private_salt", "salt", "body")
    assert tables.blankable(tables.transports) == ("argv", "cwd", "label", "private_salt")
    assert tables.blankable(tables.gaps) == ()
    for name, columns in ERASABLE.items():
        kinds = {type(tables.metadata.tables[name].columns[column].type) for column in columns}
        assert kinds == {Text}


def test_large_things_come_last() -> None:
    """Reading a frame's columns never walks through its body."""
    last = list(tables.frames.columns)[-1]
    assert last.name == "body"
    assert isinstance(last.type, LargeBinary)


def test_names_follow_one_convention() -> None:
    """Constraints and indexes have the same names on both engines."""
    named: list[Any] = [t for table in TABLES for t in (*table.constraints, *table.indexes)]
    names = [str(thing.name) for thing in named]
    assert all(re.fullmatch(r"(pk|uq|ix)_[a-z_]+", name) and len(name) < 64 for name in names)


def test_erasable_names_are_columns() -> None:
    """Nothing that is called erasable is missing from its table."""
    for name, columns in records.ERASABLE.items():
        assert columns <= set(tables.metadata.tables[name].columns.keys())
