"""Batches are committed whole or not at all, and every other end is told apart."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, func, select, text

from acp_ledger.errors import LedgerLocked
from acp_ledger.protocol.records import TO_CLIENT
from acp_ledger.store import chain, tables
from acp_ledger.store.faults import CommitHeld, CommitRefused
from acp_ledger.store.ledger import Daemon, Ledger, OpenedTransport
from tests.support import seed
from tests.support.postgres import ON_POSTGRES, ON_SQLITE
from tests.support.seed import Seed

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Table, TextClause


def _count(ledger: Ledger, table: Table = tables.frames) -> int:
    return int(ledger.reading().execute(select(func.count()).select_from(table)).scalar_one())


def test_entry_is_stored_as_given(ledger: Ledger, transport: int) -> None:
    """Every column of a frame and of its rows reads back as it was given, the body byte for byte."""
    body = b'\x00\xff{"a": "\\ud800"}\r'
    entry = Seed().update("tool_call", seed.step("c", "completed", title="Täst \u2028"), body=body)
    ledger.commit([(transport, [entry])])
    frame = ledger.reading().execute(select(tables.frames)).mappings().one()
    assert {name: frame[name] for name in entry.record._fields} == entry.record._asdict()
    assert frame["body"] == body
    step = ledger.reading().execute(select(tables.tool_call_steps)).mappings().one()
    assert {name: step[name] for name in entry.rows[0]._fields} == entry.rows[0]._asdict()


def test_chain_runs_through_frames_and_events(ledger: Ledger, transport: int) -> None:
    """Each link follows from the one before it and from the stored rows, over batches and reopened connections."""
    entries = seed.conversation()
    ledger.commit([(transport, entries[:5])])
    ledger._give_up()
    ledger.commit([(transport, entries[5:])])
    connection = ledger.reading()
    link = bytes(connection.execute(select(tables.transports.c.chain)).scalar_one())
    for entry in entries:
        table = tables.transport_events if entry.body is None else tables.frames
        row = connection.execute(select(table).where(table.c.frame_seq == entry.record.frame_seq)).mappings().one()
        bound = chain.ZERO if entry.body is None else chain.commitment(row["salt"], entry.body)
        link = chain.link(link, entry.record.frame_seq, bound, row["private"], row["facts"])
        assert row["chain"] == link


def test_transports_share_a_batch(ledger: Ledger) -> None:
    """Entries of several transports are one transaction, each behind its own head."""
    first, second = (ledger.open_transport(seed.new_transport()).id for _ in range(2))
    ledger.commit([(first, [Seed().update("a")]), (second, [Seed().update("b")])])
    assert _count(ledger) == 2


def _transaction_ids(table: str) -> TextClause:
    return text(f"SELECT frame_seq, xmin::text AS x FROM {table}")  # noqa: S608  # a name of ours


@ON_POSTGRES
def test_rows_share_their_frames_transaction(ledger: Ledger, transport: int) -> None:
    """On Postgres every row of an entry has the transaction id of its frame."""
    entries = seed.conversation()
    for entry in entries:
        ledger.commit([(transport, [entry])])
    run = ledger.reading().execute
    made = {row.frame_seq: row.x for name in ("frames", "transport_events") for row in run(_transaction_ids(name))}
    assert len(set(made.values())) == len(entries)
    derived = [table.name for table in tables.RECORD_TABLES if table.name not in {"frames", "transport_events"}]
    for name in derived:
        for row in run(_transaction_ids(name)):
            assert row.x == made[row.frame_seq], name


@ON_SQLITE
def test_batch_costs_one_statement_per_table(ledger: Ledger, transport: int) -> None:
    """Nothing is read or written between BEGIN and COMMIT but one INSERT for each table, run once per row."""
    entries = seed.conversation()
    ledger.commit([(transport, entries[:1])])
    said: list[str] = []
    ledger._ready().driver.set_trace_callback(said.append)
    ledger.commit([(transport, entries[1:])])
    ledger._ready().driver.set_trace_callback(None)
    assert (said[0], said[-1]) == ("BEGIN IMMEDIATE", "COMMIT")
    inserted = [statement.split()[2] for statement in said[1:-1]]
    changes = [name for name, before in zip(inserted, ["", *inserted], strict=False) if name != before]
    assert len(changes) == len(set(inserted))
    assert len(inserted) == sum(1 + len(entry.rows) for entry in entries[1:])


@pytest.mark.parametrize("number", [1, 3, 4])
def test_number_out_of_order_is_refused(ledger: Ledger, transport: int, number: int) -> None:
    """A number that does not follow the last committed one is refused, and nothing is committed."""
    ledger.commit([(transport, [Seed().update("a")])])
    with pytest.raises(CommitRefused, match="does not follow"):
        ledger.commit([(transport, [Seed(first=number).update("b")])])
    assert _count(ledger) == 1


def test_refused_row_takes_its_batch_with_it(ledger: Ledger, transport: int) -> None:
    """A broken constraint refuses the whole batch; the next one is committed as if nothing had been."""
    script = Seed()
    twice = [script.frame(TO_CLIENT, seed.decision(1)), script.frame(TO_CLIENT, seed.decision(1))]
    with pytest.raises(CommitRefused):
        ledger.commit([(transport, twice)])
    assert _count(ledger) == 0
    ledger.commit([(transport, twice[:1])])
    assert _count(ledger) == 1


@pytest.mark.parametrize(
    "changes",
    [{"title": "\ud800"}, {"tool_call_id": "\udfff"}],
    ids=["surrogate in text", "surrogate in an id"],
)
def test_text_no_database_holds_is_refused(ledger: Ledger, transport: int, changes: dict[str, Any]) -> None:
    """What should have been replaced by the mapping is refused on both engines, never stored differently."""
    entry = Seed().update("tool_call", seed.step("c", None, **changes))
    with pytest.raises(CommitRefused):
        ledger.commit([(transport, [entry])])
    assert _count(ledger) == 0


def test_number_past_64_bits_is_refused(ledger: Ledger, transport: int) -> None:
    """A number no column holds refuses its entry alone."""
    with pytest.raises(CommitRefused):
        ledger.commit([(transport, [Seed().update("a", update_sequence=1 << 63)])])
    ledger.commit([(transport, [Seed().update("a", update_sequence=(1 << 63) - 1)])])
    assert _count(ledger) == 1


def test_unknown_transport_is_refused(ledger: Ledger) -> None:
    """Nothing is written for a transport that was never opened."""
    with pytest.raises(CommitRefused, match="no transport 5"):
        ledger.commit([(5, [Seed().update("a")])])


@ON_SQLITE
def test_locked_sqlite_is_held(ledger: Ledger, transport: int, tmp_path: Path) -> None:
    """While another program holds the write lock nothing is committed, and the same batch goes through after it."""
    batch = [(transport, [Seed().update("a")])]
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CommitHeld, match="BUSY") as caught:
            ledger.commit(batch)
        assert str(caught.value.hint).endswith(f": fuser -v {tmp_path}/ledger.db")
        with pytest.raises(CommitHeld, match="BUSY"):
            ledger.probe()
        other.execute("ROLLBACK")
    ledger.probe()
    ledger.commit(batch)
    assert _count(ledger) == 1


@ON_SQLITE
def test_full_sqlite_is_held(ledger: Ledger, transport: int, tmp_path: Path) -> None:
    """A full disk holds the batch; with room again it is committed once."""
    batch = [(transport, [Seed().update("a", body=bytes(200_000))])]
    driver = ledger._ready().driver
    driver.execute("PRAGMA max_page_count = 1").close()
    with pytest.raises(CommitHeld, match="FULL") as caught:
        ledger.commit(batch)
    assert str(caught.value.hint).endswith(f": df -h {tmp_path}/ledger.db")
    assert _count(ledger) == 0
    driver.execute("PRAGMA max_page_count = 1000000").close()
    ledger.commit(batch)
    assert _count(ledger) == 1


@ON_POSTGRES
def test_locked_postgres_is_held(ledger: Ledger, transport: int, ledger_url: str) -> None:
    """A table somebody locked holds the batch until the lock's time is over; the connection stays usable."""
    import psycopg  # noqa: PLC0415  # an extra, needed for Postgres alone

    batch = [(transport, [Seed().update("a")])]
    with psycopg.connect(ledger_url.replace("+psycopg", "")) as other:
        other.execute("LOCK TABLE frames IN EXCLUSIVE MODE")
        with pytest.raises(CommitHeld, match="55P03"):
            ledger.commit(batch)
    ledger.commit(batch)
    assert _count(ledger) == 1


