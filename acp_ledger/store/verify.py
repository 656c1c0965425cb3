"""Proves that a ledger holds what was committed: every number, link and digest, and on request every mapping again.

What must not be broken here: the verifier writes nothing, believes no column it can compute, and says what it did not
check as loudly as what it found. A chain cannot show that its end was cut off: that needs a head kept elsewhere, and
the report says so.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from struct import error as StructError  # noqa: N812  (a class, named as one)
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select
from sqlalchemy.exc import DatabaseError

from acp_ledger.errors import IntegrityViolation
from acp_ledger.protocol.records import TABLE_OF, Derived, Entry, Event, Frame, Gap
from acp_ledger.store import chain, remap, tables
from acp_ledger.store.findings import Finding, Found, NotChecked, Note, Report
from acp_ledger.store.numbers import Numbered, Record, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

__all__ = ["TAIL", "Finding", "Found", "NotChecked", "Note", "Report", "verify"]

KEPT_FINDINGS: Final = 1_000
"""Findings kept in a report; all are counted."""

TAIL: Final = (
    "a chain proves nothing about rows cut off its end, nor about transports removed whole: only a head kept elsewhere "
    "does, and none was given"
)

MEND_DAMAGE: Final = "restore the newest backup; docs/operations.md tells how"

_BETWEEN_REPORTS: Final = 1_000


def verify(connection: Connection, *, full: bool = False, progress: Callable[[int, int], None] | None = None) -> Report:
    """Verify every transport; `full` also maps every line again. `progress` gets numbers done and numbers there are.

    Reads one snapshot, so that what is committed meanwhile is not seen half.

    Raises:
        IntegrityViolation: The database is damaged and cannot even be read.
    """
    try:
        _take_snapshot(connection)
        return _Verifier(connection, full=full, progress=progress).run()
    except (DatabaseError, sqlite3.DatabaseError) as error:
        reason = getattr(error, "orig", error)
        if isinstance(reason, sqlite3.DatabaseError) and not isinstance(reason, sqlite3.OperationalError):
            raise IntegrityViolation(f"the database is damaged: {reason}", hint=MEND_DAMAGE) from error
        raise


def _take_snapshot(connection: Connection) -> None:
    """Let everything that follows see one state of the ledger; it ends with the connection's transaction."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            connection.exec_driver_sql("BEGIN")
        connection.execute(select(tables.ledger.c.ordinal).limit(1)).all()
    elif not connection.in_transaction():
        connection.execution_options(isolation_level="REPEATABLE READ")


@dataclass(slots=True)
class _Verifier:
    """One run over a ledger, and what it gathers."""

    connection: Connection
    full: bool
    progress: Callable[[int, int], None] | None
    counts: Counter[str] = field(default_factory=Counter)
    bodies: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    total: int = 0

    def run(self) -> Report:
        ledger_id = self._ledger_id()
        self.total = self._count(tables.frames) + self._count(tables.transport_events)
        for row in self._transports():
            self.counts["transports"] += 1
            _Transport(self, ledger_id, row).verify()
        self._rows_of_no_transport()
        self._report_progress(force=True)
        self.notes.append(Note(None, None, TAIL))
        return self._report(ledger_id)

    def _ledger_id(self) -> bytes:
        table = tables.ledger
        ids = [row[0] for row in self.connection.execute(select(table.c.ledger_id).order_by(table.c.ordinal))]
        if len(set(ids)) > 1:
            self.found(Finding(Found.LEDGER_ROWS_DIFFER, 0, None, "the ledger's rows hold different identities"))
        return bytes(ids[0]) if ids else b""

    def _count(self, table: Any) -> int:
        return self.connection.execute(select(func.count()).select_from(table)).scalar_one()

    def _transports(self) -> Iterator[dict[str, Any]]:
        """One by one, by key: other queries run in between."""
        table, last = tables.transports, None
        while True:
            query = select(*table.c).order_by(table.c.id).limit(1)
            found = self.connection.execute(query if last is None else query.where(table.c.id > last)).mappings()
            row = found.one_or_none()
            if row is None:
                return
            yield dict(row)
            last = row["id"]

    def _rows_of_no_transport(self) -> None:
        for table in tables.RECORD_TABLES:
            known = select(tables.transports.c.id)
            query = select(table.c.transport_id, func.count()).where(table.c.transport_id.not_in(known))
            for transport_id, count in self.connection.execute(query.group_by(table.c.transport_id)):
                detail = f"{count:,} rows of {table.name} belong to a transport that is not there"
                self.found(Finding(Found.ROW_WITHOUT_TRANSPORT, transport_id, None, detail))

    def found(self, finding: Finding) -> None:
        self.counts["found"] += 1
        if len(self.findings) < KEPT_FINDINGS:
            self.findings.append(finding)

    def count(self, number: Numbered) -> None:
        self.counts["numbers"] += 1
        self.counts["rows"] += len(number.rows)
        for record in number.records:
            if isinstance(record.record, Event):
                self.counts["events"] += 1
            else:
                self.counts["frames"] += 1
                self.bodies[record.record.body_state] += 1
        self._report_progress(force=False)

    def _report_progress(self, *, force: bool) -> None:
        if self.progress is not None and (force or self.counts["numbers"] % _BETWEEN_REPORTS == 0):
            self.progress(self.counts["numbers"], self.total)

    def _report(self, ledger_id: bytes) -> Report:
        return Report(
            ledger_id=ledger_id.hex(),
            full=self.full,
            transports=self.counts["transports"],
            frames=self.counts["frames"],
            events=self.counts["events"],
            rows=self.counts["rows"],
            bodies=dict(self.bodies),
            findings=tuple(self.findings),
            found=self.counts["found"],
            not_checked=tuple(self.not_checked),
            notes=tuple(self.notes),
        )


