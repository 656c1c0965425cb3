"""The lines we write as an agent's client, without their newline.

Written against ACP v1; what is optional there is left out where we have nothing to say.

What must not be broken here: an id of the agent's is written back exactly as the agent wrote it; a line is one line of
UTF-8, whatever is in it; and the same arguments give the same bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOCOL_VERSION: Final = 1
"""The version of ACP we speak as a client."""

METHOD_NOT_FOUND: Final = -32601
"""JSON-RPC's own code."""


class McpServer(NamedTuple):
    """A tool server that the agent is asked to start for a session, on its standard input and output."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_json(cls, value: Any) -> McpServer:
        """Read one as the protocol writes it; `env` may also be an object from name to value, as editors have it.

        Raises:
            ValueError: It is none; the text is a sentence that names the member.
        """
        if not isinstance(value, dict):
            raise ValueError("an MCP server must be a JSON object with `name`, `command`, `args` and `env`")  # noqa: TRY004  # one kind of error for one kind of mistake
        name = value.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError("an MCP server needs a `name`, a string that is not empty")
        if value.get("type", "stdio") != "stdio":
            raise ValueError(f"the MCP server `{name}` is not one that is started with a command (`type` is not stdio)")
        command = value.get("command")
        if not isinstance(command, str) or not command:
            raise ValueError(f"the MCP server `{name}` needs a `command`, a string that is not empty")
        args = value.get("args", [])
        if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
            raise ValueError(f"`args` of the MCP server `{name}` must be a list of strings")
        return cls(name, command, tuple(args), _environment(value.get("env", []), name))

    def to_json(self) -> dict[str, Any]:
        """The server as it is sent."""
        env = [{"name": name, "value": value} for name, value in self.env]
        return {"name": self.name, "command": self.command, "args": list(self.args), "env": env}


def _environment(value: Any, server: str) -> tuple[tuple[str, str], ...]:
    if isinstance(value, dict):
        value = [{"name": name, "value": each} for name, each in value.items()]
    pairs: list[tuple[str, str]] = []
    for each in value if isinstance(value, list) else [None]:
        pair = (each.get("name"), each.get("value")) if isinstance(each, dict) else (None, None)
        match pair:
            case (str(name), str(said)):
                pairs.append((name, said))
            case _:
                raise ValueError(
                    f"`env` of the MCP server `{server}` must be a list of objects with `name` and `value`"
                )
    return tuple(pairs)


def initialize_line(id_: int, name: str, title: str, version: str) -> bytes:
    """The first request of a conversation: our version, no capabilities, and who we are."""
    info = {"name": name, "title": title, "version": version}
    return _call(id_, "initialize", {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": {}, "clientInfo": info})


def session_new_line(id_: int, cwd: str, servers: Sequence[McpServer]) -> bytes:
    """Ask for a new session in that directory, with those tool servers."""
    return _call(id_, "session/new", {"cwd": cwd, "mcpServers": _all(servers)})


def session_load_line(id_: int, session: str, cwd: str, servers: Sequence[McpServer]) -> bytes:
    """Ask for an old session, told again from its beginning."""
    return _call(id_, "session/load", {"sessionId": session, "cwd": cwd, "mcpServers": _all(servers)})


def session_resume_line(id_: int, session: str, cwd: str, servers: Sequence[McpServer]) -> bytes:
    """Ask for an old session without hearing it again."""
    return _call(id_, "session/resume", {"sessionId": session, "cwd": cwd, "mcpServers": _all(servers)})


def prompt_line(id_: int, session: str, blocks: Sequence[dict[str, Any]]) -> bytes:
    """A prompt of these blocks, in order; `content.unsupported` has looked at them.

    Raises:
        ValueError: A block holds NaN or an Infinity.
    """
    return _call(id_, "session/prompt", {"sessionId": session, "prompt": list(blocks)})


def cancel_line(session: str) -> bytes:
    """Ask for the end of what runs in that session. Nothing answers it but the prompt's own answer."""
    return _line({"method": "session/cancel", "params": {"sessionId": session}})


def not_found_line(id_token: str) -> bytes:
    """Tell the agent that we do not have the method it asked for, under its id as it was written."""
    return _answer(id_token, "error", {"code": METHOD_NOT_FOUND, "message": "method not found"})


def reply_line(id_token: str, outcome: str, option_id: str) -> bytes:
    """Answer a permission question, under its id as it was written; an empty option id is left out."""
    chosen = {"optionId": option_id} if option_id else {}
    return _answer(id_token, "result", {"outcome": {"outcome": outcome, **chosen}})


def _all(servers: Sequence[McpServer]) -> list[dict[str, Any]]:
    return [server.to_json() for server in servers]


def _call(id_: int, method: str, params: dict[str, Any]) -> bytes:
    return _line({"id": id_, "method": method, "params": params})


def _line(members: dict[str, Any]) -> bytes:
    return _encoded({"jsonrpc": "2.0", **members})


def _answer(id_token: str, member: str, value: dict[str, Any]) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (_utf8(id_token), member.encode(), _encoded(value))


def _encoded(value: Any) -> bytes:
    return _utf8(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def _utf8(text: str) -> bytes:
    # UTF-8 has no lone surrogates; Python's escape for them is JSON's.
    return text.encode("utf-8", "backslashreplace")