@ON_POSTGRES
def test_terminated_postgres_connection_is_opened_again(ledger: Ledger, transport: int, ledger_url: str) -> None:
    """A connection lost between two commits holds one batch, and the next attempt is on a new connection."""
    import psycopg  # noqa: PLC0415  # an extra, needed for Postgres alone

    batch = [(transport, [Seed().update("a")])]
    with psycopg.connect(ledger_url.replace("+psycopg", ""), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (ledger._ready().driver.info.backend_pid,))
    with pytest.raises(CommitHeld):
        ledger.commit(batch)
    ledger.commit(batch)
    assert _count(ledger) == 1


def test_ids_follow_clock_and_never_repeat(ledger: Ledger) -> None:
    """An id is the time of opening, or the next one where a clock stands still or went back."""
    openings = [seed.START, seed.START, seed.START - 5_000_000, seed.START + 7]
    opened = [ledger.open_transport(seed.new_transport(at)) for at in openings]
    assert [one.id for one in opened] == [seed.START + n for n in (0, 1, 2, 7)]
    assert all(one.epoch == one.id for one in opened)


@ON_POSTGRES
def test_id_taken_by_another_daemon_is_stepped_over(ledger: Ledger, ledger_url: str) -> None:
    """Two daemons that open in the same microsecond get two ids."""
    other = Ledger.open(ledger_url, Daemon("daemon-2", "desk", 1), at=seed.START)
    try:
        assert ledger.open_transport(seed.new_transport()).id == seed.START
        assert other.open_transport(seed.new_transport()).id == seed.START + 1
    finally:
        other.close()


