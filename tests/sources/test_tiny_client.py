"""Behaviours of a small ACP client, each on ours: through the Python API, the daemon and an agent of shell."""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from acp_ledger.client import (
    Audio,
    Block,
    CallFailed,
    Client,
    ClientInfo,
    EmbeddedBlob,
    EmbeddedText,
    Image,
    Limits,
    McpServer,
    Observer,
    PermissionReply,
    PermissionRequest,
    Policy,
    PromptFailed,
    ResourceLink,
    Text,
    Update,
    open_client,
)
from acp_ledger.errors import LedgerError, UsageError
from acp_ledger.sections import LimitSettings
from tests.daemon.house import is_alive, until
from tests.support.shell_agents import ALLOW, CALL, REJECT, SESSION, agent, chunk, end, line, question, update

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.sources.conftest import House

PATIENCE = 20.0


class Journal(Observer):
    """Keeps what it hears, in order; answers with `reply`, and fails where it is told to."""

    def __init__(self, reply: PermissionReply | None = None, *, fails: str = "") -> None:
        self.heard: list[Update | PermissionRequest] = []
        self.asked: list[PermissionRequest] = []
        self._reply = reply
        self._fails = fails

    @property
    def updates(self) -> list[Update]:
        """The updates."""
        return [each for each in self.heard if isinstance(each, Update)]

    @property
    def decided(self) -> list[PermissionRequest]:
        """The decisions."""
        return [each for each in self.heard if isinstance(each, PermissionRequest)]

    async def update(self, update: Update) -> None:
        """Keep it."""
        self.heard.append(update)
        self._fail("update")

    async def answer(self, request: PermissionRequest) -> PermissionReply | None:
        """Answer."""
        self.asked.append(request)
        self._fail("answer")
        return self._reply

    async def commit(self, request: PermissionRequest) -> None:
        """Keep it."""
        self.heard.append(request)
        self._fail("commit")

    def _fail(self, where: str) -> None:
        if self._fails == where:
            raise OSError("the journal is full")


@asynccontextmanager
async def opened(house: House, command: Sequence[str], **terms: Any) -> AsyncIterator[Client]:
    """A client that is not started."""
    with trio.fail_after(PATIENCE):
        async with open_client(command, socket=house.socket, **terms) as client:
            yield client


@asynccontextmanager
async def started(house: House, command: Sequence[str], **terms: Any) -> AsyncIterator[Client]:
    """A client with a session."""
    async with opened(house, command, **terms) as client:
        await client.start()
        yield client


async def failed(client: Client, *blocks: Any) -> CallFailed:
    """How a prompt fails."""
    with pytest.raises(CallFailed) as caught:
        await client.prompt(*(blocks or ("go",)))
    return caught.value


def _is_whole(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("}]")


# ---- the conversation


async def test_ty1_ty34_every_message_is_recorded_in_order_and_every_question_answered(house: House) -> None:
    """Open, start, prompt, end: what was said by both sides is in the ledger as it was said."""
    asks = {'"optionId":"reject"': [chunk("denied"), end()]}
    async with started(house, agent(chunk("a"), question(), then=asks)) as client:
        assert await client.prompt("hello") == "adenied"
    methods = [row[0] for row in house.rows(client, "SELECT method FROM frames")]
    ask, tell = "session/request_permission", "session/update"
    opening = ["initialize", "initialize", "session/new", "session/new"]
    assert methods == [*opening, "session/prompt", tell, ask, ask, tell, "session/prompt"]
    assert [row[0] for row in house.rows(client, "SELECT outcome FROM decisions")] == ["selected"]


async def test_ty2_ty28_calls_run_one_at_a_time_and_callbacks_in_arrival_order(house: House) -> None:
    """Each call reads up to its own answer; what came before it was heard in order, inside that call."""
    journal = Journal()
    asks = {'"optionId":"reject"': [chunk("c"), end()]}
    async with started(house, agent(chunk("a"), chunk("b"), question(), then=asks), observer=journal) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.prompt, "hello")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(CallFailed, match="not over yet"):
                await client.start()
        assert [each.text if isinstance(each, Update) else each.outcome for each in journal.heard] == [
            "a",
            "b",
            "selected",
            "c",
        ]


