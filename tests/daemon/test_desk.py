"""What an operator does to a running connection, and what agent, editor and ledger get to see of it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import trio

from acp_ledger import dialogue, handshake
from acp_ledger.daemon.desk import _name
from acp_ledger.daemon.opening import Peer
from tests.daemon.house import (
    CANCEL,
    PATIENCE,
    PROMPT,
    QUESTION,
    Editor,
    House,
    assert_verified,
    greeting,
    is_alive,
    lock,
    open_house,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

ANSWERED = '{"jsonrpc":"2.0","id":7,"result":{"stopReason":"cancelled"}}'
ALLOWED = b'{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"selected","optionId":"yes"}}}\n'
WHO = _name(Peer(os.getpid(), os.getuid(), os.getgid()))


async def ask(house: House, request: str, **fields: Any) -> dict[str, Any]:
    """Ask a control request as `ledgerctl` does."""
    opening = handshake.encode_greeting(handshake.Greeting(handshake.PURPOSE_CONTROL))
    async with await trio.open_unix_socket(house.path) as stream:
        await stream.send_all(opening + dialogue.encode_request(request, **fields))
        reader = dialogue.ControlReader()
        with trio.fail_after(PATIENCE):
            while (answer := reader.feed(await stream.receive_some())) is None:
                pass
    return answer


async def running(house: House, editor: Editor) -> int:
    """Wait until the agent asked its question or said that it works; gives its transport."""
    await editor.hear(b"\n")
    return int(house.rows("SELECT max(id) FROM transports")[0][0])


async def test_cancel_is_what_an_editor_owes_the_agent(house: House, tmp_path: Path) -> None:
    """`session/cancel`, then `cancelled` for the open question, each in the ledger as the operator's."""
    told = tmp_path / "told"
    steps = (["wait", "prompt"], ["send", QUESTION], ["wait", "session/cancel"], ["wait", '"id":1'])
    async with house.editor(greeting(*steps, ["send", ANSWERED], ["collect", str(told)]) + PROMPT) as editor:
        await running(house, editor)
        answer = await ask(house, dialogue.REQUEST_CANCEL, session="s")
        output = await editor.hear(b"stopReason")
        await editor.end()
        await editor.rest()
    assert (answer["ok"], answer["questions"], answer["turns"], answer["heard"]) == (True, 1, 1, True)
    frames = house.rows(
        "SELECT frame_seq, method, direction, origin, delivery, body FROM frames WHERE origin = 'operator' "
        "ORDER BY frame_seq"
    )
    assert [(each.method, each.direction, each.delivery) for each in frames] == [
        ("session/cancel", "client_to_agent", "forward"),
        ("session/request_permission", "client_to_agent", "forward"),
        ("$/cancel_request", "agent_to_client", "forward"),
    ]
    assert frames[0].frame_seq == answer["frame_seq"]
    cancel = json.loads(bytes(frames[0].body))
    assert cancel["params"] == {"sessionId": "s", "_meta": {"acp_ledger": {"cancelled_by": WHO}}}
    assert json.loads(output.splitlines()[1]) == json.loads(bytes(frames[2].body)), "the editor may close its dialog"
    [decision] = house.rows("SELECT outcome, effect, decided_by, identity FROM decisions")
    assert tuple(decision) == ("cancelled", "none", "operator", WHO)
    assert house.rows("SELECT outcome FROM turn_ends")[0][0] == "cancelled"
    assert_verified(house.url)


async def test_late_answer_of_the_editor_is_kept_and_withheld(house: House, tmp_path: Path) -> None:
    """Who allows what was cancelled allows nothing: the agent hears one answer, and the ledger has both."""
    told = tmp_path / "told"
    script = (["wait", "prompt"], ["send", QUESTION], ["collect", str(told)])
    async with house.editor(greeting(*script) + PROMPT) as editor:
        await running(house, editor)
        await ask(house, dialogue.REQUEST_CANCEL, session="s")
        await editor.say(ALLOWED + b'{"method":"after"}\n')
        await editor.end()
        await editor.rest()
    await house.quiet()
    heard = [json.loads(line) for line in told.read_bytes().splitlines()]
    assert [line.get("method") or line["result"]["outcome"] for line in heard] == [
        "session/cancel",
        {"outcome": "cancelled"},
        "after",
    ]
    withheld = house.rows("SELECT body, origin FROM frames WHERE delivery = 'withhold'")
    assert [(bytes(each.body) + b"\n", each.origin) for each in withheld] == [(ALLOWED, "peer")]
    assert ("late_answer",) in [tuple(each) for each in house.rows("SELECT class FROM anomalies")]
    assert [tuple(each) for each in house.rows("SELECT effect, decided_by FROM decisions")] == [("none", "operator")]
    assert_verified(house.url)


