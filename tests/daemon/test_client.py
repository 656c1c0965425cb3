"""The daemon as an agent's client: what is committed before it counts, who answers, and how calls fail."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import trio

from acp_ledger import dialogue, handshake
from acp_ledger.daemon.streams import LineReader
from tests.daemon.callers import ASK, END, OPENING, Caller, caller, chunk, collecting, prompted
from tests.daemon.house import House, assert_verified, is_alive, lock, open_house, until
from tests.daemon.test_desk import WHO, ask

if TYPE_CHECKING:
    from pathlib import Path

HEARS = ["update", "question", "decision"]
ENOUGH = 2**47


def heard(path: Path) -> list[dict[str, Any]]:
    """What the agent heard after its last step."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def decisions(house: House) -> list[tuple[Any, ...]]:
    """The decisions in the ledger."""
    return [
        tuple(row)
        for row in house.rows("SELECT outcome, option_id, option_kind, decided_by, rule, identity FROM decisions")
    ]


def turn_ends(house: House) -> list[str]:
    """How the turns ended."""
    return [row[0] for row in house.rows("SELECT outcome FROM turn_ends ORDER BY turn_id")]


async def closed(house: House) -> str:
    """Wait for the connection's end; gives its reason."""
    await house.quiet()
    reason: str = house.rows("SELECT close_reason FROM transport_events WHERE event = 'closed'")[-1][0]
    return reason


async def answered(asking: Caller, answer: dict[str, str] | None) -> dict[str, Any]:
    """Answer the question, take everything else, and give the end of the prompt."""
    while (event := await asking.hear()) is not None and event["event"] not in {"done", "failed"}:
        await asking.reply(event, error=None, answer=answer)
    assert event is not None
    return event


async def test_prompt_gives_the_record_and_the_ledger_has_it_all(house: House) -> None:
    """Text, outcome and counts travel together; each line is in the ledger, mapped again to the same rows."""
    async with prompted(house, ["send", chunk("a"), ASK], ["wait", '"q"'], ["send", chunk("b"), END]) as asking:
        done = await asking.ended()
        record = done["record"]
        assert (record["text"], record["outcome"], record["stop_reason"]) == ("ab", "completed", "end_turn")
        assert (record["steps"], record["decisions"], record["not_recorded"]) == (1, 1, {"agent_message_chunk": 2})
        assert record["epoch"] == record["transport_id"]
    assert await closed(house) == "caller_ended"
    assert decisions(house) == [("selected", "no", "reject_once", "policy", "mode=unattended", None)]
    assert [row[0] for row in house.rows("SELECT mode FROM transports")] == ["client"]
    assert_verified(house.url)


async def test_update_is_told_in_order_and_the_next_line_waits_for_the_reply(sqlite_house: House) -> None:
    """A second update has no number before the caller is through with the first."""
    async with prompted(sqlite_house, ["send", chunk("a"), chunk("b"), END], hears=HEARS) as asking:
        first = await asking.until("update")
        assert sqlite_house.rows("SELECT max(update_sequence) FROM frames")[0][0] == 1
        assert json.loads(first["envelope"]) == json.loads(chunk("a"))
        await asking.reply(first, error=None)
        second = await asking.until("update")
        assert (second["update_sequence"], second["text"]) == (2, "b")
        await asking.reply(second, error=None)
        assert (await asking.ended())["record"]["text"] == "ab"


async def test_update_the_caller_cannot_take_fails_the_call_before_its_text_joins(sqlite_house: House) -> None:
    """The ledger has the line; the record of the call has not."""
    async with prompted(sqlite_house, ["send", chunk("a"), chunk("b"), END], hears=["update"]) as asking:
        await asking.reply(await asking.until("update"), error=None)
        await asking.reply(await asking.until("update"), error="disk full")
        failed = await asking.ended()
        assert (failed["kind"], failed["record"]["text"]) == ("observer", "a")
        assert "disk full" in failed["message"]
    await sqlite_house.quiet()
    assert [json.loads(line) for line in sqlite_house.bodies("agent_to_client")[2:4]] == [
        json.loads(chunk("a")),
        json.loads(chunk("b")),
    ]


