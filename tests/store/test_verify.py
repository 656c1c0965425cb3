"""The verifier finds what was changed, says what it did not check, and stays silent about what is as it was written."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from acp_ledger.errors import ExitCode, IntegrityViolation
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TABLE_OF, TO_AGENT, Decision, DeliveryMark, Entry, Gap, Message, ToolCallStep
from acp_ledger.store.recovery import GapNote, close_open, closing_entries, recover
from acp_ledger.store.verify import TAIL, Found, Report, verify
from tests.support.conversation import OPENING, START, TURN, observed, whole
from tests.support.ledgers import reading, record, second_url, shared_url, tampered, transport, writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["second_url", "shared_url"]

TOOL_STEP, QUESTION, DECISION, PROMPT_END = 10, 11, 12, 19
"""Numbers of the whole conversation."""


def checked(url: str, *, full: bool = False) -> Report:
    """Verify the ledger as `ledgerctl` would."""
    with reading(url) as connection:
        return verify(connection, full=full)


def found(report: Report, transport_id: int | None = None) -> list[tuple[Found, int | None]]:
    """What was found, and where; of one transport, where one is named."""
    wanted = [one for one in report.findings if transport_id is None or one.transport_id == transport_id]
    return [(finding.kind, finding.frame_seq) for finding in wanted]


@pytest.fixture(scope="module")
def recorded_url(second_url: str) -> str:
    """A ledger with one whole conversation, which no test changes for good."""
    record(second_url)
    return second_url


def test_whole_ledger_is_clean(ledger_url: str) -> None:
    """A ledger nobody touched gives no finding, with everything counted and mapped again."""
    record(ledger_url, whole(), whole())
    report = checked(ledger_url, full=True)
    assert (report.findings, report.not_checked, report.exit_code) == ((), (), ExitCode.OK)
    assert (report.transports, report.frames, report.events) == (2, 36, 12)
    assert report.bodies == {"exact": 34, "redacted": 2}
    assert report.rows == 2 * sum(len(entry.rows) for entry in whole())


def test_empty_ledger_is_clean(ledger_url: str) -> None:
    """A ledger in which nothing was recorded yet has nothing wrong."""
    with writer(ledger_url):
        pass
    assert checked(ledger_url, full=True).exit_code is ExitCode.OK


def test_progress_ends_at_the_total(recorded_url: str) -> None:
    """Whoever watches is told how many numbers there are and that all were done."""
    seen: list[tuple[int, int]] = []
    with reading(recorded_url) as connection:
        verify(connection, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (24, 24)


TAMPERINGS: list[tuple[str, list[str], list[tuple[Found, int | None]]]] = [
    (
        "a body edited in place",
        ["UPDATE frames SET body = :bytes WHERE frame_seq = 14"],
        [(Found.BODY_MISMATCH, 14)],
    ),
    (
        "a frame deleted",
        ["DELETE FROM frames WHERE frame_seq = 9"],
        [(Found.SEQ_GAP, 10), (Found.CHAIN_BROKEN, 10)],
    ),
    (
        "two frames swapped",
        [
            "UPDATE frames SET frame_seq = 99 WHERE frame_seq = 14",
            "UPDATE frames SET frame_seq = 14 WHERE frame_seq = 17",
            "UPDATE frames SET frame_seq = 17 WHERE frame_seq = 99",
        ],
        [
            (Found.FACTS_MISMATCH, 14),
            (Found.CHAIN_BROKEN, 14),
            (Found.CHAIN_BROKEN, 15),
            (Found.FACTS_MISMATCH, 17),
            (Found.CHAIN_BROKEN, 17),
            (Found.CHAIN_BROKEN, 18),
        ],
    ),
    (
        "a decision turned round",
        ["UPDATE decisions SET option_id = 'yes', option_kind = 'allow_once', effect = 'allow'"],
        [(Found.FACTS_MISMATCH, DECISION)],
    ),
    (
        "a title edited",
        ["UPDATE permission_requests SET title = 'Read main.py'"],
        [(Found.PRIVATE_MISMATCH, QUESTION)],
    ),
    (
        "a title blanked without an erasure",
        ["UPDATE tool_call_steps SET title = NULL WHERE frame_seq = 10"],
        [(Found.PRIVATE_MISMATCH, TOOL_STEP)],
    ),
    (
        "a transport's agent edited",
        ["UPDATE transports SET agent = 'gemini'"],
        [(Found.FACTS_MISMATCH, None), (Found.GENESIS_MISMATCH, None)],
    ),
    (
        "a transport's command edited",
        ["UPDATE transports SET argv = '[\"other\"]'"],
        [(Found.PRIVATE_MISMATCH, None), (Found.GENESIS_MISMATCH, None)],
    ),
    (
        "a derived row deleted",
        ["DELETE FROM tool_call_steps WHERE frame_seq = 13"],
        [(Found.FACTS_MISMATCH, 13)],
    ),
    (
        "a derived row added",
        ["INSERT INTO client_call_ends SELECT id, 14, 0, 'acp/v1', NULL, NULL, 15, 'error', 1 FROM transports"],
        [(Found.FACTS_MISMATCH, 14)],
    ),
    (
        "a row added where there is no number",
        ["INSERT INTO client_call_ends SELECT id, 77, 0, 'acp/v1', NULL, NULL, 15, 'error', 1 FROM transports"],
        [(Found.ROW_WITHOUT_NUMBER, 77)],
    ),
    (
        "an event's time edited",
        ["UPDATE transport_events SET at = at + 1 WHERE event = 'spawned'"],
        [(Found.FACTS_MISMATCH, 2)],
    ),
    (
        "the agent's last words edited",
        ["UPDATE transport_events SET stderr_tail = 'all is well' WHERE event = 'exited'"],
        [(Found.PRIVATE_MISMATCH, 23)],
    ),
    (
        "a link edited",
        ["UPDATE frames SET chain = :digest WHERE frame_seq = 12"],
        [(Found.CHAIN_BROKEN, 12), (Found.CHAIN_BROKEN, 13)],
    ),
    (
        "a commitment edited",
        ["UPDATE frames SET commitment = :digest WHERE frame_seq = 12"],
        [(Found.BODY_MISMATCH, 12), (Found.CHAIN_BROKEN, 12)],
    ),
    (
        "a body made to look absent",
        ["UPDATE frames SET body = NULL, salt = NULL, body_state = 'absent' WHERE frame_seq = 20"],
        [(Found.BODY_MISMATCH, 20), (Found.FACTS_MISMATCH, 20)],
    ),
    (
        "a body blanked as an erasure would",
        ["UPDATE frames SET body = NULL, salt = NULL, body_state = 'erased' WHERE frame_seq = 20"],
        [(Found.ERASED_WITHOUT_EVENT, 20)],
    ),
    (
        "a title blanked with its salt",
        [
            "UPDATE frames SET private_salt = NULL WHERE frame_seq = 11",
            "UPDATE permission_requests SET title = NULL",
            "UPDATE permission_options SET name = NULL",
        ],
        [(Found.ERASED_WITHOUT_EVENT, QUESTION)],
    ),
    (
        "the ledger's identity edited",
        ["UPDATE ledger SET ledger_id = :bytes"],
        [(Found.GENESIS_MISMATCH, None)],
    ),
    (
        "a row of another ledger slipped in",
        ["INSERT INTO ledger SELECT 1, 'acp/none', :bytes, created_at, schema_revision, compat, 'x' FROM ledger"],
        [(Found.LEDGER_ROWS_DIFFER, None)],
    ),
    (
        "a salt left where none was",
        ["UPDATE frames SET private_salt = :bytes WHERE frame_seq = 14"],
        [(Found.FACTS_MISMATCH, 14)],
    ),
]


@pytest.mark.parametrize(("statements", "expected"), [case[1:] for case in TAMPERINGS], ids=[c[0] for c in TAMPERINGS])
def test_tampering_is_found(recorded_url: str, statements: list[str], expected: list[tuple[Found, int | None]]) -> None:
    """Every change behind the ledger's back is found, where it was made and nowhere else."""
    with tampered(recorded_url, *statements, bytes=b"0123456789abcdef", digest=bytes(range(32))) as connection:
        report = verify(connection)
    assert (found(report), report.exit_code) == (expected, ExitCode.INTEGRITY)


