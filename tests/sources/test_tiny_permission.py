"""Behaviours of a small ACP client, each on ours: who answers a question for permission, and with what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger.client import PermissionReply, Policy
from tests.sources.callers import Journal, failed, started
from tests.support.shell_agents import ALLOW, CALL, REJECT, SESSION, agent, end, line, question

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.sources.conftest import House

EXECUTE = Policy(allow_tool_kinds=("execute",))
ALWAYS = {"optionId": "ever", "name": "Ever", "kind": "allow_always"}
ANSWERED = {'"id":"perm-1"': [end()]}


async def decided(house: House, asked: str, **terms: Any) -> tuple[Any, ...]:
    """Who decided an agent's question, what came of it, and with which option."""
    async with started(house, agent(asked, then=ANSWERED), **terms) as client:
        await client.prompt("go")
    (row,) = house.rows(client, "SELECT decided_by, outcome, option_id FROM decisions")
    return row


async def sent(house: House, reply: PermissionReply) -> tuple[Any, str]:
    """What the agent is told of an observer's reply, and the kind the ledger has as claimed."""
    async with started(house, agent(question(), then=ANSWERED), observer=Journal(reply)) as client:
        await client.prompt("go")
    (row,) = house.rows(client, "SELECT option_kind_claimed FROM decisions")
    return json.loads(house.said(client)[-1])["result"], row[0]


async def test_ty10_observer_first_then_policy_then_rejection_all_before_the_answer(house: House) -> None:
    """Whoever is first to say something decides, and the decision's own row stands with the answer's line."""
    says, silent = Journal(PermissionReply("selected", "reject")), Journal(None)
    assert await decided(house, question(), policy=EXECUTE, observer=says) == ("client", "selected", "reject")
    assert await decided(house, question(), policy=EXECUTE, observer=silent) == ("policy", "selected", "allow")
    assert await decided(house, question(), observer=silent) == ("policy", "selected", "reject")
    assert [each.decided_by for each in silent.decided] == ["policy", "policy"]


async def test_ty22_default_policy_lists_nothing(house: House) -> None:
    """Every question is rejected until somebody writes a list."""
    assert await decided(house, question()) == ("policy", "selected", "reject")


async def test_ty26_ty53_reply_is_sent_as_given_and_its_option_is_not_checked(house: House) -> None:
    """A reply has outcome, option id and kind; giving it and sending it as given are one behaviour."""
    made_up = PermissionReply("selected", "made-up", "allow_once")
    assert await sent(house, made_up) == ({"outcome": {"outcome": "selected", "optionId": "made-up"}}, "allow_once")
    assert await sent(house, PermissionReply("whatever")) == ({"outcome": {"outcome": "whatever"}}, "")


async def test_ty27_empty_option_id_is_left_out_and_the_kind_is_recorded_and_never_sent(house: House) -> None:
    """What is claimed stands apart from what was offered."""
    reply = PermissionReply("cancelled", "", "reject_once")
    assert await sent(house, reply) == ({"outcome": {"outcome": "cancelled"}}, "reject_once")


@pytest.mark.parametrize("fails", ["", "answer"])
async def test_ty30_first_answer_callback_sees_the_question_pending(house: House, fails: str) -> None:
    """No option and no line yet; None leaves it to the policy, and a failure allows nothing."""
    journal = Journal(None, fails=fails, after=-1)
    async with started(house, agent(question(), then=ANSWERED), policy=EXECUTE, observer=journal) as client:
        if fails:
            assert (await failed(client)).kind == "observer"
        else:
            await client.prompt("go")
    (asked,) = journal.asked
    assert (asked.outcome, asked.option_id, asked.option_kind, asked.envelope) == ("pending", "", "", "")
    assert (asked.title, asked.option_count) == (CALL["title"], 2)
    chosen = house.rows(client, "SELECT option_id FROM decisions")
    assert chosen == [("reject",)] if fails else [("allow",)]


