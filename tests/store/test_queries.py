"""What can be asked of a ledger is answered alike on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import Gap
from acp_ledger.store import queries
from acp_ledger.store.queries import Filter
from tests.support.conversation import OPENING, SESSION, START, TURN, observed, whole
from tests.support.ledgers import reading, record, shared_url, transport, writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from acp_ledger.store.answers import LedgerEvent

__all__ = ["shared_url"]


@pytest.fixture(scope="module")
def ids(shared_url: str) -> list[int]:
    """Two transports of one agent, the second still open, and one of another agent with a session of the same id."""
    first, second = record(shared_url, whole(), whole(close=False))
    with writer(shared_url) as ledger:
        third = transport(ledger, agent="codex", opened_at=START + 10)
        observer = Observer()
        ledger.commit([(third, [*observer.event("opened", START), *observed(observer, OPENING)])])
    return [first, second, third]


@pytest.fixture
def ledger(shared_url: str, ids: list[int]) -> Iterator[Connection]:
    """A connection that reads them."""
    assert len(ids) == 3
    with reading(shared_url) as connection:
        yield connection


def test_facts_count_everything(ledger: Connection, ids: list[int]) -> None:
    """A ledger says which it is, how much it holds, and how many transports have no end."""
    facts = queries.facts(ledger)
    assert (facts.transports, facts.open_transports) == (len(ids), 2)
    assert (facts.sessions, facts.turns, facts.questions, facts.decisions) == (3, 2, 2, 2)
    assert facts.frames == 2 * (len(OPENING) + len(TURN)) + len(OPENING)
    assert (len(facts.ledger_id), facts.revision, facts.gaps) == (32, "0001", 0)


def test_sessions_come_in_order(ledger: Connection, ids: list[int]) -> None:
    """Sessions come oldest first, newest first on request, and the limit takes the first of that order."""
    assert [row.transport_id for row in queries.sessions(ledger)] == ids
    newest = list(queries.sessions(ledger, Filter(reverse=True, limit=2)))
    assert [row.transport_id for row in newest] == [ids[2], ids[1]]
    assert (newest[1].acp_session_id, newest[1].turns, newest[1].rejected) == (SESSION, 1, 1)


def test_filters_narrow_every_list(ledger: Connection, ids: list[int]) -> None:
    """A transport, a session, an agent and a time narrow every list, whichever of their columns it has."""
    one = Filter(
        transport_id=ids[0],
        session_id=1,
        acp_session_id=SESSION,
        agent="claude",
        client="editor",
        cwd="/home/mia/src/",
        until="9999",
    )
    lists: tuple[Callable[[Connection, Filter], Iterator[Any]], ...] = (
        queries.transports,
        queries.sessions,
        queries.turns,
        queries.tool_calls,
        queries.decisions,
        queries.coverage,
        queries.timeline,
        queries.messages,
    )
    for ask in lists:
        found = list(ask(ledger, one))
        assert {row.transport_id for row in found} == {ids[0]}, ask
        nobody = (
            Filter(agent="nobody"),
            Filter(acp_session_id="nosuch"),
            Filter(session_id=99),
            Filter(transport_id=7),
            Filter(client="vi"),
            Filter(cwd="/home"),
        )
        assert [list(ask(ledger, other)) for other in nobody] == [[]] * len(nobody), ask
    assert list(queries.sessions(ledger, Filter(since="9999"))) == []


def test_decision_is_whole(ledger: Connection, ids: list[int]) -> None:
    """A question shows what was on offer and what was answered."""
    (row,) = queries.decisions(ledger, Filter(transport_id=ids[0]))
    assert (row.outcome, row.option_kind, row.offered, row.effect) == ("selected", "reject_once", 1, "reject")
    assert (row.tool_call_id, row.detail, row.decided_by, row.waited_ms) == ("c1", "Edit main.py", "client", 1)


def test_transport_says_whether_it_ended(ledger: Connection, ids: list[int]) -> None:
    """An open transport has no end, and a closed one its reason."""
    closed, still_open, other = queries.transports(ledger)
    assert (closed.transport_id, closed.close_reason, closed.client) == (ids[0], "agent_exited", "editor")
    assert (still_open.closed_at, other.agent, other.frames) == (None, "codex", len(OPENING))


def test_anomalies_are_named(ledger: Connection, ids: list[int]) -> None:
    """What an auditor must know is listed with its class."""
    found = list(queries.anomalies(ledger, Filter(transport_id=ids[0])))
    assert [row.frame_seq for row in found] == sorted(row.frame_seq for row in found)
    assert {row.class_ for row in found}
    assert found[0].at.endswith("Z")


def test_messages_are_joined(ledger: Connection, ids: list[int]) -> None:
    """Chunks come back as the messages they make."""
    found = [(row.stream, row.text) for row in queries.messages(ledger, Filter(transport_id=ids[0]))]
    assert sorted(found) == [("agent", "Good morning"), ("thought", "thinking")]


def numbers(found: list[LedgerEvent]) -> list[tuple[int, int]]:
    """Their keys."""
    return [(row.transport_id, row.frame_seq) for row in found]


@pytest.mark.parametrize("page", [1, 2, 7, 500])
def test_events_merge_lines_and_events(
    ledger: Connection, ids: list[int], monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Lines and events come as one sequence without a hole, whatever the size of a page, and backwards too."""
    monkeypatch.setattr(queries, "_PAGE", page)
    found = list(queries.events(ledger))
    size = len(whole())
    expected = [(ids[0], n) for n in range(1, size + 1)] + [(ids[1], n) for n in range(1, size)]
    expected += [(ids[2], n) for n in range(1, len(OPENING) + 3)]
    assert numbers(found) == expected
    assert numbers(list(queries.events(ledger, Filter(reverse=True)))) == expected[::-1]
    assert (found[0].event, found[0].kind, found[2].event, found[2].method) == ("opened", None, None, "initialize")


