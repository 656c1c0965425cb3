"""${message}

The rule: widen, release, narrow. This revision may add tables, columns of new tables and indexes (widen); once every
daemon in the field writes the new shape (release), a later revision may take the old one away (narrow). `frames` never
changes, a column under a digest is never renamed, and no revision rewrites a row. `COMPAT` is the oldest revision a
program may know and still write here. Rows valid at this revision go to tests/migrations/data/${up_revision}.json.
"""

from __future__ import annotations

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

COMPAT = ${repr(down_revision or up_revision)}


def upgrade() -> None:
    """Widen or narrow the schema."""
    ${upgrades if upgrades else "op.execute('SELECT 1')"}


def downgrade() -> None:
    """Refuse: records are never taken back."""
    raise NotImplementedError("a ledger is never downgraded; restore a backup beside it instead")
