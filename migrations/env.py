"""Runs the revisions on the connection that `acp_ledger.store.schema` gives it; there is no URL of its own.

What must not be broken here: the caller has begun a transaction and commits it, so that a schema is changed whole or
not at all, and its `ledger` rows with it. Views and guards are dropped before the first revision and made again from
their one list once the newest is reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic import context

from acp_ledger.store import guards, schema
from acp_ledger.store.tables import metadata

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationInfo

connection = context.config.attributes["connection"]
applied: list[tuple[str, str]] = []


def note(*, step: MigrationInfo, **_rest: Any) -> None:
    """Remember a revision that was applied, and who may still write to what it leaves."""
    applied.extend((name, context.script.get_revision(name).module.COMPAT) for name in step.up_revision_ids)


context.configure(
    connection=connection,
    target_metadata=metadata,
    transactional_ddl=False,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
    include_name=schema.is_ours,
    on_version_apply=note,  # type: ignore[arg-type]  # called by keyword, as its documentation says
)
guards.drop_guards(connection)
context.run_migrations()
schema.after_migrations(connection, applied)