async def test_question_after_the_cancel_is_answered_for_the_editor(sqlite_house: House) -> None:
    """It crossed the cancellation, or the agent goes on: the editor is not asked, and nothing is granted."""
    house = sqlite_house
    steps = (["wait", "prompt"], ["send", "working"], ["wait", "session/cancel"], ["send", QUESTION])
    async with house.editor(
        greeting(*steps, ["answer", "outcome", {}], ["send", ANSWERED], ["echo"]) + PROMPT
    ) as editor:
        await running(house, editor)
        await ask(house, dialogue.REQUEST_CANCEL, session="s")
        output = await editor.hear(b"stopReason")
        # Once that turn is over questions are the editor's again, also in a turn that it cancels itself.
        again = PROMPT.replace(b'"id":7', b'"id":8')
        await editor.say(again + CANCEL + QUESTION.encode() + b"\n")
        output = await editor.hear(b'"method":"session/request_permission"')
        await editor.end()
        await editor.rest()
    assert output.count(b"session/request_permission") == 1
    [first, *_] = house.rows("SELECT outcome, decided_by, identity FROM decisions ORDER BY frame_seq")
    assert tuple(first) == ("cancelled", "operator", WHO)
    assert_verified(house.url)


async def test_other_sessions_are_left_alone(sqlite_house: House) -> None:
    """A question of another session of the same agent waits on."""
    house = sqlite_house
    other = QUESTION.replace('"id":1', '"id":2').replace('"sessionId":"s"', '"sessionId":"other"')
    second = PROMPT.replace(b'"id":7', b'"id":8').replace(b'"s"', b'"other"')
    steps = (["wait", '"id":8'], ["send", QUESTION, other], ["wait", '"id":2'], ["send", "heard"], ["stay"])
    async with house.editor(greeting(*steps) + PROMPT + second) as editor:
        await editor.hear(b'"id":2')
        answer = await ask(house, dialogue.REQUEST_CANCEL, session="s")
        await editor.say(ALLOWED.replace(b'"id":1', b'"id":2'))
        await editor.hear(b"heard")
    assert answer["questions"] == 1
    decided = house.rows("SELECT option_id, decided_by FROM decisions ORDER BY frame_seq")
    assert [tuple(each) for each in decided[:2]] == [(None, "operator"), ("yes", "client")]


@pytest.mark.parametrize(
    ("session", "words"),
    [
        ("nobody", "nothing open is called 'nobody'"),
        ("s", "nothing runs in session "),
        ("1/s", "nothing open is called"),
    ],
)
async def test_what_cannot_be_cancelled_is_told(sqlite_house: House, session: str, words: str) -> None:
    """No such session, and one in which nothing runs; the agent hears nothing."""
    house = sqlite_house
    update = '{"method":"session/update","params":{"sessionId":"s","update":{}}}'
    async with house.editor(greeting(["send", update], ["echo"])) as editor:
        await running(house, editor)
        answer = await ask(house, dialogue.REQUEST_CANCEL, session=session)
        await editor.end()
        await editor.rest()
    assert answer["ok"] is False
    assert words in answer["error"]
    assert answer["hint"]
    assert house.rows("SELECT count(*) FROM frames WHERE origin = 'operator'")[0][0] == 0


async def test_id_of_two_sessions_is_not_guessed(sqlite_house: House) -> None:
    """Agents give the same id again: both are named, and the name with its transport means one."""
    house = sqlite_house
    hello = greeting(["wait", "prompt"], ["send", "working"], ["wait", "cancel"], ["send", ANSWERED], ["echo"]) + PROMPT
    async with house.editor(hello) as one, house.editor(hello) as other:
        await one.hear(b"working")
        await other.hear(b"working")
        answer = await ask(house, dialogue.REQUEST_CANCEL, session="s")
        assert (answer["ok"], answer["status"]) == (False, 2)
        named = answer["error"].partition(": ")[2].split(", ")
        assert len(named) == 2
        assert (await ask(house, dialogue.REQUEST_CANCEL, session=named[1]))["transport_id"] == int(named[1][:-2])
        last = await ask(house, dialogue.REQUEST_CANCEL, session=None, agent="nobody")
        assert last["error"] == "nothing runs in any session"


