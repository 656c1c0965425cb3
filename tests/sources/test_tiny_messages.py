"""Behaviours of a small ACP client, each on ours: what an agent says while a call waits for its answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from acp_ledger.client import (
    CallFailed,
    Limits,
    PromptFailed,
    Update,
    open_client,
)
from tests.daemon.house import lock, open_house
from tests.sources.callers import PATIENCE, Journal, failed, started
from tests.support.shell_agents import REJECT, agent, chunk, end, line, question, update

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sources.conftest import House

DONE = {"stopReason": "end_turn"}


async def test_ty1_every_message_is_recorded_in_order_and_every_question_answered(house: House) -> None:
    """Open, start, prompt, end: what was said by both sides is in the ledger as it was said."""
    asks = {'"optionId":"reject"': [chunk("denied"), end()]}
    async with started(house, agent(chunk("a"), question(), then=asks)) as client:
        assert await client.prompt("hello") == "adenied"
    methods = [row[0] for row in house.rows(client, "SELECT method FROM frames")]
    ask, tell = "session/request_permission", "session/update"
    opening = ["initialize", "initialize", "session/new", "session/new"]
    assert methods == [*opening, "session/prompt", tell, ask, ask, tell, "session/prompt"]
    assert house.rows(client, "SELECT option_id FROM decisions") == [(REJECT["optionId"],)]


async def test_ty2_calls_run_one_at_a_time_each_up_to_its_own_answer(house: House) -> None:
    """A second call is refused while the first waits, and what the first left unread is not its own."""
    second = {'"again"': [chunk("b"), end(id_=3)]}
    asks = {'"optionId":"reject"': [chunk("a"), end()]}
    busy: list[CallFailed] = []

    async def hurry() -> None:
        """Make another call."""
        with pytest.raises(CallFailed, match="not over yet") as caught:
            await client.start()
        busy.append(caught.value)

    async with started(house, agent(question(), then=asks | second), observer=Journal(meanwhile=hurry)) as client:
        assert [await client.prompt("go"), await client.prompt("again")] == ["a", "b"]
    assert [each.kind for each in busy] == ["usage"] * 3


async def test_ty3_other_requests_are_refused_and_other_notifications_dropped(house: House) -> None:
    """A request of the agent's is answered, a notification counted, and the call goes on."""
    asking = line(id=7, method="fs/read_text_file", params={})
    note = line(method="_vendor/note", params={})
    async with started(house, agent(note, asking, then={"method not found": [chunk("a"), end()]})) as client:
        assert await client.prompt("go") == "a"
    assert house.rows(client, "SELECT count(*) FROM decisions") == [(0,)]


@pytest.mark.parametrize("odd", ["{", "[]", "7", '"x"', "null"])
async def test_ty4_anything_else_fails_the_call(house: House, odd: str) -> None:
    """No JSON, or none that is an object: the line is kept, and the call fails."""
    async with started(house, agent(odd, end())) as client:
        failure = await failed(client)
        assert (failure.kind, failure.record and failure.record.outcome) == ("protocol_error", "protocol_error")
    assert house.query(
        "SELECT 1 FROM frames WHERE transport_id = :id AND body = :body", id=client.transport_id, body=odd.encode()
    )


async def test_ty5_update_is_heard_before_its_text_joins(house: House) -> None:
    """What the observer could not take is not in the reply; what came before it is."""
    journal = Journal(fails="update", after=1)
    async with started(house, agent(chunk("a"), chunk("b"), end()), observer=journal) as client:
        failure = await failed(client)
    assert ([each.text for each in journal.updates], failure.record and failure.record.text) == (["a", "b"], "a")


async def test_ty6_envelope_is_the_line_without_the_space_around_it(house: House) -> None:
    """The space within it stays as it is."""
    journal = Journal()
    said = chunk("a b").replace('":', '" :  ')
    async with started(house, agent(f" \t {said} \t", end()), observer=journal) as client:
        assert await client.prompt("go") == "a b"
    assert [each.envelope for each in journal.updates] == [said]


