"""Requests that wait, and the answers that belong to them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.exchange import (
    ANOMALY_OF_ASKED,
    ANOMALY_OF_VERDICT,
    ANSWERED_IDS,
    PENDING_REQUESTS,
    PENDING_WEIGHT,
    Exchange,
    Match,
    Request,
)
from acp_ledger.protocol.observer import ANOMALY_CLASSES


def request(frame_seq: int, weight: int = 0) -> Request:
    """A request asked in that frame."""
    return Request(id_token="0", method="m", frame_seq=frame_seq, weight=weight)  # noqa: S106  # a JSON token, no secret


def test_answer_takes_its_request() -> None:
    """A request waits until its answer, and only then is gone."""
    exchange = Exchange()
    asked = request(1)
    assert exchange.ask("a", asked) == ("pending", None)
    assert exchange.peek("a") is asked
    assert exchange.waiting() == [asked]
    assert exchange.answer("a", 2) == Match("first", asked)
    assert exchange.peek("a") is None
    assert exchange.waiting() == []


def test_answer_to_nothing_is_an_orphan() -> None:
    """An id that nobody asked under answers nothing."""
    assert Exchange().answer("a", 1) == Match("orphan")


def test_second_answer_is_late() -> None:
    """It points to the first one, however often it is repeated."""
    exchange = Exchange()
    exchange.ask("a", request(1))
    exchange.answer("a", 2)
    assert exchange.answer("a", 3) == exchange.answer("a", 4) == Match("late", None, 2)


def test_own_answer_settles_until_the_id_is_asked_again() -> None:
    """What a peer says under an id that we answered comes too late; a new question under it is the peer's again."""
    exchange = Exchange()
    for key, ours in (("a", True), ("b", False)):
        exchange.ask(key, request(1))
        assert not exchange.is_settled_here(key)
        exchange.answer(key, 2, ours=ours)
    assert exchange.is_settled_here("a")
    assert not exchange.is_settled_here("b")
    exchange.ask("a", request(3))
    assert not exchange.is_settled_here("a")


def test_answered_ids_are_forgotten_oldest_first() -> None:
    """Memory of answers is bounded; a very late answer is an orphan."""
    exchange = Exchange()
    for number in range(ANSWERED_IDS + 1):
        exchange.ask(number, request(number))
        exchange.answer(number, number)
    assert exchange.answer(0, 1).verdict == "orphan"
    assert exchange.answer(1, 1).verdict == "late"


def test_reused_id_is_remembered_anew() -> None:
    """An id that was answered again is the newest, not the oldest, of what is remembered."""
    exchange = Exchange()
    for number in (*range(ANSWERED_IDS), 1, "more", "and more"):
        exchange.ask(number, request(1))
        exchange.answer(number, 2)
    assert exchange.answer(1, 3).verdict == "late"
    assert [exchange.answer(number, 3).verdict for number in (0, 2, 3)] == ["orphan", "orphan", "late"]


def test_duplicate_waits_behind_the_first() -> None:
    """Answers are taken in the order of asking; each one points to the other request."""
    exchange = Exchange()
    one, two = request(1), request(2)
    exchange.ask("a", one)
    assert exchange.ask("a", two) == ("duplicate", 1)
    assert exchange.answer("a", 3) == Match("shared", one, 2)
    assert exchange.answer("a", 4) == Match("shared", two, 1)
    assert exchange.answer("a", 5).verdict == "late"


def test_free_id_is_not_a_duplicate() -> None:
    """After its answer an id may be used again."""
    exchange = Exchange()
    for number in (1, 3):
        assert exchange.ask("a", request(number)) == ("pending", None)
        assert exchange.answer("a", number + 1).verdict == "first"


def test_waiting_requests_are_bounded_by_number() -> None:
    """One more than the bound does not wait, until another was answered."""
    exchange = Exchange()
    for number in range(PENDING_REQUESTS):
        exchange.ask(number, request(number))
    assert exchange.ask("more", request(0)) == ("untracked", None)
    exchange.answer(0, 1)
    assert exchange.ask("more", request(0)) == ("pending", None)


def test_waiting_requests_are_bounded_by_weight() -> None:
    """Long offers count: what does not fit does not wait, and an answer makes room again."""
    exchange = Exchange()
    assert exchange.ask("a", request(1, PENDING_WEIGHT - 1)) == ("pending", None)
    assert exchange.ask("b", request(2)) == ("untracked", None)
    exchange.answer("a", 3)
    assert exchange.ask("b", request(4)) == ("pending", None)


def test_every_anomaly_is_documented() -> None:
    """What the exchange can say is on the page of anomaly classes."""
    named = {*ANOMALY_OF_ASKED.values(), *ANOMALY_OF_VERDICT.values()} - {None}
    assert named <= set(ANOMALY_CLASSES)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3))))
def test_each_request_is_answered_at_most_once(steps: list[tuple[bool, int]]) -> None:
    """Whatever is asked and answered, no request is taken twice and none is lost."""
    exchange = Exchange()
    asked: list[int] = []
    taken: list[int] = []
    for seq, (asks, key) in enumerate(steps):
        if asks:
            exchange.ask(key, request(seq))
            asked.append(seq)
        else:
            found = exchange.answer(key, seq).request
            taken.extend([] if found is None else [found.frame_seq])
    assert len(taken) == len(set(taken))
    assert sorted(taken + [one.frame_seq for one in exchange.waiting()]) == asked
