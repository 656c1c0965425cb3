"""Permission: the question, the call it is about, and what was decided."""

from __future__ import annotations

from typing import Any

import pytest

from acp_ledger.protocol.permission import Answer, decision_of, effect_of, question_of
from acp_ledger.protocol.records import (
    TO_CLIENT,
    Decision,
    Effect,
    PermissionOption,
    PermissionRequest,
    ToolCallStep,
)
from tests.protocol.wire import (
    SESSION,
    call,
    ended,
    error,
    note,
    offer,
    prompt,
    prompted,
    question,
    result,
    selected,
    update,
)

OPTIONS = [
    offer("once", "allow_once"),
    offer("always", "allow_always"),
    offer("no", "reject_once"),
    offer("never", "reject_always"),
    offer("odd", "_vendor"),
    {"optionId": "kindless", "name": "n"},
    offer(7, "allow_once"),
    "no object",
    offer("no", "allow_once"),
    offer("x" * 300, "allow_once"),
]
QUESTION = question_of({"toolCall": {"toolCallId": "c"}, "options": OPTIONS}, [])


def chose(option_id: Any) -> dict[str, Any]:
    """The result that selects an option."""
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


class TestDecisionOf:
    """What an answer says, read against its question."""

    @pytest.mark.parametrize(
        ("option_id", "kind", "offered", "effect"),
        [
            ("once", "allow_once", True, "allow"),
            ("always", "allow_always", True, "allow"),
            ("no", "reject_once", True, "reject"),
            ("never", "reject_always", True, "reject"),
            ("odd", "_vendor", True, "unknown"),
            ("kindless", None, True, "unknown"),
            ("7", "", False, "unknown"),
            ("elsewhere", "", False, "unknown"),
            ("", "", False, "unknown"),
        ],
    )
    def test_first_matching_offer_gives_the_kind(
        self, option_id: str, kind: str | None, effect: Effect, *, offered: bool
    ) -> None:
        """The kind is the first offer's with that id: the empty word when never offered, none when it has none."""
        answer = decision_of(QUESTION, chose(option_id), None)
        assert answer == Answer("selected", "selected", option_id, kind, offered, effect)

    def test_long_option_id_is_matched_by_identity(self) -> None:
        """An id too long to keep is known by its digest on both sides."""
        answer = decision_of(QUESTION, chose("x" * 300), None)
        assert (answer.offered, answer.effect) == (True, "allow")
        assert answer.option_id is not None
        assert answer.option_id.startswith("sha256:")

    def test_cancelled_is_kept_apart(self) -> None:
        """Nobody chose anything."""
        answer = decision_of(QUESTION, {"outcome": {"outcome": "cancelled"}}, None)
        assert answer == Answer("cancelled", "cancelled", None, None, None, "none")

    @pytest.mark.parametrize(
        ("failure", "raw"), [({"code": -32800, "message": "x"}, "-32800"), ({"code": "x"}, None), ("no object", None)]
    )
    def test_error_is_no_approval(self, failure: Any, raw: str | None) -> None:
        """Any error, the one for a withdrawn request among them, keeps its code as the raw word."""
        assert decision_of(QUESTION, None, failure) == Answer("error", raw, None, None, None, "none")

    @pytest.mark.parametrize(
        ("answer", "raw"),
        [
            (None, None),
            ("selected", None),
            ({}, None),
            ({"outcome": "selected"}, None),
            ({"outcome": {}}, None),
            ({"outcome": {"outcome": 1, "optionId": "once"}}, None),
            ({"outcome": {"outcome": "approved", "optionId": "once"}}, "approved"),
            ({"outcome": {"outcome": "selected"}}, "selected"),
            ({"outcome": {"outcome": "selected", "optionId": 7}}, "selected"),
            ({"optionId": "once"}, None),
        ],
    )
    def test_unreadable_outcome_is_malformed(self, answer: Any, raw: str | None) -> None:
        """Nothing is guessed into an answer, and its own word is kept."""
        assert decision_of(QUESTION, answer, None) == Answer("malformed", raw, None, None, None, "unknown")

    def test_ambiguous_answer_is_malformed(self) -> None:
        """Two readers may have heard two things, so nobody heard anything."""
        assert decision_of(QUESTION, chose("once"), None, ambiguous=True).outcome == "malformed"
        assert decision_of(QUESTION, chose("once"), {"code": 1}).outcome == "malformed"

    @pytest.mark.parametrize(
        ("kind", "effect"),
        [
            ("allow_once", "allow"),
            ("allow_forever", "allow"),
            ("reject_once", "reject"),
            ("allow", "unknown"),
            ("Allow_once", "unknown"),
            ("other", "unknown"),
            ("", "unknown"),
            (None, "unknown"),
        ],
    )
    def test_effect_follows_the_kind_alone(self, kind: str | None, effect: str) -> None:
        """A name says nothing, and a kind nobody knows is never an allow."""
        assert effect_of(kind) == effect


