"""Which answer belongs to which question: the requests of one direction that wait for their answer.

What must not be broken here: nothing is guessed. An answer belongs to a request that was sent the *other* way under
the same id, or to none; the same id may wait in both directions at once, for each side numbers its own requests. The
first request under an id keeps its place when a second one comes under the same id: answers are then taken in the
order of asking, and each of them is told as ambiguous.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

PENDING_REQUESTS: Final = 4_096
"""Requests of one direction that may wait at once. One more is recorded and relayed, but its answer is an orphan."""

PENDING_WEIGHT: Final = 4 * 1024 * 1024
"""Characters of ids, titles and offers that the waiting requests of one direction may hold between them."""

ANSWERED_IDS: Final = 1_024
"""Answered ids that are remembered, so that a second answer is told as late; older ones are orphans."""

Asked: TypeAlias = Literal["pending", "duplicate", "untracked"]
Verdict: TypeAlias = Literal["first", "shared", "late", "orphan"]

ANOMALY_OF_ASKED: Final[dict[Asked, str | None]] = {
    "pending": None,
    "duplicate": "duplicate_id",
    "untracked": "bound_reached",
}
ANOMALY_OF_VERDICT: Final[dict[Verdict, str | None]] = {
    "first": None,
    "shared": "ambiguous_answer",
    "late": "late_answer",
    "orphan": "orphan_response",
}


class Request:
    """A request that waits for its answer.

    `id_token` is the raw JSON token of its id, `method` the word as it is stored, and `subject` what the answer will
    be read against; `shared` is the frame of another request that waits, or waited, under the same id.
    """

    __slots__ = ("frame_seq", "id_token", "method", "session_id", "shared", "subject", "turn_id", "weight")

    def __init__(
        self,
        *,
        id_token: str,
        method: str,
        frame_seq: int,
        session_id: int | None = None,
        turn_id: int | None = None,
        subject: object = None,
        weight: int = 0,
    ) -> None:
        self.id_token = id_token
        self.method = method
        self.frame_seq = frame_seq
        self.session_id = session_id
        self.turn_id = turn_id
        self.subject = subject
        self.weight = weight + len(id_token)
        self.shared: int | None = None


class _Answered(NamedTuple):
    """The frame that answered, and whether that was a line of our own."""

    frame_seq: int
    ours: bool


class Match(NamedTuple):
    """What an answer answers. `related` is the frame of the other request or answer that the verdict is about."""

    verdict: Verdict
    request: Request | None = None
    related: int | None = None


class Exchange:
    """The waiting requests of one direction, oldest first."""

    __slots__ = ("_answered", "_count", "_pending", "_weight")

    def __init__(self) -> None:
        self._pending: dict[Hashable, list[Request]] = {}
        self._answered: OrderedDict[Hashable, _Answered] = OrderedDict()
        self._count = 0
        self._weight = 0

    def waiting(self) -> list[Request]:
        """Every waiting request, in the order of asking."""
        requests = [request for queue in self._pending.values() for request in queue]
        return sorted(requests, key=lambda request: request.frame_seq)

    def clear(self) -> None:
        """Let nothing wait any longer."""
        self._pending.clear()
        self._count = self._weight = 0

    def ask(self, key: Hashable, request: Request) -> tuple[Asked, int | None]:
        """Let a request wait; with the frame of the first one under the same id when there is one."""
        if self._count >= PENDING_REQUESTS or self._weight + request.weight > PENDING_WEIGHT:
            return "untracked", None
        self._count += 1
        self._weight += request.weight
        self._answered.pop(key, None)
        queue = self._pending.setdefault(key, [])
        queue.append(request)
        if len(queue) == 1:
            return "pending", None
        queue[0].shared = request.frame_seq
        request.shared = queue[0].frame_seq
        return "duplicate", queue[0].frame_seq

    def peek(self, key: Hashable) -> Request | None:
        """The request that an answer under this id belongs to; nothing changes."""
        queue = self._pending.get(key)
        return queue[0] if queue else None

    def is_settled_here(self, key: Hashable) -> bool:
        """Whether what was asked under this id was answered by a line of our own, and nothing was asked since."""
        answered = self._answered.get(key)
        return answered is not None and answered.ours

    def answer(self, key: Hashable, frame_seq: int, *, ours: bool = False) -> Match:
        """Take the request that an answer under this id belongs to; `ours` says that no peer made the answer."""
        queue = self._pending.get(key)
        if queue is None:
            answered = self._answered.get(key)
            return Match("orphan") if answered is None else Match("late", related=answered.frame_seq)
        request = queue.pop(0)
        if not queue:
            del self._pending[key]
            self._remember(key, _Answered(frame_seq, ours))
        self._count -= 1
        self._weight -= request.weight
        return Match("first" if request.shared is None else "shared", request, request.shared)

    def _remember(self, key: Hashable, answered: _Answered) -> None:
        if len(self._answered) >= ANSWERED_IDS:
            self._answered.popitem(last=False)
        self._answered[key] = answered
