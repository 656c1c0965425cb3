"""Files of the command line as content blocks and tool servers.

What must not be broken here: a file is sent as it is or named in an error; nothing is left out in silence.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acp_ledger.client import Audio, EmbeddedBlob, EmbeddedText, Image, McpServer, ResourceLink
from acp_ledger.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from acp_ledger.client import Block

_UNKNOWN: Final = "application/octet-stream"


def image(path: str) -> Image:
    """A picture."""
    return Image(_base64(path), _media_type(path, "image"))


def audio(path: str) -> Audio:
    """A recording."""
    return Audio(_base64(path), _media_type(path, "audio"))


def link_to(path: str) -> ResourceLink:
    """A link to a file, which the agent reads by itself, or does not."""
    file = Path(path).absolute()
    found = file.stat()
    size = found.st_size if stat.S_ISREG(found.st_mode) else None
    return ResourceLink(file.as_uri(), file.name, mime_type=mimetypes.guess_type(file.name)[0] or "", size=size)


def embedded(path: str) -> Block:
    """A file, sent whole: as text where it is UTF-8."""
    file, data = Path(path).absolute(), _read(path)
    kind = mimetypes.guess_type(file.name)[0] or ""
    try:
        return EmbeddedText(file.as_uri(), data.decode("utf-8"), kind)
    except UnicodeDecodeError:
        return EmbeddedBlob(file.as_uri(), base64.b64encode(data).decode("ascii"), kind or _UNKNOWN)


def link(uri: str) -> ResourceLink:
    """A link to anything with a URI."""
    return ResourceLink(uri, uri.rstrip("/").rpartition("/")[2] or uri)


def mcp_servers(path: str) -> Iterator[McpServer]:
    """The tool servers of a file: one object, a list of them, or an editor's `mcpServers`, by name.

    Raises:
        UsageError: It holds something else.
    """
    try:
        told = json.loads(_read(path))
    except (ValueError, RecursionError) as fault:
        raise UsageError(f"{path} is not JSON: {fault}") from None
    for each in _servers(told):
        try:
            yield McpServer.from_json(each)
        except ValueError as fault:
            raise UsageError(f"{path}: {fault}") from None


def _servers(told: Any) -> list[Any]:
    named = told.get("mcpServers") if isinstance(told, dict) else None
    if isinstance(named, dict):
        return [{"name": name, **server} if isinstance(server, dict) else server for name, server in named.items()]
    return told if isinstance(told, list) else [told]


def _media_type(path: str, wanted: str) -> str:
    kind = mimetypes.guess_type(path)[0] or ""
    if not kind.startswith(f"{wanted}/"):
        raise UsageError(
            f"{path} does not look like {'an' if wanted[0] in 'ai' else 'a'} {wanted} ({kind or 'of no known type'})",
            hint=f"give it a name that ends in its type, or send it with --embed {path}",
        )
    return kind


def _base64(path: str) -> str:
    return base64.b64encode(_read(path)).decode("ascii")


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


MAKERS: Final[dict[str, Callable[[str], Block]]] = {
    "images": image,
    "audios": audio,
    "files": link_to,
    "embeds": embedded,
    "links": link,
}
"""What makes a block of an option's value, by the option's name."""


def blocks(attached: Iterable[tuple[str, str]]) -> list[Block]:
    """What is attached as blocks, in order; each is an option's name and a value."""
    return [MAKERS[name](value) for name, value in attached]
