"""Keys that occur twice: which of them make a message mean two things.

What must not be broken here: where two readers may take different values of a repeated key, the ledger takes neither.
A key that says which message this is makes the frame opaque; a word the record rests on is removed, so that it reads
as absent; everything else keeps its last value and is flagged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from acp_ledger.protocol.strict import UNSTORABLE, Repeated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Path: TypeAlias = tuple[str | int, ...]
"""Keys and array positions from the top of the message."""

Note: TypeAlias = tuple[str, str | None]

OPAQUE_PATHS: Final[frozenset[Path]] = frozenset(
    {
        ("id",),
        ("method",),
        ("params",),
        ("result",),
        ("error",),
        ("params", "sessionId"),
        ("params", "update"),
        ("params", "options"),
        ("params", "update", "sessionUpdate"),
    }
)
"""Repeated here, nobody can say which message this is."""

ANSWER_PATHS: Final[frozenset[Path]] = frozenset(
    {
        ("result", "outcome"),
        ("result", "outcome", "outcome"),
        ("result", "outcome", "optionId"),
        ("result", "stopReason"),
    }
)
"""Repeated here, it is known what is answered, but not with what."""

WORD_PATHS: Final[frozenset[Path]] = frozenset(
    {
        ("error", "code"),
        ("params", "options", 0, "kind"),
        ("params", "options", 0, "optionId"),
        ("params", "requestId"),
        ("params", "toolCall"),
        ("params", "toolCall", "status"),
        ("params", "toolCall", "toolCallId"),
        ("params", "update", "status"),
        ("params", "update", "toolCallId"),
        ("result", "protocolVersion"),
        ("result", "sessionId"),
    }
)
"""Repeated here, the message is clear but a word is not. Position 0 stands for every position of an array."""

LISTED_REPEATS: Final = 32
"""The most repeated keys a line's anomalies name; one more says how many were left out."""

_LONGEST_STEP: Final = 64


class Ambiguity(NamedTuple):
    """What repeated keys leave open: which message this is, or what it answers."""

    frame: bool
    answer: bool


NONE: Final = Ambiguity(frame=False, answer=False)


def resolve(value: dict[str, Any], notes: list[Note]) -> Ambiguity:
    """Note every repeated key in a message, remove the words that are unclear, and say what is left open."""
    frame = answer = False
    noted = 0
    for path, owner in _repeats(value):
        pattern = tuple(0 if isinstance(step, int) else step for step in path)
        frame = frame or pattern in OPAQUE_PATHS
        answer = answer or pattern in ANSWER_PATHS
        decisive = pattern in OPAQUE_PATHS or pattern in ANSWER_PATHS
        if pattern in ANSWER_PATHS or pattern in WORD_PATHS:
            owner.pop(str(path[-1]), None)
        noted += 1
        # There are few decisive paths, so these are named however many others there are.
        if decisive or noted <= LISTED_REPEATS:
            notes.append(("ambiguous" if decisive or pattern in WORD_PATHS else "duplicate_key", spell(path)))
    if noted > LISTED_REPEATS:
        notes.append(("duplicate_key", f"{noted} repeated keys in all"))
    return Ambiguity(frame, answer)


def judge(repeated: Iterable[str], notes: list[Note]) -> Ambiguity:
    """The same for the dotted paths that a routing scan saw twice; the scan has removed what is unclear."""
    frame = answer = False
    for path in repeated:
        pattern = tuple(path.split("."))
        frame = frame or pattern in OPAQUE_PATHS
        answer = answer or pattern in ANSWER_PATHS
        notes.append(("duplicate_key" if pattern == ("jsonrpc",) else "ambiguous", path))
    return Ambiguity(frame, answer)


def spell(path: Path) -> str:
    """A path for reading and storing: `params.options[2].kind`; steps longer than a name are cut."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + step[:_LONGEST_STEP]
    return UNSTORABLE.sub("\ufffd", text)


def _repeats(value: Any) -> Iterator[tuple[Path, Repeated]]:
    """Every repeated key under a value, outermost first, in the order of the line."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, Repeated):
            for key in item.repeats():
                yield (*path, key), item
        if isinstance(item, dict):
            waiting.extend(((*path, key), item[key]) for key in reversed(item) if isinstance(item[key], dict | list))
        elif isinstance(item, list):
            waiting.extend(((*path, i), item[i]) for i in range(len(item) - 1, -1, -1))