@pytest.mark.parametrize("id_", ["7", '"x"', "null", "1.0", "9007199254740993"])
async def test_ty3_ty51_other_requests_are_not_found_under_their_own_id(house: House, id_: str) -> None:
    """An id of any type is written back as it came; other notifications are dropped."""
    asking = f'{{"jsonrpc":"2.0","id":{id_},"method":"fs/read_text_file","params":{{}}}}'
    note = line(method="_vendor/note", params={})
    async with started(house, agent(note, asking, then={"method not found": [end()]})) as client:
        await client.prompt("go")
    refusal = f'{{"jsonrpc":"2.0","id":{id_},"error":{{"code":-32601,"message":"method not found"}}}}'
    assert house.said(client)[-1] == refusal.encode()


@pytest.mark.parametrize("odd", ["{", "[]", "7", line(id="2", result={}), line(id=3, result={})])
async def test_ty4_ty46_ty62_anything_else_fails_the_call(house: House, odd: str) -> None:
    """Only the answer under exactly our id ends a call well."""
    async with started(house, agent(odd, end())) as client:
        failure = await failed(client)
        assert (failure.kind, failure.record and failure.record.outcome) == ("protocol_error", "protocol_error")


async def test_ty5_ty29_update_is_heard_before_its_text_joins_and_its_error_fails_the_call(house: House) -> None:
    """Of a call whose observer failed the record has nothing of that chunk."""
    async with started(house, agent(chunk("a"), end()), observer=Journal(fails="update")) as client:
        failure = await failed(client)
        assert (failure.kind, failure.record and failure.record.text) == ("observer", "")
        assert isinstance(failure.__cause__, OSError)


async def test_ty6_ty54_ty63_envelope_is_the_line_without_the_space_around_it(house: House) -> None:
    """Blank lines are skipped, and a carriage return at the end is not part of a message."""
    journal = Journal()
    said = chunk("a")
    async with started(house, agent("", " \t", f"  {said}\t\r", end()), observer=journal) as client:
        assert await client.prompt("go") == "a"
    assert journal.updates[0].envelope == said


async def test_ty7_ty17_ty55_updates_are_numbered_for_life_and_the_count_comes_before_the_size(house: House) -> None:
    """The first one past the count fails its call, whatever its size, and so does every later call."""
    journal = Journal()
    second = {'"again"': [chunk("c"), chunk("x" * 900), end(id_=3)]}
    limits = Limits(update_count=3, update_bytes=500)
    async with started(
        house, agent(chunk("a"), chunk("b"), end(), then=second), observer=journal, limits=limits
    ) as one:
        await one.prompt("go")
        failure = await failed(one, "again")
        assert "update_count" in failure.message
        assert "update_count" in (await failed(one, "more")).message
    assert [each.update_sequence for each in journal.updates] == [1, 2, 3]


async def test_ty8_epoch_is_the_callers_and_never_zero(house: House) -> None:
    """It is recorded before the agent starts, stands on every update, and cannot be used twice."""
    journal = Journal()
    async with started(house, agent(chunk("a"), end()), epoch=77, observer=journal) as client:
        await client.prompt("go")
    assert {each.epoch for each in journal.updates} == {client.epoch} == {77}
    for epoch in (0, 77):
        with pytest.raises(LedgerError, match="epoch"):
            async with opened(house, agent(), epoch=epoch):
                raise AssertionError


async def test_ty10_ty32_observer_then_policy_then_reject(house: House) -> None:
    """Who was asked first decides; then kinds, compared whole, and the beginnings of titles; else a rejection."""
    listed = Policy(allow_tool_kinds=("execute",))
    nearly = Policy(allow_tool_kinds=("exec",), allow_title_prefixes=("command",))
    always = {"optionId": "ever", "name": "Ever", "kind": "allow_always"}
    table: list[tuple[Journal | None, Policy, list[Any], str]] = [
        (Journal(PermissionReply("selected", "reject")), listed, [ALLOW, REJECT], "client reject"),
        (Journal(None), listed, [REJECT, always, ALLOW], "policy allow"),
        (None, Policy(allow_title_prefixes=("run ",)), [always, REJECT], "policy ever"),
        (None, listed, [REJECT], "policy reject"),
        (None, nearly, [ALLOW, REJECT], "policy reject"),
    ]
    for observer, policy, options, expected in table:
        command = agent(question(options), then={'"id":"perm-1"': [end()]})
        async with started(house, command, observer=observer, policy=policy) as client:
            await client.prompt("go")
        assert [" ".join(row) for row in house.rows(client, "SELECT decided_by, option_id FROM decisions")] == [
            expected
        ]