class TestQuestionOf:
    """What a question says."""

    @pytest.mark.parametrize("options", [None, "all", {}, 7])
    def test_offer_that_is_no_list_is_absent(self, options: Any) -> None:
        """Without an offer there is nothing to match, and nothing was offered."""
        wrong: list[str] = []
        asked = question_of({"toolCall": {"toolCallId": "c"}, "options": options}, wrong)
        assert (asked.options, asked.option_count) == (None, None)
        assert wrong == ([] if options is None else ["options"])
        assert decision_of(asked, chose("once"), None).offered is False

    def test_odd_options_are_kept_in_their_place(self) -> None:
        """An option that is no object, or lacks a string id, is stored and matches nothing."""
        assert QUESTION.option_count == len(OPTIONS)
        assert QUESTION.options is not None
        assert [option.option_id for option in QUESTION.options][5:8] == ["kindless", None, None]

    def test_question_without_a_call_is_a_question(self) -> None:
        """A missing call leaves a question about nothing in particular."""
        asked = question_of({"options": []}, [])
        assert (asked.tool_call_id, asked.title, asked.call, asked.options) == (None, None, None, ())

    def test_call_without_an_id_keeps_its_words(self) -> None:
        """Kind, status and title are told even where no id is."""
        asked = question_of({"toolCall": {"title": "T", "kind": "edit", "status": "pending"}}, [])
        assert (asked.tool_call_id, asked.title, asked.tool_kind, asked.tool_status) == (None, "T", "edit", "pending")
        assert asked.call is None

    def test_each_wrong_field_is_named_once(self) -> None:
        """A field of the wrong type reads as absent."""
        wrong: list[str] = []
        question_of({"toolCall": {"toolCallId": 1, "title": [], "kind": 2, "status": {}}}, wrong)
        assert sorted(wrong) == ["kind", "status", "title", "toolCallId"]


