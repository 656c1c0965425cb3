"""The verifier finds what was changed, says what it did not check, and stays silent about what is as it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from acp_ledger.errors import ExitCode
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TO_AGENT, Decision, DeliveryMark, Entry, Gap, ToolCallStep
from acp_ledger.store.verify import TAIL, Found, Report, verify
from tests.support.conversation import OPENING, START, TURN, observed, whole
from tests.support.ledgers import reading, record, tamper, transport, writer
from tests.support.ledgers import made, ledger_url  # noqa: F401  (fixtures)
from tests.support.postgres import cluster  # noqa: F401  (a fixture)

if TYPE_CHECKING:
    from collections.abc import Callable

TOOL_STEP, QUESTION, DECISION, PROMPT_END = 10, 11, 12, 19
"""Numbers of the whole conversation."""


def checked(url: str, *, full: bool = False) -> Report:
    """Verify the ledger as `ledgerctl` would."""
    with reading(url) as connection:
        return verify(connection, full=full)


def found(report: Report) -> list[tuple[Found, int | None]]:
    """What was found, and where."""
    return [(finding.kind, finding.frame_seq) for finding in report.findings]


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


def test_progress_ends_at_the_total(ledger_url: str) -> None:
    """Whoever watches is told how many numbers there are and that all were done."""
    record(ledger_url)
    seen: list[tuple[int, int]] = []
    with reading(ledger_url) as connection:
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
        [
            "INSERT INTO client_call_ends SELECT transport_id, 14, 0, protocol_revision, session_id, turn_id, 15, 'result',"
            " NULL FROM client_calls"
        ],
        [(Found.FACTS_MISMATCH, 14)],
    ),
    (
        "a row added where there is no number",
        [
            "INSERT INTO client_call_ends SELECT transport_id, 77, 0, protocol_revision, session_id, turn_id, 15, 'result',"
            " NULL FROM client_calls"
        ],
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
        "a transport removed and its rows left",
        ["DELETE FROM transports"],
        [(Found.ROW_WITHOUT_TRANSPORT, None)],
    ),
    (
        "the ledger's identity edited",
        ["UPDATE ledger SET ledger_id = :bytes"],
        [(Found.GENESIS_MISMATCH, None)],
    ),
    (
        "a salt left where none was",
        ["UPDATE frames SET private_salt = :bytes WHERE frame_seq = 14"],
        [(Found.FACTS_MISMATCH, 14)],
    ),
]


@pytest.mark.parametrize(("statements", "expected"), [case[1:] for case in TAMPERINGS], ids=[c[0] for c in TAMPERINGS])
def test_tampering_is_found(ledger_url: str, statements: list[str], expected: list[tuple[Found, int | None]]) -> None:
    """Every change behind the ledger's back is found, where it was made and nowhere else."""
    record(ledger_url)
    tamper(ledger_url, *statements, bytes=b"0123456789abcdef", digest=bytes(range(32)))
    report = checked(ledger_url)
    kinds = {finding.kind for finding in report.findings}
    if kinds == {Found.ROW_WITHOUT_TRANSPORT}:
        assert len(report.findings) > 5
        return
    assert (found(report), report.exit_code) == (expected, ExitCode.INTEGRITY)


def test_moved_border_of_salt_and_body_is_found(ledger_url: str) -> None:
    """Bytes moved from the body to its salt are found, although both digest to the same when put together."""
    record(ledger_url)
    with reading(ledger_url) as connection:
        salt, body = connection.execute(text("SELECT salt, body FROM frames WHERE frame_seq = 20")).one()
    moved = {"salt": salt + body[:3], "body": body[3:]}
    tamper(ledger_url, "UPDATE frames SET salt = :salt, body = :body WHERE frame_seq = 20", **moved)
    assert found(checked(ledger_url)) == [(Found.BODY_MISMATCH, 20)]


def test_undecodable_text_is_found(tmp_path: Any) -> None:
    """A text that is no UTF-8, which SQLite stores without a word, is a finding and no crash."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    record(url)
    tamper(url, "UPDATE tool_call_steps SET kind = CAST(x'ff41' AS TEXT) WHERE frame_seq = 10")
    assert found(checked(url)) == [(Found.FACTS_MISMATCH, TOOL_STEP)]


def test_foreign_type_is_found(tmp_path: Any) -> None:
    """A value of a type that is never written, which SQLite lets stand in any column, is a finding and no crash."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    record(url)
    tamper(url, "UPDATE tool_call_steps SET lossy = 0.5 WHERE frame_seq = 10")
    tamper(url, "UPDATE transports SET epoch = -1")
    assert found(checked(url)) == [(Found.FACTS_MISMATCH, None), (Found.FACTS_MISMATCH, TOOL_STEP)]


def test_same_number_twice_is_found(ledger_url: str) -> None:
    """An event under a line's number is found: numbers belong to both together."""
    record(ledger_url)
    tamper(ledger_url, "UPDATE transport_events SET frame_seq = 21 WHERE event = 'eof'")
    assert (Found.NUMBER_TWICE, 21) in found(checked(ledger_url))