def test_rows_without_transport_are_found(recorded_url: str) -> None:
    """A transport removed whole, but for its rows, is found in every table that has some."""
    with tampered(recorded_url, "DELETE FROM transports") as connection:
        report = verify(connection)
    assert {finding.kind for finding in report.findings} == {Found.ROW_WITHOUT_TRANSPORT}
    assert len(report.findings) == len(
        {TABLE_OF[type(row)] for entry in whole() for row in (entry.record, *entry.rows)}
    )


def test_moved_border_of_salt_and_body_is_found(recorded_url: str) -> None:
    """Bytes moved from the body to its salt are found, although both digest to the same when put together."""
    with reading(recorded_url) as connection:
        salt, body = connection.execute(text("SELECT salt, body FROM frames WHERE frame_seq = 20")).one()
    moved = {"salt": salt + body[:3], "body": body[3:]}
    with tampered(
        recorded_url, "UPDATE frames SET salt = :salt, body = :body WHERE frame_seq = 20", **moved
    ) as connection:
        assert found(verify(connection)) == [(Found.BODY_MISMATCH, 20)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "UPDATE tool_call_steps SET kind = CAST(x'ff41' AS TEXT) WHERE frame_seq = 10",
            (Found.FACTS_MISMATCH, TOOL_STEP),
        ),
        ("UPDATE tool_call_steps SET lossy = 0.5 WHERE frame_seq = 10", (Found.FACTS_MISMATCH, TOOL_STEP)),
        ("UPDATE frames SET salt = 'text' WHERE frame_seq = 10", (Found.FACTS_MISMATCH, TOOL_STEP)),
        ("UPDATE transports SET epoch = -1", (Found.FACTS_MISMATCH, None)),
    ],
    ids=["bytes that are no UTF-8", "a fraction", "text for bytes", "a negative epoch"],
)
def test_value_never_written_is_found(sqlite_template: Path, tmp_path: Path, statement: str, expected: object) -> None:
    """SQLite lets any value stand in any column: one that the ledger never writes is a finding and no crash."""
    shutil.copy(sqlite_template, tmp_path / "ledger.db")
    url = f"sqlite:///{tmp_path}/ledger.db"
    record(url)
    with tampered(url, statement) as connection:
        assert found(verify(connection)) == [expected]


