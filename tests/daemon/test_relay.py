"""One connection from end to end: a real daemon, a real agent, a real ledger."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import trio

from tests.daemon.house import (
    AGENT,
    PROMPT,
    House,
    assert_verified,
    greeting,
    is_alive,
    open_house,
    request,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path


async def test_lines_pass_byte_for_byte(house: House, tmp_path: Path) -> None:
    """Whatever bytes an editor sends, the agent gets them, and they are stored as they came."""
    sent = b'{"a":1}\r\n\n{ "id" : 1.0 }\n\xff\xfe\n{"id":1,"id":2}\nno newline'
    async with house.editor(greeting(["collect", str(tmp_path / "got")]) + sent) as editor:
        await editor.end()
        assert (await editor.rest()).status == 0
    assert (tmp_path / "got").read_bytes() == sent
    assert b"\n".join(house.bodies("client_to_agent")) == sent


async def test_agent_output_passes_byte_for_byte(house: House) -> None:
    """Whatever bytes an agent sends, the editor gets them, and they are stored as they came."""
    sent = '{"b":2}\r\n\n\x00\x1f\n{"method":"x"}\nlast words'
    heard = await house.session(["raw", sent])
    assert heard.output == sent.encode()
    assert b"\n".join(house.bodies("agent_to_client")) == sent.encode()


async def test_events_frame_a_session(house: House) -> None:
    """The ledger tells when a connection opened, what was started, how it ended and how far it was delivered."""
    heard = await house.session(["send", "{}"], ["leave", 3])
    await house.quiet()
    assert heard.status == 3
    assert house.events() == ["opened", "spawned", "eof", "exited", "closed"]
    assert house.rows("SELECT close_reason FROM transport_events WHERE event = 'closed'")[0][0] == "agent_ended"
    assert list(house.rows("SELECT direction, through_frame_seq FROM deliveries")) == [("agent_to_client", 3)]


async def test_signal_becomes_a_status(sqlite_house: House) -> None:
    """An agent that died of a signal gives the editor 128 and its number, as a shell does."""
    assert (await sqlite_house.session(["die", "SIGKILL"])).status == 137
    assert sqlite_house.rows("SELECT status, signal FROM transport_events WHERE event = 'exited'")[0] == (None, 9)


async def test_dead_agent_leaves_an_error_for_each_open_request(house: House) -> None:
    """An editor that still waits gets an error under each of its ids, recorded before it was sent."""
    asked = request('"a"', "session/prompt", sessionId="s", prompt=[]) + request("1.0", "session/list")
    heard = await house.session(["wait", "prompt"], ["wait", "list"], ["leave", 4], say=asked)
    assert [line["id"] for line in heard.lines] == ["a", 1.0]
    assert b'"id":1.0' in heard.output
    assert all(line["error"]["code"] == -32603 for line in heard.lines)
    assert "exit status 4" in heard.lines[0]["error"]["message"]
    assert heard.lines[0]["error"]["data"]["reason"] == "agent_ended"
    await house.quiet()
    stored = house.rows("SELECT body FROM frames WHERE origin = 'daemon' ORDER BY frame_seq")
    assert b"".join(bytes(row[0]) + b"\n" for row in stored) == heard.output
    assert house.rows("SELECT outcome FROM turn_ends")[0][0] == "stream_ended"


async def test_agent_that_closes_its_output_is_ended(sqlite_house: House) -> None:
    """An agent that closes its stdout and stays is ended, and the editor does not wait for that."""
    heard = await sqlite_house.session(["wait", "prompt"], ["ignore", "SIGTERM"], ["shut", 1], ["stay"], say=PROMPT)
    assert "closed its output" in heard.lines[0]["error"]["message"]
    assert heard.status == 137


async def test_editor_that_ends_gets_the_rest_and_no_error(house: House) -> None:
    """After the editor's end of file what it still waits for stays without an answer."""
    async with house.editor(greeting(["wait", "prompt"], ["wait", "never"], ["leave", 0]) + PROMPT) as editor:
        await editor.end()
        heard = await editor.rest()
    assert (heard.output, heard.status) == (b"", 0)
    await house.quiet()
    assert house.events() == ["opened", "spawned", "eof", "eof", "exited", "closed"]


async def test_editor_end_lets_output_finish(sqlite_house: House) -> None:
    """What an agent says between the editor's end and its own is recorded and delivered."""
    steps: list[list[Any]] = [["echo"], ["send", "goodbye"], ["leave", 0]]
    async with sqlite_house.editor(greeting(*steps) + b"hello\n") as editor:
        await editor.end()
        assert (await editor.rest()).output == b"hello\ngoodbye\n"


