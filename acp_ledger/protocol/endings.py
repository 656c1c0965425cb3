"""What an event gives rise to: the ends that no line tells.

What must not be broken here: the order of the rows, for a crash is closed by SQL alone and must come out the same:
unanswered questions by the frame they were asked in, then turn ends by the turn's number, then messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acp_ledger.protocol import permission
from acp_ledger.protocol.answers import decide, end_turn
from acp_ledger.protocol.outcome import INTERRUPTED, STREAM_ENDED, TurnReading, transport_failed
from acp_ledger.protocol.records import TO_CLIENT, Event, EventKind
from acp_ledger.protocol.requests import Asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from acp_ledger.protocol.connection import Connection
    from acp_ledger.protocol.draft import Draft


def happened(connection: Connection, draft: Draft, event: Event) -> None:
    """Add the rows of an event."""
    ending = _ENDINGS.get(event.event)
    if ending is not None:
        ending(connection, draft, event)
    draft.session_id = draft.turn_id = None


def _eof(connection: Connection, draft: Draft, event: Event) -> None:
    """The agent closed its output; the editor's end of file says nothing about a turn."""
    if event.direction == TO_CLIENT:
        _end_turns(connection, draft, STREAM_ENDED)


def _read_error(connection: Connection, draft: Draft, event: Event) -> None:
    if event.direction == TO_CLIENT:
        _end_turns(connection, draft, transport_failed(event.detail))


def _closed(connection: Connection, draft: Draft, _event: Event) -> None:
    _leave_unanswered(connection, draft)
    _end_turns(connection, draft, STREAM_ENDED)
    draft.session_id = draft.turn_id = None
    connection.write_messages(draft, connection.transcript.end_all())


def _interrupted(connection: Connection, draft: Draft, _event: Event) -> None:
    """The daemon died: a message that was open is not in the committed rows, so it gets none."""
    connection.transcript.end_all()
    _leave_unanswered(connection, draft)
    _end_turns(connection, draft, INTERRUPTED)


def _clock_step(_connection: Connection, draft: Draft, event: Event) -> None:
    draft.anomaly("clock_step", event.detail)


def _end_turns(connection: Connection, draft: Draft, reading: TurnReading) -> None:
    for turn in list(connection.sessions.turns.values()):
        end_turn(connection, draft, turn, reading)


def _leave_unanswered(connection: Connection, draft: Draft) -> None:
    asked = connection.asked[TO_CLIENT]
    for request in asked.waiting():
        if isinstance(request.subject, Asking):
            decide(draft, request, request.subject, permission.UNANSWERED, "nobody")
    asked.clear()


_ENDINGS: Final[dict[EventKind, Callable[[Connection, Draft, Event], None]]] = {
    "eof": _eof,
    "read_error": _read_error,
    "closed": _closed,
    "interrupted": _interrupted,
    "clock_step": _clock_step,
}
