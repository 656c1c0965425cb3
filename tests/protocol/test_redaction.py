"""Redaction: no secret of the list is stored, no other byte changes, and no shape of a message makes it raise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.envelope import parse
from acp_ledger.protocol.redaction import SECRET_PARAMS, redact
from tests.support.strategies import json_values, lines, messages, spelled

CANARY = "c4n4ry"


def stored(line: bytes, answered: str | None = None) -> bytes:
    """The line as it may be stored; storing it again changes nothing."""
    once = redact(line, parse(line), answered)
    assert redact(once, parse(once), answered) is once
    return once


def request(method: str, params: Any) -> bytes:
    """A request as a peer would spell it."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, separators=(",", ":")).encode()


ENV = [{"name": "A", "value": CANARY}, {"name": "B", "value": CANARY + "2"}]
SERVERS = {"cwd": "/w", "mcpServers": [{"name": "s", "command": "/s", "args": ["x"], "env": ENV, "headers": ENV}]}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        *((method, SERVERS) for method in ("session/new", "session/load", "session/resume", "session/fork")),
        ("session/new", {"mcpServers": {"s": {"env": {"A": CANARY}}}}),
        ("session/new", {"mcpServers": [{"env": [f"A={CANARY}", [CANARY], {"value": {"x": CANARY}}]}]}),
        ("session/new", {"mcpServers": [{"env": CANARY, "headers": {"Authorization": CANARY}}]}),
        ("authenticate", {"methodId": "gateway", "_meta": {"gateway": {"headers": {"x": CANARY}}}}),
        ("auth/login", {"methodId": "gateway", "_meta": CANARY}),
        ("terminal/create", {"command": "make", "env": ENV}),
        ("terminal/create", {"command": "make", "env": {"A": CANARY}}),
        ("providers/set", {"providerId": "p", "baseUrl": f"https://u:{CANARY}@h", "headers": {"x": CANARY}}),
        ("providers/set", [CANARY]),
    ],
)
def test_secret_is_not_stored(method: str, params: Any) -> None:
    """A secret of the list is gone from the stored line in whatever shape it comes, as a request or a notification."""
    line = request(method, params)
    assert CANARY.encode() in line
    assert CANARY.encode() not in stored(line)
    assert json.loads(stored(line))["method"] == method
    assert CANARY.encode() not in stored(line.replace(b'"id":1,', b""))


def test_only_the_secrets_bytes_change() -> None:
    """Spaces, escapes, order and number text around a secret stay as they were."""
    line = (
        b' {"id" : 1.0 ,\t"method":"session\\u002fnew", "params":{"mcpServers":[ {"n":1E2,"\\u0065nv":'
        b'[{"value" :\t"a\\"b\\\\" ,"name":"\\ud800"}, {"name":"B"} ]} ],"cwd":"/w"}}\r'
    )
    assert stored(line) == line.replace(b'"a\\"b\\\\"', b'"[redacted]"')


def test_every_repeat_is_redacted() -> None:
    """Where keys occur twice, no reader finds a secret, whichever it takes."""
    entry = b'{"value":"c4n4ry","value":"c4n4ry"}'
    server = b'{"env":[' + entry + b'],"env":[' + entry + b"]}"
    params = b'{"mcpServers":[' + server + b'],"mcpServers":[' + server + b"]}"
    line = b'{"id":1,"method":"session/new","params":' + params + b',"params":' + params + b"}"
    assert stored(line).count(b'"[redacted]"') == 16
    assert b"c4n4ry" not in stored(line)


@pytest.mark.parametrize(
    "methods", [b'"method":"x","method":"authenticate"', b'"method":"authenticate","\\u006dethod":"x"']
)
def test_two_methods_redact_for_both(methods: bytes) -> None:
    """A line that names two methods is redacted as if it were each of them."""
    line = b'{"id":1,' + methods + b',"params":{"_meta":"c4n4ry"}}'
    assert parse(line).kind == "opaque"
    assert b"c4n4ry" not in stored(line)