async def test_agent_that_ignores_the_end_is_let_go_and_ended(sqlite_house: House, tmp_path: Path) -> None:
    """A runner is let go with 0 when the time is up, for the agent has no status yet; the agent is killed."""
    steps: list[list[Any]] = [["ignore", "SIGTERM"], ["note", str(tmp_path / "noted")], ["send", "ready"], ["stay"]]
    async with sqlite_house.editor(greeting(*steps)) as editor:
        await editor.hear(b"ready")
        await editor.end()
        assert (await editor.rest()).status == 0
    await sqlite_house.quiet()
    assert sqlite_house.rows("SELECT signal FROM transport_events WHERE event = 'exited'")[0][0] == 9


async def test_killed_runner_ends_the_agent(sqlite_house: House) -> None:
    """A runner that is killed sends no end of file; its socket closing is enough."""
    async with sqlite_house.editor(greeting(["send", "ready"], ["wait", "never"])) as editor:
        await editor.hear(b"ready")
    await sqlite_house.quiet()
    assert sqlite_house.events()[-1] == "closed"


async def test_killed_runner_is_seen_behind_unread_lines(tmp_path: Path) -> None:
    """The socket closing is acted upon although the agent takes nothing and the editor's lines wait unread."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    async with open_house(url, tmp_path) as house:
        async with house.editor(greeting(["send", "ready"], ["stay"])) as editor:
            await editor.hear(b"ready")
            with trio.move_on_after(1):
                while True:
                    await editor.say(b"x" * 65536 + b"\n")
        await house.quiet()
        assert house.events()[-1] == "closed"


async def test_oversize_line_ends_the_transport(ledger_url: str, tmp_path: Path) -> None:
    """A line past the limit is told of, never passed on, and ends the connection with an error that names the limit."""
    async with open_house(ledger_url, tmp_path, **{"limits.line_bytes": 1000}) as house:
        heard = await house.session(["wait", "prompt"], ["raw", "x" * 5000], ["stay"], say=PROMPT)
        await house.quiet()
        assert "limits.line_bytes (1000 bytes)" in heard.lines[0]["error"]["message"]
        assert b"xx" not in heard.output
        absent = house.rows("SELECT byte_count, delivery FROM frames WHERE body_state = 'absent'")
        assert absent[0].delivery == "withhold"
        assert absent[0].byte_count > 1000
        assert house.rows("SELECT close_reason FROM transport_events WHERE event = 'closed'")[0][0] == "line_too_long"


async def test_editor_oversize_line_is_answered(tmp_path: Path) -> None:
    """An editor whose line is too long gets an error without an id, for its own cannot be known."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    async with open_house(url, tmp_path, **{"limits.line_bytes": 1000}) as house:
        heard = await house.session(["stay"], say=b"y" * 2000)
        assert [line["id"] for line in heard.lines] == [None]


async def test_missing_command_is_127(house: House) -> None:
    """A command that does not exist ends as `env` would, with a sentence, and the ledger says that it did not start."""
    async with house.editor(greeting(argv=(b"no-such-agent",))) as editor:
        heard = await editor.rest()
    assert heard.status == 127
    assert "no-such-agent" in (heard.fatal or "")
    await house.quiet()
    assert house.events() == ["opened", "closed"]


async def test_unexecutable_command_is_126(sqlite_house: House, tmp_path: Path) -> None:
    """A file that cannot be executed ends as `env` would."""
    (tmp_path / "plain").write_text("no program")
    async with sqlite_house.editor(greeting(argv=(bytes(tmp_path / "plain"),))) as editor:
        assert (await editor.rest()).status == 126


async def test_missing_directory_is_named(sqlite_house: House) -> None:
    """A working directory that does not exist is what the sentence names, not the command."""
    async with sqlite_house.editor(greeting(["stay"], cwd=b"/no/such/place")) as editor:
        heard = await editor.rest()
    assert (heard.status, "/no/such/place" in (heard.fatal or "")) == (126, True)


async def test_agent_gets_what_the_editor_gave(sqlite_house: House, tmp_path: Path) -> None:
    """Arguments, directory, environment and umask are the editor's; descriptors are three; nothing is ours."""
    noted = tmp_path / "noted"
    env = {b"PATH": b"/usr/bin:/bin", b"ODD": b"\xff=\xfe", b"LC_ALL": b"C"}
    said = greeting(["note", str(noted)], cwd=bytes(tmp_path), env=env, umask=0o027)
    async with sqlite_house.editor(said) as editor:
        await editor.rest()
    given = json.loads(noted.read_text())
    transport_id = sqlite_house.rows("SELECT id FROM transports")[0][0]
    got = {
        key.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for key, value in given["env"].items()
    }
    assert got == {**env, b"ACP_LEDGER_TRANSPORT": b"%d" % transport_id}
    assert (given["cwd"], given["descriptors"], given["umask"], given["group"]) == (
        str(tmp_path),
        [0, 1, 2],
        0o027,
        True,
    )


