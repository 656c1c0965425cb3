"""Where the log's events go: as lines to a stream, or as entries with fields to systemd's journal.

What must not be broken here: writing fails nobody. A line that a full disk or a terminal that is gone does not take is
lost, and so is an entry the journal has no room for; the daemon goes on, for its record is the ledger.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

from acp_ledger import journal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""syslog's numbers of our levels."""


class Lines:
    """Writes lines to a stream, as far as that can be done."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._fd = -1
        with suppress(OSError, io.UnsupportedOperation):
            self._fd = stream.fileno()

    def itself(self, *_args: object) -> Lines:
        """The logger of everybody, as structlog asks for one."""
        return self

    def leads_to_journal(self) -> bool:
        """Whether the stream is one of journald's."""
        return self._fd >= 0 and journal.is_connected(self._fd, os.environ)

    def msg(self, line: str) -> None:
        """Write a line past the stream's buffer, which would keep what cannot be written now for a worse moment."""
        if self._fd < 0:
            self.stream.write(line + "\n")
            return
        data = memoryview((line + "\n").encode("utf-8", "backslashreplace"))
        with suppress(OSError):
            while data:
                data = data[os.write(self._fd, data) :]

    debug = info = warning = error = critical = msg


class Entries:
    """Sends events to the journal; where there is none, as lines with journald's mark of their priority."""

    def __init__(self, to_journal: journal.Journal, otherwise: Lines) -> None:
        self._journal = to_journal
        self._otherwise = otherwise

    def itself(self, *_args: object) -> Entries:
        """The logger of everybody, as structlog asks for one."""
        return self

    def msg(self, **event: Any) -> None:
        """Send an event."""
        if not self._journal.send(list(entry(event))):
            self._otherwise.msg(f"<{PRIORITIES[event['level']]}>{json.dumps(event)}")

    debug = info = warning = error = critical = msg


def entry(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The journal's fields of an event: ours are `ACP_` and the field's name, several of them for a list."""
    facts = {key: value for key, value in event.items() if key not in {"event", "level", "timestamp", "exception"}}
    words = [f"{key}={_text(value)}" for key, value in facts.items() if value is not None]
    trace = f"\n{event['exception']}" if "exception" in event else ""
    yield "MESSAGE", " ".join([event["event"], *words]) + trace
    yield "PRIORITY", str(PRIORITIES[event["level"]])
    yield "SYSLOG_IDENTIFIER", "acp-ledgerd"
    yield "ACP_EVENT", event["event"]
    for key, value in facts.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                yield f"ACP_{key.upper()}", _text(each)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
