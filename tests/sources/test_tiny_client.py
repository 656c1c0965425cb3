"""Behaviours of a small ACP client, each on ours: how it is opened, what it sends, and how it ends."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger.client import (
    Audio,
    Block,
    CallFailed,
    ClientInfo,
    EmbeddedBlob,
    EmbeddedText,
    Image,
    Limits,
    McpServer,
    PromptFailed,
    ResourceLink,
    Text,
)
from acp_ledger.errors import LedgerError, UsageError
from tests.daemon.house import is_alive, until
from tests.sources.callers import Journal, failed, opened, started
from tests.support.shell_agents import SESSION, agent, chunk, end, line

if TYPE_CHECKING:
    from tests.sources.conftest import House

MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask first"}, {"id": "code", "name": "Code"}]}
NO_CAPABILITY: dict[str, Any] = {"protocolVersion": 1}


def written(path: Path) -> str:
    """What an agent has written by now; nothing before its last word, a full stop."""
    text = path.read_text() if path.exists() else ""
    return text if text.endswith(".") else ""


# ---- the terms


async def test_ty8_epoch_is_the_callers_never_zero_and_recorded_before_the_agent_starts(house: House) -> None:
    """It stands on every update, cannot be used twice, and is used up by an agent that never started."""
    journal = Journal()
    async with started(house, agent(chunk("a"), end()), epoch=77, observer=journal) as client:
        await client.prompt("go")
    assert {each.epoch for each in journal.updates} == {client.epoch} == {77}
    with pytest.raises(LedgerError):
        async with opened(house, ["/no/such/agent"], epoch=78):
            raise AssertionError
    for epoch, error in ((0, UsageError), (77, LedgerError), (78, LedgerError)):
        with pytest.raises(error, match="epoch"):
            async with opened(house, agent(), epoch=epoch):
                raise AssertionError
    assert house.query("SELECT epoch FROM transports WHERE epoch IN (0, 77, 78) ORDER BY id") == [(77,), (78,)]


async def test_ty12_client_info_is_configurable_and_has_defaults(house: House) -> None:
    """Name, title and version, in the first message."""
    own = {"name": "n", "title": "t", "version": "9"}
    default = {"name": "acp-ledger", "title": "acp-ledger", "version": version("acp-ledger")}
    for given, expected in ((None, default), (ClientInfo(**own), own)):
        async with started(house, agent(), client=given) as client:
            pass
        assert json.loads(house.said(client)[0])["params"]["clientInfo"] == expected


async def test_ty20_agent_gets_its_arguments_and_its_session_its_directory(house: House, tmp_path: Path) -> None:
    """The directory is the process's and the session's; without one it is ours."""
    code = "import json,os,sys; open(sys.argv[1],'w').write(json.dumps([sys.argv[2:],os.getcwd()])+'.')"
    for cwd in (tmp_path, None):
        path = tmp_path / f"given-{cwd is None}"
        async with opened(house, [sys.executable, "-c", code, str(path), "b c", ""], cwd=cwd):
            await until(partial(written, path))
        where = str(cwd or Path.cwd())
        assert json.loads(written(path)[:-1]) == [["b c", ""], where]
        async with started(house, agent(), cwd=cwd) as client:
            pass
        assert json.loads(house.said(client)[1])["params"]["cwd"] == where


async def test_ty21_tool_servers_are_told_at_each_start(house: House) -> None:
    """The same ones, in order."""
    servers = [McpServer("one", "/bin/one"), McpServer("two", "/bin/two", ("x",))]
    again = {'"id":2': [line(id=2, result=NO_CAPABILITY)], '"id":3': [line(id=3, result={"sessionId": "b"})]}
    async with started(house, agent(then=again), mcp_servers=servers) as client:
        await client.start()
    told = [json.loads(said)["params"]["mcpServers"] for said in house.said(client) if b"session/new" in said]
    assert [[server["name"] for server in each] for each in told] == [["one", "two"]] * 2


async def test_ty24_agent_gets_the_environment_it_is_given_or_ours(house: House, tmp_path: Path) -> None:
    """One that is given is all there is, beside the ledger's own mark."""
    code = "import os,sys; open(sys.argv[1],'w').write(' '.join(sorted(os.environ))+'.')"
    ours = {"ACP_LEDGER_TRANSPORT", "LC_CTYPE"}
    for env in ({"ONLY": "this"}, None):
        path = tmp_path / f"given-{env is None}"
        async with opened(house, [sys.executable, "-c", code, str(path)], env=env):
            await until(partial(written, path))
        names = set(written(path)[:-1].split())
        assert names - ours == set(os.environ if env is None else env) - ours


