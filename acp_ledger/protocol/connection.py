"""What is known about one connection between two of its lines, and nothing more.

What must not be broken here: it holds only what later lines are read against, all of it bounded, so that memory stays
flat however long the connection lives; and all of it follows from the stored lines and events alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acp_ledger.protocol.calls import KnownCalls
from acp_ledger.protocol.exchange import Exchange
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, Direction
from acp_ledger.protocol.revisions import START, Reading
from acp_ledger.protocol.sessions import Sessions
from acp_ledger.protocol.transcript import Joined, Transcript

if TYPE_CHECKING:
    from acp_ledger.protocol.draft import Draft
    from acp_ledger.protocol.own_calls import OwnCalls


class Connection:
    """The state of one connection.

    `reading` is how its frames are read now; `settled` says that an `initialize` result has settled that.
    `asked` holds the waiting requests by the direction they were sent in; `own` follows our own calls where we are the
    agent's client.
    """

    __slots__ = ("asked", "calls", "own", "reading", "sessions", "settled", "transcript", "updates")

    def __init__(self, text_bytes: int) -> None:
        self.reading: Reading = START
        self.settled = False
        self.sessions = Sessions()
        self.calls = KnownCalls()
        self.transcript = Transcript(text_bytes)
        self.asked: dict[Direction, Exchange] = {TO_CLIENT: Exchange(), TO_AGENT: Exchange()}
        self.updates = 0
        self.own: OwnCalls | None = None

    def write_messages(self, draft: Draft, ended: list[Joined]) -> None:
        """Add messages that ended here, and count the agent's to the turns they belong to."""
        for joined in ended:
            turn = None if joined.turn_id is None else self.sessions.turns.get(joined.turn_id)
            if turn is not None and joined.stream == "agent":
                turn.text_bytes += joined.text_bytes
        draft.messages(ended)


OTHER_WAY: Final[dict[Direction, Direction]] = {TO_CLIENT: TO_AGENT, TO_AGENT: TO_CLIENT}
