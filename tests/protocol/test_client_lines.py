"""The lines a client writes, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given

from acp_ledger.protocol.client_lines import (
    McpServer,
    cancel_line,
    initialize_line,
    not_found_line,
    prompt_line,
    reply_line,
    session_load_line,
    session_new_line,
    session_resume_line,
)
from acp_ledger.protocol.content import EmbeddedText, ResourceLink, Text
from acp_ledger.protocol.envelope import parse
from tests.protocol.wire import call
from tests.support.strategies import JSON_TEXT, ids

SERVER = McpServer("sample", "/bin/sample-mcp", ("serve", "stdio"), (("SAMPLE_SESSION", "session.jsonl"),))
SERVER_JSON = (
    '{"name":"sample","command":"/bin/sample-mcp","args":["serve","stdio"],'
    '"env":[{"name":"SAMPLE_SESSION","value":"session.jsonl"}]}'
)
BLOCKS = [
    Text("h\u00e9llo\u2028").to_json(),
    EmbeddedText("file:///tmp/a.zig", "const a = 42;", "text/zig").to_json(),
    ResourceLink("file:///tmp/n.md", "n.md", size=12).to_json(),
]


@pytest.mark.parametrize(
    ("line", "written"),
    [
        (
            initialize_line(0, "acp", "Acp", "1.0.0"),
            (
                '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{},'
                '"clientInfo":{"name":"acp","title":"Acp","version":"1.0.0"}}}'
            ),
        ),
        (
            session_new_line(1, "/src", []),
            '{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/src","mcpServers":[]}}',
        ),
        (
            session_new_line(1, "/src", [SERVER]),
            f'{{"jsonrpc":"2.0","id":1,"method":"session/new","params":{{"cwd":"/src","mcpServers":[{SERVER_JSON}]}}}}',
        ),
        (
            session_load_line(1, "s", "/src", []),
            '{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/src","mcpServers":[]}}',
        ),
        (
            session_resume_line(1, "s", "/src", [SERVER]),
            (
                '{"jsonrpc":"2.0","id":1,"method":"session/resume","params":{"sessionId":"s","cwd":"/src",'
                f'"mcpServers":[{SERVER_JSON}]}}}}'
            ),
        ),
        (
            prompt_line(2, "s", BLOCKS),
            (
                '{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":['
                '{"type":"text","text":"h\u00e9llo\u2028"},'
                '{"type":"resource","resource":{"uri":"file:///tmp/a.zig","text":"const a = 42;",'
                '"mimeType":"text/zig"}},'
                '{"type":"resource_link","uri":"file:///tmp/n.md","name":"n.md","size":12}]}}'
            ),
        ),
        (cancel_line("s"), '{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}'),
        (
            not_found_line('"a\u00e9"'),
            '{"jsonrpc":"2.0","id":"a\u00e9","error":{"code":-32601,"message":"method not found"}}',
        ),
        (
            reply_line("7", "selected", "yes"),
            '{"jsonrpc":"2.0","id":7,"result":{"outcome":{"outcome":"selected","optionId":"yes"}}}',
        ),
        (reply_line("7", "cancelled", ""), '{"jsonrpc":"2.0","id":7,"result":{"outcome":{"outcome":"cancelled"}}}'),
        (
            reply_line("null", "whatever", "x"),
            '{"jsonrpc":"2.0","id":null,"result":{"outcome":{"outcome":"whatever","optionId":"x"}}}',
        ),
    ],
)
def test_line_is_written_so(line: bytes, written: str) -> None:
    """The members come in one order, without spaces, in raw UTF-8."""
    assert line == written.encode()


@given(ids())
def test_any_id_is_echoed_as_it_was_written(id_: Any) -> None:
    """Whatever JSON value a question has for its id, the answers carry the same text."""
    asked = parse(call(id_, "session/request_permission"))
    assert asked.id_token is not None
    for line in (not_found_line(asked.id_token), reply_line(asked.id_token, "cancelled", "")):
        answer = parse(line)
        assert (answer.kind, answer.id_token, answer.id_key) == ("response", asked.id_token, asked.id_key)


@given(JSON_TEXT, JSON_TEXT, JSON_TEXT)
@example("\ud83d", "\\\udfff\n", "\x00")
def test_any_text_travels_on_one_line(session: str, words: str, name: str) -> None:
    """Lone surrogates, line ends and NUL are written so that a reader finds the same text."""
    server = McpServer(name, name, (words,), ((name, words),))
    for line in (
        prompt_line(2, session, [Text(words).to_json()]),
        session_load_line(1, session, words, [server]),
        cancel_line(session),
        reply_line("1", words, session),
        initialize_line(0, name, words, session),
    ):
        assert b"\n" not in line
        value = json.loads(line)
        assert value["jsonrpc"] == "2.0"
        assert parse(line).kind in ("request", "notification", "response")
    sent = json.loads(prompt_line(2, session, [Text(words).to_json()]))["params"]
    assert (sent["sessionId"], sent["prompt"][0]["text"]) == (session, words)
    assert McpServer.from_json(server.to_json()) == server if name else True


@pytest.mark.parametrize(
    ("value", "server"),
    [
        ({"name": "m", "command": "c"}, McpServer("m", "c")),
        ({"name": "m", "command": "c", "type": "stdio", "args": [], "env": []}, McpServer("m", "c")),
        ({"name": "m", "command": "c", "env": {"A": "1"}}, McpServer("m", "c", (), (("A", "1"),))),
        (json.loads(SERVER_JSON), SERVER),
    ],
)
def test_server_is_read(value: Any, server: McpServer) -> None:
    """Arguments and environment may be missing; an environment may be written as editors write it."""
    assert McpServer.from_json(value) == server


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["m"], "must be a JSON object"),
        ({"command": "c"}, "needs a `name`"),
        ({"name": "", "command": "c"}, "needs a `name`"),
        ({"name": "m"}, "`m` needs a `command`"),
        ({"name": "m", "command": 1}, "`m` needs a `command`"),
        ({"name": "m", "type": "http", "url": "http://x"}, "`m` is not one that is started with a command"),
        ({"name": "m", "command": "c", "args": "x"}, "`args` of the MCP server `m`"),
        ({"name": "m", "command": "c", "args": [1]}, "`args` of the MCP server `m`"),
        ({"name": "m", "command": "c", "env": 1}, "`env` of the MCP server `m`"),
        ({"name": "m", "command": "c", "env": [["A", "1"]]}, "`env` of the MCP server `m`"),
        ({"name": "m", "command": "c", "env": [{"name": "A"}]}, "`env` of the MCP server `m`"),
        ({"name": "m", "command": "c", "env": {"A": 1}}, "`env` of the MCP server `m`"),
    ],
)
def test_server_of_another_shape_is_refused(value: Any, words: str) -> None:
    """The sentence names the server and the member."""
    with pytest.raises(ValueError, match=words):
        McpServer.from_json(value)


def test_what_is_no_json_is_not_written() -> None:
    """NaN would be a line that no agent reads."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        prompt_line(2, "s", [{"type": "text", "text": "", "_meta": float("nan")}])
