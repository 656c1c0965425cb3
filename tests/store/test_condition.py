"""What a database says of its own condition."""

from __future__ import annotations

from contextlib import closing

from sqlalchemy import text

from acp_ledger.store import condition, engine
from tests.support.ledgers import reading
from tests.support.postgres import ON_POSTGRES

ROWS = 6_000
"""Over five times the thousand new rows after which autovacuum is due in an empty table."""


@ON_POSTGRES
def test_table_that_was_never_vacuumed_is_late(ledger_url: str) -> None:
    """Rows that came since the last vacuum are counted, whoever asks; a vacuum settles it."""
    with closing(engine.open_writer(ledger_url)) as owner:
        run = owner.connection.execute
        run(text("ALTER TABLE deliveries SET (autovacuum_enabled = false)"))
        with reading(ledger_url) as connection:
            assert condition.vacuum(connection) == condition.Vacuum(on=True, late=[])
        rows = "SELECT 1, n, 0, 'acp/v1', 'agent_to_client', n FROM generate_series(1, :rows) AS n"
        run(text(f"INSERT INTO deliveries {rows}"), {"rows": ROWS})
        assert _late(ledger_url, 1) == [condition.Unvacuumed("deliveries", ROWS)]
        run(text("VACUUM deliveries"))
        assert _late(ledger_url, 0) == []


def _late(url: str, count: int) -> list[condition.Unvacuumed]:
    """The tables that are late, once they are that many: the server tells of what was done a moment later."""
    late: list[condition.Unvacuumed] = []
    for _ in range(10_000):
        with reading(url) as connection:
            found = condition.vacuum(connection)
        assert found is not None
        if len(late := found.late) == count:
            break
    return late