async def test_ty7_updates_are_numbered_from_one_for_life(house: House) -> None:
    """Over prompts, and over another start; the ledger has the same numbers."""
    journal = Journal()
    then = {
        '"again"': [chunk("b"), chunk("c"), end(id_=3)],
        '"id":4': [line(id=4, result={"protocolVersion": 1})],
        '"id":5': [chunk("d"), line(id=5, result={"sessionId": "other"})],
    }
    async with started(house, agent(chunk("a"), end(), then=then), observer=journal) as client:
        await client.prompt("go")
        await client.prompt("again")
        await client.start()
    assert [(each.update_sequence, each.text) for each in journal.updates] == list(enumerate("abcd", 1))
    numbered = "SELECT update_sequence FROM frames WHERE transport_id = :id AND update_sequence > 0 ORDER BY frame_seq"
    assert house.query(numbered, id=client.transport_id) == [(1,), (2,), (3,), (4,)]


async def test_ty23_no_observer_able_to_commit_fails_the_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our observer that commits is the ledger: where it cannot be written, no update is told and the call fails."""
    monkeypatch.setenv("HOME", str(tmp_path))
    async with open_house(f"sqlite:///{tmp_path}/l.db", tmp_path, **{"failure.hold_seconds": 0.2}) as own:
        journal = Journal()
        held: list[Any] = []
        waits = tmp_path / "go"
        waiting = agent(answers={"session/new": chunk("a")}, before=f"until [ -e {waits} ]; do sleep 0.01; done")
        with trio.fail_after(PATIENCE):
            async with open_client(waiting, socket=own.path, observer=journal) as client:
                held.append(lock(own.url))
                waits.touch()
                with pytest.raises(CallFailed) as caught:
                    await client.start()
                held.pop().close()
        assert (caught.value.kind, journal.heard) == ("ledger", [])


async def test_ty28_callbacks_come_in_arrival_order_before_the_next_line_is_read(house: House) -> None:
    """While one of them runs, all that another client does is recorded, and nothing more of this agent."""
    newest = "SELECT max(update_sequence) FROM frames WHERE transport_id = :id"
    known: list[list[tuple[Any, ...]]] = []

    async def look() -> None:
        """Have another client served, and see what the ledger has of this one."""
        async with started(house, agent()):
            pass
        known.append(house.query(newest, id=client.transport_id))

    journal = Journal(meanwhile=look)
    asks = {'"optionId":"reject"': [chunk("c"), end()]}
    async with started(house, agent(chunk("a"), chunk("b"), question(), then=asks), observer=journal) as client:
        await client.prompt("go")
    heard = [each.text if isinstance(each, Update) else each.outcome for each in journal.heard]
    assert heard == ["a", "b", "selected", "c"]
    assert known == [[(1,)], [(2,)], [(2,)], [(3,)]]


async def test_ty29_error_of_the_update_callback_fails_the_call(house: House) -> None:
    """It is the cause of what is raised."""
    async with started(house, agent(chunk("a"), end()), observer=Journal(fails="update")) as client:
        failure = await failed(client)
    assert (failure.kind, str(failure.__cause__)) == ("observer", "the journal is full")


async def test_ty46_a_prompt_fails_for_each_reason_under_its_name(house: House) -> None:
    """A limit of ours, a broken line, an end of output, an error answer, a stop."""
    refused = line(id=2, error={"code": -32603, "message": "no"})
    table: list[tuple[list[str], Limits, str]] = [
        (agent(end()), Limits(request_bytes=200), "limit"),
        (agent(chunk("x" * 99)), Limits(update_bytes=99), "limit"),
        (agent(chunk("x" * 999)), Limits(line_bytes=999), "limit"),
        (agent("{"), Limits(), "protocol_error"),
        (agent(leaves=True), Limits(), "stream_ended"),
        (agent(refused), Limits(), "failed"),
    ]
    for command, limits, kind in table:
        async with started(house, command, limits=limits) as client:
            with pytest.raises((CallFailed, PromptFailed)) as caught:
                await client.prompt("x" * 200)
        fault = caught.value
        assert kind == (fault.outcome if isinstance(fault, PromptFailed) else vars(fault)["kind"])


@pytest.mark.parametrize("id_", ["7", '"x"', "null", "1.0", "9007199254740993"])
async def test_ty51_method_not_found_goes_back_under_an_id_of_any_type(house: House, id_: str) -> None:
    """To the letter of the agent's own line."""
    asking = f'{{"jsonrpc":"2.0","id":{id_},"method":"fs/read_text_file","params":{{}}}}'
    async with started(house, agent(asking, then={"method not found": [end()]})) as client:
        await client.prompt("go")
    refusal = f'{{"jsonrpc":"2.0","id":{id_},"error":{{"code":-32601,"message":"method not found"}}}}'
    assert house.said(client)[-1] == refusal.encode()