async def test_ty22_default_policy_lists_nothing(house: House) -> None:
    """Every question is rejected until somebody writes a list."""
    async with started(house, agent(question(), then={'"optionId":"reject"': [end()]})) as client:
        await client.prompt("go")
    assert house.rows(client, "SELECT effect, rule FROM decisions") == [("reject", "mode=unattended")]


async def test_ty33_title_matches_without_a_kind_and_nothing_without_a_call(house: House) -> None:
    """A tool of a server has a title alone; a question without its call is granted by no list."""
    policy = Policy(allow_title_prefixes=("mcp__fixture__",), allow_tool_kinds=("execute",))
    for call, chosen in (({"toolCallId": "t", "title": "mcp__fixture__tool"}, "allow"), (None, "reject")):
        command = agent(question(call=call), then={'"id":"perm-1"': [end()]})
        async with started(house, command, policy=policy) as client:
            await client.prompt("go")
        assert house.rows(client, "SELECT option_id FROM decisions") == [(chosen,)]


async def test_ty60_options_that_are_no_list_are_cancelled_and_others_skipped(house: House) -> None:
    """Without a list the policy is not consulted; without `reject_once` the last `reject_always` is chosen."""
    never = [{"optionId": name, "name": name, "kind": "reject_always"} for name in ("first", "last")]
    table: list[tuple[Any, str, str | None]] = [
        (None, "cancelled", None),
        ("allow", "cancelled", None),
        ([7, {"kind": "reject_once"}, {"optionId": "x"}, *never], "selected", "last"),
        ([ALLOW], "cancelled", None),
    ]
    for options, outcome, chosen in table:
        granting = Policy(allow_tool_kinds=("execute",)) if not isinstance(options, list) else Policy()
        command = agent(question(options), then={'"id":"perm-1"': [end()]})
        async with started(house, command, policy=granting) as client:
            await client.prompt("go")
        assert house.rows(client, "SELECT outcome, option_id FROM decisions") == [(outcome, chosen)]


async def test_ty26_ty27_ty53_reply_is_sent_as_given_and_its_kind_never(house: House) -> None:
    """The option id is not checked, and left out when empty; the claimed kind is recorded and not sent."""
    table = [
        (PermissionReply("selected", "made-up", "allow_once"), {"outcome": "selected", "optionId": "made-up"}),
        (PermissionReply("cancelled", "", "reject_once"), {"outcome": "cancelled"}),
        (PermissionReply("whatever"), {"outcome": "whatever"}),
    ]
    for reply, sent in table:
        command = agent(question(), then={'"id":"perm-1"': [end()]})
        async with started(house, command, observer=Journal(reply)) as client:
            await client.prompt("go")
        assert json.loads(house.said(client)[-1])["result"] == {"outcome": sent}
        assert house.rows(client, "SELECT option_kind_claimed FROM decisions") == [(reply.option_kind or None,)] or (
            reply.option_kind == ""
        )


