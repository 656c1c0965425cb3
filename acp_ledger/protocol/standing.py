"""How a connection stands: what waits for an answer, and what runs in each session.

What must not be broken here: nothing changes by being asked, and only what can be named to the agent is given: a
session whose id is too long to be kept has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp_ledger.protocol.records import TO_CLIENT
from acp_ledger.protocol.requests import Asking

if TYPE_CHECKING:
    from acp_ledger.protocol.connection import Connection
    from acp_ledger.protocol.records import Direction


SHOWN_SESSIONS: Final = 32
SHOWN_TITLE: Final = 120
"""Sessions of a connection, and characters of a question's title, that a summary holds: it must stay small."""


class OpenRequest(NamedTuple):
    """A request that was not answered yet. `id_token` is the raw JSON token, to be written into an answer as it is."""

    id_token: str
    method: str
    frame_seq: int


class OpenQuestion(NamedTuple):
    """A permission question that waits. `id_token` is the raw JSON token, `asked_at` UTC microseconds."""

    id_token: str
    title: str | None
    asked_at: int


class Standing(NamedTuple):
    """A session as it stands: its numbers, its open turns by theirs, and its open questions, oldest first."""

    session_id: int
    acp_session_id: str
    turns: tuple[int, ...]
    questions: tuple[OpenQuestion, ...]

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs in it and nothing waits for an answer."""
        return not self.turns and not self.questions


def open_requests(connection: Connection, direction: Direction) -> tuple[OpenRequest, ...]:
    """The requests sent in that direction that wait for their answer, in the order of asking."""
    waiting = connection.asked[direction].waiting()
    return tuple(OpenRequest(one.id_token, one.method, one.frame_seq) for one in waiting)


def standings(connection: Connection) -> list[Standing]:
    """Every session of a connection, in the order in which they were first seen."""
    asked: dict[int | None, list[OpenQuestion]] = {}
    for request in connection.asked[TO_CLIENT].waiting():
        if isinstance(request.subject, Asking):
            question = OpenQuestion(request.id_token, request.subject.question.title, request.subject.asked_at)
            asked.setdefault(request.session_id, []).append(question)
    return [
        Standing(
            state.number,
            named,
            tuple(turn.turn_id for turn in state.turns),
            tuple(asked.get(state.number, ())),
        )
        for named, state in connection.sessions.by_id()
    ]


def summary(sessions: list[Standing]) -> dict[str, Any]:
    """What runs on a connection, as JSON: the busy sessions one by one, the newest first, and how many there are."""
    busy = [session for session in reversed(sessions) if not session.is_idle]
    return {
        "sessions": len(sessions),
        "busy": len(busy),
        "running": [_shown(session) for session in busy[:SHOWN_SESSIONS]],
    }


def _shown(session: Standing) -> dict[str, Any]:
    first = session.questions[0] if session.questions else None
    return {
        "acp_session_id": session.acp_session_id,
        "turns": list(session.turns[:SHOWN_SESSIONS]),
        "questions": len(session.questions),
        "asked": None if first is None else (first.title or "")[:SHOWN_TITLE],
        "asked_at": None if first is None else first.asked_at,
    }