class TestQuestions:
    """Questions on a connection."""

    def test_question_and_decision_are_recorded(self) -> None:
        """The question with every answer on offer, and the first answer with who gave it and when."""
        wire = prompted()
        frame = wire.agent(question(0, title="Edit a.py", kind="edit"))
        assert (frame.disposition, frame.turn_id) == ("observed", 1)
        (asked,) = wire.rows(PermissionRequest)
        assert (asked.tool_call_id, asked.title, asked.tool_kind) == ("call-1", "Edit a.py", "edit")
        assert asked.option_count == 2
        assert [(row.option_id, row.kind, row.name) for row in wire.rows(PermissionOption)] == [
            ("yes", "allow_once", "a name"),
            ("no", "reject_once", "a name"),
        ]
        wire.client(selected(0, "yes"))
        (row,) = wire.rows(Decision)
        assert (row.request_frame, row.outcome, row.option_id, row.option_kind) == (7, "selected", "yes", "allow_once")
        assert (row.effect, row.offered, row.decided_by, row.detail) == ("allow", True, "client", "Edit a.py")
        assert (row.asked_at, row.decided_at, row.turn_id) == (7, 8, 1)
        assert (row.rule, row.identity, row.option_kind_claimed) == (None, None, None)

    @pytest.mark.parametrize(
        ("origin", "decided_by"),
        [("peer", "client"), ("policy", "policy"), ("operator", "operator"), ("daemon", "nobody")],
    )
    def test_origin_says_who_decided(self, origin: str, decided_by: str) -> None:
        """A line the daemon makes of itself is never the client's decision."""
        wire = prompted()
        wire.agent(question(0))
        wire.client(selected(0, "no"), origin=origin)
        assert [row.decided_by for row in wire.rows(Decision)] == [decided_by]

    def test_option_never_offered_is_flagged(self) -> None:
        """It is recorded for what it was."""
        wire = prompted()
        wire.agent(question(0))
        wire.client(selected(0, "other"))
        assert [(row.option_kind, row.offered, row.effect) for row in wire.rows(Decision)] == [("", False, "unknown")]
        assert wire.anomalies() == [("option_not_offered", 7)]

    def test_repeated_option_id_is_flagged(self) -> None:
        """Two answers under one id cannot be told apart; the first offer gives the kind."""
        wire = prompted()
        options = [offer("x", "reject_once"), offer("x", "allow_always"), offer(1, "_"), offer(2, "_"), offer("", "_")]
        wire.agent(call(0, "session/request_permission", sessionId=SESSION, toolCall={}, options=options))
        wire.client(selected(0, "x"))
        assert [row.effect for row in wire.rows(Decision)] == ["reject"]
        assert [class_ for class_, _ in wire.anomalies()] == ["option_id_repeated", "wrong_type"]

    def test_answers_may_come_in_any_order(self) -> None:
        """Several questions may be open at once."""
        wire = prompted()
        wire.agent(question(0, "a", title="A"))
        wire.agent(question(1, "b", title="B"))
        wire.client(selected(1, "yes"))
        wire.client(selected(0, "no"))
        assert [(row.detail, row.effect) for row in wire.rows(Decision)] == [("B", "allow"), ("A", "reject")]

    def test_questions_under_one_id_have_no_readable_answer(self) -> None:
        """Nobody can say which of the two was meant, so neither is allowed by it."""
        wire = prompted()
        wire.agent(question(0, "a"))
        wire.agent(question(0, "b"))
        wire.client(selected(0, "yes"))
        wire.client(selected(0, "yes"))
        assert [(row.request_frame, row.outcome, row.effect) for row in wire.rows(Decision)] == [
            (7, "malformed", "unknown"),
            (8, "malformed", "unknown"),
        ]
        assert wire.anomalies() == [("duplicate_id", 7), ("ambiguous_answer", 8), ("ambiguous_answer", 7)]

    @pytest.mark.parametrize(
        "body",
        [
            b'{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"selected","optionId":"no","optionId":"yes"}}}',
            b'{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"cancelled","outcome":"selected","optionId":"yes"}}}',
        ],
    )
    def test_answer_that_reads_two_ways_is_malformed(self, body: bytes) -> None:
        """A repeated key inside the answer leaves no readable outcome."""
        wire = prompted()
        wire.agent(question(0))
        wire.client(body)
        assert [(row.outcome, row.outcome_raw, row.effect) for row in wire.rows(Decision)] == [
            ("malformed", None, "unknown")
        ]

    @pytest.mark.parametrize(
        "body",
        [
            b'{"jsonrpc":"2.0","id":9,"id":0,"result":{"outcome":{"outcome":"selected","optionId":"yes"}}}',
            b'[{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"selected","optionId":"yes"}}}]',
            b'{"jsonrpc":"2.0","id":0,"result":NaN}',
        ],
    )
    def test_opaque_line_names_what_it_may_have_answered(self, body: bytes) -> None:
        """The question stays open, and the anomaly points to it."""
        wire = prompted()
        wire.agent(question(0))
        wire.agent(question(1))
        wire.client(body)
        assert wire.rows(Decision) == []
        assert [entry for entry in wire.anomalies() if entry[0] == "ambiguous_answer"] == [("ambiguous_answer", 7)]
        assert len(wire.observer.open_requests(TO_CLIENT)) == 2

    def test_turn_that_ends_first_is_flagged(self) -> None:
        """The answer may still come, and is still the decision."""
        wire = prompted()
        wire.agent(question(0))
        wire.agent(ended("p1"))
        assert wire.anomalies() == [("question_open_at_turn_end", 7)]
        wire.client(selected(0, "yes"))
        assert [(row.turn_id, row.effect) for row in wire.rows(Decision)] == [(1, "allow")]

    def test_question_of_two_open_turns_belongs_to_the_last(self) -> None:
        """It is told once, when no turn is left that it could belong to."""
        wire = prompted()
        wire.client(prompt("p2"))
        wire.agent(question(0))
        wire.agent(ended("p1"))
        assert wire.anomalies() == []
        wire.agent(ended("p2"))
        assert wire.anomalies() == [("question_open_at_turn_end", 8)]

    def test_question_between_turns_is_nobodys(self) -> None:
        """A background question is not left open by a turn it was not asked in."""
        wire = prompted()
        wire.agent(ended("p1"))
        wire.agent(question(0))
        wire.client(prompt("p2"))
        wire.agent(ended("p2"))
        assert wire.anomalies() == []

    def test_withdrawn_question_is_flagged(self) -> None:
        """The agent's own cancellation points to the question; the error that answers it is the decision."""
        wire = prompted()
        wire.agent(question(0))
        frame = wire.agent(note("$/cancel_request", requestId=0))
        assert (frame.session_id, frame.turn_id) == (1, 1)
        assert wire.anomalies() == [("question_cancelled", 7)]
        wire.client(error(0, -32800))
        assert [(row.outcome, row.outcome_raw, row.effect) for row in wire.rows(Decision)] == [
            ("error", "-32800", "none")
        ]

    def test_editor_cannot_withdraw_a_question(self) -> None:
        """The id of a cancellation is one its own sender chose."""
        wire = prompted()
        wire.agent(question(0))
        wire.client(note("$/cancel_request", requestId=0))
        wire.client(note("$/cancel_request", requestId="p1"))
        wire.client(note("$/cancel_request", id=3))
        assert wire.anomalies() == []

    def test_cancelled_turn_answers_its_questions(self) -> None:
        """Cancel, the answers to what was open, late updates, the end: each is recorded where it is."""
        wire = prompted()
        wire.agent(question(0))
        wire.client(note("session/cancel", sessionId=SESSION))
        wire.client(result(0, {"outcome": {"outcome": "cancelled"}}))
        wire.agent(update("tool_call_update", toolCallId="call-1", status="failed"))
        wire.agent(ended("p1", "cancelled"))
        assert [row.outcome for row in wire.rows(Decision)] == ["cancelled"]
        assert wire.anomalies() == []


