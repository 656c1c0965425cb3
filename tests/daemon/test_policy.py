"""A policy that answers for the editor: who hears what, in which order, and what is recorded of it."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio

from acp_ledger.daemon.opening import policy_of
from acp_ledger.daemon.own import error_line
from acp_ledger.handshake import PURPOSE_RUN, Greeting
from tests.daemon.house import (
    CANCEL,
    CHUNK,
    PROMPT,
    Editor,
    House,
    assert_verified,
    greeting,
    lock,
    open_house,
    request,
    rows,
    settings,
    until,
)
from tests.daemon.plays import DONE, Play, Told, play, transport
from tests.support.ledgers import shared_url

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["shared_url"]

POLICIES: dict[str, Any] = {
    "policy.allow_tool_kinds": ["read"],
    "agents": {
        "observe": {},
        "enforce": {"policy": {"mode": "enforce"}},
        "once": {"policy": {"mode": "enforce", "never_always": True}},
        "alone": {"policy": {"mode": "unattended"}},
        "careful": {"policy": {"unoffered_option": "cancel"}},
    },
}
"""One daemon with an agent for each policy; an agent's own keys stand over those of all."""

AGENTS: tuple[bytes | None, ...] = (None, b"x", b"once")
BY_KIND = "allow_tool_kinds=read"
ALONE = "mode=unattended"


def ask(id_: str = "1", kind: str = "read", options: Any = ("allow_once", "reject_once"), session: str = "s") -> str:
    """A question under an id as it is to be written; options are given by their kinds."""
    if isinstance(options, tuple):
        options = [{"optionId": f"<{each}>", "name": "n", "kind": each} for each in options]
    call = {"toolCallId": "c", "kind": kind, "title": "do it"}
    params = json.dumps({"sessionId": session, "toolCall": call, "options": options})
    return f'{{"jsonrpc":"2.0","id":{id_},"method":"session/request_permission","params":{params}}}'


def answer(token: str, option: str | None) -> bytes:
    """The line with which the daemon answers."""
    outcome = '{"outcome":"cancelled"}' if option is None else f'{{"outcome":"selected","optionId":"{option}"}}'
    return f'{{"jsonrpc":"2.0","id":{token},"result":{{"outcome":{outcome}}}}}'.encode()


def choose(token: str, option: str) -> bytes:
    """The line with which an editor answers, spelled in a way of its own."""
    chosen = f'{{"outcome":{{"optionId":"{option}","outcome":"selected"}}}}'
    return f'{{"id":{token},"jsonrpc":"2.0","result":{chosen}}}'.encode()


GRANTED = ("selected", "<allow_once>", "allow", "policy", BY_KIND)
OPEN = ("unanswered", None, "none", "nobody", None)


class Row(NamedTuple):
    """A promise: who is the agent, what it says, what then passes to the editor and comes back, and the decisions."""

    policy: str
    says: Sequence[str]
    shown: Sequence[int]
    """Which of the agent's lines the editor gets; they come byte for byte."""
    hears: Sequence[bytes]
    """What the agent hears that its editor did not say, byte for byte."""
    decisions: Sequence[tuple[str | None, ...]]
    before: bytes = PROMPT
    editor: bytes = b""


def withdraw(token: str) -> str:
    """The agent takes a question back."""
    return f'{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{token}}}}}'


