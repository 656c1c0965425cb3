"""Behaviours of a mapping from ACP's updates to observed steps, each on ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import acp_ledger
from acp_ledger.protocol import v1
from acp_ledger.protocol.records import (
    Decision,
    PermissionOption,
    PermissionRequest,
    Prompt,
    ToolCallStep,
    TurnEnd,
)
from tests.protocol.wire import (
    SESSION,
    Wire,
    call,
    ended,
    note,
    offer,
    opened,
    prompted,
    question,
    result,
    selected,
    update,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = Path(acp_ledger.__file__).parent
PRESENTATION = sorted(set(v1.UPDATE_KINDS) - {"user_message_chunk", "tool_call", "tool_call_update"})


def steps(wire: Wire) -> list[tuple[str, str, str | None]]:
    """The steps so far: call, status, title."""
    return [(row.tool_call_id, row.status, row.title) for row in wire.rows(ToolCallStep)]


def answered(*options: dict[str, Any], answer: Any, **tool_call: Any) -> Decision:
    """The decision of a question with these options and this answer."""
    wire = prompted()
    params = {"sessionId": SESSION, "toolCall": {"toolCallId": "c", **tool_call}, "options": list(options)}
    wire.agent(call(9, "session/request_permission", **params))
    wire.client(result(9, {"outcome": answer}))
    (decision,) = wire.rows(Decision)
    return decision


def test_ap1_ledger_stands_beside_the_connection_and_changes_no_line() -> None:
    """The mapping only reads: a line is stored as it came, and nothing of it is made by us."""
    wire = opened()
    line = update("tool_call", toolCallId="c", title="Run")
    wire.agent(line)
    assert wire.last().body == line


def test_ap2_types_are_our_own_and_written_against_v1() -> None:
    """No module of ours imports an SDK of the protocol."""
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    assert not any(
        word in text for text in sources for word in ("import acp\n", "from acp import", "agent_client_protocol")
    )


def test_ap3_three_kinds_become_steps_and_the_rest_is_named() -> None:
    """A prompt, and the two of a tool call."""
    for kind in v1.UPDATE_KINDS:
        wire = opened()
        frame = wire.agent(update(kind, toolCallId="c", content={"type": "text", "text": "x"}))
        observed = bool(wire.rows(ToolCallStep) or wire.rows(Prompt))
        assert observed is (kind not in PRESENTATION)
        assert frame.disposition == ("observed" if observed else "not_recorded")


def test_ap4_option_kind_is_an_open_string() -> None:
    """The agent owns the vocabulary: a word nobody knows is kept."""
    decision = answered(offer("x", "allow_on_tuesdays"), answer={"outcome": "selected", "optionId": "x"})
    assert decision.option_kind == "allow_on_tuesdays"


def test_ap5_revision_is_a_constant_that_stands_with_every_row() -> None:
    """`acp/v1`."""
    wire = prompted()
    wire.agent(update("tool_call", toolCallId="c"))
    assert v1.REVISION == "acp/v1" == wire.rows(ToolCallStep)[0].protocol_revision


@pytest.mark.parametrize("params", [{}, {"update": {"sessionUpdate": "plan"}}, {"sessionId": SESSION}])
def test_ap6_notification_needs_a_session_and_an_update(params: dict[str, Any]) -> None:
    """One that lacks either gives no step; it is kept, and not recorded as one."""
    wire = opened()
    before = len(wire.rows(ToolCallStep))
    frame = wire.agent(note("session/update", **params))
    assert (len(wire.rows(ToolCallStep)), frame.disposition) == (before, "not_recorded")


def test_ap7_unknown_update_kind_is_reported_and_never_a_parse_failure() -> None:
    """Tomorrow's kinds are named in the wire's own spelling."""
    frame = opened().agent(update("hologram_update", depth=3))
    assert (frame.kind, frame.session_update, frame.disposition) == ("notification", "hologram_update", "not_recorded")


def test_ap8_call_status_title_and_stop_reason_are_optional() -> None:
    """What is absent is absent."""
    wire = prompted()
    wire.agent(update("tool_call", toolCallId="c"))
    wire.agent(result("p1", {}))
    assert steps(wire) == [("c", "pending", None)]
    assert wire.rows(TurnEnd)[0].stop_reason is None


def test_ap9_question_has_a_session_a_call_and_options() -> None:
    """All three are kept."""
    wire = prompted()
    wire.agent(question(9, "c1", title="Run"))
    (asked,) = wire.rows(PermissionRequest)
    assert (asked.session_id, asked.tool_call_id, asked.option_count) == (1, "c1", 2)


def test_ap10_call_of_a_question_has_an_id_and_perhaps_a_title() -> None:
    """The title may be missing."""
    wire = prompted()
    wire.agent(question(9, "c1"))
    assert [(row.tool_call_id, row.title) for row in wire.rows(PermissionRequest)] == [("c1", None)]


def test_ap11_option_has_an_id_and_a_kind() -> None:
    """In the order of the offer."""
    wire = prompted()
    wire.agent(question(9))
    assert [(row.option_id, row.kind) for row in wire.rows(PermissionOption)] == [
        ("yes", "allow_once"),
        ("no", "reject_once"),
    ]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [({"outcome": "selected", "optionId": "x"}, "selected"), ({"outcome": "cancelled"}, "cancelled")],
)
def test_ap12_answer_selects_an_option_or_is_cancelled(answer: Any, outcome: str) -> None:
    """Nothing else is an answer."""
    assert answered(offer("x", "allow_once"), answer=answer).outcome == outcome


def test_ap13_step_carries_the_partys_own_words() -> None:
    """Title as it was sent."""
    wire = opened()
    wire.agent(update("tool_call", toolCallId="c", title="rm -rf /tmp/x"))
    assert steps(wire)[0][2] == "rm -rf /tmp/x"


@pytest.mark.parametrize("kind", ["agent_thought_chunk", "Agent_Message_Chunk", "x/y"])
def test_ap14_ap19_what_is_not_recorded_is_named_as_the_wire_spells_it(kind: str) -> None:
    """Every other kind, to the letter."""
    frame = opened().agent(update(kind))
    assert (frame.session_update, frame.disposition) == (kind, "not_recorded")


def test_ap15_update_is_a_step_or_reported_and_never_nothing() -> None:
    """Every update that names its kind is observed or named."""
    for kind in (*v1.UPDATE_KINDS, "new_kind"):
        frame = opened().agent(update(kind))
        assert frame.disposition == "observed" or frame.session_update == kind


def test_ap16_user_message_is_a_prompt_with_the_updates_title() -> None:
    """Live, and usually without one."""
    wire = opened()
    wire.agent(update("user_message_chunk", title="T", content={"type": "text", "text": "hi"}))
    assert [(row.source, row.detail) for row in wire.rows(Prompt)] == [("chunk", "T")]


@pytest.mark.parametrize("kind", ["tool_call", "tool_call_update"])
def test_ap17_tool_call_with_an_id_is_a_step(kind: str) -> None:
    """Call, status, title."""
    wire = opened()
    wire.agent(update(kind, toolCallId="c", status="in_progress", title="T"))
    assert steps(wire) == [("c", "in_progress", "T")]


@pytest.mark.parametrize("kind", ["tool_call", "tool_call_update"])
def test_ap18_tool_call_without_an_id_is_unrecorded_and_none_is_invented(kind: str) -> None:
    """It is named, like any other kind."""
    wire = opened()
    frame = wire.agent(update(kind, status="completed"))
    assert (steps(wire), frame.session_update, frame.disposition) == ([], kind, "not_recorded")


def test_ap20_question_alone_is_no_decision() -> None:
    """Question and answer are taken together."""
    wire = prompted()
    wire.agent(question(9))
    assert wire.rows(Decision) == []
    wire.client(selected(9, "yes"))
    assert [row.request_frame for row in wire.rows(Decision)] == [7]


def test_ap21_cancelled_is_kept_apart() -> None:
    """It is neither an approval nor a rejection."""
    decision = answered(offer("x", "allow_once"), answer={"outcome": "cancelled"})
    assert (decision.outcome, decision.option_kind, decision.effect) == ("cancelled", None, "none")


@pytest.mark.parametrize(
    ("offers", "kind"),
    [
        ([offer("x", "allow_once"), offer("x", "reject_once")], "allow_once"),
        ([offer("y", "allow_once")], ""),
        ([], ""),
    ],
)
def test_ap22_kind_comes_from_the_first_offer_of_that_id_else_it_is_empty(
    offers: Sequence[dict[str, Any]], kind: str
) -> None:
    """What was never offered has no kind."""
    assert answered(*offers, answer={"outcome": "selected", "optionId": "x"}).option_kind == kind


def test_ap23_decision_carries_the_calls_title() -> None:
    """The agent's own words for what was decided."""
    decision = answered(offer("x", "allow_once"), answer={"outcome": "selected", "optionId": "x"}, title="Deploy")
    assert decision.detail == "Deploy"


@pytest.mark.parametrize("word", ["end_turn", "cancelled", "on_holiday"])
def test_ap24_turn_ends_with_any_word(word: str) -> None:
    """The word itself is kept."""
    wire = prompted()
    wire.agent(ended("p1", word))
    assert [row.stop_reason for row in wire.rows(TurnEnd)] == [word]


@pytest.mark.parametrize(("status", "read"), [(None, "pending"), ("queued", "pending"), ("completed", "completed")])
def test_ap25_unknown_or_missing_status_is_pending(status: str | None, read: str) -> None:
    """The status that claims least."""
    wire = opened()
    wire.agent(update("tool_call", toolCallId="c", **({} if status is None else {"status": status})))
    assert [row[1] for row in steps(wire)] == [read]