async def test_last_is_the_newest_that_runs(sqlite_house: House) -> None:
    """With no name, the session that began to run last is meant."""
    house = sqlite_house
    hello = greeting(["wait", "prompt"], ["send", "working"], ["wait", "cancel"], ["send", ANSWERED], ["echo"]) + PROMPT
    async with house.editor(hello) as one:
        await one.hear(b"working")
        async with house.editor(hello) as other:
            await other.hear(b"working")
            answer = await ask(house, dialogue.REQUEST_CANCEL, session=None)
            await other.hear(b"stopReason")
            assert answer["transport_id"] == house.rows("SELECT max(id) FROM transports")[0][0]


async def test_stop_ends_the_agent_and_answers_its_editor(house: House) -> None:
    """The ladder to its end: the editor gets an error for what it waits for, the ledger who did it."""
    steps = (["wait", "prompt"], ["send", "working"], ["stay"])
    async with house.editor(greeting(*steps) + PROMPT) as editor:
        transport = await running(house, editor)
        [pid] = house.rows("SELECT pid FROM transport_events WHERE event = 'spawned'")[0]
        answer = await ask(house, dialogue.REQUEST_STOP, transport=str(transport), seconds=PATIENCE)
        heard = await editor.rest()
    assert not is_alive(pid)
    assert (answer["ended"], answer["how"], answer["requests"]) == (True, "signal SIGTERM", 1)
    error = json.loads(heard.output.splitlines()[-1])["error"]
    assert error["data"]["reason"] == "operator_stopped"
    assert f"stopped by {WHO}" in error["message"]
    assert heard.status == 143
    [closed] = house.rows("SELECT close_reason, detail FROM transport_events WHERE event = 'closed'")
    assert tuple(closed) == ("operator_stopped", f"stopped by {WHO}")
    assert_verified(house.url)


async def test_stop_takes_a_beginning_and_a_session(sqlite_house: House) -> None:
    """A transport by the beginning of its number, or by a session of it; a second stop is told."""
    house = sqlite_house
    hello = greeting(["wait", "prompt"], ["send", "working"], ["stay"]) + PROMPT
    for of_transport in (True, False):
        async with house.editor(hello) as editor:
            transport = await running(house, editor)
            name = str(transport)[:-1] if of_transport else "s"
            answer = await ask(house, dialogue.REQUEST_STOP, transport=name, seconds=0)
            assert (answer["transport_id"], answer["ended"]) == (transport, False)
            again = await ask(house, dialogue.REQUEST_STOP, transport=str(transport))
            assert "ending already (operator_stopped)" in again["error"]
        await house.quiet()
    assert "nothing open is called" in (await ask(house, dialogue.REQUEST_STOP, transport="s"))["error"]


async def test_login_at_a_terminal_is_not_ours_to_end(sqlite_house: House) -> None:
    """Its command is the person's own process, and the daemon says so rather than that there is none."""
    house = sqlite_house
    login = handshake.Greeting(handshake.PURPOSE_TERMINAL, argv=(b"/bin/true",), cwd=b"/", pid=os.getpid())
    async with house.editor(handshake.encode_greeting(login)):
        await until(lambda: house.daemon.status()["transports"])
        [launch] = house.daemon.status()["transports"]
        answer = await ask(house, dialogue.REQUEST_STOP, transport=str(launch["transport_id"]))
    assert "is a login at a terminal" in answer["error"]


async def test_cancel_and_stop_end_a_hold(tmp_path: Path) -> None:
    """While the ledger cannot be written an operator is heard like an editor: the agent is ended at once."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    async with open_house(url, tmp_path, **{"failure.hold_seconds": 600.0}) as house:
        steps = (["wait", "prompt"], ["send", "working"], ["look", str(tmp_path / "go")], ["send", "more"], ["stay"])
        for word, named in ((dialogue.REQUEST_CANCEL, "session"), (dialogue.REQUEST_STOP, "transport")):
            async with house.editor(greeting(*steps) + PROMPT) as editor:
                await running(house, editor)
                locked = lock(url)
                (tmp_path / "go").touch()
                await until(lambda: house.daemon.status()["committer"]["held_seconds"] is not None)
                answer = await ask(house, word, **{named: "s"}, seconds=PATIENCE)
                heard = await editor.rest()
                locked.execute("ROLLBACK")
                locked.close()
            assert heard.fatal is not None
            assert "the ledger cannot be written" in heard.fatal
            assert answer.get("ended") or "is ended instead" in answer["error"]
            (tmp_path / "go").unlink()
            await house.quiet()
            await until(lambda: house.rows("SELECT count(*) FROM gaps")[0][0])
