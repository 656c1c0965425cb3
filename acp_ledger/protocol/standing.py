"""How the sessions of a connection stand: what runs in each, and what it waits for.

What must not be broken here: nothing changes by being asked, and only what can be named to the agent is given: a
session whose id is too long to be kept has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from acp_ledger.protocol.records import TO_CLIENT
from acp_ledger.protocol.requests import Asking

if TYPE_CHECKING:
    from acp_ledger.protocol.connection import Connection


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
