"""What a client of its own right reads from an agent: answers, updates, and the reply they join into.

What must not be broken here: a reply holds nothing past its limits, equal to a limit is within it, and after the first
chunk that would pass one no later chunk joins, even if it would fit. An answer that lacks what it must have reads as
None, never as a guess; what it may lack reads as empty.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from acp_ledger.protocol.envelope import text_of
from acp_ledger.protocol.revisions import version_of
from acp_ledger.protocol.strict import Number
from acp_ledger.protocol.text import rejoined, utf8_size
from acp_ledger.protocol.v1 import chunk_of

if TYPE_CHECKING:
    from acp_ledger.protocol.records import Overflow

REPLY_KIND: Final = "agent_message_chunk"
"""The kind of update whose text joins the reply."""

OverflowKind: TypeAlias = Literal["response_segments", "response_bytes"]


class ClientLimits(NamedTuple):
    """What one agent may send us: bytes of an update's line, updates in all, and bytes and chunks of one reply."""

    update_bytes: int
    update_count: int
    response_bytes: int
    response_segments: int


class Reply:
    """What one prompt's answer has admitted so far.

    `segments` counts the chunks in it, `admitted_bytes` its length in UTF-8. `overflow` is set once by whoever
    records that a limit was met; nothing joins any more from the chunk on that would have passed it.
    """

    __slots__ = (
        "_last_id",
        "_last_part",
        "_limits",
        "_parts",
        "_split",
        "_stopped",
        "admitted_bytes",
        "overflow",
        "segments",
    )

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._parts: list[str] = []
        self._last_part: int | None = None  # where the last message begins; None before the first
        self._last_id: str | None = None
        self._split = False  # the text so far ends with the first half of a surrogate pair
        self._stopped = False
        self.admitted_bytes = 0
        self.segments = 0
        self.overflow: Overflow | None = None

    @property
    def text(self) -> str:
        """Everything that joined, with nothing between. Always text that can be encoded."""
        return _encodable("".join(self._parts))

    @property
    def final_message(self) -> str:
        """The last message alone; messages are told apart as the transcript does."""
        return _encodable("".join(self._parts[self._last_part or 0 :]))

    def admit(self, message_id: str | None, text: str | None) -> OverflowKind | None:
        """Take a chunk (`text` None: a block that is not text); the limit it would pass, told of the first such alone.

        Every chunk is a segment, with or without text, and segments are looked at first.
        """
        if self._stopped:
            return None
        size = self._size(text or "")
        passed: OverflowKind | None = None
        if self.segments + 1 > self._limits.response_segments:
            passed = "response_segments"
        elif self.admitted_bytes + size > self._limits.response_bytes:
            passed = "response_bytes"
        self._stopped = passed is not None
        if passed is None:
            self._join(message_id, text, size)
        return passed

    def _size(self, text: str) -> int:
        # Two halves of three bytes each are one character of four.
        return utf8_size(text) - (2 if self._split and text and "\udc00" <= text[0] <= "\udfff" else 0)

    def _join(self, message_id: str | None, text: str | None, size: int) -> None:
        self.segments += 1
        if text is None:
            return
        if self._last_part is None or (message_id is not None and message_id != self._last_id):
            self._last_part, self._last_id = len(self._parts), message_id
        if text:
            self._parts.append(text)
            self.admitted_bytes += size
            self._split = "\ud800" <= text[-1] <= "\udbff"


def _encodable(text: str) -> str:
    """The text with halves of characters that were split over two chunks joined; a half that stays alone is U+FFFD."""
    whole = rejoined(text)
    return whole if whole.isascii() else _LONE.sub("\ufffd", whole)


_LONE: Final = re.compile("[\ud800-\udfff]")


class UpdateSeen(NamedTuple):
    """A `session/update` as a caller sees it: its kind in the wire's own spelling, known or not, and its text."""

    kind: str
    acp_session_id: str
    text: str


def update_seen(params: Any) -> UpdateSeen | None:
    """Read the params of a `session/update`; None where it is malformed.

    The text is a chunk's own; of a plan it is what its entries say, a line each; of any other kind there is none.
    """
    if update_fault(params) is not None:
        return None
    update = params["update"]
    kind: str = update["sessionUpdate"]
    return UpdateSeen(kind, params["sessionId"], _plan_text(update) if kind == "plan" else _chunk_text(update, kind))


def update_fault(params: Any) -> str | None:
    """What makes an update malformed, in words; None where nothing does."""
    if not isinstance(params, dict):
        return "its `params` is no object"
    if not isinstance(params.get("sessionId"), str):
        return "its `sessionId` is no string"
    update = params.get("update")
    if not isinstance(update, dict):
        return "its `update` is no object"
    return None if isinstance(update.get("sessionUpdate"), str) else "its `sessionUpdate` is no string"


def _chunk_text(update: dict[str, Any], kind: str) -> str:
    return (chunk_of(update, []).text or "") if kind.endswith("_chunk") else ""


def _plan_text(update: dict[str, Any]) -> str:
    entries = update.get("entries")
    told = [text_of(entry, "content", []) for entry in entries] if isinstance(entries, list) else []
    return "\n".join(text for text in told if text is not None)


class Initialized(NamedTuple):
    """An agent's answer to `initialize`. `auth_methods` are its logins, id and name; a name it lacks is empty."""

    protocol_version: int
    capabilities: dict[str, Any]
    auth_methods: tuple[tuple[str, str], ...]
    agent_info: dict[str, Any] | None

    @property
    def load_session(self) -> bool:
        """Whether the agent tells an old session again on `session/load`."""
        return self.capabilities.get("loadSession") is True

    @property
    def resume_session(self) -> bool:
        """Whether the agent goes on with an old session on `session/resume`."""
        return _object(_object(self.capabilities, "sessionCapabilities") or {}, "resume") is not None


def initialized_of(result: Any) -> Initialized | None:
    """Read the result of `initialize`; None where it is no object or has no readable version."""
    version = version_of(result)
    if version is None:
        return None
    told = plain(result)
    return Initialized(
        version, _object(told, "agentCapabilities") or {}, _named(told, "authMethods"), _object(told, "agentInfo")
    )


class Modes(NamedTuple):
    """The modes of a session: the id of the current one, and every one there is, id and name."""

    current: str
    available: tuple[tuple[str, str], ...]


def modes_of(result: Any) -> Modes | None:
    """The modes in the answer that opened a session; None where it tells none."""
    modes = _object(result, "modes")
    return None if modes is None else Modes(text_of(modes, "currentModeId", []) or "", _named(modes, "availableModes"))


def session_id_of(result: Any) -> str | None:
    """The session in the answer to `session/new`; None where it names none."""
    return text_of(result, "sessionId", [])


def plain(value: Any) -> Any:
    """A JSON value of a line with Python's own numbers, to be handed on; one that is past them stays its text."""
    if isinstance(value, Number):
        number = float(value.literal)
        return number if math.isfinite(number) else value.literal
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def _object(owner: Any, key: str) -> dict[str, Any] | None:
    value = owner.get(key) if isinstance(owner, dict) else None
    return value if isinstance(value, dict) else None


def _named(owner: dict[str, Any], key: str) -> tuple[tuple[str, str], ...]:
    """The things of a list that have an id, with their names."""
    items = owner.get(key)
    found = ((text_of(one, "id", []), text_of(one, "name", [])) for one in items) if isinstance(items, list) else ()
    return tuple((id_, name or "") for id_, name in found if id_ is not None)