async def test_ty54_blank_lines_are_skipped(house: House) -> None:
    """They are neither messages nor mistakes."""
    async with started(house, agent("", " ", "\t\r", chunk("a"), "", end())) as client:
        assert await client.prompt("go") == "a"


@pytest.mark.parametrize(
    "params", [{}, {"sessionId": 7, "update": {}}, {"sessionId": "s"}, {"sessionId": "s", "update": {}}]
)
async def test_ty56_malformed_update_fails_the_call(house: House, params: dict[str, Any]) -> None:
    """The frame is kept; the observer does not hear it."""
    journal = Journal()
    async with started(house, agent(line(method="session/update", params=params), end()), observer=journal) as client:
        failure = await failed(client)
    assert (failure.kind, "malformed" in failure.message, journal.heard) == ("protocol_error", True, [])


async def test_ty57_question_without_an_id_is_a_protocol_error(house: House) -> None:
    """Nothing could answer it."""
    asking = json.loads(question())
    del asking["id"]
    async with started(house, agent(json.dumps(asking), end())) as client:
        assert (await failed(client)).kind == "protocol_error"


@pytest.mark.parametrize("id_", ['"2"', "3", "2.5", "null", "1"])
async def test_ty62_only_our_integer_id_is_our_answer(house: House, id_: str) -> None:
    """The same digits in a string, another number, or one that was answered before: the call fails."""
    answer = f'{{"jsonrpc":"2.0","id":{id_},"result":{{"stopReason":"end_turn"}}}}'
    async with started(house, agent(answer, end())) as client:
        assert (await failed(client)).kind == "protocol_error"


async def test_ty63_carriage_return_at_the_end_is_not_part_of_a_message(house: House) -> None:
    """Lines of an agent from another world are read like any other; the ledger has them as they came."""
    journal = Journal()
    async with started(house, agent(f"{chunk('a')}\r", f"{end()}\r"), observer=journal) as client:
        assert await client.prompt("go") == "a"
    assert [each.envelope for each in journal.updates] == [chunk("a")]


async def test_ty66_text_of_a_plan_is_what_its_entries_say(house: House) -> None:
    """And it does not join the reply."""
    journal = Journal()
    plan = update("plan", entries=[{"content": "inspect", "status": "pending"}, {"content": "mend"}])
    thought = chunk("thinking", "agent_thought_chunk")
    async with started(house, agent(thought, plan, chunk("done"), end()), observer=journal) as client:
        assert await client.prompt("go") == "done"
    assert [(each.kind, each.text) for each in journal.updates] == [
        ("agent_thought_chunk", "thinking"),
        ("plan", "inspect\nmend"),
        ("agent_message_chunk", "done"),
    ]


async def test_ty67_every_kind_is_told_once_with_its_exact_line(house: House) -> None:
    """Only the agent's own text joins; the epoch is on each, and what is no step is counted by name."""
    journal = Journal()
    lines = [
        chunk("user", "user_message_chunk"),
        chunk("agent"),
        chunk("thought", "agent_thought_chunk"),
        update("tool_call", toolCallId="c", title="Read", kind="read", status="pending", content=[]),
        update("tool_call_update", toolCallId="c", status="completed", content=[]),
        update("plan", entries=[]),
        update("available_commands_update", availableCommands=[]),
        update("current_mode_update", currentModeId="code"),
        update("config_option_update", configOptions=[]),
        update("session_info_update", title="Session"),
        update("usage_update", used=1, size=2),
    ]
    async with started(house, agent(*lines, end()), observer=journal) as client:
        record = await client.prompt_detailed("go")
    assert [each.envelope for each in journal.updates] == lines
    assert [each.update_sequence for each in journal.updates] == list(range(1, 12))
    assert {each.epoch for each in journal.updates} == {client.epoch}
    assert (record.text, record.steps, sum(record.not_recorded.values())) == ("agent", 2, 8)
