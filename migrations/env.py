"""Runs the revisions on the connection that `acp_ledger.store.schema` gives it; there is no URL of its own.

What must not be broken here: the caller has begun a transaction and commits it, so that a schema is changed whole or
not at all, and its `ledger` rows with it. Views and guards are dropped before the first revision and made again from
their one list once the newest is reached.
"""

from __future__ import annotations

from typing import Any

from alembic import context

from acp_ledger.store import guards, schema
from acp_ledger.store.tables import metadata

connection = context.config.attributes["connection"]
applied: list[str] = []


def note(*, step: Any, **_rest: Any) -> None:
    """Remember a revision that was applied."""
    applied.append(step.up_revision_id)


context.configure(
    connection=connection,
    target_metadata=metadata,
    transactional_ddl=False,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
    include_name=schema.is_ours,
    on_version_apply=note,
)
guards.drop_guards(connection)
context.run_migrations()
schema.after_migrations(connection, applied)