async def test_ty25_environment_of_a_tool_server_is_a_list_of_names_and_values(house: House, tmp_path: Path) -> None:
    """The agent hears the values, the ledger does not keep them, and the agent's own environment has none of it."""
    heard = tmp_path / "heard"
    server = McpServer("s", "/bin/s", (), (("A", "1"), ("B", "")))
    async with started(house, agent(heard=heard), mcp_servers=[server]) as client:
        pass
    (told,) = json.loads(heard.read_text().splitlines()[1])["params"]["mcpServers"]
    assert told["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": ""}]
    assert b'{"name":"A","value":"[redacted]"}' in house.said(client)[1]


async def test_ty39_terms_are_looked_at_before_the_agent_starts(house: House, tmp_path: Path) -> None:
    """Limits and epoch first, then the command; one that cannot be run is told as such."""
    ran = tmp_path / "ran"
    touch = ["/bin/sh", "-c", f"touch {ran}"]
    terms: list[dict[str, Any]] = [{"limits": Limits(update_count=0)}, {"epoch": 0}, {"epoch": 2**53}]
    for given in terms:
        with pytest.raises(UsageError):
            async with opened(house, touch, **given):
                raise AssertionError
    assert not ran.exists()
    with pytest.raises(LedgerError, match="/no/such/agent"):
        async with opened(house, ["/no/such/agent"]):
            raise AssertionError


async def test_ty74_tool_server_as_json(house: House, tmp_path: Path) -> None:
    """Name, command, arguments and environment as the protocol writes them, byte for byte."""
    heard = tmp_path / "heard"
    server = McpServer("files", "/opt/mcp/files", ("--root", "/srv"), (("FILES_TOKEN", "s3cret"),))
    async with started(house, agent(heard=heard), mcp_servers=[server]):
        pass
    assert (
        '"mcpServers":[{"name":"files","command":"/opt/mcp/files","args":["--root","/srv"],'
        '"env":[{"name":"FILES_TOKEN","value":"s3cret"}]}]}'
    ) in heard.read_text()


# ---- starting


async def test_ty34_order_is_open_start_prompts_end(house: House) -> None:
    """Nothing is said before the start, and nothing after the last prompt."""
    second = {'"again"': [end(id_=3)]}
    async with opened(house, agent(end(), then=second)) as client:
        assert house.said(client) == []
        await client.start()
        await client.prompt("go")
        await client.prompt("again")
    methods = [json.loads(said)["method"] for said in house.said(client)]
    assert methods == ["initialize", "session/new", "session/prompt", "session/prompt"]
    assert not is_alive(client.pid)


async def test_ty35_request_ids_count_from_zero_for_life(house: House) -> None:
    """`initialize` 0, `session/new` 1, the first prompt 2."""
    async with started(house, agent(end(), then={'"again"': [end(id_=3)]})) as client:
        await client.prompt("go")
        await client.prompt("again")
    assert [json.loads(said)["id"] for said in house.said(client)] == [0, 1, 2, 3]


async def test_ty36_prompt_before_the_start_fails(house: House) -> None:
    """Nothing is sent."""
    async with opened(house, agent(end())) as client:
        assert (await failed(client)).kind == "usage"
    assert house.said(client) == []