async def test_environment_values_are_not_stored(house: House) -> None:
    """Names of variables are kept; no value gets anywhere near the ledger."""
    env = {b"PATH": b"/usr/bin:/bin", b"API_KEY": b"canary-4711"}
    async with house.editor(greeting(["leave", 0], env=env)) as editor:
        await editor.rest()
    await house.quiet()
    assert json.loads(house.rows("SELECT env_names FROM transports")[0][0]) == ["API_KEY", "PATH"]
    everything = repr(list(house.rows("SELECT * FROM transports"))) + repr(
        list(house.rows("SELECT * FROM transport_events"))
    )
    assert "canary" not in everything


async def test_stderr_is_passed_and_its_tail_kept(house: House) -> None:
    """An agent's stderr reaches the runner, never blocks the agent, and the ledger keeps its last words."""
    heard = await house.session(["stderr", "e" * 1000, 1000], ["stderr", "last words"], ["send", "done"])
    assert heard.output == b"done\n"
    assert heard.errors.startswith(b"eee")
    await house.quiet()
    tail = house.rows("SELECT stderr_tail FROM transport_events WHERE event = 'exited'")[0][0]
    assert tail.endswith("last words")
    assert len(tail) == 16384


async def test_unread_stderr_never_blocks_the_agent(sqlite_house: House) -> None:
    """An editor that reads nothing does not hold up an agent that complains a lot."""
    async with sqlite_house.editor(greeting(["stderr", "e" * 1000, 5000], ["leave", 9])) as editor:
        exited = "SELECT 1 FROM transport_events WHERE event = 'exited' AND status = 9"
        await until(lambda: sqlite_house.rows(exited))
        await editor.rest()


async def test_flood_in_one_direction_leaves_the_other_free(sqlite_house: House) -> None:
    """While nobody reads the agent's flood, its editor's lines still arrive and are recorded."""
    script: list[list[Any]] = [["send", "ready"], ["flood", 8_000, 1000], ["leave", 0]]
    async with sqlite_house.editor(greeting(*script)) as editor:
        await editor.hear(b"ready")
        await editor.say(b"over here\n")
        await until(lambda: b"over here" in sqlite_house.bodies("client_to_agent"))
        waiting = sqlite_house.rows("SELECT count(*) FROM frames WHERE direction = 'agent_to_client'")[0][0]
        assert waiting < 8_000, "the reader waits: its budget is full"
        heard = await editor.rest()
    assert heard.output.count(b"\n") == 8_001


async def test_named_agent_comes_from_the_settings(tmp_path: Path) -> None:
    """`--agent NAME` without a command starts what the settings say, with their variables beside the editor's."""
    noted = tmp_path / "noted"
    script = json.dumps([["note", str(noted)]])
    mine = {"command": sys.executable, "args": ["-I", str(AGENT), script], "env": {"KEY": "v"}}
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, agents={"mine": mine}) as house:
        async with house.editor(greeting(argv=(), agent=b"mine")) as editor:
            assert (await editor.rest()).status == 0
        assert house.rows("SELECT agent FROM transports")[0][0] == "mine"
        async with house.editor(greeting(argv=(), agent=b"other")) as editor:
            heard = await editor.rest()
    assert json.loads(noted.read_text())["env"]["KEY"] == "v"
    assert "no agent is named other" in (heard.fatal or "")
    assert "there are: mine" in (heard.fatal or "")


async def test_stop_ends_agents_and_tells_editors(house: House) -> None:
    """A daemon that is stopped ends its agents, answers who waits, and leaves no transport open."""
    async with house.editor(greeting(["wait", "prompt"], ["send", "ready"], ["stay"]) + PROMPT) as editor:
        await editor.hear(b"ready")
        pid = house.rows("SELECT pid FROM transport_events WHERE event = 'spawned'")[0][0]
        house.daemon.stop()
        heard = await editor.rest()
    assert "was stopped" in json.loads(heard.output.splitlines()[-1])["error"]["message"]
    await house.quiet()
    assert not is_alive(pid)
    assert house.events()[-1] == "closed"


async def test_client_that_gives_up_on_initialize_leaves_a_record(house: House, tmp_path: Path) -> None:
    """Impatient clients kill what does not answer in ten seconds: the request stays, unanswered, and the agent goes."""
    pid = tmp_path / "pid"
    hello = request("0", "initialize", protocolVersion=1)
    async with house.editor(greeting(["child", str(pid), {"setsid": True}], ["wait", "never"]) + hello):
        await until(lambda: house.bodies("client_to_agent") and pid.exists())
    await house.quiet()
    assert house.bodies("agent_to_client") == []
    assert house.rows("SELECT close_reason FROM transport_events WHERE event = 'closed'")[0][0] == "editor_ended"
    assert not is_alive(int(pid.read_text()))
    assert_verified(house.url)