@pytest.mark.parametrize("reply", [None, PermissionReply("selected", "allow"), PermissionReply("cancelled")])
async def test_ty31_error_of_the_commit_callback_stops_any_answer(
    house: House, tmp_path: Path, reply: PermissionReply | None
) -> None:
    """It got the whole question and the exact line; the decision is in the ledger, and the agent never hears it."""
    journal = Journal(reply, fails="commit")
    heard = tmp_path / "heard"
    again = {'"again"': [line(id=3, result={"stopReason": "end_turn"})]}
    async with started(house, agent(question(), then=again, heard=heard), observer=journal) as client:
        assert (await failed(client)).kind == "observer"
        await client.prompt("again")
    assert [each.envelope for each in journal.decided] == [question()]
    assert house.rows(client, "SELECT count(*) FROM decisions") == [(1,)]
    assert ["perm-1" in said for said in heard.read_text().splitlines()] == [False] * 4


async def test_ty32_kind_is_compared_whole_and_a_title_by_its_beginning(house: House) -> None:
    """Of what is granted the first `allow_once` is taken, else the first `allow_always`; without either a rejection."""
    titled = Policy(allow_title_prefixes=("run ",))
    nearly = Policy(allow_tool_kinds=("exec", "executed"), allow_title_prefixes=("make",))
    other = ALLOW | {"optionId": "other"}
    table: list[tuple[Policy, list[Mapping[str, str]], str]] = [
        (EXECUTE, [REJECT, ALWAYS, ALLOW, other], "allow"),
        (titled, [ALWAYS, ALWAYS | {"optionId": "too"}, REJECT], "ever"),
        (EXECUTE, [REJECT], "reject"),
        (nearly, [ALLOW, REJECT], "reject"),
    ]
    for policy, options, chosen in table:
        assert await decided(house, question(options), policy=policy) == ("policy", "selected", chosen)


async def test_ty33_title_matches_without_a_kind_and_nothing_without_a_call(house: House) -> None:
    """A tool of a server has a title alone; a question without its call is granted by no list."""
    policy = Policy(allow_title_prefixes=("mcp__files__",), allow_tool_kinds=("execute",))
    tool = {"toolCallId": "t", "title": "mcp__files__tool"}
    assert (await decided(house, question(call=tool), policy=policy))[2] == "allow"
    assert (await decided(house, question(call=None), policy=policy))[2] == "reject"


async def test_ty60_options_that_are_no_list_are_cancelled_and_odd_ones_skipped(house: House) -> None:
    """Without a list the policy is not consulted; without `reject_once` the last `reject_always` is chosen."""
    never = [{"optionId": name, "name": name, "kind": "reject_always"} for name in ("first", "last")]
    odd: list[Any] = [7, {"kind": "reject_once"}, {"optionId": "x"}]
    for options in (None, "allow", {"optionId": "allow", "kind": "allow_once"}):
        assert (await decided(house, question(options), policy=EXECUTE))[1:] == ("cancelled", None)
    assert (await decided(house, question([*odd, *never])))[1:] == ("selected", "last")
    assert (await decided(house, question([*odd, ALLOW])))[1:] == ("cancelled", None)


async def test_ty68_record_of_a_question_holds_all_of_it(house: House) -> None:
    """Session, call, title, kind, status, outcome, option, its kind, and how many there were."""
    journal = Journal()
    async with started(house, agent(question(), then=ANSWERED), observer=journal) as client:
        await client.prompt("go")
    (told,) = journal.decided
    assert (told.acp_session_id, told.tool_call_id, told.title) == (SESSION, CALL["toolCallId"], CALL["title"])
    assert (told.tool_kind, told.status, told.outcome) == (CALL["kind"], CALL["status"], "selected")
    assert (told.option_id, told.option_kind, told.option_count) == ("reject", "reject_once", 2)