def test_damaged_file_is_an_integrity_violation(sqlite_template: Path, tmp_path: Path) -> None:
    """A file whose pages were overwritten is reported as damage, with what to do, and not as a bug of ours."""
    path = tmp_path / "ledger.db"
    shutil.copy(sqlite_template, path)
    record(f"sqlite:///{path}", *[whole()] * 5)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size - size // 2))
    with pytest.raises(IntegrityViolation, match="damaged") as damage:
        checked(f"sqlite:///{path}")
    assert damage.value.hint


def test_same_number_twice_is_found(recorded_url: str) -> None:
    """An event under a line's number is found: numbers belong to both together."""
    with tampered(recorded_url, "UPDATE transport_events SET frame_seq = 21 WHERE event = 'eof'") as connection:
        assert (Found.NUMBER_TWICE, 21) in found(verify(connection))


def test_cut_tail_is_said_not_to_be_provable(recorded_url: str) -> None:
    """Rows cut off the end leave no mark in a chain: the report says so, and that the transport has no end."""
    cut = ("frames", "transport_events", "messages", "turn_ends", "anomalies", "client_call_ends")
    statements = [f"DELETE FROM {table} WHERE frame_seq > 15" for table in cut]  # noqa: S608  (names from above)
    with tampered(recorded_url, *statements) as connection:
        report = verify(connection, full=True)
    assert report.findings == ()
    said = [note.text for note in report.notes]
    assert TAIL in said
    assert any("no end" in words for words in said)


def test_gap_is_noted(ledger_url: str) -> None:
    """Lines the record says it does not hold are named in the report, and are no finding."""
    observer = Observer()
    gap = Gap(0, 0, "", "closed", START, START + 5, 7, None)
    entries = [
        *observer.event("opened", START),
        *observer.event("gap", START, marks=[gap]),
        *observer.event("closed", START),
    ]
    record(ledger_url, entries)
    report = checked(ledger_url, full=True)
    assert report.exit_code is ExitCode.OK
    assert [note.frame_seq for note in report.notes if "gap (closed): 7 lines" in note.text] == [2]


def test_interrupted_transport_is_noted(ledger_url: str) -> None:
    """A transport that outlived its daemon is named in the report."""
    observer = Observer()
    entries = [*observer.event("opened", START), *observed(observer), *observer.event("interrupted", START)]
    record(ledger_url, entries)
    report = checked(ledger_url, full=True)
    assert report.exit_code is ExitCode.OK
    assert [note.frame_seq for note in report.notes if "the daemon ended" in note.text] == [len(entries)]


@pytest.mark.parametrize("gap", [None, GapNote("closed", START, START + 5, 7)], ids=["crash", "ledger failure"])
def test_what_sql_closes_is_clean(ledger_url: str, gap: GapNote | None) -> None:
    """Cut anywhere and closed from the committed rows alone, a transport is clean, mapped again and all."""
    entries = whole()
    with writer(ledger_url) as ledger:
        for length in range(len(entries)):
            cut = transport(ledger)
            ledger.commit([(cut, entries[:length])] if length else [])
            if gap is not None:
                reason = {"event": "closed", "close_reason": "ledger_failure"}
                close_open(ledger, cut, at=START, gap=gap, **reason)  # type: ignore[arg-type]  # literal words
        if gap is None:
            recover(ledger, ledger.daemon.daemon_id, START)
    report = checked(ledger_url, full=True)
    assert (report.findings, report.not_checked) == ((), ())
    assert not any("no end" in note.text for note in report.notes)