async def test_caller_that_does_not_take_an_update_fails_its_call(tmp_path: Path) -> None:
    """A program that hangs holds up nobody for ever."""
    more = {"client.callback_seconds": 0.05}
    async with (
        open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, **more) as house,
        prompted(house, ["send", chunk("a"), END], hears=["update"]) as asking,
    ):
        failed = await asking.ended()
        assert (failed["kind"], "within 0.05 seconds" in failed["message"]) == ("observer", True)


async def test_answer_of_the_callers_is_sent_as_given_and_recorded_for_what_it_was(house: House) -> None:
    """The kind comes from the offer, its claim stands beside it, and the agent hears neither."""
    path, collect = collecting(house.path.parent)
    async with prompted(house, ["send", ASK], ["send", END], collect, hears=HEARS) as asking:
        answer = {"outcome": "selected", "option_id": "yes", "option_kind": "reject_once"}
        assert (await answered(asking, answer))["event"] == "done"
        await until(lambda: len(heard(path)) == 1)
    await house.quiet()
    assert heard(path) == [
        {"jsonrpc": "2.0", "id": "q", "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}
    ]
    assert decisions(house) == [("selected", "yes", "allow_once", "client", None, None)]
    assert house.rows("SELECT option_kind_claimed FROM decisions")[0][0] == "reject_once"
    assert_verified(house.url)


async def test_decision_the_caller_cannot_commit_is_recorded_and_never_heard(sqlite_house: House) -> None:
    """A commit callback that fails stops the answer and fails the call."""
    path, collect = collecting(sqlite_house.path.parent)
    async with prompted(sqlite_house, ["send", ASK], collect, hears=["decision"]) as asking:
        told = await asking.until("decision")
        assert (told["outcome"], told["option_id"], told["option_kind"]) == ("selected", "no", "reject_once")
        assert decisions(sqlite_house)  # it is in the ledger before anybody is told
        await asking.reply(told, error="no space")
        assert (await asking.ended())["kind"] == "observer"
    await sqlite_house.quiet()
    assert heard(path) == []


async def test_person_hears_that_the_answer_did_not_get_through(sqlite_house: House) -> None:
    """Whoever decides is told when the call failed before the agent could hear it, and does not wait for ever."""
    terms = {"policy": {"ask": "operator"}, "hears": ["decision"]}
    async with prompted(sqlite_house, ["send", ASK], ["stay"], **terms) as asking:
        listed = await _pending(sqlite_house)
        answers: list[dict[str, Any]] = []

        async def decide() -> None:
            """Answer it."""
            answers.append(await ask(sqlite_house, dialogue.REQUEST_DECIDE, question=listed["request"], option="yes"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(decide)
            await asking.reply(await asking.until("decision"), error="no space")
            assert (await asking.ended())["kind"] == "observer"
        assert (answers[0]["ok"], "did not hear it" in answers[0]["error"]) == (False, True)


async def test_first_answer_that_fails_never_allows(sqlite_house: House) -> None:
    """Who was asked first could not say: the question is rejected, whatever the policy would grant."""
    path, collect = collecting(sqlite_house.path.parent)
    policy = {"allow_tool_kinds": ["execute"]}
    async with prompted(sqlite_house, ["send", ASK], collect, hears=["question"], policy=policy) as asking:
        await asking.reply(await asking.until("question"), error="a bug", answer=None)
        assert (await asking.ended())["kind"] == "observer"
        await until(lambda: len(heard(path)) == 1)
    await sqlite_house.quiet()
    assert [line["result"]["outcome"]["optionId"] for line in heard(path)] == ["no"]
    assert decisions(sqlite_house) == [("selected", "no", "reject_once", "policy", "ask_seconds", None)]


async def test_policy_of_the_caller_grants_what_it_lists(house: House) -> None:
    """Kinds exactly, then the beginnings of titles; the rule is recorded."""
    path, collect = collecting(house.path.parent)
    steps = (["send", ASK], ["send", END], collect)
    async with prompted(house, *steps, policy={"allow_title_prefixes": ["rm "]}) as asking:
        assert (await asking.ended())["event"] == "done"
        await until(lambda: len(heard(path)) == 1)
    await house.quiet()
    assert [line["result"]["outcome"]["optionId"] for line in heard(path)] == ["yes"]
    assert decisions(house) == [("selected", "yes", "allow_once", "policy", "allow_title_prefixes=rm ", None)]


async def test_answer_too_long_to_be_sent_is_stored_and_withheld(sqlite_house: House) -> None:
    """The decision stands beside the answer that nobody heard, and the call fails."""
    path, collect = collecting(sqlite_house.path.parent)
    terms = {"hears": ["question"], "limits": {"request_bytes": 300}}
    async with prompted(sqlite_house, ["send", ASK], collect, **terms) as asking:
        answer = {"outcome": "selected", "option_id": "y" * 300}
        await asking.reply(await asking.until("question"), error=None, answer=answer)
        failed = await asking.ended()
        assert (failed["kind"], "request_bytes" in failed["message"]) == ("limit", True)
    await sqlite_house.quiet()
    assert heard(path) == []
    rows = sqlite_house.rows("SELECT delivery FROM frames WHERE kind = 'response' AND direction = 'client_to_agent'")
    assert [row[0] for row in rows] == ["withhold"]
    assert [row[0] for row in decisions(sqlite_house)] == ["selected"]
    assert_verified(sqlite_house.url)


# ---- when the ledger cannot commit


async def test_no_answer_leaves_whichever_commit_fails(tmp_path: Path) -> None:
    """For every number of a conversation in turn: its commit is refused, and the agent has heard nothing unrecorded."""
    failures = 0
    for number in range(1, 16):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, collect = collecting(folder)
        async with open_house(f"sqlite:///{folder}/ledger.db", folder) as house:
            _refuse(house, f"NEW.frame_seq = {number}", "frames", "transport_events")
            async with caller(house, *OPENING, ["send", ASK], ["send", chunk("x"), END], collect) as asking:
                failures += await _talk(asking) is not None
            await house.quiet()
            stored = set(house.bodies("client_to_agent"))
            assert all(line in stored for line in path.read_bytes().splitlines()) if path.exists() else True
    assert failures >= 10  # most numbers are before the prompt's end


async def test_connection_that_ends_between_calls_says_why(sqlite_house: House) -> None:
    """Its caller does not have to guess from a closed socket."""
    async with caller(sqlite_house, *OPENING) as asking:
        await asking.start()
        await ask(sqlite_house, dialogue.REQUEST_STOP, transport=_newest(sqlite_house), seconds=10)
        ended = await asking.until("ended")
        assert (ended["kind"], f"by {WHO}" in ended["message"]) == ("stopped", True)
        assert await asking.hear() is None


async def test_decision_that_is_refused_stops_its_answer(sqlite_house: House) -> None:
    """Frame and decision are one transaction, so the agent hears nothing."""
    path, collect = collecting(sqlite_house.path.parent)
    _refuse(sqlite_house, "1", "decisions")
    async with prompted(sqlite_house, ["send", ASK], collect) as asking:
        assert (await asking.ended())["kind"] == "ledger"
    await sqlite_house.quiet()
    assert heard(path) == []


async def test_locked_ledger_during_the_question_and_the_agent_hears_nothing(tmp_path: Path) -> None:
    """After the hold the call fails, and whether the answer is in the ledger or not, it never left."""
    path, collect = collecting(tmp_path)
    more = {"failure.hold_seconds": 1.0}
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, **more) as house:
        async with prompted(house, ["send", ASK], collect, hears=["question"]) as asking:
            question = await asking.until("question")
            with closing(lock(house.url)):
                await asking.reply(question, error=None, answer={"outcome": "selected", "option_id": "yes"})
                failed = await asking.ended()
            assert (failed["kind"], "ledger" in failed["message"]) == ("ledger", True)
        await until(lambda: "closed" in house.events())
        assert heard(path) == []


async def _talk(asking: Caller) -> dict[str, Any] | None:
    """Go through a conversation; gives what failed of it."""
    opened = await asking.hear()
    if opened is None or opened["event"] == "refused":
        return opened or {}
    await asking.say(call="start")
    started = await asking.until("started", "failed", "ended")
    if started["event"] != "started":
        return started
    await asking.prompt()
    ended = await asking.until("done", "failed", "ended")
    return None if ended["event"] == "done" else ended


def _refuse(house: House, condition: str, *tables: str) -> None:
    """Let the database refuse rows."""
    with closing(sqlite3.connect(house.url.removeprefix("sqlite:///"))) as connection:
        for table in tables:
            connection.execute(
                f"CREATE TRIGGER refuse_{table} BEFORE INSERT ON {table} WHEN {condition} "  # our own words
                "BEGIN SELECT RAISE(ABORT, 'refused by a test'); END"
            )
        connection.commit()


# ---- a person is asked


async def test_question_held_for_a_person_is_listed_and_answered(house: House) -> None:
    """The answer is the operator's, by the name the kernel gives."""
    path, collect = collecting(house.path.parent)
    async with prompted(house, ["send", ASK], ["send", END], collect, policy={"ask": "operator"}) as asking:
        listed = await _pending(house)
        assert (listed["title"], listed["tool_kind"], [each["option_id"] for each in listed["options"]]) == (
            "rm -r build",
            "execute",
            ["yes", "no"],
        )
        wrong = await ask(house, dialogue.REQUEST_DECIDE, question=listed["request"], option="maybe")
        assert (wrong["ok"], wrong["status"], "'yes', 'no'" in wrong["error"]) == (False, 2, True)
        done = await ask(house, dialogue.REQUEST_DECIDE, question=listed["request"], option="yes")
        assert done["ok"], done
        assert done["frame_seq"] in {row[0] for row in house.rows("SELECT frame_seq FROM decisions")}
        assert (await asking.ended())["event"] == "done"
        again = await ask(house, dialogue.REQUEST_DECIDE, question=listed["request"], option="yes")
        assert (again["ok"], again["hint"]) == (False, "see what waits: ledgerctl pending")
        await until(lambda: len(heard(path)) == 1)
    await house.quiet()
    assert [line["result"]["outcome"]["optionId"] for line in heard(path)] == ["yes"]
    assert decisions(house) == [("selected", "yes", "allow_once", "operator", None, WHO)]


async def test_person_may_cancel_a_question(sqlite_house: House) -> None:
    """No option is chosen then."""
    async with prompted(
        sqlite_house, ["send", ASK], ["wait", '"q"'], ["send", END], policy={"ask": "operator"}
    ) as asking:
        await ask(sqlite_house, dialogue.REQUEST_DECIDE, question=(await _pending(sqlite_house))["request"])
        assert (await asking.ended())["event"] == "done"
    await sqlite_house.quiet()
    assert decisions(sqlite_house) == [("cancelled", None, None, "operator", None, WHO)]


async def test_person_who_is_late_has_rejected(sqlite_house: House) -> None:
    """A silence is never an approval, not even of what the policy would grant."""
    policy = {"ask": "operator", "ask_seconds": 0.05, "allow_tool_kinds": ["execute"]}
    async with prompted(sqlite_house, ["send", ASK], ["wait", '"q"'], ["send", END], policy=policy) as asking:
        assert (await asking.ended())["event"] == "done"
    await sqlite_house.quiet()
    assert decisions(sqlite_house) == [("selected", "no", "reject_once", "policy", "ask_seconds", None)]


async def test_person_is_asked_about_what_nothing_matches(sqlite_house: House) -> None:
    """With `unmatched` the lists come first, and grant without anybody."""
    policy = {"ask": "unmatched", "allow_tool_kinds": ["execute"]}
    async with prompted(sqlite_house, ["send", ASK], ["wait", '"q"'], ["send", END], policy=policy) as asking:
        assert (await asking.ended())["event"] == "done"
    async with prompted(sqlite_house, ["send", ASK], ["wait", '"q"'], ["send", END], policy={"ask": "unmatched"}):
        assert (await _pending(sqlite_house))["title"] == "rm -r build"
    await sqlite_house.quiet()
    assert decisions(sqlite_house)[0][3:5] == ("policy", "allow_tool_kinds=execute")


async def test_cancel_answers_the_question_that_is_held(house: House) -> None:
    """The agent is told once, hears `cancelled`, and the turn's end is its own."""
    path, collect = collecting(house.path.parent)
    cancelled = END.replace("end_turn", "cancelled")
    steps = (["send", ASK], ["wait", "session/cancel"], ["send", ASK.replace('"q"', '"r"'), cancelled], collect)
    async with prompted(house, *steps, policy={"ask": "operator"}) as asking:
        await _pending(house)
        await asking.say(call="cancel")
        await asking.say(call="cancel")
        done = await asking.ended()
        assert done["record"]["outcome"] == "cancelled"
        assert done["record"]["error"].startswith("the turn was cancelled")
        await until(lambda: len(heard(path)) == 2)
    await house.quiet()
    assert [line.get("id") for line in heard(path)] == ["q", "r"]
    assert [row[:1] + row[3:4] for row in decisions(house)] == [("cancelled", "client"), ("cancelled", "policy")]
    assert turn_ends(house) == ["cancelled"]
    sent = [json.loads(line) for line in house.bodies("client_to_agent")]
    assert sum(line.get("method") == "session/cancel" for line in sent) == 1
    assert_verified(house.url)


async def test_reply_that_overflows_behind_a_cancel_sends_no_second_one(sqlite_house: House) -> None:
    """The turn was called off already."""
    last = END.replace("end_turn", "cancelled")
    steps = (["send", chunk("ready")], ["wait", "session/cancel"], ["send", chunk("too long"), last])
    async with prompted(sqlite_house, *steps, limits={"response_bytes": 6}) as asking:
        await asking.until("update")
        await asking.say(call="cancel")
        record = (await asking.ended())["record"]
        assert (record["text"], record["overflow"]["kind"]) == ("ready", "response_bytes")
    await sqlite_house.quiet()
    assert sum(b"session/cancel" in line for line in sqlite_house.bodies("client_to_agent")) == 1


async def test_operator_cancels_an_unattended_session(sqlite_house: House) -> None:
    """`ledgerctl cancel` works as beside an editor, and the held question is the operator's answer."""
    steps = (["send", ASK], ["wait", "session/cancel"], ["wait", '"q"'], ["send", END.replace("end_turn", "cancelled")])
    async with prompted(sqlite_house, *steps, policy={"ask": "operator"}) as asking:
        await _pending(sqlite_house)
        done = await ask(sqlite_house, dialogue.REQUEST_CANCEL, session="s")
        assert (done["ok"], done["heard"]) == (True, True)
        assert (await asking.ended())["record"]["outcome"] == "cancelled"
    await sqlite_house.quiet()
    assert decisions(sqlite_house) == [("cancelled", None, None, "operator", None, WHO)]


async def _pending(house: House) -> dict[str, Any]:
    """Wait until a question is held; gives it."""
    found: list[dict[str, Any]] = []
    while not found:
        found = (await ask(house, dialogue.REQUEST_PENDING))["questions"]
        await trio.sleep(0.01)  # no event of this process tells that another one asks
    return found[0]


# ---- ends


async def test_operator_stops_the_agent_and_the_caller_hears_who_did(sqlite_house: House) -> None:
    """The call that waits fails at once, and names `ledgerctl stop`."""
    async with prompted(sqlite_house, ["send", chunk("half")], ["stay"]) as asking:
        told = await asking.until("update")
        assert told["joined"]
        await ask(sqlite_house, dialogue.REQUEST_STOP, transport=_newest(sqlite_house), seconds=10)
        failed = await asking.ended()
        assert (failed["kind"], failed["record"]["text"]) == ("stopped", "half")
        assert f"by {WHO} with ledgerctl stop" in failed["message"]
    assert await closed(sqlite_house) == "operator_stopped"


async def test_stop_sends_no_message_and_leaves_no_descendant(sqlite_house: House) -> None:
    """Also one that ignores TERM, one that left the group, and one that holds the output open."""
    folder = sqlite_house.path.parent
    names = [folder / "ignores", folder / "left", folder / "holds"]
    steps = (
        ["ignore", "SIGTERM"],
        ["child", str(names[0]), {"steps": [["ignore", "SIGTERM"]]}],
        ["child", str(names[1]), {"setsid": True, "double": True}],
        ["child", str(names[2]), {"hold": True}],
        ["send", chunk("ready")],
        ["stay"],
    )
    async with prompted(sqlite_house, *steps) as asking:
        await asking.until("update")
        pids = [int(name.read_text()) for name in names]
        sent = len(sqlite_house.bodies("client_to_agent"))
        await asking.say(call="stop")
        await asking.ended()
        assert await asking.hear() is None
    await sqlite_house.quiet()
    assert not [pid for pid in pids if is_alive(pid)]
    assert len(sqlite_house.bodies("client_to_agent")) == sent


async def test_caller_that_is_gone_takes_its_agent_along(sqlite_house: House) -> None:
    """Nothing runs unattended that nobody waits for."""
    async with prompted(sqlite_house, ["send", chunk("ready")], ["stay"]) as asking:
        await asking.until("update")
    assert await closed(sqlite_house) == "caller_ended"
    pid = sqlite_house.rows("SELECT pid FROM transport_events WHERE event = 'spawned'")[0][0]
    assert not is_alive(pid)


async def test_agent_that_ends_fails_the_call_and_every_later_one(house: House) -> None:
    """Its output ended, its status and last words are told, and a call after that fails at once."""
    async with prompted(house, ["send", chunk("half")], ["stderr", "boom: no key\n"], ["leave", 3]) as asking:
        failed = await asking.ended()
        assert (failed["kind"], failed["record"]["outcome"]) == ("stream_ended", "stream_ended")
        assert "closed its output" in failed["message"]
        await asking.prompt()
        assert (await asking.ended())["kind"] == "stream_ended"
    assert await closed(house) == "agent_ended"
    assert turn_ends(house)[0] == "stream_ended"
    assert_verified(house.url)


async def test_output_that_cannot_be_read_fails_the_call_in_words_of_its_own(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is no end of the output; the ledger says so too. A pipe never fails to be read, so the failure is a fake."""

    def fails(_reader: LineReader) -> None:
        """As a device does that broke."""
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    script = (["send", chunk("half"), ASK], ["wait", '"q"'], ["send", END])
    async with prompted(house, *script, hears=["update"]) as asking:
        told = await asking.until("update")
        monkeypatch.setattr(LineReader, "lines", fails)
        await asking.reply(told, error=None)
        failed = await asking.ended()
        assert (failed["kind"], failed["record"]["outcome"]) == ("transport_failed", "transport_failed")
        assert "reading the agent's output failed: Input/output error" in failed["message"]
        assert failed["record"]["text"] == "half"
    await house.quiet()
    assert turn_ends(house) == ["transport_failed"]
    assert_verified(house.url)


async def test_output_that_an_orphan_holds_open_is_not_awaited_for_ever(sqlite_house: House) -> None:
    """Once the agent is gone and nothing more comes, the call ends."""
    name = sqlite_house.path.parent / "orphan"
    async with prompted(sqlite_house, ["child", str(name), {"hold": True}], ["leave", 0]) as asking:
        assert (await asking.ended())["kind"] == "stream_ended"
    await sqlite_house.quiet()
    assert not is_alive(int(name.read_text()))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[]", "no JSON object"),
        ("7", "no JSON object"),
        ('{"jsonrpc":"2.0","id":"2","result":{}}', "type"),
        ('{"jsonrpc":"2.0","id":9,"result":{}}', "another id"),
        ('{"jsonrpc":"2.0","method":"session/request_permission","params":{}}', "without an id"),
        ('{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}', "malformed"),
    ],
)
async def test_line_that_no_call_can_go_on_with_fails_it(sqlite_house: House, line: str, words: str) -> None:
    """The frame is stored, the turn is a protocol error, and the next call works."""
    steps = (["send", line], ["answer", "session/prompt", {"stopReason": "end_turn"}])
    async with prompted(sqlite_house, *steps) as asking:
        failed = await asking.ended()
        assert (failed["kind"], failed["record"]["outcome"]) == ("protocol_error", "protocol_error")
        assert words in failed["message"]
        await asking.prompt()
        assert (await asking.ended())["record"]["outcome"] == "completed"
    await sqlite_house.quiet()
    assert line.encode() in sqlite_house.bodies("agent_to_client")
    assert turn_ends(sqlite_house) == ["protocol_error", "completed"]
    assert_verified(sqlite_house.url)


async def test_other_requests_are_refused_and_other_notifications_counted(sqlite_house: House) -> None:
    """Neither fails the call; the id is written back as it was."""
    path, collect = collecting(sqlite_house.path.parent)
    odd = '{"jsonrpc":"2.0","id":1.0,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/x"}}'
    note = '{"jsonrpc":"2.0","method":"_auth/status_update","params":{}}'
    async with prompted(sqlite_house, ["send", odd, "", note], ["send", END], collect) as asking:
        assert (await asking.ended())["event"] == "done"
        await until(lambda: len(heard(path)) == 1)
    await sqlite_house.quiet()
    error = b'{"jsonrpc":"2.0","id":1.0,"error":{"code":-32601,"message":"method not found"}}\n'
    assert path.read_bytes() == error


async def test_line_past_the_limit_stops_the_reading_and_the_status_says_so(sqlite_house: House) -> None:
    """No update is told; limit, storage, buffered, longest and rejected are as a reader of that size has them."""
    async with caller(sqlite_house, ["send", chunk("oversized")], ["stay"], limits={"line_bytes": 32}) as asking:
        assert (await asking.start())["kind"] == "limit"
        await asking.say(call="status")
        told = {
            "limit": 32,
            "storage": 33,
            "buffered": 33,
            "high_water": 32,
            "rejected": 1,
            "phase": "steady",
            "terminal": True,
        }
        assert (await asking.until("status", "update"))["reader"] == told
        shown = (await ask(sqlite_house, dialogue.REQUEST_STATUS))["transports"][0]
        assert (shown["mode"], shown["reader"]) == ("client", told)
        assert (await asking.start())["kind"] == "limit"
    assert await closed(sqlite_house) == "line_too_long"


async def test_request_over_its_limit_is_not_written(sqlite_house: House) -> None:
    """The limit counts the newline; the next, shorter one works."""
    path, collect = collecting(sqlite_house.path.parent)
    async with caller(sqlite_house, *OPENING[:2], collect, limits={"request_bytes": 220}) as asking:
        await asking.start()
        await asking.prompt("x" * 200)
        failed = await asking.ended()
        assert (failed["kind"], "nothing was sent" in failed["message"]) == ("limit", True)
    await sqlite_house.quiet()
    assert heard(path) == []
    assert len(sqlite_house.bodies("client_to_agent")) == 2


async def test_count_of_updates_once_passed_fails_every_later_call(sqlite_house: House) -> None:
    """The first update past it fails its call, and the next call is not even sent."""
    steps = (["send", chunk("a"), chunk("b"), END], ["wait", "prompt"])
    async with prompted(sqlite_house, *steps, limits={"update_count": 1}) as asking:
        assert (await asking.until("update"))["update_sequence"] == 1
        failed = await asking.ended()
        assert (failed["kind"], "update_count" in failed["message"]) == ("limit", True)
        await asking.prompt()
        assert "update_count" in (await asking.ended())["message"]
    await sqlite_house.quiet()
    assert sum(b"session/prompt" in line for line in sqlite_house.bodies("client_to_agent")) == 1
    assert_verified(sqlite_house.url)


async def test_reply_past_its_limit_is_cancelled_once_and_awaited(house: House) -> None:
    """The chunk that would pass is left out whole, later ones are still told, and none joins, even one that fits."""
    steps = (["send", chunk("ok"), chunk("too long"), chunk("x")], ["wait", "session/cancel"])
    last = END.replace("end_turn", "cancelled")
    async with prompted(house, *steps, ["send", chunk("y"), last], limits={"response_bytes": 3}) as asking:
        joined = [(await asking.until("update"))["joined"] for _ in range(4)]
        assert joined == [True, False, False, False]
        record = (await asking.ended())["record"]
        assert (record["text"], record["stop_reason"], record["outcome"]) == ("ok", "cancelled", "cancelled")
        overflow = {"kind": "response_bytes", "admitted_bytes": 2, "admitted_segments": 1}
        assert record["overflow"] == {**overflow, "withheld_update_sequence": 2}
    await house.quiet()
    assert sum(b"session/cancel" in line for line in house.bodies("client_to_agent")) == 1
    assert tuple(house.rows("SELECT kind, admitted_bytes, admitted_segments FROM overflows")[0]) == tuple(
        overflow.values()
    )
    assert_verified(house.url)


# ---- opening


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"limits": {"line_bytes": ENOUGH}}, "cannot be held"),
        ({"limits": {"update_count": 0}}, "limits.update_count"),
        ({"limits": {"lines": 1}}, "limits.lines"),
        ({"epoch": 0}, "epoch"),
        ({"epoch": 2**53}, "epoch"),
        ({"policy": {"allow": 1}}, "policy.allow"),
        ({"policy": {"allow_tool_kinds": [""]}}, "must not be empty"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ({"client": {"nick": "x"}}, "client.nick"),
        ({"hears": ["everything"]}, "hears"),
    ],
)
async def test_terms_that_cannot_be_had_are_refused_before_anything_starts(
    sqlite_house: House, terms: dict[str, Any], words: str
) -> None:
    """A sentence names what is wrong, and the ledger has nothing of it."""
    async with caller(sqlite_house, ["stay"], **terms) as asking:
        refused = await asking.hear()
        assert refused is not None
        assert (refused["event"], refused["status"]) == ("refused", 2)
        assert words in refused["error"]
        assert await asking.hear() is None
    assert not sqlite_house.rows("SELECT id FROM transports")


async def test_epoch_is_the_callers_where_it_is_free(house: House) -> None:
    """One that is taken is refused before anything starts; without one the ledger gives the next."""
    for epoch, event in ((7, "opened"), (7, "refused"), (None, "opened")):
        async with caller(house, ["stay"], epoch=epoch) as asking:
            told = await asking.hear()
            assert told is not None
            assert told["event"] == event
        await house.quiet()
    chosen, given = [tuple(row) for row in house.rows("SELECT epoch, id FROM transports ORDER BY id")]
    assert (chosen[0], chosen[1] == 7, given[0] == given[1]) == (7, False, True)


async def test_agent_that_cannot_be_started_is_refused_with_its_status(sqlite_house: House) -> None:
    """The attempt is in the ledger, with its reason."""
    greeting = handshake.Greeting(handshake.PURPOSE_CLIENT, argv=[b"/no/such"], cwd=b"/", env={})
    async with await trio.open_unix_socket(sqlite_house.path) as stream:
        await stream.send_all(handshake.encode_greeting(greeting))
        asking = Caller(stream)
        await asking.say(call="open")
        refused = await asking.hear()
        assert refused is not None
        assert (refused["event"], refused["status"]) == ("refused", 127)
    assert await closed(sqlite_house) == "agent_not_started"


async def test_what_the_agent_answered_at_the_opening_is_shown(sqlite_house: House) -> None:
    """Capabilities, logins, its own name and its modes, as long as it runs."""
    hello = {"protocolVersion": 1, "authMethods": [{"id": "key", "name": "API key"}], "agentInfo": {"name": "ag"}}
    modes = {"currentModeId": "plan", "availableModes": [{"id": "plan", "name": "Plan"}]}
    steps = (["answer", "initialize", hello], ["answer", "session/new", {"sessionId": "s", "modes": modes}], ["stay"])
    async with caller(sqlite_house, *steps) as asking:
        started = await asking.start()
        [shown] = (await ask(sqlite_house, dialogue.REQUEST_STATUS))["transports"]
        assert shown["initialize"] == started["initialize"]
        assert shown["initialize"]["auth_methods"] == [{"id": "key", "name": "API key"}]
        assert (shown["acp_session_id"], shown["modes"]["current"]) == ("s", "plan")


async def test_calls_are_made_one_at_a_time(sqlite_house: House) -> None:
    """A second one is refused, and the first goes on; a prompt before the start fails."""
    async with caller(sqlite_house, *OPENING, ["look", f"{sqlite_house.path}.go"], ["send", END]) as asking:
        await asking.prompt()
        assert (await asking.ended())["kind"] == "usage"
        await asking.start()
        await asking.prompt()
        await asking.prompt()
        assert "not over yet" in (await asking.ended())["message"]
        sqlite_house.path.with_name(sqlite_house.path.name + ".go").touch()
        assert (await asking.ended())["event"] == "done"


async def test_many_clients_work_side_by_side(sqlite_house: House) -> None:
    """Each has its own agent, numbers and answers."""
    ends: list[str] = []

    async def one(text: str) -> None:
        """Have a conversation."""
        async with prompted(sqlite_house, ["send", chunk(text), ASK], ["wait", '"q"'], ["send", END]) as asking:
            ends.append((await asking.ended())["record"]["text"])

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(one, str(number))
    assert sorted(ends) == [str(number) for number in range(8)]
    await sqlite_house.quiet()
    assert len(decisions(sqlite_house)) == 8
    assert_verified(sqlite_house.url)


async def test_daemon_that_stops_ends_its_clients_and_says_so(tmp_path: Path) -> None:
    """The call that waits fails, and the caller's socket closes after the last entry."""
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path) as house:
        async with prompted(house, ["send", chunk("ready")], ["stay"]) as asking:
            await asking.until("update")
            house.daemon.stop()
            failed = await asking.ended()
            assert (failed["kind"], "with acp-ledgerd" in failed["message"]) == ("stopped", True)
        await house.quiet()
        assert house.events()[-1] == "closed"


def _newest(house: House) -> str:
    return str(house.rows("SELECT max(id) FROM transports")[0][0])
