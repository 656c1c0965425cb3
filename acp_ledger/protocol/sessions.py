"""The sessions and turns of a transport, and the windows in which an agent tells an old conversation again.

What must not be broken here: a session and a turn have one small number each, given at first sight and never again;
a frame belongs to a turn only when exactly one is open in its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acp_ledger.protocol.envelope import identity
from acp_ledger.protocol.records import Phase, Session, Turn

if TYPE_CHECKING:
    from collections.abc import KeysView

    from acp_ledger.protocol.draft import Draft

SESSIONS: Final = 4_096
"""Sessions of one transport that get a number; frames of a further one carry none, and an anomaly says so."""

OPEN_TURNS: Final = 1_024
"""Turns that may be open at once on a transport; a further prompt is recorded, without a turn of its own."""


class OpenTurn:
    """A prompt turn that has not ended. `text_bytes` counts its agent messages as they are written.

    `cancelled` says that the editor asked for its end, which the agent may not have heard yet.
    """

    __slots__ = ("cancelled", "ended", "session", "text_bytes", "turn_id")

    def __init__(self, turn_id: int, session: SessionState) -> None:
        self.turn_id = turn_id
        self.session = session
        self.text_bytes = 0
        self.ended = False
        self.cancelled = False


class SessionState:
    """A session as far as it is followed.

    `loads` counts the `session/load` requests that wait for their answer; `forked` says that the session was first
    seen while a `session/fork` waited, so that what it tells until then is an old conversation.
    """

    __slots__ = ("forked", "loads", "number", "turns", "turns_begun")

    def __init__(self, number: int) -> None:
        self.number = number
        self.turns: list[OpenTurn] = []
        self.turns_begun = 0
        self.loads = 0
        self.forked = False

    def cancel(self) -> None:
        """The editor asked for the end of what is open here."""
        for turn in self.turns:
            turn.cancelled = True

    @property
    def replays(self) -> bool:
        """Whether conversation that arrives now is told again, not new."""
        return self.loads > 0 or self.forked


class Sessions:
    """Every session of a transport by its id, and every open turn by its number."""

    __slots__ = ("_by_id", "_by_number", "_forks", "_turn_id", "opened", "turns")

    def __init__(self) -> None:
        self._by_id: dict[str, SessionState] = {}
        self._by_number: dict[int, SessionState] = {}
        self._forks = 0
        self._turn_id = 0
        self.turns: dict[int, OpenTurn] = {}
        self.opened = False

    @property
    def ids(self) -> KeysView[str]:
        """The ids of the sessions seen so far, in order; of one that is too long its digest."""
        return self._by_id.keys()

    def see(self, acp_session_id: str, draft: Draft, *, update: bool = False) -> SessionState | None:
        """The session with that id, numbered now when it is new; None past the bound."""
        identified = identity(acp_session_id)
        state = self._by_id.get(identified)
        return state if state is not None else self._first_sight(identified, draft, update=update)

    def _first_sight(self, identified: str, draft: Draft, *, update: bool) -> SessionState | None:
        number = len(self._by_id) + 1
        if number > SESSIONS:
            draft.anomaly("bound_reached", "sessions")
            return None
        state = self._by_id[identified] = self._by_number[number] = SessionState(number)
        state.forked = update and self._forks > 0
        draft.rows.append(Session(draft.seq, draft.ordinal(Session), draft.revision, number, identified))
        return state

    def by_id(self) -> list[tuple[str, SessionState]]:
        """Every session with its id, in the order in which they were first seen."""
        return list(self._by_id.items())

    def is_cancelled(self, acp_session_id: str) -> bool:
        """Whether a turn is open in that session whose end its editor has asked for."""
        state = self._by_id.get(identity(acp_session_id))
        return state is not None and any(turn.cancelled for turn in state.turns)

    def numbered(self, number: int | None) -> SessionState | None:
        """The session with that number."""
        return None if number is None else self._by_number.get(number)

    def phase(self, state: SessionState | None) -> Phase:
        """The phase of a frame of that session, or of none, outside a replay."""
        if state is not None and state.turns:
            return "turn"
        return "between" if self.opened else "setup"

    def begin_turn(self, state: SessionState, draft: Draft) -> OpenTurn | None:
        """Open a turn with the prompt that this draft is about; None past the bound."""
        if len(self.turns) >= OPEN_TURNS:
            draft.anomaly("bound_reached", "open turns")
            return None
        self._turn_id += 1
        state.turns_begun += 1
        turn = OpenTurn(self._turn_id, state)
        state.turns.append(turn)
        self.turns[turn.turn_id] = turn
        draft.turn_id = turn.turn_id
        draft.rows.append(
            Turn(
                draft.seq,
                draft.ordinal(Turn),
                draft.revision,
                state.number,
                turn.turn_id,
                state.turns_begun,
                first_frame=draft.seq,
                prompt_frame=draft.seq,
            )
        )
        return turn

    def end_turn(self, turn: OpenTurn) -> None:
        """Close a turn."""
        turn.ended = True
        turn.session.turns.remove(turn)
        del self.turns[turn.turn_id]

    def fork_asked(self) -> None:
        """A `session/fork` waits: sessions first seen from now on tell an old conversation."""
        self._forks += 1

    def fork_answered(self, state: SessionState | None) -> None:
        """A `session/fork` was answered with that session, or failed."""
        self._forks -= 1
        if state is not None:
            state.forked = False
        if self._forks == 0:
            for one in self._by_id.values():
                one.forked = False