async def test_ty37_answers_to_the_opening_are_kept(house: House) -> None:
    """Version, agent and capabilities, and the modes of the session; none where it tells none."""
    hello = {"agentInfo": {"name": "shell", "version": "1"}, "agentCapabilities": {"loadSession": True}}
    async with started(house, agent(initialize=hello, opened={"modes": MODES})) as client:
        assert client.initialize is not None
        assert client.initialize["protocol_version"] == 1
        assert client.initialize["agent_info"] == {"name": "shell", "version": "1"}
        assert client.initialize["capabilities"] == {"loadSession": True}
        assert client.modes == {"current": MODES["currentModeId"], "available": MODES["availableModes"]}
    async with started(house, agent()) as client:
        assert client.modes is None


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


@pytest.mark.parametrize(
    ("answer", "kind", "words", "kept"),
    [
        (line(id=0, error={"code": -32603, "message": "no model"}), "agent_error", "no model", "no model"),
        (line(id=0, error={"code": -32000, "message": "log in"}), "auth_required", "log in", "log in"),
        (line(id=0, result={"protocolVersion": 2}), "protocol_error", "version 2", None),
        (line(id=0, result={}), "protocol_error", "protocolVersion", None),
        (line(id=0, result=7), "protocol_error", "initialize", None),
    ],
)
async def test_ty43_bad_answer_to_initialize_fails_the_start(
    house: House, answer: str, kind: str, words: str, kept: str | None
) -> None:
    """Another version, an error or nonsense; the agent's own message is kept, and no session asked for."""
    async with opened(house, agent(answers={"initialize": answer})) as client:
        with pytest.raises(CallFailed, match=words) as caught:
            await client.start()
        assert (caught.value.kind, client.agent_error) == (kind, kept)
    (asked,) = map(json.loads, house.said(client))
    assert (asked["params"]["protocolVersion"], asked["params"]["clientCapabilities"]) == (1, {})


async def test_ty44_start_again_replaces_answer_session_and_modes_and_a_failed_one_does_not(house: House) -> None:
    """Both requests are sent again; numbers and epoch go on."""
    hello = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
    answers = {
        '"id":2': [line(id=2, result=hello)],
        '"id":3': [line(id=3, result={"sessionId": "second", "modes": MODES})],
        '"id":4': [line(id=4, result=NO_CAPABILITY)],
        '"id":5': [line(id=5, error={"code": -1, "message": "no more"})],
        '"id":6': [end(id_=6)],
    }
    async with started(house, agent(then=answers)) as client:
        assert (client.acp_session_id, client.modes) == (SESSION, None)
        epoch = client.epoch
        await client.start()
        assert client.initialize is not None
        assert (client.acp_session_id, client.initialize["capabilities"]) == ("second", {"loadSession": True})
        with pytest.raises(CallFailed, match="no more"):
            await client.start()
        assert (client.acp_session_id, client.modes and client.modes["current"]) == ("second", "ask")
        assert client.initialize["capabilities"] == {}
        await client.prompt("go")
        assert client.epoch == epoch
    said = [json.loads(each) for each in house.said(client)]
    assert [each["id"] for each in said] == [0, 1, 2, 3, 4, 5, 6]
    assert said[-1]["params"]["sessionId"] == "second"


async def test_ty65_logins_and_capabilities_are_read_by_either_spelling(house: House) -> None:
    """`embeddedContent` lets embedded blocks pass, as the schema's own word does."""
    capabilities = {"loadSession": True, "promptCapabilities": {"image": True, "embeddedContent": True}}
    hello = {"agentCapabilities": capabilities, "authMethods": [{"id": "token"}]}
    async with started(house, agent(end(), initialize=hello)) as client:
        await client.prompt("go", EmbeddedText("file:///x", "y"), Image("AA==", "image/png"))
        assert client.initialize is not None
        assert [each["id"] for each in client.initialize["auth_methods"]] == ["token"]
        assert client.initialize["capabilities"] == capabilities


# ---- prompts


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