@dataclass(slots=True)
class _Transport:
    """The walk along one transport's chain."""

    run: _Verifier
    ledger_id: bytes
    row: dict[str, Any]
    previous: bytes = chain.ZERO
    last_seq: int = 0
    first_erased: int | None = None
    blanked_last: int | None = None
    erasures: int = 0
    ended: bool = False

    @property
    def id(self) -> int:
        return int(self.row["id"])

    def verify(self) -> None:
        self._genesis()
        again = remap.Remapper(self.row) if self.run.full else None
        for number in walk(self.run.connection, self.id):
            self.run.count(number)
            if self._in_order(number):
                self._digests(number.frame_seq, number.records[0], number.rows)
                self._note(number)
                self._map_again(again, number)
        self._end(again)

    def _found(self, kind: Found, seq: int | None, detail: str, expected: object = None, actual: object = None) -> None:
        self.run.found(Finding(kind, self.id, seq, detail, _shown(expected), _shown(actual)))

    # --- the transport's own row

    def _genesis(self) -> None:
        row = self.row
        self.previous = row["chain"]
        try:
            sealed = chain.seal_transport(self.ledger_id, row, row["private_salt"] or b"")
        except _UNREADABLE as error:
            self._found(Found.FACTS_MISMATCH, None, f"the transport's row cannot be digested: {error}")
            return
        if sealed.facts != row["facts"]:
            self._found(Found.FACTS_MISMATCH, None, "the transport's row was changed", sealed.facts, row["facts"])
        private = self._transport_private(row, sealed.private)
        genesis = chain.genesis(self.ledger_id, row["epoch"], private, sealed.facts)
        if genesis != row["chain"]:
            self._found(Found.GENESIS_MISMATCH, None, "the chain does not begin at this row", genesis, row["chain"])

    def _transport_private(self, row: dict[str, Any], computed: bytes) -> bytes:
        blank = all(row[name] is None for name in chain.SHAPES["transports"].erasable)
        if blank and row["private_salt"] is None and row["private"] != chain.ZERO:
            self._blanked(0)
            return bytes(row["private"])
        if computed != row["private"]:
            detail = "the transport's command, folder or label was changed"
            self._found(Found.PRIVATE_MISMATCH, None, detail, computed, row["private"])
        return computed

    # --- numbers, links and digests

    def _in_order(self, number: Numbered) -> bool:
        """Whether there is one record under the number; a hole before it is reported once."""
        seq = number.frame_seq
        if not number.records:
            names = ", ".join(sorted({TABLE_OF[type(row)] for row in number.rows}))
            self._found(Found.ROW_WITHOUT_NUMBER, seq, f"rows of {names} under a number that has no line and no event")
            return False
        if len(number.records) > 1:
            self._found(Found.NUMBER_TWICE, seq, "a line and an event have the same number")
        if seq != self.last_seq + 1:
            self._found(Found.SEQ_GAP, seq, "numbers are missing before this one", self.last_seq + 1, seq)
        self.last_seq = seq
        return True

    def _digests(self, seq: int, record: Record, rows: tuple[Derived, ...]) -> None:
        if not _sealed_alike(record, rows, self.previous):
            self._look_closer(seq, record, rows)
        self.previous = record.digests.chain

    def _blanked(self, seq: int) -> None:
        self.blanked_last = seq
        self.first_erased = seq if self.first_erased is None else self.first_erased

    def _look_closer(self, seq: int, record: Record, rows: tuple[Derived, ...]) -> None:
        """Something differs, or was erased: find out what, each digest by itself."""
        before = self.run.counts["found"]
        try:
            commitment = self._commitment(seq, record)
            private = self._private(seq, record, rows)
            facts = self._facts(seq, record, rows)
            link = chain.link(self.previous, seq, commitment, private, facts)
        except _UNREADABLE as error:
            self._found(Found.FACTS_MISMATCH, seq, f"a value that was never written by acp_ledger: {error}")
            return
        if link != record.digests.chain:
            detail = "the link does not follow from the one before it and this number's digests"
            self._found(Found.CHAIN_BROKEN, seq, detail, link, record.digests.chain)
        if self.run.counts["found"] == before and self.blanked_last != seq:
            self._found(Found.FACTS_MISMATCH, seq, "a salt stands where none was written")

    def _commitment(self, seq: int, record: Record) -> bytes:
        frame, digests = record.record, record.digests
        if isinstance(frame, Event):
            return chain.ZERO
        stored = digests.commitment
        if frame.body_state == "erased" and record.body is None and digests.salt is None:
            self._blanked(seq)
            return stored
        computed = chain.ZERO
        if record.body is not None and digests.salt is not None:
            computed = chain.commitment(digests.salt, record.body)
        if computed != stored or (record.body is None) != (frame.body_state == "absent"):
            self._found(Found.BODY_MISMATCH, seq, "the stored line is not the one committed to", computed, stored)
        # The chain was made over the commitment as it was then: with it, a link shows whether more was changed.
        return stored

    def _private(self, seq: int, record: Record, rows: tuple[Derived, ...]) -> bytes:
        digests = record.digests
        _facts, private = chain.divide(_as_columns(record.record, rows))
        if private is None and digests.private_salt is None and digests.private != chain.ZERO:
            self._blanked(seq)
            return digests.private
        computed = chain.ZERO if private is None else chain.private_digest(digests.private_salt or b"", private)
        if computed != digests.private:
            detail = "a title, path, command, message or other erasable text was changed"
            self._found(Found.PRIVATE_MISMATCH, seq, detail, computed, digests.private)
        return digests.private

    def _facts(self, seq: int, record: Record, rows: tuple[Derived, ...]) -> bytes:
        computed = [
            chain.facts_digest(chain.divide(_as_columns(frame, rows))[0]) for frame in _as_committed(record.record)
        ]
        if record.digests.facts not in computed:
            tables_named = ", ".join(sorted({TABLE_OF[type(row)] for row in (record.record, *rows)}))
            detail = f"a row under this number was changed, added or removed ({tables_named})"
            self._found(Found.FACTS_MISMATCH, seq, detail, computed[0], record.digests.facts)
        return record.digests.facts

    # --- what a reader must know

    def _note(self, number: Numbered) -> None:
        event = number.records[0].record
        if not isinstance(event, Event):
            return
        self.ended = self.ended or event.event in {"closed", "interrupted"}
        self.erasures += event.event == "erased"
        if event.event == "interrupted":
            self._noted(number.frame_seq, "the daemon ended before this transport did: lines may have passed unread")
        for row in number.rows:
            if isinstance(row, Gap):
                count = "an unknown number of" if row.count is None else f"{row.count:,}"
                self._noted(number.frame_seq, f"gap ({row.cause}): {count} lines are not in the record")

    def _noted(self, seq: int | None, text: str) -> None:
        self.run.notes.append(Note(self.id, seq, text))

    def _map_again(self, again: remap.Remapper | None, number: Numbered) -> None:
        if again is None:
            return
        for detail, expected, actual in again.check(number, erased=self.first_erased is not None):
            self._found(Found.PROJECTION_MISMATCH, number.frame_seq, detail, expected, actual)

    def _end(self, again: remap.Remapper | None) -> None:
        if self.first_erased is not None and not self.erasures:
            detail = "texts were blanked from here on, and no event says that they were erased"
            self._found(Found.ERASED_WITHOUT_EVENT, self.first_erased or None, detail)
        if not self.ended:
            self._noted(self.last_seq, "no end: it is still running, or its last rows were cut off")
        if again is not None and again.stopped is not None:
            self.run.not_checked.append(NotChecked(self.id, *again.stopped))