async def test_ty30_ty31_ty68_callbacks_see_the_question_pending_and_then_whole(house: House) -> None:
    """First without an answer and a line; then with both, before the agent hears it, and an error keeps it back."""
    journal = Journal()
    command = agent(question(), then={'"id":"perm-1"': [end()]})
    async with started(house, command, observer=journal) as client:
        await client.prompt("go")
    (asked,), (decided,) = journal.asked, journal.decided
    assert (asked.outcome, asked.option_id, asked.option_kind, asked.envelope) == ("pending", "", "", "")
    seen = (decided.acp_session_id, decided.tool_call_id, decided.title, decided.tool_kind, decided.status)
    assert seen == (SESSION, CALL["toolCallId"], CALL["title"], CALL["kind"], CALL["status"])
    assert (decided.outcome, decided.option_id, decided.option_kind) == ("selected", "reject", "reject_once")
    assert (decided.option_count, decided.envelope) == (2, question())
    async with started(house, command, observer=Journal(PermissionReply("cancelled"), fails="commit")) as client:
        assert (await failed(client)).kind == "observer"
        sent = house.rows(client, "SELECT count(*) FROM decisions")
    through = house.rows(client, "SELECT max(through_frame_seq), direction FROM deliveries")
    answer = house.rows(client, "SELECT frame_seq FROM decisions")[0][0]
    assert sent == [(1,)]
    assert all(number < answer for number, direction in through if direction == "client_to_agent")


async def test_ty23_no_observer_able_to_commit_fails_the_first_update(tmp_path: Path) -> None:
    """Our observer that commits is the ledger: where it cannot be written, no update is told and no answer leaves."""
    from tests.daemon.house import lock, open_house  # noqa: PLC0415  # a daemon of this test's own

    os.environ["HOME"], home = str(tmp_path), os.environ["HOME"]
    try:
        more = {"failure.hold_seconds": 0.5}
        async with open_house(f"sqlite:///{tmp_path}/l.db", tmp_path, **more) as own:
            journal = Journal()
            go = tmp_path / "go"
            waiting = agent(chunk("a"), end(), before=f"until [ -e {go} ]; do sleep 0.01; done")
            async with open_client(waiting, socket=own.path, observer=journal) as client:
                locked = lock(own.url)
                go.touch()
                with pytest.raises(CallFailed) as caught:
                    await client.start()
                locked.close()
                assert caught.value.kind == "ledger"
            assert journal.heard == []
    finally:
        os.environ["HOME"] = home


# ---- starting and ending


async def test_ty12_client_info_is_configurable_and_has_defaults(house: House) -> None:
    """Name, title and version, in the first message."""
    from importlib.metadata import version  # noqa: PLC0415  # for the one default

    own = {"name": "n", "title": "t", "version": "9"}
    default = {"name": "acp-ledger", "title": "acp-ledger", "version": version("acp-ledger")}
    for given, expected in ((None, default), (ClientInfo(**own), own)):
        async with started(house, agent(), client=given) as client:
            pass
        assert json.loads(house.said(client)[0])["params"]["clientInfo"] == expected


@pytest.mark.parametrize("name", ["line_bytes", "request_bytes", "update_bytes", "update_count", "response_bytes"])
async def test_ty13_every_limit_is_over_zero(house: House, name: str) -> None:
    """Checked before anything starts."""
    with pytest.raises(UsageError, match=name):
        async with opened(house, ["/no/such/agent"], limits=Limits(**{name: 0})):
            raise AssertionError


async def test_ty14_ty52_request_limit_counts_the_newline_and_covers_every_message(house: House) -> None:
    """Equal to the limit is written, one over is not, and nothing of it."""
    text = "x" * 300
    async with started(house, agent(end())) as probe:
        await probe.prompt(text)
    length = len(house.said(probe)[-1]) + 1
    async with started(house, agent(end()), limits=Limits(request_bytes=length)) as client:
        await client.prompt(text)
    async with started(house, agent(end()), limits=Limits(request_bytes=length - 1)) as client:
        assert (await failed(client, text)).kind == "limit"
    assert len(house.said(client)) == 2
    async with opened(house, agent(), limits=Limits(request_bytes=20)) as client:
        with pytest.raises(CallFailed, match="request_bytes"):
            await client.start()
    assert house.said(client) == []


async def test_ty15_ty18_ty58_reply_limits_restart_and_segments_come_before_bytes(house: House) -> None:
    """Equal to a limit is admitted; after one that was passed nothing joins, even if it would fit."""
    second = {'"again"': [chunk("cd"), end(id_=3)]}
    command = agent(chunk("ab"), chunk("toolong"), then={"session/cancel": [chunk(""), end("cancelled")], **second})
    async with started(house, command, limits=Limits(response_bytes=2, response_segments=1)) as client:
        record = await client.prompt_detailed("go")
        assert (record.text, record.overflow and record.overflow.kind) == ("ab", "response_segments")
        assert await client.prompt("again") == "cd"


