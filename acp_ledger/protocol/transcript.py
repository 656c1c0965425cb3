"""Messages joined from their chunks.

What must not be broken here: nothing is put between two chunks and nothing is left out of a message that is not told
as `truncated`. Chunks with the same id are one message; a chunk without id continues the open message of its stream;
a message ends at another id, where its turn ends, or where the transport ends. A block that is not text opens and ends
nothing and counts as no bytes; where it belongs to the open message, its frame is that message's last. An id that
comes back after its message had ended is a further message, and told.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, NamedTuple, TypeAlias

from acp_ledger.protocol.envelope import projection
from acp_ledger.protocol.text import rejoined, utf8_size

Stream: TypeAlias = Literal["agent", "thought", "user"]

DEFAULT_TEXT_BYTES: Final = 1024 * 1024
"""UTF-8 bytes of a message that are kept; the rest is counted and the message says `truncated`."""

OPEN_MESSAGES: Final = 8
"""How many messages of full size all open messages of a transport may hold between them."""

ENDED_IDS: Final = 1_024
"""Ids of ended messages that are remembered, so that a message under the same id is told."""

_COMPACT_PARTS: Final = 1_024


class Joined(NamedTuple):
    """A message that has ended: the columns of `messages` behind its session."""

    session_id: int
    turn_id: int | None
    stream: Stream
    message_id: str | None
    truncated: bool
    text: str
    text_bytes: int
    first_frame: int
    last_frame: int
    lossy: bool
    earlier_frame: int | None
    """The last frame of a message of that stream that had ended under the same id, when there was one."""


class _Open:
    """A message that chunks still join."""

    __slots__ = (
        "earlier_frame",
        "first_frame",
        "kept",
        "last_frame",
        "message_id",
        "parts",
        "split",
        "stream",
        "total",
        "truncated",
        "turn_id",
    )

    def __init__(
        self, stream: Stream, message_id: str | None, turn_id: int | None, frame_seq: int, earlier_frame: int | None
    ) -> None:
        self.stream: Stream = stream
        self.message_id = message_id
        self.turn_id = turn_id
        self.earlier_frame = earlier_frame
        self.first_frame = self.last_frame = frame_seq
        self.parts: list[str] = []
        self.kept = self.total = 0
        self.truncated = False
        self.split = False  # the text so far ends with the first half of a surrogate pair


class Transcript:
    """The open messages of a transport: one per session and stream."""

    __slots__ = ("_budget", "_ended", "_held", "_open", "_text_bytes")

    def __init__(self, text_bytes: int = DEFAULT_TEXT_BYTES) -> None:
        self._text_bytes = text_bytes
        self._budget = text_bytes * OPEN_MESSAGES
        self._held = 0
        self._open: dict[int, dict[Stream, _Open]] = {}
        self._ended: OrderedDict[tuple[int, Stream, str | None], int] = OrderedDict()

    def chunk(
        self,
        session_id: int,
        stream: Stream,
        message_id: str | None,
        text: str | None,
        turn_id: int | None,
        frame_seq: int,
    ) -> Joined | None:
        """Join a chunk (`text` None: a block that is not text); the message that it ended, if it ended one."""
        streams = self._open.get(session_id)
        if streams is None:
            streams = self._open[session_id] = {}
        message = streams.get(stream)
        same = message is not None and (message_id is None or message.message_id == message_id)
        if text is None:
            if message is not None and same:
                message.last_frame = frame_seq
            return None
        ended = None
        if message is None or not same:
            ended = None if message is None else self._joined(session_id, message)
            earlier = self._ended.get((session_id, stream, message_id))
            message = streams[stream] = _Open(stream, message_id, turn_id, frame_seq, earlier)
        message.last_frame = frame_seq
        if text:
            self._append(message, text)
        return ended

    def end(self, session_id: int) -> list[Joined]:
        """End the open messages of a session."""
        streams = self._open.pop(session_id, None)
        return [self._joined(session_id, message) for message in streams.values()] if streams else []

    def end_all(self) -> list[Joined]:
        """End every open message, sessions in the order of their numbers."""
        return [joined for session_id in sorted(self._open) for joined in self.end(session_id)]

    def _append(self, message: _Open, text: str) -> None:
        size = utf8_size(text)
        if message.split and "\udc00" <= text[0] <= "\udfff":
            size -= 2  # two halves of three bytes each are one character of four
        message.split = "\ud800" <= text[-1] <= "\udbff"
        message.total += size
        if message.truncated:
            return
        room = min(self._text_bytes - message.kept, self._budget - self._held)
        if size > room:
            message.truncated = True
            text = _prefix(text, room)
            size = utf8_size(text)
        message.kept += size
        self._held += size
        message.parts.append(text)
        if len(message.parts) >= _COMPACT_PARTS:
            message.parts[:] = ["".join(message.parts)]

    def _joined(self, session_id: int, message: _Open) -> Joined:
        self._held -= message.kept
        self._remember(session_id, message)
        text, lossy = projection(rejoined("".join(message.parts)))
        return Joined(
            session_id=session_id,
            turn_id=message.turn_id,
            stream=message.stream,
            message_id=message.message_id,
            truncated=message.truncated,
            text=text,
            text_bytes=message.total,
            first_frame=message.first_frame,
            last_frame=message.last_frame,
            lossy=lossy,
            earlier_frame=message.earlier_frame,
        )

    def _remember(self, session_id: int, message: _Open) -> None:
        if message.message_id is None:
            return
        if len(self._ended) >= ENDED_IDS:
            self._ended.popitem(last=False)
        self._ended[session_id, message.stream, message.message_id] = message.last_frame


def _prefix(text: str, size: int) -> str:
    """As many whole characters of a text as fit into `size` UTF-8 bytes."""
    if size <= 0:
        return ""
    cut = text.encode("utf-8", "surrogatepass")[:size]
    while True:
        try:
            return cut.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            cut = cut[: error.start]