_UNREADABLE: Final = (TypeError, ValueError, OverflowError, StructError)
"""What digesting raises for values of types or texts that are never written."""


def _sealed_alike(record: Record, rows: tuple[Derived, ...], previous: bytes) -> bool:
    """Whether sealing the rows again with the stored salts gives every stored digest, as it nearly always does."""
    digests = record.digests
    salts = [salt for salt in (digests.private_salt, digests.salt) if salt is not None]
    if any(salt.__class__ is not bytes or len(salt) != chain.SALT_BYTES for salt in salts):
        return False
    given = iter(salts)
    try:
        sealed = chain.seal(Entry(record.record, rows, record.body), previous, lambda _size: next(given))
    except (*_UNREADABLE, StopIteration):
        return False
    return sealed == digests and _state_fits(record)


def _state_fits(record: Record) -> bool:
    frame = record.record
    return isinstance(frame, Event) or (frame.body_state == "absent") == (record.body is None)


def _as_committed(record: Frame | Event) -> tuple[Frame | Event, ...]:
    """The record as it was when it was committed: an erased body was exact or redacted then."""
    if isinstance(record, Event) or record.body_state != "erased":
        return (record,)
    return record._replace(body_state="exact"), record._replace(body_state="redacted")


def _as_columns(record: Frame | Event, rows: tuple[Derived, ...]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (TABLE_OF[type(row)], {name.rstrip("_"): value for name, value in row._asdict().items()})
        for row in (record, *rows)
    ]


def _shown(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)