async def test_ty16_update_limit_judges_the_trimmed_line(house: House) -> None:
    """Space around it does not count; one byte over fails the call before it is heard, and takes no number."""
    size = len(chunk("a"))
    for limit, text in ((size, "a"), (size - 1, None)):
        journal = Journal()
        command = agent(f"   {chunk('a')}  \r", end())
        async with started(house, command, limits=Limits(update_bytes=limit), observer=journal) as client:
            if text is not None:
                assert await client.prompt("go") == text
            else:
                assert "update_bytes" in (await failed(client)).message
                assert journal.updates == []
                assert [row[0] for row in house.rows(client, "SELECT update_sequence FROM frames")][-1] is None


async def test_ty19_ty41_line_limit_and_the_readers_status(house: House) -> None:
    """The default is documented; what a line may occupy is one byte more; nothing is held between calls."""
    async with started(house, agent(chunk("a"), end())) as client:
        await client.prompt("go")
        status = await client.reader_status()
    assert status.limit == LimitSettings().line_bytes == status.storage - 1
    assert (status.buffered, status.rejected, status.phase, status.terminal) == (0, 0, "steady", False)
    assert status.high_water >= len(chunk("a"))


async def test_ty20_ty24_agent_gets_arguments_directory_and_environment(house: House, tmp_path: Path) -> None:
    """The directory is the process's and the session's; without one, and without an environment, ours."""
    code = "import json,os,sys; json.dump([sys.argv[1:],os.getcwd(),dict(os.environ)],open(sys.argv[1],'w'))"
    for cwd, env in ((tmp_path, {"ONLY": "this"}), (None, None)):
        path = tmp_path / f"given-{cwd is None}"
        async with opened(house, [sys.executable, "-c", code, str(path), "b c"], cwd=cwd, env=env) as client:
            await until(partial(_is_whole, path))
            argv, where, given = json.loads(path.read_text())
            assert (argv, where) == ([str(path), "b c"], str(cwd or Path.cwd()))
            assert env is None or given["ONLY"] == "this"
            assert ("PATH" in given) is (env is None)
        assert client.pid
    async with started(house, agent(), cwd=tmp_path) as client:
        pass
    assert json.loads(house.said(client)[1])["params"]["cwd"] == str(tmp_path)


async def test_ty21_ty25_ty74_tool_servers_are_told_at_each_start(house: House) -> None:
    """Name, command, arguments and environment as the protocol writes them."""
    server = McpServer("sample", "/bin/sample-mcp", ("serve", "stdio"), (("SAMPLE_SESSION", "session.jsonl"),))
    again = {'"id":2': [line(id=2, result={"protocolVersion": 1})], '"id":3': [line(id=3, result={"sessionId": "b"})]}
    async with started(house, agent(then=again), mcp_servers=[server]) as client:
        await client.start()
    expected = (
        b'"mcpServers":[{"name":"sample","command":"/bin/sample-mcp","args":["serve","stdio"],'
        b'"env":[{"name":"SAMPLE_SESSION","value":"[redacted]"}]}]'
    )
    opening = [said for said in house.said(client) if b"session/new" in said]
    assert [expected in said for said in opening] == [True, True]


async def test_ty35_ty65_request_ids_count_from_zero_for_life(house: House) -> None:
    """`initialize` 0, `session/new` 1, the first prompt 2; logins and capabilities are kept, by either spelling."""
    hello = {
        "agentCapabilities": {"loadSession": True, "promptCapabilities": {"image": True, "embeddedContent": True}},
        "authMethods": [{"id": "token"}],
    }
    async with started(house, agent(end(), initialize=hello)) as client:
        await client.prompt("go", EmbeddedText("file:///x", "y"), Image("AA==", "image/png"))
        assert client.initialize is not None
        assert [each["id"] for each in client.initialize["auth_methods"]] == ["token"]
        assert client.initialize["capabilities"]["loadSession"] is True
    assert [json.loads(said)["id"] for said in house.said(client)] == [0, 1, 2]


