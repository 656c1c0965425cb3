"""The one read-write connection to a ledger.

What must not be broken here: transactions are our own, begun and ended by these methods and by nothing else; `commit`
returns only when the database said that it did.
"""

from __future__ import annotations

import os
import socket
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from acp_ledger.store.batch import BLOCK_ROWS
from acp_ledger.store.faults import MEND_POSTGRES, CommitHeld

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Engine

    from acp_ledger.store import files
    from acp_ledger.store.batch import Insert


class Writer:
    """The one read-write connection. `connection` is SQLAlchemy's, in autocommit; transactions go by `begin`."""

    def __init__(self, engine: Engine, watch: files.FileWatch | None) -> None:
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"
        self.connection: Connection = engine.connect()
        # SQLAlchemy's own idea of a transaction, which says nothing to the database, is begun once and never ended:
        # whoever ended it (Alembic does, where it was not begun) would end ours with it.
        self.connection.begin()
        self.driver: Any = self.connection.connection.driver_connection
        self.watch = watch

    def begin(self) -> None:
        """Begin a transaction that writes; on SQLite the lock is taken here."""
        self.driver.execute("BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN")

    def write(self, inserts: Iterable[tuple[Insert, Sequence[Sequence[Any]]]]) -> None:
        """Begin a transaction, and insert these rows; on Postgres in one round trip where that fits."""
        if self.is_sqlite:
            self._write(inserts)
            return
        with self.driver.pipeline():
            self._write(inserts)

    def _write(self, inserts: Iterable[tuple[Insert, Sequence[Sequence[Any]]]]) -> None:
        self.begin()
        for statement, rows in inserts:
            cursor = self.driver.cursor()
            in_blocks = len(rows) - len(rows) % BLOCK_ROWS if self.is_sqlite else 0
            for start in range(0, in_blocks, BLOCK_ROWS):
                cursor.execute(statement.block, list(chain.from_iterable(rows[start : start + BLOCK_ROWS])))
            cursor.executemany(statement.row, rows[in_blocks:])

    def touch(self) -> None:
        """Within a transaction: write what changes no row, so that its commit goes every step of a real one.

        On SQLite the file's own number is written again as it was; on Postgres a message of no words goes into its log,
        and that this role may insert is checked on no rows at all.
        """
        if self.is_sqlite:
            (number,) = self.driver.execute("PRAGMA user_version").fetchone()
            self.driver.execute(f"PRAGMA user_version = {number:d}")
            return
        self.driver.execute("INSERT INTO frames SELECT * FROM frames WHERE false")
        self.driver.execute("SELECT pg_logical_emit_message(true, 'acp-ledger', '')")

    def commit(self) -> None:
        """Commit; returns only when the database said that it did."""
        answer = self.driver.execute("COMMIT")
        if not self.is_sqlite and answer.statusmessage != "COMMIT":
            raise CommitHeld(f"Postgres rolled back: {answer.statusmessage}", hint=MEND_POSTGRES)

    def rollback(self) -> bool:
        """Leave any transaction; False when the connection can no longer be used."""
        try:
            if not self.is_sqlite or self.driver.in_transaction:
                self.driver.execute("ROLLBACK")
        except Exception:  # noqa: BLE001  # any failure means the same: the connection is of no more use
            return False
        return True

    def check_file(self) -> None:
        """After a commit: is the file written to still the ledger's?

        Raises:
            LedgerMoved: It is not.
        """
        if self.watch is not None:
            self.watch.check()

    def interrupt(self) -> None:
        """Cut a call that hangs, from another thread. On Postgres its socket is shut: the outcome is unknown."""
        if self.is_sqlite:
            self.driver.interrupt()
            return
        try:
            with socket.socket(fileno=os.dup(self.driver.fileno())) as copy:
                copy.shutdown(socket.SHUT_RDWR)
        except Exception:  # noqa: BLE001, S110  # already closed, which is what was wanted
            pass

    def close(self) -> None:
        """Give the connection back to the system; errors of a connection already broken are of no use to anybody."""
        try:
            self.connection.invalidate()
            self.connection.close()
        except SQLAlchemyError:
            pass
        finally:
            self.engine.dispose()
