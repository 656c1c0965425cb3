"""Text for a terminal: what an agent or a user wrote is made visible and harmless, and colour is decided once.

What must not be broken here: no character of the categories Cc, Cf, Cs, Co, Cn, Zl, Zp of foreign text ever leaves
unescaped, on a terminal or not, for an escape sequence in a tool call's title can rewrite the screen an auditor reads.
"""

from __future__ import annotations

import os
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that steer a terminal, hide, reorder, or mean nothing anybody agreed on."""

_BMP_END: Final = 0x10000


def is_hidden(character: str) -> bool:
    """Tell whether a character must not reach a terminal as it is."""
    return unicodedata.category(character) in HIDDEN


def escape(text: str, keep: str = "") -> str:
    r"""Write every hidden character as `\uXXXX` or `\UXXXXXXXX`, except those in `keep`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _visible(character) if character not in keep and is_hidden(character) else character for character in text
    )


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < _BMP_END else f"\\U{code:08x}"


def escape_json(document: str) -> str:
    r"""Write the hidden characters of a JSON text as JSON escapes: the same value, and a safe terminal."""
    if document.isascii() and document.isprintable():
        return document
    return "".join(_json_visible(character) if is_hidden(character) else character for character in document)


def _json_visible(character: str) -> str:
    code = ord(character)
    if code < _BMP_END:
        return f"\\u{code:04x}"
    high, low = divmod(code - _BMP_END, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def shorten(text: str, limit: int) -> str:
    """Cut a text to `limit` characters and say so: `…` and how much of how much is shown."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({limit:,} of {len(text):,} characters shown)"


def wants_color(when: str, stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Decide about colour: the flag, then NO_COLOR, then FORCE_COLOR and CLICOLOR_FORCE, then the terminal."""
    if when != "auto":
        return when == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"