class TestJoins:
    """Which call a question is about."""

    def test_announced_call_is_joined_exactly(self) -> None:
        """The id of the question was seen in the session."""
        wire = prompted()
        wire.agent(update("tool_call", toolCallId="c", title="T"))
        wire.agent(question(0, "c", title="other words"))
        assert [(row.joined_call_id, row.join_kind) for row in wire.rows(PermissionRequest)] == [("c", "exact")]

    def test_question_with_a_status_is_a_step(self) -> None:
        """An agent may ask about a call it never announced: the question is then the call's only trace."""
        wire = prompted()
        wire.agent(question(0, "c", status="pending", title="T", kind="execute", name="Bash"))
        (step,) = wire.rows(ToolCallStep)
        assert (step.tool_call_id, step.source, step.status, step.status_raw) == (
            "c",
            "permission",
            "pending",
            "pending",
        )
        assert (step.status_raw, step.title, step.kind, step.tool_name) == ("pending", "T", "execute", "Bash")
        assert [(row.joined_call_id, row.join_kind) for row in wire.rows(PermissionRequest)] == [("c", "exact")]

    def test_unknown_call_is_joined_to_nothing(self) -> None:
        """Neither its id nor its title was seen."""
        wire = prompted()
        wire.agent(update("tool_call", toolCallId="c", title="T"))
        wire.agent(question(0, "else", title="U"))
        wire.agent(question(1, "else"))
        assert [row.join_kind for row in wire.rows(PermissionRequest)] == ["none", "none"]
        assert wire.rows(ToolCallStep)[1:] == []

    def test_title_of_one_open_call_infers_the_join(self) -> None:
        """An agent may ask under an id that never occurs again; the join is told as inferred."""
        wire = prompted()
        wire.agent(update("tool_call", toolCallId="done", title="T", status="completed"))
        wire.agent(update("tool_call", toolCallId="c"))
        wire.agent(update("tool_call_update", toolCallId="c", title="T"))
        wire.agent(update("tool_call", "other session", toolCallId="far", title="T"))
        wire.agent(question(0, "random", title="T", status="pending"))
        assert [(row.joined_call_id, row.join_kind) for row in wire.rows(PermissionRequest)] == [("c", "inferred")]

    @pytest.mark.parametrize("title", ["T", ""])
    def test_two_calls_of_one_title_infer_nothing(self, title: str) -> None:
        """A title that fits two open calls, or says nothing, names none of them."""
        wire = prompted()
        wire.agent(update("tool_call", toolCallId="a", title=title))
        wire.agent(update("tool_call", toolCallId="b", title=title))
        wire.agent(question(0, "random", title=title))
        assert [(row.joined_call_id, row.join_kind) for row in wire.rows(PermissionRequest)] == [(None, "none")]

    def test_ended_call_is_not_inferred(self) -> None:
        """Nobody asks about what is done."""
        wire = prompted()
        wire.agent(update("tool_call", toolCallId="c", title="T"))
        wire.agent(update("tool_call_update", toolCallId="c", status="failed"))
        wire.agent(update("tool_call_update", toolCallId="c", _meta={}))
        wire.agent(update("tool_call_update", toolCallId="c", status="archived"))
        wire.agent(question(0, "random", title="T"))
        assert [row.join_kind for row in wire.rows(PermissionRequest)] == ["none"]
