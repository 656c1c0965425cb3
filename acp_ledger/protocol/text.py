"""Texts for reading: what a peer wrote, made storable on every engine and bounded.

What must not be broken here: a projection never stands for the evidence, which is the line itself; where one differs
from what was said, it says so (`lossy`).
"""

from __future__ import annotations

from typing import Final

from acp_ledger.protocol.envelope import projection

PROJECTION_CHARS: Final = 16_384
"""Characters of a title, path, command or error message that are kept beside the line; the line has the rest."""


def shown(text: str | None) -> tuple[str | None, bool]:
    """A text as it is kept for reading, and whether it differs from what was said; None stays None."""
    if text is None:
        return None, False
    if len(text) <= PROJECTION_CHARS:
        return projection(text)
    return projection(text[:PROJECTION_CHARS])[0], True


def utf8_size(text: str) -> int:
    """Its length in UTF-8; a lone surrogate counts the three bytes it would take."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def rejoined(text: str) -> str:
    """The text with every surrogate pair as the one character it stands for; lone halves stay as they are."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text