def test_forged_recovery_is_found(ledger_url: str) -> None:
    """An answer that recovery could not have seen is found, although its digests are right."""
    observer = Observer()
    entries = [*observer.event("opened", START), *observed(observer, (*OPENING, *TURN[:4]))]
    with writer(ledger_url) as ledger:
        cut = transport(ledger)
        ledger.commit([(cut, entries)])
        reader = ledger.reading()
        ending = closing_entries(reader, cut, event="interrupted", at=START, close_reason="daemon_lost")
        ledger.commit([(cut, [with_row(Decision, outcome="selected", effect="allow")(entry) for entry in ending])])
    report = checked(ledger_url, full=True)
    assert set(found(report)) == {(Found.PROJECTION_MISMATCH, len(entries) + 1)}


def forged(entries: list[Entry], seq: int, change: Callable[[Entry], Entry]) -> list[Entry]:
    """The entries with one of them changed, before anything is sealed: who holds the ledger can seal what he likes."""
    return [change(entry) if entry.record.frame_seq == seq else entry for entry in entries]


def with_record(**values: object) -> Callable[[Entry], Entry]:
    """A change of the columns of the line or event itself."""
    return lambda entry: entry._replace(record=entry.record._replace(**values))  # type: ignore[arg-type]  # any column


def with_row(kind: type, **values: object) -> Callable[[Entry], Entry]:
    """A change of the columns of the rows of one kind."""

    def change(entry: Entry) -> Entry:
        return entry._replace(rows=tuple(r._replace(**values) if isinstance(r, kind) else r for r in entry.rows))  # type: ignore[arg-type]  # any column

    return change


FORGERIES: list[tuple[str, int, Callable[[Entry], Entry]]] = [
    ("a step said to be completed", 13, with_row(ToolCallStep, status="completed", status_raw="completed")),
    (
        "an answer said to be yes",
        DECISION,
        with_row(Decision, option_id="yes", option_kind="allow_once", effect="allow"),
    ),
    ("an answer left out", DECISION, lambda entry: entry._replace(rows=())),
    ("a step twice", 13, lambda entry: entry._replace(rows=(entry.rows[0], entry.rows[0]._replace(ordinal=1)))),
    ("a line said to be of the other side", 14, with_record(kind="request")),
    ("a version that was not negotiated", 5, with_record(version="2")),
    ("a body that says another thing", 13, lambda e: e._replace(body=(e.body or b"").replace(b"failed", b"completed"))),
    ("another length", 14, with_record(byte_count=5)),
    ("a message that was not said", PROMPT_END, with_row(Message, text="x")),
]


@pytest.fixture(scope="module")
def forgery_reports(shared_url: str) -> tuple[list[int], Report, Report]:
    """A ledger in which every transport holds one forgery: their ids, its report without and with mapping again."""
    ids = record(shared_url, *(forged(whole(), seq, change) for _name, seq, change in FORGERIES))
    return ids, checked(shared_url), checked(shared_url, full=True)


@pytest.mark.parametrize("place", range(len(FORGERIES)), ids=[case[0] for case in FORGERIES])
def test_full_finds_forgery(forgery_reports: tuple[list[int], Report, Report], place: int) -> None:
    """Rows that were sealed but do not follow from the stored bytes are found by mapping again, and only by that."""
    ids, plain, full = forgery_reports
    assert found(plain) == []
    assert set(found(full, ids[place])) == {(Found.PROJECTION_MISMATCH, FORGERIES[place][1])}


def test_given_columns_are_not_derived(ledger_url: str) -> None:
    """Who answered by which rule, and what was delivered, no line tells: mapping again has nothing to say about it."""
    mark = DeliveryMark(0, 0, "", TO_AGENT, 3)
    observer = Observer()
    entries = [*observer.event("opened", START), *observed(observer), *observer.event("closed", START, marks=[mark])]
    number = next(entry.record.frame_seq for entry in entries if any(isinstance(row, Decision) for row in entry.rows))
    record(ledger_url, forged(entries, number, with_row(Decision, rule="r", identity="mia", option_kind_claimed="x")))
    assert checked(ledger_url, full=True).exit_code is ExitCode.OK


