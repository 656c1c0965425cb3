"""What a crash left open is closed from the committed rows, once, and claims nothing that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from acp_ledger.store import chain, tables
from acp_ledger.store.faults import CommitRefused
from acp_ledger.store.ledger import Daemon, Ledger
from acp_ledger.store.recovery import DAEMON_LOST, GapNote, Process, Recovered, close_open, open_transports, recover
from tests.support import seed
from tests.support.postgres import ON_POSTGRES
from tests.support.seed import START, Seed

if TYPE_CHECKING:
    from sqlalchemy import Table

LATER = START + 60_000_000


def _at(ledger: Ledger, table: Table, number: int) -> list[dict[str, Any]]:
    query = select(table).where(table.c.frame_seq == number).order_by(*table.primary_key.columns)
    return [dict(row) for row in ledger.reading().execute(query).mappings()]


def test_open_ends_are_closed_with_their_reason(ledger: Ledger, transport: int) -> None:
    """A question stays unanswered and a turn interrupted, under an event of their own that says why."""
    ledger.commit([(transport, seed.conversation())])
    found = recover(ledger, seed.DAEMON.daemon_id, LATER)
    process = Process(4242, 77, "boot-a", 4242, "/user.slice")
    assert found == [Recovered(transport, "agent-x", 17, questions=1, turns=1, process=process)]
    (event,) = _at(ledger, tables.transport_events, 18)
    assert (event["event"], event["at"], event["close_reason"]) == ("interrupted", LATER, DAEMON_LOST)
    assert event["protocol_revision"] == "acp/v1"
    (decision,) = _at(ledger, tables.decisions, 18)
    expected = {
        "request_frame": 17,
        "turn_id": 2,
        "outcome": "unanswered",
        "outcome_raw": DAEMON_LOST,
        "option_id": None,
        "option_kind": None,
        "offered": None,
        "effect": "none",
        "decided_by": "nobody",
        "detail": "Run ls",
        "asked_at": START + 17_000_000,
        "decided_at": None,
    }
    assert {name: decision[name] for name in expected} == expected
    (end,) = _at(ledger, tables.turn_ends, 18)
    assert (end["turn_id"], end["outcome"], end["stop_reason"]) == (2, "interrupted", None)
    assert end["error_message"] == "the daemon died before this ended"
    assert end["text_bytes"] == 0


def test_closing_rows_are_in_the_chain(ledger: Ledger, transport: int) -> None:
    """The event links to the last committed number, and its digests cover the rows under it."""
    ledger.commit([(transport, seed.conversation())])
    recover(ledger, seed.DAEMON.daemon_id, LATER)
    (event,) = _at(ledger, tables.transport_events, 18)
    (last,) = _at(ledger, tables.frames, 17)
    rows = [("transport_events", event)]
    rows += [(table.name, row) for table in (tables.decisions, tables.turn_ends) for row in _at(ledger, table, 18)]
    facts, private = chain.divide(rows)
    assert private is not None
    assert event["facts"] == chain.facts_digest(facts)
    assert event["private"] == chain.private_digest(event["private_salt"], private)
    assert event["chain"] == chain.link(last["chain"], 18, chain.ZERO, event["private"], event["facts"])


def test_recovering_twice_changes_nothing(ledger: Ledger, transport: int) -> None:
    """A transport that has ended is not ended again, and gets no more entries from closing."""
    ledger.commit([(transport, seed.conversation())])
    assert len(recover(ledger, seed.DAEMON.daemon_id, LATER)) == 1
    assert recover(ledger, seed.DAEMON.daemon_id, LATER) == []
    assert close_open(ledger, transport, event="closed", at=LATER, close_reason="x") == ()


def test_text_of_an_interrupted_turn_is_what_was_written(ledger: Ledger, transport: int) -> None:
    """A turn's size counts the messages of that turn that have rows, and no other's."""
    script = Seed()
    entries = seed.conversation(script)
    entries.append(script.update("agent_message_chunk", seed.message(2, "häl", 18), turn=2))
    ledger.commit([(transport, entries)])
    recover(ledger, seed.DAEMON.daemon_id, LATER)
    (end,) = _at(ledger, tables.turn_ends, 19)
    assert end["text_bytes"] == 4


def test_transport_without_a_line_is_closed_too(ledger: Ledger, transport: int) -> None:
    """A daemon that died before its agent started leaves a transport with an ending and nothing else."""
    (found,) = recover(ledger, seed.DAEMON.daemon_id, LATER)
    assert (found.transport_id, found.last_frame_seq, found.process) == (transport, 0, None)
    (event,) = _at(ledger, tables.transport_events, 1)
    assert (event["event"], event["protocol_revision"]) == ("interrupted", "acp/unnegotiated")


def test_agent_that_exited_is_no_survivor(ledger: Ledger, transport: int) -> None:
    """Only a process that was never seen to exit may have outlived the daemon."""
    script = Seed()
    ledger.commit([(transport, [script.event("spawned", pid=4242), script.event("exited", status=0)])])
    (found,) = recover(ledger, seed.DAEMON.daemon_id, LATER)
    assert found.process is None


def test_ended_transports_are_left_alone(ledger: Ledger) -> None:
    """What was closed in order stays as it is."""
    script = Seed()
    closed = ledger.open_transport(seed.new_transport()).id
    ledger.commit([(closed, [script.event("opened"), script.event("closed", close_reason="eof")])])
    still = ledger.open_transport(seed.new_transport(agent="other")).id
    assert open_transports(ledger.reading(), seed.DAEMON.daemon_id) == [(still, "other")]


@ON_POSTGRES
def test_other_daemons_transports_are_left_alone(ledger: Ledger, transport: int, ledger_url: str) -> None:
    """Each daemon on a shared Postgres closes its own; the others' are running."""
    other = Ledger.open(ledger_url, Daemon("daemon-2", "desk", 1), at=START)
    try:
        theirs = other.open_transport(seed.new_transport()).id
        assert [found.transport_id for found in recover(ledger, seed.DAEMON.daemon_id, LATER)] == [transport]
        assert open_transports(ledger.reading(), "daemon-2") == [(theirs, "agent-x")]
    finally:
        other.close()