@ON_POSTGRES
def test_id_committed_meanwhile_is_stepped_over(ledger: Ledger, ledger_url: str) -> None:
    """Of two daemons that insert the same id at the same time, the second takes the next."""
    import psycopg  # noqa: PLC0415  # an extra, needed for Postgres alone

    opened: list[OpenedTransport] = []
    thread = threading.Thread(target=lambda: opened.append(ledger.open_transport(seed.new_transport())))
    names = [column.name for column in tables.transports.columns]
    with psycopg.connect(ledger_url.replace("+psycopg", "")) as other, other.cursor() as cursor:
        template = ledger.open_transport(seed.new_transport(seed.START - 1))
        row = ledger.reading().execute(select(tables.transports)).mappings().one()
        values = {**row, "id": seed.START, "epoch": seed.START, "daemon_id": "daemon-2"}
        marks = ", ".join(f"%({name})s" for name in names)
        cursor.execute(f"INSERT INTO transports ({', '.join(names)}) VALUES ({marks})".encode(), values)  # noqa: S608  # names of ours
        thread.start()
        waiting = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
        while cursor.execute(waiting).fetchone() == (0,):
            assert thread.is_alive()
    thread.join(20)
    assert template.id == seed.START - 1
    assert [one.id for one in opened] == [seed.START + 1]


def test_chosen_epoch_never_feeds_an_id(ledger: Ledger) -> None:
    """A caller's epoch is its transport's identity, once; ids go on as if it had not been chosen."""
    chosen = ledger.open_transport(seed.new_transport(epoch=seed.START + 1))
    assert (chosen.id, chosen.epoch) == (seed.START, seed.START + 1)
    assert ledger.open_transport(seed.new_transport()).id == seed.START + 2
    with pytest.raises(CommitRefused, match="taken"):
        ledger.open_transport(seed.new_transport(epoch=seed.START + 1))


@pytest.mark.parametrize("epoch", [0, -1, 1 << 53])
def test_epoch_out_of_bounds_is_refused(ledger: Ledger, epoch: int) -> None:
    """An epoch is above 0 and below 2^53."""
    with pytest.raises(CommitRefused):
        ledger.open_transport(seed.new_transport(epoch=epoch))


def test_transport_row_is_under_its_genesis(ledger: Ledger) -> None:
    """The row's digests and its genesis follow from the stored columns."""
    opened = ledger.open_transport(seed.new_transport(argv=["agent", "\udcff"], label={}))
    row = dict(ledger.reading().execute(select(tables.transports)).mappings().one())
    facts, private = chain.divide([("transports", row)])
    assert private is not None
    assert row["facts"] == chain.facts_digest(facts)
    assert row["private"] == chain.private_digest(row["private_salt"], private)
    assert row["chain"] == chain.genesis(ledger.ledger_id, opened.epoch, row["private"], row["facts"])
    assert json.loads(row["argv"]) == ["agent", "\udcff"]
    assert row["label"] is None
    assert row["durability"] == "power"


@pytest.mark.usefixtures("ledger")
def test_second_daemon_is_told_who_has_the_ledger(ledger_url: str) -> None:
    """A ledger has one writer of an identity; the second hears who it is."""
    with pytest.raises(LedgerLocked, match="another daemon") as caught:
        Ledger.open(ledger_url, seed.DAEMON, at=seed.START)
    assert caught.value.exit_code == 11
    assert str(os.getpid()) in caught.value.message


@ON_POSTGRES
def test_start_outwaits_what_a_killed_daemon_left(ledger_url: str) -> None:
    """A server that takes longer than a lock timeout to notice a death does not keep the next daemon from starting."""
    first = Ledger.open(ledger_url, seed.DAEMON, at=seed.START)
    waiting = text("SELECT a.query_start FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE NOT l.granted")
    engine = create_engine(ledger_url, isolation_level="AUTOCOMMIT")

    def close_at_second_attempt() -> None:
        attempts: set[Any] = set()
        with engine.connect() as connection:
            while len(attempts) < 2:
                attempts.update(connection.execute(waiting).scalars())
        first.close()

    closing_first = threading.Thread(target=close_at_second_attempt)
    closing_first.start()
    Ledger.open(ledger_url, seed.DAEMON, at=seed.START).close()
    closing_first.join()
    engine.dispose()


def test_lock_is_free_after_close(ledger_url: str) -> None:
    """A ledger that was closed can be opened again, and knows its daemon already."""
    for _ in range(2):
        opened = Ledger.open(ledger_url, seed.DAEMON, at=seed.START)
        assert _count(opened, tables.daemons) == 1
        opened.close()


@ON_SQLITE
def test_log_is_emptied_at_close(ledger: Ledger, transport: int, tmp_path: Path) -> None:
    """After a clean end the database is one file."""
    ledger.commit([(transport, seed.conversation())])
    assert ledger.checkpoint()
    ledger.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger.db", "ledger.db.lock"]