async def test_ty36_prompt_before_the_start_fails(house: House) -> None:
    """Nothing is sent."""
    async with opened(house, agent(end())) as client:
        assert (await failed(client)).kind == "usage"
    assert house.said(client) == []


async def test_ty37_answers_to_the_opening_are_kept(house: House) -> None:
    """Version, and the modes of the session."""
    modes = {"currentModeId": "plan", "availableModes": [{"id": "plan", "name": "Plan"}, {"id": "act", "name": "Act"}]}
    async with started(house, agent(opened={"modes": modes})) as client:
        assert client.initialize is not None
        assert client.initialize["protocol_version"] == 1
        assert client.modes == {
            "current": "plan",
            "available": [{"id": "plan", "name": "Plan"}, {"id": "act", "name": "Act"}],
        }


async def test_ty38_latest_error_of_the_agent_stays_readable(house: House) -> None:
    """A success leaves it, and so does an error whose message cannot be read; a later one takes its place."""
    answers = {
        '"one"': [line(id=2, error={"code": -1, "message": "first"})],
        '"two"': [line(id=3, result={"stopReason": "end_turn"})],
        '"three"': [line(id=4, error={"code": -1, "message": 7})],
        '"four"': [line(id=5, error={"code": -1, "message": "second"})],
    }
    seen: list[str | None] = []
    async with started(house, agent(then=answers)) as client:
        assert client.agent_error is None
        for word in ("one", "two", "three", "four"):
            await client.prompt_detailed(word)
            seen.append(client.agent_error)
    assert seen == ["first", "first", "first", "second"]


async def test_ty39_ty69_limit_too_large_to_hold_is_refused_and_nothing_is_started(
    house: House, tmp_path: Path
) -> None:
    """The command is never run; one that cannot be run is told as such."""
    ran = tmp_path / "ran"
    with pytest.raises(UsageError, match="cannot be held"):
        async with opened(house, ["/bin/sh", "-c", f"touch {ran}"], limits=Limits(line_bytes=2**53 - 1)):
            raise AssertionError
    assert not ran.exists()


async def test_ty40_ty42_stop_sends_no_message_and_a_later_call_fails_at_once(house: House) -> None:
    """Leaving the block ends the agent; stopping what is gone does nothing."""
    async with started(house, agent()) as client:
        pid = client.pid
        await client.stop()
        await client.stop()
        assert not is_alive(pid)
        assert (await failed(client)).kind == "stopped"
    assert len(house.said(client)) == 2
    async with started(house, agent()) as client:
        pid = client.pid
    assert not is_alive(pid)
    assert len(house.said(client)) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (line(id=0, error={"code": -32603, "message": "no model"}), "agent_error", "no model"),
        (line(id=0, error={"code": -32000, "message": "log in"}), "auth_required", "log in"),
        (line(id=0, result={"protocolVersion": 2}), "protocol_error", "version 2"),
        (line(id=0, result={}), "protocol_error", "protocolVersion"),
        (line(id=0, result=7), "protocol_error", "initialize"),
    ],
)
async def test_ty43_bad_answer_to_initialize_fails_the_start(house: House, answer: str, kind: str, words: str) -> None:
    """Another version, an error or nonsense; the agent's own message is kept."""
    async with opened(house, agent(answers={"initialize": answer})) as client:
        with pytest.raises(CallFailed, match=words) as caught:
            await client.start()
        assert caught.value.kind == kind
        assert client.agent_error == (
            "no model" if kind == "agent_error" else "log in" if kind == "auth_required" else None
        )
    assert json.loads(house.said(client)[0])["params"]["clientCapabilities"] == {}


async def test_ty44_start_again_replaces_the_session_and_a_failed_one_does_not(house: House) -> None:
    """Both requests are sent again; numbers go on."""
    answers = {
        '"id":2': [line(id=2, result={"protocolVersion": 1})],
        '"id":3': [line(id=3, result={"sessionId": "second"})],
        '"id":4': [line(id=4, result={"protocolVersion": 1})],
        '"id":5': [line(id=5, error={"code": -1, "message": "no more"})],
    }
    async with started(house, agent(then=answers)) as client:
        assert client.acp_session_id == SESSION
        await client.start()
        assert client.acp_session_id == "second"
        with pytest.raises(CallFailed, match="no more"):
            await client.start()
        assert client.acp_session_id == "second"
    assert [json.loads(said)["id"] for said in house.said(client)] == [0, 1, 2, 3, 4, 5]


