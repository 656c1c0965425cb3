"""What a prompt is made of: the six kinds of content blocks, and which of them an agent takes.

Written against ACP v1 (`ContentBlock`, `PromptCapabilities`).

What must not be broken here: an optional field is left out when it is empty, never sent as an empty one; and a block
that an agent did not say it takes is named before anything is sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from acp_ledger.protocol.envelope import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Text:
    """Words. Every agent takes them."""

    text: str

    def to_json(self) -> dict[str, Any]:
        """The block as it is sent."""
        return {"type": "text", "text": self.text}


@dataclass(frozen=True)
class Image:
    """A picture: `data` in base64, and its MIME type; `uri` says where it came from."""

    data: str
    mime_type: str
    uri: str = ""

    def to_json(self) -> dict[str, Any]:
        """The block as it is sent."""
        return _media("image", self)


@dataclass(frozen=True)
class Audio:
    """A recording: `data` in base64, and its MIME type; `uri` says where it came from."""

    data: str
    mime_type: str
    uri: str = ""

    def to_json(self) -> dict[str, Any]:
        """The block as it is sent."""
        return _media("audio", self)


@dataclass(frozen=True)
class EmbeddedText:
    """A text file, sent whole."""

    uri: str
    text: str
    mime_type: str = ""

    def to_json(self) -> dict[str, Any]:
        """The block as it is sent."""
        return _resource({"uri": self.uri, "text": self.text}, self.mime_type)


@dataclass(frozen=True)
class EmbeddedBlob:
    """A file of any other kind, sent whole: `blob` in base64."""

    uri: str
    blob: str
    mime_type: str = ""

    def to_json(self) -> dict[str, Any]:
        """The block as it is sent."""
        return _resource({"uri": self.uri, "blob": self.blob}, self.mime_type)


@dataclass(frozen=True)
class ResourceLink:
    """Something the agent may fetch itself; `size` in bytes, where it is known. Every agent takes it."""

    uri: str
    name: str
    mime_type: str = ""
    title: str = ""
    description: str = ""
    size: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The block as it is sent."""
        optional = _present(mimeType=self.mime_type, title=self.title, description=self.description)
        sized = {} if self.size is None else {"size": self.size}
        return {"type": "resource_link", "uri": self.uri, "name": self.name, **optional, **sized}


Block: TypeAlias = Text | Image | Audio | EmbeddedText | EmbeddedBlob | ResourceLink
"""A content block of a prompt."""


def _media(kind: str, block: Image | Audio) -> dict[str, Any]:
    return {"type": kind, "mimeType": block.mime_type, "data": block.data, **_present(uri=block.uri)}


def _resource(contents: dict[str, str], mime_type: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {**contents, **_present(mimeType=mime_type)}}


def _present(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}


class _Shape(NamedTuple):
    """Which members of a block must be strings, which may be, and what an agent says of itself to be sent one."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    advertised_as: tuple[str, ...] = ()


_RESOURCE: Final = ("embeddedContext", "embeddedContent")
"""The schema's name, and the one that some agents say instead."""

_SHAPES: Final[dict[str, _Shape]] = {
    "text": _Shape(("text",)),
    "image": _Shape(("mimeType", "data"), ("uri",), ("image",)),
    "audio": _Shape(("mimeType", "data"), ("uri",), ("audio",)),
    "resource": _Shape((), (), _RESOURCE),
    "resource_link": _Shape(("uri", "name"), ("mimeType", "title", "description")),
}
_KINDS: Final = ", ".join(_SHAPES)


def unsupported(blocks: Sequence[Any], capabilities: Mapping[str, Any]) -> str | None:
    """Why these blocks cannot be sent: the first that is no block at all, or of a kind the agent did not advertise.

    `capabilities` are the agent's, as its answer to `initialize` has them. None where everything may be sent. Members
    beyond the ones known here (`annotations`, `_meta`) pass.
    """
    advertised = capabilities.get("promptCapabilities")
    known = advertised if isinstance(advertised, dict) else {}
    for number, block in enumerate(blocks, 1):
        reason = _misshapen(block) or _unadvertised(block["type"], known)
        if reason is not None:
            return f"block {number} of the prompt cannot be sent: {reason}"
    return None


def _unadvertised(kind: str, known: dict[str, Any]) -> str | None:
    names = _SHAPES[kind].advertised_as
    if not names or any(known.get(name) is True for name in names):
        return None
    return f"the agent takes no `{kind}` blocks (it does not advertise `promptCapabilities.{names[0]}`)"


def _misshapen(block: Any) -> str | None:
    if not isinstance(block, dict):
        return f"it is no JSON object but of type {kind_of(block)}"
    kind = block.get("type")
    shape = _SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        said = "no type" if kind is None else f"the unknown type {json.dumps(kind)[:_SHOWN_CHARS]}"
        return f"it has {said}; known are {_KINDS}"
    wrong = _wrong_member(block, shape) or (_wrong_resource(block) if kind == "resource" else _wrong_size(block))
    if wrong is not None:
        return f"`{wrong[0]}` of a `{kind}` block must be {wrong[1]}"
    return None if _is_json(block, shape) else "it holds NaN or an Infinity, which JSON does not have"


_SHOWN_CHARS: Final = 80


def _wrong_member(owner: dict[str, Any], shape: _Shape) -> tuple[str, str] | None:
    for name in (*shape.required, *shape.optional):
        if not isinstance(owner.get(name, None if name in shape.required else ""), str):
            return name, "a string"
    return None


def _wrong_resource(block: dict[str, Any]) -> tuple[str, str] | None:
    contents = block.get("resource")
    if not isinstance(contents, dict):
        return "resource", "an object"
    wrong = _wrong_member(contents, _Shape(("uri",), ("text", "blob", "mimeType")))
    if wrong is not None:
        return f"resource.{wrong[0]}", wrong[1]
    return None if ("text" in contents) != ("blob" in contents) else ("resource", "either a `text` or a `blob`")


def _wrong_size(block: dict[str, Any]) -> tuple[str, str] | None:
    size = block.get("size", 0)
    return None if type(size) is int and size >= 0 else ("size", "a whole number of bytes")


def _is_json(block: dict[str, Any], shape: _Shape) -> bool:
    """Whether the members that were not looked at can be written; the long ones are strings, and were."""
    others = {name: value for name, value in block.items() if name not in shape.required}
    if isinstance(others.get("resource"), dict):
        others["resource"] = {name: value for name, value in others["resource"].items() if not isinstance(value, str)}
    try:
        json.dumps(others, allow_nan=False)
    except ValueError:
        return False
    return True