async def test_ty47_error_member_wins_over_a_result(house: House) -> None:
    """With both in one answer the turn failed, and so does an opening."""
    error = {"code": -1, "message": "x"}
    both = line(id=2, error=error, result={"stopReason": "end_turn"})
    async with started(house, agent(both)) as client:
        record = await client.prompt_detailed("go")
        assert (record.outcome, record.error_code, client.agent_error) == ("failed", -1, "x")
    session = line(id=1, error=error, result={"sessionId": "s"})
    async with opened(house, agent(answers={"session/new": session})) as client:
        with pytest.raises(CallFailed, match="x"):
            await client.start()
        assert client.acp_session_id is None


async def test_ty48_no_session_id_and_no_stop_reason_are_protocol_errors(house: House) -> None:
    """An answer that lacks what it must have is never guessed at."""
    then = {'"again"': [line(id=3, result={"stopReason": 7})]}
    async with started(house, agent(line(id=2, result={}), then=then)) as client:
        assert (await client.prompt_detailed("go")).outcome == "protocol_error"
        assert (await client.prompt_detailed("again")).outcome == "protocol_error"
    for result in ({}, {"sessionId": 7}):
        async with opened(house, agent(answers={"session/new": line(id=1, result=result)})) as client:
            with pytest.raises(CallFailed, match="names no session") as caught:
                await client.start()
            assert caught.value.kind == "protocol_error"


async def test_ty49_requests_have_the_protocols_shape(house: House, tmp_path: Path) -> None:
    """Byte for byte."""
    info = ClientInfo("nightly", "Nightly run", "3.2")
    async with started(house, agent(end()), client=info, cwd=tmp_path) as client:
        await client.prompt("hi")
    assert b"\n".join(house.said(client)).decode() == (
        '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{},'
        '"clientInfo":{"name":"nightly","title":"Nightly run","version":"3.2"}}}\n'
        f'{{"jsonrpc":"2.0","id":1,"method":"session/new","params":{{"cwd":"{tmp_path}","mcpServers":[]}}}}\n'
        '{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"shell-1",'
        '"prompt":[{"type":"text","text":"hi"}]}}'
    )


@pytest.mark.parametrize(
    ("block", "sent"),
    [
        (Text(""), '{"type":"text","text":""}'),
        (Image("AA==", "image/png"), '{"type":"image","mimeType":"image/png","data":"AA=="}'),
        (
            Audio("AA==", "audio/wav", "file:///a.wav"),
            '{"type":"audio","mimeType":"audio/wav","data":"AA==","uri":"file:///a.wav"}',
        ),
        (EmbeddedText("file:///t", "y"), '{"type":"resource","resource":{"uri":"file:///t","text":"y"}}'),
        (EmbeddedBlob("file:///b", "AA=="), '{"type":"resource","resource":{"uri":"file:///b","blob":"AA=="}}'),
        (ResourceLink("file:///c", "c"), '{"type":"resource_link","uri":"file:///c","name":"c"}'),
    ],
)
def test_ty50_six_kinds_of_blocks_leave_out_what_is_empty(block: Block, sent: str) -> None:
    """Required members stay, empty or not."""
    assert json.dumps(block.to_json(), separators=(",", ":")) == sent


async def test_ty64_blocks_are_sent_in_order_byte_for_byte(house: House) -> None:
    """A text, an embedded text and a link with all its members; what was not advertised is an error."""
    blocks: list[Block] = [
        Text("hello"),
        EmbeddedText("file:///srv/lib/sum.py", "def sum(): ...", "text/x-python"),
        ResourceLink("file:///srv/TODO.md", "TODO.md", "text/markdown", "To do", "what is left", 9),
    ]
    capabilities = {"promptCapabilities": {"embeddedContext": True}}
    async with started(house, agent(end(), initialize={"agentCapabilities": capabilities})) as client:
        assert "image" in (await failed(client, Image("AA==", "image/png"))).message
        await client.prompt(*blocks)
    assert house.said(client)[-1].partition(b'"prompt":')[2] == (
        b'[{"type":"text","text":"hello"},{"type":"resource","resource":{"uri":"file:///srv/lib/sum.py",'
        b'"text":"def sum(): ...","mimeType":"text/x-python"}},{"type":"resource_link","uri":"file:///srv/TODO.md",'
        b'"name":"TODO.md","mimeType":"text/markdown","title":"To do","description":"what is left","size":9}]}}'
    )