async def test_ty45_prompt_gives_text_and_detailed_gives_the_rest(house: House) -> None:
    """Text alone where the turn completed; stop reason and overflow besides."""
    second = {'"again"': [chunk("b"), end("max_tokens", id_=3)], '"more"': [chunk("c"), end("refusal", id_=4)]}
    async with started(house, agent(chunk("a"), end(), then=second)) as client:
        assert await client.prompt("go") == "a"
        record = await client.prompt_detailed("again")
        assert (record.text, record.stop_reason, record.overflow) == ("b", "max_tokens", None)
        with pytest.raises(PromptFailed) as caught:
            await client.prompt("more")
        assert (caught.value.outcome, caught.value.record.text) == ("refused", "c")


async def test_ty47_ty48_error_wins_and_a_missing_word_is_a_protocol_error(house: House) -> None:
    """An error beside a result failed; a session without an id, a turn without a stop reason, is nonsense."""
    both = line(id=2, error={"code": -1, "message": "x"}, result={"stopReason": "end_turn"})
    lacking = {'"again"': [line(id=3, result={})], '"more"': [line(id=4)]}
    async with started(house, agent(both, then=lacking)) as client:
        assert (await client.prompt_detailed("go")).outcome == "failed"
        assert (await client.prompt_detailed("again")).outcome == "protocol_error"
        assert (await client.prompt_detailed("more")).outcome == "protocol_error"
    async with opened(house, agent(answers={"session/new": line(id=1, result={})})) as client:
        with pytest.raises(CallFailed, match="names no session"):
            await client.start()


async def test_ty49_requests_have_the_protocols_shape(house: House, tmp_path: Path) -> None:
    """Byte for byte."""
    info = ClientInfo("acp-test", "acp-test", "1.0.0")
    async with started(house, agent(end()), client=info, cwd=tmp_path) as client:
        await client.prompt("hi")
    assert b"\n".join(house.said(client)).decode() == (
        '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{},'
        '"clientInfo":{"name":"acp-test","title":"acp-test","version":"1.0.0"}}}\n'
        f'{{"jsonrpc":"2.0","id":1,"method":"session/new","params":{{"cwd":"{tmp_path}","mcpServers":[]}}}}\n'
        '{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"acp-test",'
        '"prompt":[{"type":"text","text":"hi"}]}}'
    )


ALL_BLOCKS = {"promptCapabilities": {"image": True, "audio": True, "embeddedContext": True}}


async def test_ty50_ty64_six_kinds_of_blocks_without_what_is_empty(house: House) -> None:
    """In order, byte for byte."""
    blocks: list[Block] = [
        Text("hello"),
        EmbeddedText("file:///tmp/context.zig", "const answer = 42;", "text/zig"),
        ResourceLink("file:///tmp/notes.md", "notes.md", "text/markdown", "Notes", "user notes", 12),
        Image("AA==", "image/png"),
        Audio("AA==", "audio/wav", "file:///a.wav"),
        EmbeddedBlob("file:///b", "AA=="),
        ResourceLink("file:///c", "c"),
    ]
    async with started(house, agent(end(), initialize={"agentCapabilities": ALL_BLOCKS})) as client:
        await client.prompt(*blocks)
    prompt = house.said(client)[-1]
    assert prompt.partition(b'"prompt":')[2] == (
        b'[{"type":"text","text":"hello"},{"type":"resource","resource":{"uri":"file:///tmp/context.zig",'
        b'"text":"const answer = 42;","mimeType":"text/zig"}},{"type":"resource_link","uri":"file:///tmp/notes.md",'
        b'"name":"notes.md","mimeType":"text/markdown","title":"Notes","description":"user notes","size":12},'
        b'{"type":"image","mimeType":"image/png","data":"AA=="},'
        b'{"type":"audio","mimeType":"audio/wav","data":"AA==","uri":"file:///a.wav"},'
        b'{"type":"resource","resource":{"uri":"file:///b","blob":"AA=="}},'
        b'{"type":"resource_link","uri":"file:///c","name":"c"}]}}'
    )
    async with started(house, agent(end())) as client:
        assert "image" in (await failed(client, blocks[3])).message
        await client.prompt(blocks[0], blocks[2])