@pytest.mark.parametrize(
    ("env", "answered"),
    [
        ({"KEY": CANARY}, "initialize"),
        ([{"name": "KEY", "value": CANARY}], "initialize"),
        (CANARY, "initialize"),
        ({"KEY": CANARY}, None),
    ],
)
def test_auth_methods_env_is_not_stored(env: Any, answered: str | None) -> None:
    """The environment an agent offers for its login is gone in both spellings, also when nobody knows the question."""
    methods = [{"id": "login", "type": "terminal", "args": ["--login"], "env": env}]
    line = json.dumps({"id": 0, "result": {"protocolVersion": 1, "authMethods": methods}}).encode()
    left = json.loads(stored(line, answered))["result"]["authMethods"]
    assert left == [{"id": "login", "type": "terminal", "args": ["--login"], "env": "[redacted]"}]


def test_other_answers_are_not_touched() -> None:
    """What looks like a secret in an answer to another question is stored as it is."""
    line = b'{"id":1,"result":{"authMethods":[{"env":{"A":"b"}}]}}'
    assert redact(line, parse(line), "session/prompt") is line


def test_batch_is_redacted() -> None:
    """A line of several messages, which no peer should send, is redacted message by message."""
    secret = request("authenticate", {"_meta": CANARY}), request("terminal/create", {"env": ENV})
    answer = b'{"id":2,"result":{"authMethods":[{"env":{"A":"c4n4ry"}}]}}'
    assert b"c4n4ry" not in stored(b"[" + b", ".join([*secret, answer, b"7"]) + b"]")


def test_big_line_is_redacted() -> None:
    """A line too big to parse is redacted too."""
    line = request("session/new", {"text": "x" * 500, **SERVERS})
    envelope = parse(line, parse_bytes=500)
    assert envelope.unparsed
    assert CANARY.encode() not in redact(line, envelope, None)


def test_other_methods_are_not_touched() -> None:
    """The same shapes under a method that is not on the list are stored as they are, as the same object."""
    line = request("_vendor/new", SERVERS)
    assert redact(line, parse(line), None) is line


def test_null_is_no_secret() -> None:
    """A null where a secret could stand stays, so that a line without secrets is stored exact."""
    line = request(
        "session/new", {"mcpServers": [{"env": None, "headers": [{"name": "a", "value": None}]}], "_meta": None}
    )
    assert redact(line, parse(line), None) is line


def test_broken_line_stays_exact() -> None:
    """A line that is not JSON is stored as it came."""
    line = b'{"method":"authenticate","params":{"_meta":"x"},}'
    assert redact(line, parse(line), None) is line


@given(lines(), st.sampled_from([None, "initialize", "session/new"]))
def test_any_line_redacts_once(line: bytes, answered: str | None) -> None:
    """Redacting never raises, is done after once, and leaves the line the same kind of message with the same id."""
    before, after = parse(line), parse(stored(line, answered))
    assert (before.kind, before.id_token, before.method) == (after.kind, after.id_token, after.method)


@given(messages(), st.sampled_from(sorted(SECRET_PARAMS)), json_values(), st.data())
def test_only_spans_of_secrets_differ(message: dict[str, Any], method: str, secret: Any, data: st.DataObject) -> None:
    """Whatever stands around it, a secret is cut out of the line and everything before and after it stays."""
    env = [{"name": "A", "value": secret}]
    params = {"x": message, "mcpServers": [{"env": env}], "env": env, "_meta": secret}
    line = data.draw(spelled({"id": message.get("id"), "method": method, "params": params}))
    pieces = stored(line).split(b'"[redacted]"')
    position = 0
    for piece in pieces:
        position = line.index(piece, position) + len(piece)
    assert line.startswith(pieces[0])
    assert line.endswith(pieces[-1])
    assert len(pieces) > 1 or secret is None