READ = '{"jsonrpc":"2.0","id":5,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/x"}}'
IN_USE = "a question under an id that is in use was not passed on (policy.mode)"
TWICE = '"kind":"edit","kind":"read"'
PROMISES = {
    "a match is answered here and not shown": Row("enforce", [ask()], [], [answer("1", "<allow_once>")], [GRANTED]),
    "all else is shown": Row("enforce", [ask(kind="edit"), CHUNK], [0, 1], [], [OPEN]),
    "nothing is answered where a policy only observes": Row("observe", [ask()], [0], [], [OPEN]),
    "no allow option: the editor is asked": Row("enforce", [ask(options=("reject_once",))], [0], [], [OPEN]),
    "never always: the editor is asked": Row("once", [ask(options=("allow_always", "reject_once"))], [0], [], [OPEN]),
    "options missing": Row("enforce", [ask(options=None)], [0], [], [OPEN]),
    "options that are no list": Row("enforce", [ask(options={})], [0], [], [OPEN]),
    "an empty list": Row("enforce", [ask(options=[])], [0], [], [OPEN]),
    "options that are no objects": Row("enforce", [ask(options=["allow_once", 7])], [0], [], [OPEN]),
    "one id for two kinds": Row(
        "enforce",
        [ask(options=[{"optionId": "a", "kind": "allow_once"}, {"optionId": "a", "kind": "reject_once"}])],
        [0],
        [],
        [OPEN],
    ),
    **{
        f"the id {token}": Row("enforce", [ask(token)], [], [answer(token, "<allow_once>")], [GRANTED])
        for token in ('"1"', '"\\u0041\\/b"', "1.50", "-0", "18446744073709551616", "null", "true", '{"b":[]}', '""')
    },
    "a long id": Row("enforce", [ask(f'"{"x" * 300}"')], [], [answer(f'"{"x" * 300}"', "<allow_once>")], [GRANTED]),
    "without an id nothing can answer": Row("enforce", [ask().replace('"id":1,', "")], [0], [], []),
    "an id that is in use: the editor is asked": Row(
        "enforce", [ask(kind="edit"), ask()], [0, 1], [], [OPEN, OPEN], editor=b""
    ),
    "the same id again, once it is free": Row(
        "enforce", [ask(), ask()], [], [answer("1", "<allow_once>")] * 2, [GRANTED] * 2
    ),
    "the same id the other way": Row("enforce", [ask("7")], [], [answer("7", "<allow_once>")], [GRANTED]),
    "outside a turn": Row("enforce", [ask()], [], [answer("1", "<allow_once>")], [GRANTED], before=b""),
    "of a session nobody named before": Row(
        "enforce", [ask(session="other")], [], [answer("1", "<allow_once>")], [GRANTED]
    ),
    "a word said twice: the editor is asked": Row("enforce", [ask().replace('"kind": "read"', TWICE)], [0], [], [OPEN]),
    "a turn that was cancelled: the editor is asked": Row("enforce", [ask()], [0], [], [OPEN], before=PROMPT + CANCEL),
    "a turn that was cancelled by a request: the editor is asked": Row(
        "enforce", [ask()], [0], [], [OPEN], before=PROMPT + request("9", "session/cancel", sessionId="s")
    ),
    "a key that is written with an escape": Row(
        "enforce", [ask().replace('"id"', '"\\u0069d"')], [], [answer("1", "<allow_once>")], [GRANTED]
    ),
    "a cancelled turn of another session": Row(
        "enforce", [ask(session="t")], [], [answer("1", "<allow_once>")], [GRANTED], before=PROMPT + CANCEL
    ),
    "a withdrawal of what was answered here is not shown": Row(
        "enforce", [ask(), withdraw("1.0"), CHUNK], [2], [answer("1", "<allow_once>")], [GRANTED]
    ),
    "a withdrawal of what was shown is shown": Row("enforce", [ask(kind="edit"), withdraw("1")], [0, 1], [], [OPEN]),
    "a withdrawal of what nobody asked is shown": Row("enforce", [withdraw("1")], [0], [], []),
    "nobody there: what matches is granted": Row("alone", [ask()], [], [answer("1", "<allow_once>")], [GRANTED]),
    "nobody there: all else is refused": Row(
        "alone",
        [ask(kind="edit"), ask("2", kind="edit", options=("allow_once", "reject_always"))],
        [],
        [answer("1", "<reject_once>"), answer("2", "<reject_always>")],
        [("selected", f"<reject_{each}>", "reject", "policy", ALONE) for each in ("once", "always")],
    ),
    "nobody there: under an id that is in use nothing is answered": Row(
        "alone",
        [READ, ask("5")],
        [0],
        [error_line("null", IN_USE, "withheld", -32600)],
        [],
    ),
    "nobody there: nothing to refuse with": Row(
        "alone",
        [ask(options=("maybe",)), ask("2", options=None)],
        [],
        [answer("1", None), answer("2", None)],
        [("cancelled", None, "none", "policy", ALONE)] * 2,
    ),
    "nobody there: a cancelled turn is told so": Row(
        "alone",
        [ask()],
        [],
        [answer("1", None)],
        [("cancelled", None, "none", "policy", ALONE)],
        before=PROMPT + CANCEL,
    ),
    "an answer nobody offered is replaced": Row(
        "careful",
        [ask()],
        [0],
        [answer("1", None)],
        [("cancelled", None, "none", "policy", "unoffered_option=cancel")],
        editor=choose("1", "<allow_always>"),
    ),
    "a cancel behind an answer takes nothing back": Row(
        "enforce", [ask()], [], [answer("1", "<allow_once>"), CANCEL.strip()], [GRANTED], editor=CANCEL.strip()
    ),
    "an editor's answer to what was answered here is not heard": Row(
        "enforce", [ask()], [], [answer("1", "<allow_once>")], [GRANTED], editor=choose("1", "<reject_once>")
    ),
    "nor is a second one to what was replaced": Row(
        "careful",
        [ask()],
        [0],
        [answer("1", None)],
        [("cancelled", None, "none", "policy", "unoffered_option=cancel")],
        editor=choose("1", "<allow_always>") + b"\n" + choose("1", "<allow_once>"),
    ),
    "a second answer passes where both are the editor's": Row(
        "enforce",
        [ask(kind="edit")],
        [0],
        [choose("1", "<allow_once>"), choose("1", "<reject_once>")],
        [("selected", "<allow_once>", "allow", "client", None)],
        editor=choose("1", "<allow_once>") + b"\n" + choose("1", "<reject_once>"),
    ),
    "an answer that was offered passes": Row(
        "careful",
        [ask()],
        [0],
        [choose("1", "<allow_once>")],
        [("selected", "<allow_once>", "allow", "client", None)],
        editor=choose("1", "<allow_once>"),
    ),
    "an answer nobody offered passes where nobody minds": Row(
        "observe",
        [ask()],
        [0],
        [choose("1", "<allow_always>")],
        [("selected", "<allow_always>", "unknown", "client", None)],
        editor=choose("1", "<allow_always>"),
    ),
    "an answer without a list of options passes no more": Row(
        "careful",
        [ask(options=None)],
        [0],
        [answer("1", None)],
        [("cancelled", None, "none", "policy", "unoffered_option=cancel")],
        editor=choose("1", "<allow_once>"),
    ),
    "an answer that nobody can read passes": Row(
        "careful",
        [ask()],
        [0],
        [b'{"id":1,"result":{"outcome":{}}}'],
        [("malformed", None, "unknown", "client", None)],
        editor=b'{"id":1,"result":{"outcome":{}}}',
    ),
}


