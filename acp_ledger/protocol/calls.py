"""The tool calls a transport knows, so that a question can be joined to the call it is about.

What must not be broken here: a join is either exact, or inferred by the one rule below and named so, or there is none.

The inferred rule: the question's own call id was never seen in its session, its title is not empty, and exactly one
call of that session that has not ended carries the same title. Agents do ask under ids that occur nowhere else.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, TypeAlias

from acp_ledger.protocol.envelope import identity

KNOWN_CALLS: Final = 4_096
"""Calls of a transport that are remembered; past it the oldest are forgotten, and their questions join to nothing."""

Join: TypeAlias = tuple[str | None, Literal["exact", "inferred", "none"]]

_Call: TypeAlias = tuple[str | None, bool]


class KnownCalls:
    """Calls by session and id, each with the identity of its last title and whether it has ended."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: OrderedDict[tuple[int, str], _Call] = OrderedDict()

    def note(self, session_id: int, call_id: str, title: str | None, *, ended: bool | None) -> None:
        """Remember a step; a title or an end that it does not tell (None) stays what it was."""
        key = (session_id, call_id)
        known = self._calls.get(key)
        if known is None:
            if len(self._calls) >= KNOWN_CALLS:
                self._calls.popitem(last=False)
            known = (None, False)
        self._calls[key] = (identity(title) if title else known[0], known[1] if ended is None else ended)

    def join(self, session_id: int, call_id: str | None, title: str | None) -> Join:
        """The call a question is about, and how that is known."""
        if call_id is not None and (session_id, call_id) in self._calls:
            return call_id, "exact"
        if not title:
            return None, "none"
        wanted = (identity(title), False)
        found = [key[1] for key, call in self._calls.items() if key[0] == session_id and call == wanted]
        return (found[0], "inferred") if len(found) == 1 else (None, "none")
