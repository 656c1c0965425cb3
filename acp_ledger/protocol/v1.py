"""ACP v1, read: what an update, a question, an answer or a prompt says, as plain facts.

Written against version 1 of the protocol, in the fourteen update kinds its schema names (SDK 2.4.0) and any other.

What must not be broken here: a mapping never fails and never returns nothing. An update becomes a step, or is named
as not recorded in the wire's own spelling. An id is never invented, a status claims the least, and of an answer
nothing is guessed. A field of the wrong JSON type reads as absent and is added to `wrong`.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from acp_ledger.protocol.envelope import array_of, identity, integer_of, object_of, text_of
from acp_ledger.protocol.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acp_ledger.protocol.transcript import Stream

REVISION: Final = "acp/v1"

Fields: TypeAlias = dict[str, Any]

UPDATE_KINDS: Final = (
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
    "notice",
    "compaction_update",
    "compaction_summary_chunk",
)
"""The kinds of ACP v1's schema. Kinds outside it occur and are named all the same."""

STATE_KINDS: Final = frozenset(
    {
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
        "notice",
        "state_update",
    }
)
"""Kinds that tell how things stand now, even while a conversation is replayed."""

STREAMS: Final[dict[str, Stream]] = {
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
    "user_message_chunk": "user",
}
"""Kinds whose text is joined into messages."""

STATUSES: Final = frozenset({"pending", "in_progress", "completed", "failed"})
ENDED_STATUSES: Final = frozenset({"completed", "failed"})


class Location(NamedTuple):
    """A path that a tool call names, and the line in it."""

    path: str
    line: int | None
    lossy: bool


class Prompted(NamedTuple):
    """The user's words, arriving as a chunk; `detail` is the update's title."""

    detail: str | None
    lossy: bool


class ToolCall(NamedTuple):
    """A step of a tool call, under the agent's own id."""

    tool_call_id: str
    status: str
    status_raw: str | None
    kind: str | None
    name: str | None
    title: str | None
    lossy: bool
    locations: tuple[Location, ...]


class NotRecorded(NamedTuple):
    """An update that is no step, by the name it came under; None when it has none."""

    session_update: str | None


Mapped: TypeAlias = Prompted | ToolCall | NotRecorded


class Chunk(NamedTuple):
    """A piece of a message; `text` is None for a block that is not text."""

    message_id: str | None
    text: str | None


def word(fields: Fields, key: str, wrong: list[str]) -> str | None:
    """A word or id that the peer owns, as its identity text."""
    value = text_of(fields, key, wrong)
    return None if value is None else identity(value)


def fields_of(fields: Fields, key: str, wrong: list[str]) -> Fields:
    """An object field; absent reads as empty."""
    return object_of(fields, key, wrong) or {}


def as_objects(items: Sequence[Any], key: str, wrong: list[str]) -> list[Fields]:
    """The items of an array, one that is no object as an empty one."""
    if all(isinstance(item, dict) for item in items):
        return list(items)
    wrong.append(f"{key}[]")
    return [item if isinstance(item, dict) else {} for item in items]


def step_of(update: Fields, wrong: list[str]) -> Mapped:
    """Map one update. Never raises, never returns nothing."""
    kind = text_of(update, "sessionUpdate", wrong)
    if kind is None:
        return NotRecorded(None)
    read = _STEPS.get(kind)
    return NotRecorded(identity(kind)) if read is None else read(update, kind, wrong)


def _prompted(update: Fields, _kind: str, wrong: list[str]) -> Prompted:
    return Prompted(*shown(text_of(update, "title", wrong)))


def _tool_call(update: Fields, kind: str, wrong: list[str]) -> ToolCall | NotRecorded:
    return tool_call(update, wrong) or NotRecorded(kind)


_STEPS: Final[dict[str, Callable[[Fields, str, list[str]], Mapped]]] = {
    "user_message_chunk": _prompted,
    "tool_call": _tool_call,
    "tool_call_update": _tool_call,
}


def tool_call(call: Fields, wrong: list[str]) -> ToolCall | None:
    """A step of a tool call; None without an id, for an id is never invented. The empty string is an id."""
    call_id = text_of(call, "toolCallId", wrong)
    return None if call_id is None else call_step(call, call_id, wrong)


def call_step(call: Fields, call_id: str, wrong: list[str]) -> ToolCall:
    """What a tool call object says, under the id it was read to have."""
    status = text_of(call, "status", wrong)
    title, lossy = shown(text_of(call, "title", wrong))
    return ToolCall(
        identity(call_id),
        status if status in STATUSES else "pending",
        None if status is None else identity(status),
        word(call, "kind", wrong),
        word(call, "name", wrong),
        title,
        lossy,
        _locations(call, wrong) if "locations" in call else (),
    )


def _locations(call: Fields, wrong: list[str]) -> tuple[Location, ...]:
    found: list[Location] = []
    for item in as_objects(array_of(call, "locations", wrong) or (), "locations", wrong):
        path, lossy = shown(text_of(item, "path", wrong))
        if path is not None:
            found.append(Location(path, _line(item, wrong), lossy))
    return tuple(found)


def _line(location: Fields, wrong: list[str]) -> int | None:
    line = integer_of(location, "line", wrong)
    return None if line is None or line < 0 else line


def chunk_of(update: Fields, wrong: list[str]) -> Chunk:
    """The piece of a message that a chunk carries."""
    message_id = word(update, "messageId", wrong)
    content = fields_of(update, "content", wrong)
    return Chunk(message_id, text_of(content, "text", wrong) if content.get("type") == "text" else None)


def block_kinds(params: Fields, wrong: list[str]) -> str | None:
    """The types of a prompt's content blocks as a JSON array, null for a block without one; None without a prompt."""
    blocks = array_of(params, "prompt", wrong)
    if blocks is None:
        return None
    return _json([word(block, "type", wrong) for block in as_objects(blocks, "prompt", wrong)])


def mode_ids(modes: Fields, wrong: list[str]) -> str | None:
    """The ids of the modes on offer as a JSON array; None where none are told."""
    offered = array_of(modes, "availableModes", wrong)
    if offered is None:
        return None
    return _json([word(mode, "id", wrong) for mode in as_objects(offered, "availableModes", wrong)])


def _json(words: list[str | None]) -> str:
    return json.dumps(words, ensure_ascii=False, separators=(",", ":"))


CLIENT_CALLS: Final = ("fs/", "terminal/", "elicitation/")
"""Beginnings of the methods by which an agent uses its editor."""


def target_of(params: Fields, wrong: list[str]) -> str | None:
    """What a client call is about: its path, or its command with each argument quoted as a shell would."""
    path = text_of(params, "path", wrong)
    if path is not None:
        return path
    command = text_of(params, "command", wrong)
    arguments = array_of(params, "args", wrong)
    if command is None or not arguments:
        return command
    if any(type(argument) is not str for argument in arguments):
        wrong.append("args[]")
    return " ".join([command, *(shlex.quote(argument) for argument in arguments if type(argument) is str)])