def test_events_go_on_behind_a_key(ledger: Connection, ids: list[int]) -> None:
    """Reading goes on behind the last key seen, forwards and backwards, up to the limit."""
    ahead = queries.events(ledger, Filter(limit=3), after=(ids[0], 23))
    assert numbers(list(ahead)) == [(ids[0], 24), (ids[1], 1), (ids[1], 2)]
    back = queries.events(ledger, Filter(limit=2, reverse=True), after=(ids[1], 2))
    assert numbers(list(back)) == [(ids[1], 1), (ids[0], 24)]


def test_events_of_a_session_are_lines(ledger: Connection, ids: list[int]) -> None:
    """Events belong to no session, so a session has lines alone."""
    found = list(queries.events(ledger, Filter(transport_id=ids[0], acp_session_id=SESSION)))
    assert {row.event for row in found} == {None}
    assert {row.session_id for row in found} == {1}


def test_frame_comes_with_body_and_rows(ledger: Connection, ids: list[int]) -> None:
    """One line comes with its bytes as stored and every row it gave rise to; a number without a line gives None."""
    found = queries.frame(ledger, ids[0], 12)
    assert found is not None
    assert (found.body, found.row["kind"]) == (whole()[11].body, "response")
    assert [(name, row["effect"]) for name, row in found.derived] == [("decisions", "reject")]
    assert queries.frame(ledger, ids[0], 1) is None


def test_secret_is_not_in_the_stored_line(ledger: Connection, ids: list[int]) -> None:
    """What was redacted before it was stored cannot be asked for."""
    found = queries.frame(ledger, ids[0], 6)
    assert found is not None
    assert found.row["body_state"] == "redacted"
    assert b"s3cret" not in (found.body or b"")
    assert b"[redacted]" in (found.body or b"")


def test_prefix_resolves(ledger: Connection, ids: list[int]) -> None:
    """The beginning of an id finds what it may mean; a whole id finds that alone; case and wildcards are letters."""
    assert {(match.kind, match.transport_id) for match in queries.resolve(ledger, SESSION[:3])} == {
        ("session", number) for number in ids
    }
    (exact,) = queries.resolve(ledger, str(ids[0]))
    assert (exact.kind, exact.transport_id) == ("transport", ids[0])
    assert {match.kind for match in queries.resolve(ledger, "c")} == {"tool call"}
    assert [queries.resolve(ledger, other) for other in ("SESS", "s_ss", "%", "nosuch")] == [[], [], [], []]


def test_gaps_are_listed(ledger_url: str) -> None:
    """What the record does not hold can be asked for."""
    observer = Observer()
    gap = Gap(0, 0, "", "open", START, START + 5, None, None)
    record(ledger_url, [*observer.event("opened", START), *observer.event("gap", START, marks=[gap])])
    with reading(ledger_url) as connection:
        (row,) = queries.gaps(connection)
    assert (row.cause, row.from_at, row.to_at, row.count) == ("open", START, START + 5, None)


def test_engines_answer_with_the_same_types(ledger: Connection) -> None:
    """No value's type depends on the engine: whole numbers, text and None, as the rows say."""
    asked = (queries.sessions, queries.turns, queries.tool_calls, queries.decisions, queries.coverage, queries.timeline)
    kinds = {
        type(value) for ask in (*asked, queries.transports, queries.events) for row in ask(ledger) for value in row
    }
    assert kinds == {int, str, type(None)}
