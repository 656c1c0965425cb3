"""What the database itself enforces: rows are only added, and only an erasure blanks what may be blanked.

What must not be broken here: every table has its guards, on both engines, made from its columns. Every migration drops
them, changes tables, and makes them again from this one list; the same holds for the views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from acp_ledger.store import views
from acp_ledger.store.tables import blankable, metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

_REFUSED: Final = "acp_ledger: rows of %s are only added; an erasure may blank what is erasable"


def guard_statements(table: Table, dialect: str) -> list[str]:
    """Statements that make a table append-only."""
    name = table.name
    words = _REFUSED % name
    if dialect == "sqlite":
        refuse = f"BEGIN SELECT RAISE(ABORT, '{words}'); END"
        unless = f"WHEN NOT ({_is_erasure(table, 'IS')})"
        return [
            f"CREATE TRIGGER {name}_no_delete BEFORE DELETE ON {name} {refuse}",
            f"CREATE TRIGGER {name}_no_update BEFORE UPDATE ON {name} {unless} {refuse}",
        ]
    same = _is_erasure(table, "IS NOT DISTINCT FROM")
    body = (
        f"BEGIN IF TG_OP = 'UPDATE' THEN IF {same} THEN RETURN NEW; END IF; END IF; "
        f"RAISE EXCEPTION USING MESSAGE = '{words}', ERRCODE = 'restrict_violation'; END"
    )
    run = f"EXECUTE FUNCTION {name}_guard()"
    return [
        f"CREATE FUNCTION {name}_guard() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
        f"CREATE TRIGGER {name}_guard BEFORE UPDATE OR DELETE ON {name} FOR EACH ROW {run}",
        f"CREATE TRIGGER {name}_no_truncate BEFORE TRUNCATE ON {name} FOR EACH STATEMENT {run}",
    ]


def unguard_statements(table: Table, dialect: str) -> list[str]:
    """Statements that remove a table's guards."""
    name = table.name
    if dialect == "sqlite":
        return [f"DROP TRIGGER IF EXISTS {name}_no_delete", f"DROP TRIGGER IF EXISTS {name}_no_update"]
    return [f"DROP FUNCTION IF EXISTS {name}_guard() CASCADE"]


def _is_erasure(table: Table, same: str) -> str:
    """A condition on NEW and OLD: only erasable columns changed, and only to nothing."""
    blanks = set(blankable(table))
    terms = []
    for column in table.columns:
        name = f'"{column.name}"'
        unchanged = f"NEW.{name} {same} OLD.{name}"
        if column.name in blanks:
            terms.append(f"(NEW.{name} IS NULL OR {unchanged})")
        elif column.name == "body_state":
            terms.append(f"({unchanged} OR (NEW.{name} = 'erased' AND NEW.body IS NULL AND NEW.salt IS NULL))")
        else:
            terms.append(unchanged)
    if table.name == "frames":
        terms.append("(NEW.body IS NOT NULL OR OLD.body IS NULL OR NEW.body_state = 'erased')")
    return " AND ".join(terms)


def replace_guards(connection: Connection) -> None:
    """Drop and make again every guard and view of the tables there are now; for migrations."""
    drop_guards(connection)
    make_guards(connection)


def drop_guards(connection: Connection) -> None:
    """Remove views and guards, so that tables may be changed."""
    dialect = connection.dialect.name
    for statement in views.drop_statements():
        connection.execute(text(statement))
    for table in metadata.sorted_tables:
        for statement in unguard_statements(table, dialect):
            connection.exec_driver_sql(statement)


def make_guards(connection: Connection) -> None:
    """Make every guard and view."""
    dialect = connection.dialect.name
    for table in metadata.sorted_tables:
        for statement in guard_statements(table, dialect):
            connection.exec_driver_sql(statement)
    for statement in views.create_statements(dialect):
        connection.exec_driver_sql(statement.replace("%", "%%") if dialect == "postgresql" else statement)


def names(dialect: str) -> list[str]:
    """Names of every trigger and view there should be."""
    suffixes = ("no_delete", "no_update") if dialect == "sqlite" else ("guard", "no_truncate")
    return [*views.view_names(), *(f"{table}_{suffix}" for table in metadata.tables for suffix in suffixes)]


def present(connection: Connection) -> set[str]:
    """Names of the triggers and views there are."""
    if connection.dialect.name == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type IN ('trigger', 'view')"
    else:
        query = (
            "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal "
            "UNION SELECT viewname FROM pg_views WHERE schemaname = current_schema()"
        )
    return {str(name) for name in connection.execute(text(query)).scalars()}