def test_cut_tail_is_said_not_to_be_provable(ledger_url: str) -> None:
    """Rows cut off the end leave no mark in a chain: the report says so, and that the transport has no end."""
    record(ledger_url)
    tamper(
        ledger_url,
        "DELETE FROM frames WHERE frame_seq > 15",
        "DELETE FROM transport_events WHERE frame_seq > 15",
        *(
            f"DELETE FROM {table} WHERE frame_seq > 15"
            for table in ("messages", "turn_ends", "anomalies", "client_call_ends")
        ),
    )
    report = checked(ledger_url, full=True)
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


def forged(entries: list[Entry], seq: int, change: Callable[[Entry], Entry]) -> list[Entry]:
    """The entries with one of them changed, before anything is sealed: who holds the ledger can seal what he likes."""
    return [change(entry) if entry.record.frame_seq == seq else entry for entry in entries]


def with_row(kind: type, **values: Any) -> Callable[[Entry], Entry]:
    """A change of the columns of the rows of one kind."""

    def change(entry: Entry) -> Entry:
        return entry._replace(rows=tuple(r._replace(**values) if isinstance(r, kind) else r for r in entry.rows))  # type: ignore[arg-type]  # any of them

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
    ("a line said to be of the other side", 14, lambda e: e._replace(record=e.record._replace(kind="request"))),  # type: ignore[arg-type]
    ("a version that was not negotiated", 5, lambda e: e._replace(record=e.record._replace(version="2"))),  # type: ignore[arg-type]
    ("a body that says another thing", 13, lambda e: e._replace(body=(e.body or b"").replace(b"failed", b"completed"))),
    ("another length", 14, lambda e: e._replace(record=e.record._replace(byte_count=5))),  # type: ignore[arg-type]
    ("a message that was not said", PROMPT_END, lambda e: e._replace(rows=(e.rows[0]._replace(text="x"), *e.rows[1:]))),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("seq", "change"), [case[1:] for case in FORGERIES], ids=[case[0] for case in FORGERIES])
def test_full_finds_forgery(ledger_url: str, seq: int, change: Callable[[Entry], Entry]) -> None:
    """Rows that were sealed, but do not follow from the stored bytes, are found by mapping the bytes again, and only so."""
    record(ledger_url, forged(whole(), seq, change))
    assert found(checked(ledger_url)) == []
    report = checked(ledger_url, full=True)
    assert {(finding.kind, finding.frame_seq) for finding in report.findings} == {(Found.PROJECTION_MISMATCH, seq)}


def test_given_columns_are_not_derived(ledger_url: str) -> None:
    """Who answered by which rule is told from outside: mapping again says nothing about it, and delivery marks neither."""
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
    tamper(
        ledger_url,
        "UPDATE frames SET body = NULL, salt = NULL, private_salt = NULL, body_state = 'erased' WHERE frame_seq = :seq",
        "UPDATE tool_call_steps SET title = NULL WHERE frame_seq = :seq",
        "UPDATE tool_call_locations SET path = NULL WHERE frame_seq = :seq",
        seq=number,
    )
    report = checked(ledger_url, full=True)
    assert report.findings == ()
    assert [entry.from_frame_seq for entry in report.not_checked] == [number]
    assert report.exit_code is ExitCode.INCOMPLETE


def test_long_transport_is_walked_in_chunks(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where chunks end makes no difference, and a fault on either side of a border is found."""
    monkeypatch.setattr("acp_ledger.store.numbers.CHUNK_NUMBERS", 3)
    monkeypatch.setattr("acp_ledger.store.numbers.CHUNK_BYTES", 500)
    record(ledger_url)
    assert checked(ledger_url, full=True).findings == ()
    tamper(ledger_url, "DELETE FROM frames WHERE frame_seq = 9")
    assert found(checked(ledger_url)) == [(Found.SEQ_GAP, 10), (Found.CHAIN_BROKEN, 10)]


def test_numbers_before_the_first_are_found(ledger_url: str) -> None:
    """A row slipped in before the first number is found."""
    record(ledger_url)
    tamper(ledger_url, "UPDATE client_call_ends SET frame_seq = -5")
    assert found(checked(ledger_url))[0] == (Found.ROW_WITHOUT_NUMBER, -5)


def test_findings_are_counted_past_the_kept(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ruined ledger gives a bounded report that still says how much is wrong."""
    monkeypatch.setattr("acp_ledger.store.verify.KEPT_FINDINGS", 2)
    record(ledger_url)
    tamper(ledger_url, "UPDATE frames SET commitment = facts")
    report = checked(ledger_url)
    assert (len(report.findings), report.found > 2) == (2, True)


def test_verifying_reads_one_snapshot(ledger_url: str) -> None:
    """What is committed while the verifier runs is not seen half: it walks the ledger as it was when it began."""
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