@pytest.fixture(scope="module")
def told(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Every row, played in connections of one daemon, once on each engine."""
    folder = tmp_path_factory.mktemp("policy")
    plays = {name: Play(row.before, row.says, row.editor, row.policy) for name, row in PROMISES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        return trio.run(partial(play, shared_url, folder, plays, **POLICIES))


@pytest.mark.parametrize("name", PROMISES)
def test_policy_keeps_its_promises(told: dict[str, Told], name: str) -> None:
    """Both sides hear exactly what they should, every line is stored as it came, and so is who decided."""
    row = PROMISES[name]
    assert told[name].shown == [*(row.says[index] for index in row.shown), DONE]
    assert told[name].heard == list(row.hears)
    assert told[name].stored == [*row.says, DONE]
    assert told[name].decisions == list(row.decisions)


def held(path: Path) -> dict[str, Any]:
    """Settings under which everything of kind `read` is granted, and a hold outlasts the test."""
    return {**POLICIES, "failure.hold_seconds": 600, "socket.path": str(path / "s.sock")}


async def asked_under_a_lock(house: House, editor: Editor, folder: Path) -> None:
    """Let the agent ask once the ledger is locked, and see question and answer numbered."""
    before = house.daemon.status()["transports"][0]["numbers"]
    (folder / "go").touch()
    await until(lambda: house.daemon.status()["transports"][0]["numbers"] == before + 2)
    await until(lambda: house.daemon.status()["committer"]["held_seconds"] is not None)
    assert b"request_permission" not in editor.heard


ASKER = ["send", "ready"], ["look", "go"], ["send", ask()], ["collect", "heard"]


def asker(folder: Path) -> bytes:
    """The greeting of an agent that asks once there is a file, and collects what it hears."""
    steps = [[verb, str(folder / word) if verb in {"look", "collect"} else word] for verb, word in ASKER]
    return greeting(*steps, agent=b"enforce")


async def test_agent_hears_nothing_before_the_commit(tmp_path: Path) -> None:
    """While the ledger cannot be written the agent waits for the policy's answer as for anybody's."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    async with open_house(url, tmp_path, **held(tmp_path)) as house, house.editor(asker(tmp_path)) as editor:
        await editor.hear(b"ready")
        with closing(lock(house.url)):
            await asked_under_a_lock(house, editor, tmp_path)
            await until((tmp_path / "heard").exists)
            assert (tmp_path / "heard").read_bytes() == b""
        await until(lambda: (tmp_path / "heard").read_bytes() == answer("1", "<allow_once>") + b"\n")
        stored = house.rows("SELECT origin, delivery FROM frames ORDER BY frame_seq DESC LIMIT 2")
        assert [tuple(row) for row in stored] == [("policy", "forward"), ("peer", "withhold")]


async def test_cancel_ends_the_hold_of_an_answer(tmp_path: Path) -> None:
    """A user who stops the turn is not kept by a question that a policy answers: the agent never hears the grant."""
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, **held(tmp_path)) as house:
        async with house.editor(asker(tmp_path) + PROMPT) as editor:
            await editor.hear(b"ready")
            await until(lambda: house.bodies("client_to_agent"))
            with closing(lock(house.url)):
                await asked_under_a_lock(house, editor, tmp_path)
                await editor.say(CANCEL)
                heard = await editor.rest()
        assert heard.status == 69
        assert b"allow_once" not in (tmp_path / "heard").read_bytes()
        await until(lambda: house.events()[-1:] == ["closed"])
        assert house.rows("SELECT cause FROM gaps")[0][0] == "closed"
        assert_verified(house.url)