@pytest.mark.parametrize(
    "params", [{}, {"sessionId": 7, "update": {}}, {"sessionId": "s"}, {"sessionId": "s", "update": {}}]
)
async def test_ty56_malformed_update_takes_a_number_and_fails_the_call(house: House, params: dict[str, Any]) -> None:
    """The frame is kept; the observer does not hear it."""
    journal = Journal()
    async with started(house, agent(line(method="session/update", params=params), end()), observer=journal) as client:
        assert "malformed" in (await failed(client)).message
    assert journal.updates == []
    assert [row[0] for row in house.rows(client, "SELECT update_sequence FROM frames") if row[0]] == [1]


async def test_ty57_question_without_an_id_is_a_protocol_error(house: House) -> None:
    """Nothing could answer it."""
    asking = json.loads(question())
    del asking["id"]
    async with started(house, agent(json.dumps(asking), end())) as client:
        assert (await failed(client)).kind == "protocol_error"


async def test_ty9_ty59_ty72_overflow_names_what_was_admitted_and_what_not(house: House) -> None:
    """Two bytes in one chunk are kept, the second update is left out, one cancel is sent, and the end is awaited."""
    journal = Journal()
    command = agent(chunk("ok"), chunk("toolong"), then={"session/cancel": [end("cancelled")]})
    async with started(house, command, limits=Limits(response_bytes=4), observer=journal) as client:
        record = await client.prompt_detailed("go")
    assert (record.text, record.stop_reason, len(journal.updates)) == ("ok", "cancelled", 2)
    assert record.overflow is not None
    assert vars(record.overflow) == {
        "kind": "response_bytes",
        "admitted_bytes": 2,
        "admitted_segments": 1,
        "withheld_update_sequence": 2,
    }
    assert sum(b"session/cancel" in said for said in house.said(client)) == 1


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


async def test_ty70_line_over_the_limit_stops_the_reading_for_good(house: House) -> None:
    """No update is told, and the reader says so: 32, 33, 33, 32, 1, terminal."""
    journal = Journal()
    command = ["/bin/sh", "-c", f"while IFS= read -r line; do printf '%s\\n' '{chunk('oversized')}'; done"]
    async with opened(house, command, limits=Limits(line_bytes=32), observer=journal) as client:
        with pytest.raises(CallFailed) as caught:
            await client.start()
        status = await client.reader_status()
    assert (caught.value.kind, journal.heard) == ("limit", [])
    assert vars(status) == {
        "limit": 32,
        "storage": 33,
        "buffered": 33,
        "high_water": 32,
        "rejected": 1,
        "phase": "steady",
        "terminal": True,
    }


async def test_ty71_oversized_request_is_refused_before_it_is_sent(house: House) -> None:
    """The agent hears nothing of it."""
    async with started(house, agent(end("forwarded")), limits=Limits(request_bytes=512)) as client:
        assert (await failed(client, "x" * 1024)).kind == "limit"
    assert len(house.said(client)) == 2


async def test_ty11_ty61_ty73_agent_is_a_group_of_its_own_and_term_ignored_does_not_help(
    house: House, tmp_path: Path
) -> None:
    """Nothing of it is alive after the stop, also not what ignored TERM, left the group or holds the output open."""
    left = tmp_path / "left"
    before = f"trap '' TERM; (trap '' TERM; setsid sh -c 'echo $$ > {left}; exec sleep 60') & sleep 60 &"
    async with started(house, agent(before=before)) as client:
        assert os.getpgid(client.pid) == client.pid
        await until(lambda: left.exists() and left.read_text().strip())
        pids = [client.pid, int(left.read_text())]
        await client.stop()
        assert not [pid for pid in pids if is_alive(pid)]