def test_gap_comes_before_the_ending(ledger: Ledger, transport: int) -> None:
    """After a time without commits the gap is told first, then the end; both are one transaction."""
    ledger.commit([(transport, seed.conversation())])
    gap = GapNote("closed", START, LATER, count=3, digest="ab")
    entries = close_open(
        ledger, transport, event="closed", at=LATER, close_reason="ledger_failure", gap=gap,
        detail="disk full", delivered=[("agent_to_client", 15), ("client_to_agent", 16)],
    )  # fmt: skip
    assert [getattr(entry.record, "event", None) for entry in entries] == ["gap", "closed"]
    (row,) = _at(ledger, tables.gaps, 18)
    assert (row["cause"], row["from_at"], row["to_at"], row["count"], row["digest"]) == (
        "closed",
        START,
        LATER,
        3,
        "ab",
    )
    marks = _at(ledger, tables.deliveries, 19)
    assert [(mark["direction"], mark["through_frame_seq"]) for mark in marks] == [
        ("agent_to_client", 15),
        ("client_to_agent", 16),
    ]
    (end,) = _at(ledger, tables.turn_ends, 19)
    assert end["error_message"] == "the ledger could not be written before this ended"
    (event,) = _at(ledger, tables.transport_events, 19)
    assert event["detail"] == "disk full"


def test_live_numbers_are_given_up_after_closing(ledger: Ledger, transport: int) -> None:
    """Lines that were numbered and never committed are refused once the transport has its ending."""
    script = Seed()
    entries = seed.conversation(script)
    ledger.commit([(transport, entries[:15])])
    close_open(ledger, transport, event="closed", at=LATER, close_reason="refused")
    with pytest.raises(CommitRefused, match="does not follow 16"):
        ledger.commit([(transport, entries[15:])])


def test_second_question_of_a_turn_is_closed_alone(ledger: Ledger, transport: int) -> None:
    """Only questions without a decision become unanswered; each keeps its own session and turn."""
    script = Seed()
    entries = [*seed.opening_entries(script), *seed.turn_entries(script)]
    ledger.commit([(transport, [*entries, *seed.open_ends(script), *_another(script)])])
    (found,) = recover(ledger, seed.DAEMON.daemon_id, LATER)
    assert (found.questions, found.turns) == (2, 1)
    rows = _at(ledger, tables.decisions, 19)
    assert [(row["ordinal"], row["request_frame"], row["turn_id"]) for row in rows] == [(0, 17, 2), (1, 18, None)]


def _another(script: Seed) -> list[Any]:
    asked = seed.question("late")._replace(turn_id=None)
    return [script.frame("agent_to_client", asked, kind="request", method="session/request_permission", rpc_id="9")]