# ---- the end


async def test_ty11_agent_leads_a_group_that_hears_term_before_it_dies(house: House, tmp_path: Path) -> None:
    """What it started is in the group, and gone with it."""
    child, heard = tmp_path / "child", tmp_path / "heard"
    code = f"trap 'printf term. > {heard}; exit 0' TERM; sleep 60 & printf '%s.' $! > {child}; wait"
    async with opened(house, ["/bin/sh", "-c", code]) as client:
        await until(lambda: written(child))
        pids = [client.pid, int(written(child)[:-1])]
        assert [os.getpgid(pid) for pid in pids] == [client.pid] * 2
        await client.stop()
        assert [is_alive(pid) for pid in pids] == [False, False]
    assert written(heard) == "term."


async def test_ty40_end_sends_no_message_and_waits_for_the_group(house: House, tmp_path: Path) -> None:
    """When the block is left nothing runs any more, and the agent heard nothing but its opening."""
    heard = tmp_path / "heard"
    async with started(house, agent(heard=heard)) as client:
        pass
    assert not is_alive(client.pid)
    assert [json.loads(said)["method"] for said in heard.read_text().splitlines()] == ["initialize", "session/new"]


async def test_ty42_hard_stop_sends_nothing_again_does_nothing_and_later_calls_fail(
    house: House, tmp_path: Path
) -> None:
    """Also in the middle of a prompt, which then fails as stopped."""
    heard = tmp_path / "heard"

    async def stop() -> None:
        """Stop it while its update waits to be heard."""
        await client.stop()

    async with started(house, agent(chunk("a"), heard=heard), observer=Journal(meanwhile=stop)) as client:
        assert (await failed(client)).kind == "stopped"
        await client.stop()
        assert (await failed(client)).kind == "stopped"
        with pytest.raises(CallFailed):
            await client.start()
    assert not is_alive(client.pid)
    assert "session/cancel" not in heard.read_text()


async def test_ty61_process_is_signalled_alone_where_its_group_cannot_be(house: House, tmp_path: Path) -> None:
    """One that gave its group up, for its child's, hears TERM all the same."""
    ready, heard = tmp_path / "ready", tmp_path / "heard"
    code = f"""
import os, signal, time
child = os.fork()
if child == 0:
    signal.pause()
signal.signal(signal.SIGTERM, lambda *_: (open({str(heard)!r}, "w").write("term."), os._exit(0)))
os.setpgid(child, child)
os.setpgid(0, child)
open({str(ready)!r}, "w").write(f"{{child}}.")
while True:
    signal.pause()
"""
    async with opened(house, [sys.executable, "-ISc", code]) as client:
        await until(lambda: written(ready))
        assert os.getpgid(client.pid) != client.pid
        await client.stop()
    assert (written(heard), is_alive(client.pid), is_alive(int(written(ready)[:-1]))) == ("term.", False, False)


async def test_ty73_agent_that_ignores_term_is_gone_all_the_same(house: House, tmp_path: Path) -> None:
    """And so is what ignored it, too, left the group, or holds its output open."""
    left = tmp_path / "left"
    before = f"trap '' TERM; setsid sh -c 'printf %s. $$ > {left}; exec sleep 60' & sleep 60 & exec 3>&1"
    async with started(house, agent(before=before)) as client:
        await until(lambda: written(left))
        pids = [client.pid, int(written(left)[:-1])]
        assert [is_alive(pid) for pid in pids] == [True, True]
        await client.stop()
        assert [is_alive(pid) for pid in pids] == [False, False]