async def test_all_else_passes_byte_for_byte(tmp_path: Path) -> None:
    """Beside a policy that answers, whatever bytes either side sends arrive as they were sent."""
    sent = b'{"a":1}\r\n\n{ "id" : 1.0 }\n\xff\xfe\n{"id":1,"id":2}\n{"id":7,"result":null}\nno newline'
    withdrawn = '{"method":"$/cancel_request","params":{"requestId":1}}'
    said = '{"id":1}\r\n\n\x00\x1f\n{"id":1,"method":"x"}\n' + withdrawn + '\n{"id":[]}'
    steps = [["raw", said + "\n"], ["collect", str(tmp_path / "got")]]
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, **POLICIES) as house:
        async with house.editor(greeting(*steps, agent=b"alone") + sent) as editor:
            await editor.hear(b'{"id":[]}\n')
            await editor.end()
            assert (await editor.rest()).output == said.encode() + b"\n"
        assert (tmp_path / "got").read_bytes() == sent


async def test_nothing_is_granted_once_the_editor_left(tmp_path: Path) -> None:
    """Whoever could have stopped the agent is gone, so the policy answers no more: the question stays unanswered."""
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, **POLICIES) as house:
        async with house.editor(greeting(["collect", "/dev/null"], ["send", ask()], agent=b"enforce")) as editor:
            await editor.end()
            heard = await editor.rest()
        assert heard.output.decode() == ask() + "\n"
        await house.quiet()
        assert [tuple(row) for row in house.rows("SELECT outcome, decided_by FROM decisions")] == [
            ("unanswered", "nobody")
        ]


def test_auditor_sees_who_decided_and_by_which_rule(told: dict[str, Told], shared_url: str) -> None:
    """The view names the policy and its rule beside what was on offer."""
    name = "a match is answered here and not shown"
    number = transport(shared_url, name)
    assert told[name].decisions == [GRANTED]
    found = [row for row in rows(shared_url, "SELECT * FROM audit_decisions") if row.transport_id == number]
    assert [(row.option_kind, row.offered, row.offered_kinds, row.decided_by, row.rule) for row in found] == [
        ("allow_once", 1, "allow_once,reject_once", "policy", BY_KIND)
    ]


def test_replaced_answer_is_two_lines(told: dict[str, Told], shared_url: str) -> None:
    """The editor's is withheld and flagged, the policy's is what the agent heard, and the decision hangs from that."""
    name = "an answer nobody offered is replaced"
    number = transport(shared_url, name)
    assert told[name].heard == [answer("1", None)]
    found = rows(
        shared_url,
        """SELECT f.transport_id, f.origin, f.delivery, f.kind, a.class, d.outcome FROM frames f
        LEFT JOIN anomalies a ON a.transport_id = f.transport_id AND a.frame_seq = f.frame_seq
        LEFT JOIN decisions d ON d.transport_id = f.transport_id AND d.frame_seq = f.frame_seq
        WHERE f.method = 'session/request_permission' ORDER BY f.frame_seq""",
    )
    assert [tuple(row[1:]) for row in found if row.transport_id == number] == [
        ("peer", "forward", "request", None, None),
        ("peer", "withhold", "response", "option_not_offered", None),
        ("policy", "forward", "response", None, "cancelled"),
    ]


def test_agents_own_keys_stand_over_those_of_all(tmp_path: Path) -> None:
    """What an agent's policy leaves out is taken from everybody's."""
    found = settings(f"sqlite:///{tmp_path}/x.db", tmp_path, **POLICIES)
    nobody, other, once = (policy_of(Greeting(PURPOSE_RUN, agent=name), found) for name in AGENTS)
    assert nobody == other
    assert (other.mode, other.never_always) == ("observe", False)
    assert (once.mode, once.never_always) == ("enforce", True)
    assert once.allow_tool_kinds == other.allow_tool_kinds == ("read",)


def test_connection_keeps_the_digest_of_its_policy(told: dict[str, Told], shared_url: str, tmp_path: Path) -> None:
    """One policy, one digest, whatever was asked."""
    assert told
    given = settings(f"sqlite:///{tmp_path}/x.db", tmp_path, **POLICIES)
    digests = {name: policy_of(Greeting(PURPOSE_RUN, agent=name.encode()), given).digest for name in POLICIES["agents"]}
    assert dict(map(tuple, rows(shared_url, "SELECT DISTINCT agent, policy_digest FROM transports"))) == digests
    assert len(set(digests.values())) == len(digests)
