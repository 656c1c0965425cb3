"""The one writer of a ledger: transports are opened in it, and batches of entries are committed whole or not at all.

What must not be broken here: `commit` returns only after the database said COMMIT succeeded and the file written to
is still the ledger's; every other end is one of three exceptions, and only `CommitHeld` and `CommitRefused` mean that
nothing is committed. After any failure the heads in memory are dropped and read again, and a database that lacks what
it had acknowledged is written to no more. One thread at a time uses a ledger; `interrupt` alone comes from another.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from sqlalchemy import func, insert, literal, select
from sqlalchemy.exc import SQLAlchemyError

from acp_ledger.errors import LedgerError, LedgerLocked, StoreFault
from acp_ledger.protocol.records import NO_CONNECTION
from acp_ledger.store import chain, engine, files, heads, holder, schema, tables
from acp_ledger.store.batch import Head, Insert, Link, Prepared, Salts, insert_statements, prepare
from acp_ledger.store.faults import (
    MEND_READERS,
    MEND_RESTART,
    CommitHeld,
    CommitRefused,
    CommitUnknown,
    LedgerRegressed,
    Phase,
    classify,
    driver_error,
    for_file,
)
from acp_ledger.store.files import InstanceLock
from acp_ledger.store.files import prepare as prepare_file
from acp_ledger.store.opening import EPOCH_BOUND, Daemon, NewTransport, OpenedTransport, exists, free_id, transport_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from acp_ledger.protocol.records import Entry
    from acp_ledger.store.engine import Synchronous
    from acp_ledger.store.writer import Writer
OPENING_TRIES: Final = 5
UNIQUE_VIOLATION: Final = "23505"

__all__ = ["Daemon", "Ledger", "NewTransport", "OpenedTransport"]


class Ledger:
    """A ledger that is open for writing, under its instance lock. Make one with `Ledger.open`."""

    def __init__(self, url: str, daemon: Daemon, synchronous: Synchronous, lock: InstanceLock | None) -> None:
        self.url = url
        self.daemon = daemon
        self.durability = "power" if synchronous == "full" else "process"
        self.ledger_id = b""
        self._synchronous = synchronous
        self._lock = lock
        self._writer: Writer | None = None
        self._backend: int | None = None
        self._inserts: dict[str, Insert] = {}
        self._heads: dict[int, Head] = {}
        self._acknowledged: dict[int, Head] = {}
        self._doubted: list[Link] = []
        self._log_distrusted = False
        self._last_id: int | None = None
        self._salts = Salts()

    @classmethod
    def open(cls, url: str, daemon: Daemon, *, at: int, synchronous: Synchronous = "full") -> Self:
        """Take the instance lock, open the database, make a missing schema, and be known in it.

        Raises:
            LedgerLocked: Another daemon has it.
            SchemaDiffers: `ledgerctl db upgrade` is due.
            DatabaseRefused: It cannot be opened, or does not keep what is committed.
        """
        path = engine.sqlite_file(url)
        lock = None
        if path is not None:
            prepare_file(path)
            lock = InstanceLock(path)
        ledger = cls(url, daemon, synchronous, lock)
        try:
            writer = ledger._connect(create=True)
            ledger.ledger_id = schema.prepare(writer).ledger_id
            ledger._register(writer, at)
        except BaseException:
            ledger._give_up()
            ledger._unlock()
            raise
        return ledger

    # ---- the connection

    def _connect(self, *, create: bool = False) -> Writer:
        writer = engine.open_writer(self.url, self._synchronous, create=create)
        try:
            if not writer.is_sqlite:
                attempts = holder.DEAD_ATTEMPTS if create else holder.ATTEMPTS
                holder.take(writer, self.daemon.daemon_id, lost=self._backend, attempts=attempts)
                self._backend = writer.driver.info.backend_pid
            self._inserts = insert_statements(writer.engine.dialect)
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        return writer

    def _ready(self) -> Writer:
        """The connection, opened again when it was given up.

        Raises:
            CommitHeld: It cannot be, now.
            LedgerRegressed: What is there is not what was acknowledged.
        """
        if self._writer is not None:
            return self._writer
        try:
            writer = self._connect()
            state = schema.current(writer.connection)
            if state is None or state.ledger_id != self.ledger_id:
                raise LedgerRegressed("another ledger lies in this one's place", hint="put this ledger's file back")
            self._compare_heads(writer.connection)
            if self._log_distrusted and writer.is_sqlite:
                self._rewrite_log(writer)
            self._log_distrusted = False
        except CommitHeld:
            self._give_up()
            raise
        except (LedgerError, SQLAlchemyError, sqlite3.Error) as error:
            self._give_up()
            if isinstance(error, LedgerLocked):
                raise CommitHeld(f"the connection that was lost still holds the ledger: {error.message}") from error
            words = error.message if isinstance(error, LedgerError) else str(driver_error(error)).partition("\n")[0]
            hint = error.hint if isinstance(error, LedgerError) else MEND_RESTART
            raise CommitHeld(f"the ledger cannot be opened again: {words}", hint=hint) from error
        return writer

    def _give_up(self) -> None:
        writer, self._writer = self._writer, None
        self._heads.clear()
        if writer is not None:
            writer.close()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _fail(self, writer: Writer, error: BaseException, phase: Phase) -> StoreFault:
        """After a failure: leave the transaction, or give up the connection, and say what the failure means."""
        fault = classify(error, phase, engine.sqlite_file(self.url))
        self._heads.clear()
        self._log_distrusted = self._log_distrusted or isinstance(fault, CommitUnknown)
        if isinstance(fault, CommitUnknown) or not writer.rollback():
            self._give_up()
        return fault

    # ---- heads

    def _head(self, connection: Connection, transport_id: int) -> Head:
        if (known := self._heads.get(transport_id)) is not None:
            return known
        head = heads.head_of(connection, transport_id)
        if head is None:
            raise CommitRefused(f"there is no transport {transport_id} in this ledger")
        self._heads[transport_id] = head
        return head

    def _compare_heads(self, connection: Connection) -> None:
        """After a reconnection: every acknowledged head is still there, with the same link."""
        for transport_id, head in self._acknowledged.items():
            if head.frame_seq and heads.link_at(connection, transport_id, head.frame_seq) != head.chain:
                raise LedgerRegressed(
                    f"the ledger lacks number {head.frame_seq} of transport {transport_id}, which it had committed",
                    hint="restore the newest copy, then run: ledgerctl verify",
                )

    # ---- writing

    def commit(self, batch: Sequence[tuple[int, Sequence[Entry]]]) -> None:
        """Commit entries, each with every row it gives rise to: all of them or none.

        Raises:
            CommitRefused: These rows will never be accepted. Nothing is committed.
            CommitHeld: Not now. Nothing is committed.
            CommitUnknown: Nobody knows yet; call `settle` with the same batch.
        """
        writer = self._ready()
        try:
            standing = {transport_id: self._head(writer.connection, transport_id) for transport_id, _ in batch}
            prepared = prepare(batch, standing, self._salts)
        except CommitRefused:
            raise
        except SQLAlchemyError as error:
            raise self._fail(writer, driver_error(error), "before") from error
        self._write(writer, prepared)

    def _write(self, writer: Writer, prepared: Prepared) -> None:
        try:
            writer.write((self._inserts[table], rows) for table, rows in prepared.rows.items())
        except Exception as error:
            raise self._fail(writer, error, "before") from error
        self._finish(writer, prepared)

    def _finish(self, writer: Writer, prepared: Prepared) -> None:
        try:
            writer.commit()
            writer.check_file()
        except Exception as error:
            fault = self._fail(writer, error, "commit")
            if isinstance(fault, CommitUnknown) and prepared.rows:
                self._doubted = prepared.links()
            raise fault from error
        self._acknowledge(prepared)

    def _acknowledge(self, prepared: Prepared) -> None:
        for known in (self._heads, self._acknowledged):
            known.update(prepared.heads)
            for transport_id in prepared.ended:
                known.pop(transport_id, None)

    def settle(self, batch: Sequence[tuple[int, Sequence[Entry]]]) -> bool:
        """After `CommitUnknown`: open the database again and look whether the batch is in it.

        Raises:
            CommitHeld: It cannot be opened or read yet; ask again.
            LedgerRegressed: Other rows stand under these numbers.
        """
        if {(link.transport_id, link.frame_seq) for link in self._doubted} != _numbers(batch):
            raise ValueError("this is not the batch whose outcome is unknown")
        writer = self._ready()
        try:
            found = [heads.link_at(writer.connection, link.transport_id, link.frame_seq) for link in self._doubted]
        except (SQLAlchemyError, sqlite3.Error) as error:
            self._give_up()
            raise CommitHeld(f"the ledger cannot be read: {driver_error(error)}", hint=MEND_RESTART) from error
        if all(there == link.chain for there, link in zip(found, self._doubted, strict=True)):
            self._doubted = []
            return True
        if any(there is not None for there in found):
            self._give_up()
            raise LedgerRegressed("another writer took numbers of this ledger", hint="stop it; ledgerctl verify")
        self._doubted = []
        return False

    def _rewrite_log(self, writer: Writer) -> None:
        """Write what the log holds into the database and flush that: the log's own flush has failed once."""
        busy, _, _ = writer.driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise CommitHeld(
                "a reader keeps the ledger's log from being settled",
                hint=for_file(MEND_READERS, engine.sqlite_file(self.url)),
            )

    def open_transport(self, new: NewTransport) -> OpenedTransport:
        """Insert a transport's row in a transaction of its own, before its process is started.

        Raises:
            CommitRefused: The epoch is taken or out of bounds, or a value cannot be stored.
            CommitHeld: Not now; nothing is committed.
            CommitUnknown: A row may have been left behind; it is closed at the next start. Try again.
        """
        if new.epoch is not None and not 0 < new.epoch < EPOCH_BOUND:
            raise CommitRefused(f"the epoch {new.epoch} is not between 1 and 2^53 - 1", hint="choose one in between")
        for _ in range(OPENING_TRIES):
            writer = self._ready()
            try:
                writer.begin()
                opened, head = self._insert_transport(writer.connection, new)
            except Exception as error:
                fault = self._fail(writer, driver_error(error), "before")
                if getattr(driver_error(error), "sqlstate", None) == UNIQUE_VIOLATION:
                    continue  # another daemon committed that id between our look and our row
                raise fault from error
            self._finish(writer, Prepared({}, {opened.id: head}))
            self._last_id = opened.id
            return opened
        raise CommitHeld("other daemons take every id first", hint="check the clocks of the daemons on this ledger")

    def _insert_transport(self, connection: Connection, new: NewTransport) -> tuple[OpenedTransport, Head]:
        first = max(self._own_last(connection) + 1, new.opened_at)
        transport_id, epoch = free_id(connection, first, new.epoch)
        row = transport_row(new, epoch, self.daemon, self.durability)
        sealed = chain.seal_transport(self.ledger_id, row, self._salts(chain.SALT_BYTES))
        connection.execute(insert(tables.transports), {"id": transport_id, **row, **sealed._asdict()})
        return OpenedTransport(transport_id, epoch), Head(0, sealed.chain)

    def _own_last(self, connection: Connection) -> int:
        if self._last_id is None:
            c = tables.transports.c
            own = select(func.max(c.id)).where(c.daemon_id == self.daemon.daemon_id)
            self._last_id = connection.execute(own).scalar() or 0
        return self._last_id

    def _register(self, writer: Writer, at: int) -> None:
        c = tables.daemons.c
        if exists(writer.connection, select(literal(1)).where(c.daemon_id == self.daemon.daemon_id)):
            return
        row = {**asdict(self.daemon), "protocol_revision": NO_CONNECTION, "created_at": at}
        self._transact(writer, partial(writer.connection.execute, insert(tables.daemons), row))

    def _transact(self, writer: Writer, work: Callable[[], object]) -> None:
        """Commit what is no entry of a transport."""
        try:
            writer.begin()
            work()
        except Exception as error:
            raise self._fail(writer, driver_error(error), "before") from error
        self._finish(writer, Prepared({}, {}))

    # ---- upkeep

    def reading(self) -> Connection:
        """The writer's own connection, for reading between two commits.

        Raises:
            CommitHeld: It is lost and cannot be opened again, now.
        """
        return self._ready().connection

    def probe(self) -> None:
        """Find out whether the ledger can be written to, without writing.

        Raises:
            CommitHeld: It cannot, now.
        """
        writer = self._ready()
        try:
            writer.begin()
            writer.check_file()
        except Exception as error:
            raise self._fail(writer, error, "before") from error
        if not writer.rollback():
            self._give_up()
            raise CommitHeld("the connection to the ledger was lost", hint=MEND_RESTART)

    def prove(self) -> None:
        """Commit a write that changes no row: the ledger takes what is written, and keeps it. Raises as `commit`."""
        writer = self._ready()
        self._transact(writer, writer.touch)

    def lay_log(self) -> None:
        """Give SQLite's log its disk beforehand, so that commits take half as long; once, where nobody waits for it.

        Only under SQLite's own lock for writing: whoever else writes would have its lines overwritten.
        """
        path, writer = engine.sqlite_file(self.url), self._writer
        if path is None or writer is None:
            return
        with suppress(sqlite3.Error):  # somebody else writes, or it cannot be written: this only saves time
            writer.driver.execute("BEGIN IMMEDIATE").close()
            try:
                files.lay_log(path)
            finally:
                writer.driver.execute("ROLLBACK").close()

    def checkpoint(self) -> bool:
        """When idle: copy SQLite's log into the database without keeping anybody waiting. False when not all was."""
        if self._writer is None or not self._writer.is_sqlite:
            return True
        try:
            busy, size, copied = self._writer.driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            return False  # what is in the log is durable; the next commit finds out what is wrong
        return not busy and size == copied

    def interrupt(self) -> None:
        """From another thread: cut a call that hangs. A hung disk cannot be cut."""
        if (writer := self._writer) is not None:
            writer.interrupt()

    def close(self) -> None:
        """Empty the log into the database where nobody reads, close, and let go of the lock."""
        writer = self._writer
        if writer is not None and writer.is_sqlite:
            with suppress(sqlite3.Error):  # where it cannot, the log keeps what it holds
                writer.driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        self._give_up()
        self._unlock()


def _numbers(batch: Sequence[tuple[int, Sequence[Entry]]]) -> set[tuple[int, int]]:
    return {(transport_id, entry.record.frame_seq) for transport_id, entries in batch for entry in entries}