def test_unknown_mapping_is_not_checked(ledger_url: str) -> None:
    """A transport mapped by a version this program lacks is said not to be checked again, and its chain still is."""
    with writer(ledger_url) as ledger:
        number = transport(ledger, mapping_version="99+schema-9")
        ledger.commit([(number, forged(whole(), 13, with_row(ToolCallStep, status="completed")))])
    report = checked(ledger_url, full=True)
    assert report.findings == ()
    assert [(entry.transport_id, entry.from_frame_seq) for entry in report.not_checked] == [(number, None)]
    assert report.exit_code is ExitCode.INCOMPLETE


def test_erased_transport_is_checked_up_to_the_erasure(ledger_url: str) -> None:
    """With an `erased` event blanked texts are lawful: digests still hold, and mapping stops at the first of them."""
    observer = Observer()
    entries = [*observer.event("opened", START), *observed(observer), *observer.event("closed", START)]
    entries += observer.event("erased", START, detail="on request")
    record(ledger_url, entries)
    number = next(e.record.frame_seq for e in entries if any(isinstance(row, ToolCallStep) for row in e.rows))
    blanked = (
        "UPDATE frames SET body = NULL, salt = NULL, private_salt = NULL, body_state = 'erased' WHERE frame_seq = :seq",
        "UPDATE tool_call_steps SET title = NULL WHERE frame_seq = :seq",
        "UPDATE tool_call_locations SET path = NULL WHERE frame_seq = :seq",
    )
    with tampered(ledger_url, *blanked, seq=number) as connection:
        report = verify(connection, full=True)
    assert report.findings == ()
    assert [entry.from_frame_seq for entry in report.not_checked] == [number]
    assert report.exit_code is ExitCode.INCOMPLETE


def test_long_transport_is_walked_in_chunks(recorded_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where chunks end makes no difference, and a fault on either side of a border is found."""
    monkeypatch.setattr("acp_ledger.store.numbers.CHUNK_NUMBERS", 3)
    monkeypatch.setattr("acp_ledger.store.numbers.CHUNK_BYTES", 500)
    assert checked(recorded_url, full=True).findings == ()
    with tampered(recorded_url, "DELETE FROM frames WHERE frame_seq = 9") as connection:
        assert found(verify(connection)) == [(Found.SEQ_GAP, 10), (Found.CHAIN_BROKEN, 10)]


def test_numbers_before_the_first_are_found(recorded_url: str) -> None:
    """A row slipped in before the first number is found."""
    with tampered(recorded_url, "UPDATE client_call_ends SET frame_seq = -5") as connection:
        assert found(verify(connection))[0] == (Found.ROW_WITHOUT_NUMBER, -5)


def test_findings_are_counted_past_the_kept(recorded_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ruined ledger gives a bounded report that still says how much is wrong."""
    monkeypatch.setattr("acp_ledger.store.verify.KEPT_FINDINGS", 2)
    with tampered(recorded_url, "UPDATE frames SET commitment = facts") as connection:
        report = verify(connection)
    assert (len(report.findings), report.found > 2) == (2, True)


def test_body_that_was_never_stored_is_found(ledger_url: str) -> None:
    """A line that is said to be stored exactly and has no body is found, even where it was sealed like that."""
    record(ledger_url, forged(whole(), 14, lambda entry: entry._replace(body=None)))
    assert found(checked(ledger_url)) == [(Found.BODY_MISMATCH, 14)]


def test_verifying_reads_one_snapshot(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while the verifier runs is not seen half: it walks the ledger as it was when it began."""
    monkeypatch.setattr("acp_ledger.store.verify._BETWEEN_REPORTS", 1)
    monkeypatch.setattr("acp_ledger.store.numbers.CHUNK_NUMBERS", 3)
    with writer(ledger_url) as ledger:
        number = transport(ledger)
        entries = whole()
        ledger.commit([(number, entries[:12])])

        def commit_more(_done: int, _total: int) -> None:
            if ledger_state:
                ledger.commit([(number, ledger_state.pop())])

        ledger_state = [entries[12:]]
        with reading(ledger_url) as connection:
            report = verify(connection, progress=commit_more)
        assert (report.findings, report.frames + report.events) == ((), 12)


def test_opening_is_part_of_the_conversation() -> None:
    """The numbers this module names are those of the conversation it records."""
    assert [e.record.frame_seq for e in whole() if any(isinstance(row, Decision) for row in e.rows)] == [DECISION]
    assert len(whole()) == len(OPENING) + len(TURN) + 6
