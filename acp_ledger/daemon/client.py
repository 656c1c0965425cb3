"""One connection whose client we are: the agent's lines are read one by one, each committed before it counts.

What must not be broken here: a line is read, numbered, mapped and committed, and only then handed to the call that
waits; the next one is not numbered before that call is through with it. Nothing is answered that was not asked.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from acp_ledger.daemon.ending import refusal
from acp_ledger.daemon.gate import Gate, Inbox
from acp_ledger.daemon.own import Own, cancel_line
from acp_ledger.daemon.questions import Questions
from acp_ledger.daemon.streams import LineReader, Outlet
from acp_ledger.daemon.transport import MARK_EVERY, Cause, Transport
from acp_ledger.protocol.client_side import ClientLimits
from acp_ledger.protocol.framing import Oversize
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, Direction, Frame

if TYPE_CHECKING:
    from acp_ledger.daemon.agent import Agent
    from acp_ledger.daemon.terms import Terms
    from acp_ledger.daemon.transport import House
    from acp_ledger.protocol.envelope import Envelope
    from acp_ledger.protocol.framing import Line
    from acp_ledger.protocol.records import Derived, Entry
    from acp_ledger.protocol.standing import Standing

LAST_WORDS_SECONDS: Final = 2.0
"""How long output is awaited that something else may hold open, once the agent itself is gone."""


class CallFailed(Exception):
    """A call cannot go on: its kind (`dialogue.FAILURES`), a sentence for people, and what mends it."""

    def __init__(self, kind: str, message: str, hint: str | None = None) -> None:
        self.kind = kind
        self.message = message
        self.hint = hint
        super().__init__(message)


class Seen(NamedTuple):
    """A committed line of the agent: what it says, its rows, and why it ends the call, where it does."""

    body: bytes
    envelope: Envelope
    frame: Frame
    rows: tuple[Derived, ...]
    fault: str | None


class Client(Transport):
    """A connection between a caller's calls and an agent."""

    def __init__(self, house: House, transport_id: int, epoch: int, cwd: str, terms: Terms) -> None:
        limits = terms.limits
        counted = ClientLimits(
            limits.update_bytes, limits.update_count, limits.response_bytes, limits.response_segments
        )
        self.inbox = Inbox()
        super().__init__(
            house,
            transport_id,
            Observer(parse_bytes=limits.parse_bytes, client=counted),
            outboxes={TO_CLIENT: self.inbox},
        )
        self.terms = terms
        self.epoch = epoch
        self.cwd = cwd
        self.questions = Questions(transport_id)
        self.opened: dict[str, Any] = {}  # what the agent answered to the calls that opened its session
        self._gate: Gate | None = None
        self._source: LineReader | None = None
        self._waiting: deque[Line | Oversize] = deque()
        self._ended: CallFailed | None = None
        self._high_water = 0
        self._rejected = 0

    # ---- what any transport has

    def hear_stderr(self, data: bytes) -> None:
        """Its last words are kept with the agent, and nobody else reads them."""

    def connect(self, agent: Agent) -> Outlet:
        """Take the agent that was started as the other side; gives the way to it."""
        outlet = super().connect(agent)
        self.lane.outboxes[TO_AGENT] = self._gate = Gate(outlet)
        self._source = LineReader(agent.stdout, self.terms.limits.line_bytes)
        return outlet

    def end(self, cause: Cause) -> None:
        """The connection is to end; an end of the agent's before its caller left counts more than that."""
        if cause is Cause.CALLER and self._ended is not None:
            cause = _CAUSE_OF[self._ended.kind]
        super().end(cause)

    def cancel(self, session: Standing, operator: str) -> tuple[int, int]:
        """Cancel what runs in a session, for an operator; gives the first and last number of what the agent hears."""
        line = cancel_line(session.acp_session_id, operator)
        number = self.say(Own(TO_AGENT, line, "operator", operator=operator))
        self.questions.call_off(session.turns, operator)
        return number, number

    def delivered(self) -> list[tuple[Direction, int]]:
        """The last number that each side was through with; a side that got nothing is left out."""
        heard: list[tuple[Direction, int]] = [(TO_CLIENT, self.inbox.through)] if self.inbox.through else []
        return heard + super().delivered()

    def status(self) -> dict[str, Any]:
        """What `ledgerctl status` shows of it."""
        asked = len(self.questions.held)
        return {**super().status(), "mode": "client", **self.opened, "asked": asked, "reader": self.reader()}

    def reader(self) -> dict[str, Any]:
        """How the reading of the agent's lines stands, in bytes: what it may hold, holds, and held at most."""
        limit = self.terms.limits.line_bytes
        unread = sum(len(line.body) + line.terminated for line in self._waiting if not isinstance(line, Oversize))
        buffered = unread + (self._source.buffered if self._source else 0)
        return {
            "limit": limit,
            "storage": limit + 1,
            "buffered": limit + 1 if self._rejected else buffered,
            "high_water": self._high_water,
            "rejected": self._rejected,
            "phase": "ended" if self._ended and not self._rejected else "steady" if self._source else "starting",
            "terminal": bool(self._rejected),
        }

    # ---- reading

    async def next_line(self) -> Seen:
        """The agent's next line, in the ledger.

        Raises:
            CallFailed: There is none: its output ended or failed, the line is too long, or the ledger cannot take it.
        """
        while not self._waiting:
            if self._ended is not None:
                raise self._ended
            await self._read()
        seen = self._observed(self._waiting.popleft())
        await self.committed(seen.frame.frame_seq)
        if self.inbox.take(seen.frame.frame_seq) is None and seen.frame.delivery == "forward":
            raise CallFailed("ledger", "a line of the agent is not in the ledger")
        return seen

    async def _read(self) -> None:
        """Take what the agent has written; its end, where that is what there is."""
        if self._source is None:
            raise CallFailed("usage", "the agent does not run")
        await self.house.committer.health.released()
        try:
            if await self._readable(self._source):
                self._waiting.extend(self._source.lines())
            else:
                self._ended = self._stream_ended()
        except EOFError:
            self.note("eof", direction=TO_CLIENT)
            self._ended = self._stream_ended()
        except OSError as fault:
            words = fault.strerror or type(fault).__name__
            self.note("read_error", direction=TO_CLIENT, detail=words)
            self._ended = CallFailed("transport_failed", f"reading the agent's output failed: {words}")

    async def _readable(self, source: LineReader) -> bool:
        """Wait for output; False where the agent is gone and what it left behind keeps its output open, and silent."""
        came = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_waiting, nursery.cancel_scope)
            await source.readable()
            came = True
            nursery.cancel_scope.cancel()
        return came

    async def _stop_waiting(self, waiting: trio.CancelScope) -> None:
        if self.agent is not None:
            await self.agent.exited.wait()
            await trio.sleep(LAST_WORDS_SECONDS)
            waiting.cancel()

    def _stream_ended(self) -> CallFailed:
        ending = self.agent.ending if self.agent else None
        how = f" ({ending.words})" if ending else ""
        return CallFailed("stream_ended", f"the agent closed its output before it answered{how}{self._last_words()}")

    def _last_words(self) -> str:
        lines = self.agent.stderr_tail.decode("utf-8", "replace").splitlines() if self.agent else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        said = "".join(character for character in last[:300] if character.isprintable())
        return f"; its stderr ends with: {said}" if said else ""

    def _observed(self, line: Line | Oversize) -> Seen:
        """Number a line, map it and queue it, in one step."""
        now = self._read_at()
        if isinstance(line, Oversize):
            self._high_water = self.terms.limits.line_bytes
            self._rejected += 1
            self._oversize(TO_CLIENT, line, now)
            sentence = f"a line of the agent is over limits.line_bytes ({self._high_water}), and nothing more is read"
            self._ended = CallFailed("limit", sentence)
            raise self._ended
        self._high_water = max(self._high_water, len(line.body))
        envelope = self.observer.read(line.body)
        entries = self.observer.line(
            TO_CLIENT, line.body, now, envelope=envelope, terminated=line.terminated, marks=self._marks(MARK_EVERY)
        )
        seen = Seen(line.body, envelope, _frame(entries[0]), entries[0].rows, self.observer.fault)
        self.lane.put(entries, line.body)
        self._log_sessions()
        return seen

    def newest_turn(self) -> int | None:
        """The number of the turn that was opened last, of those that run."""
        return max((turn for session in self.observer.standings() for turn in session.turns), default=None)

    # ---- saying

    def send(self, line: bytes) -> int:
        """Record a line of our own, and send it once it is committed; gives its number.

        Raises:
            CallFailed: It is over `limits.request_bytes`; nothing is written.
        """
        if self.is_too_long(line):
            raise CallFailed(
                "limit",
                f"a request of {len(line) + 1} bytes is over limits.request_bytes ({self.terms.limits.request_bytes}); "
                "nothing was sent",
            )
        return self.say(Own(TO_AGENT, line))

    def is_too_long(self, line: bytes) -> bool:
        """Whether a line, with its newline, is over `limits.request_bytes`."""
        return len(line) + 1 > self.terms.limits.request_bytes

    def answer(self, own: Own, *, withhold: bool) -> tuple[Frame, tuple[Derived, ...]]:
        """Record an answer to a question, and keep it from the agent until it is released; gives what was recorded."""
        number = self.observer.next_seq
        entries = self.observer.line(
            TO_AGENT,
            own.body,
            self._clock.now(),
            origin=own.origin,
            rule=own.rule,
            operator=own.operator,
            claimed=own.claimed,
            delivery="withhold" if withhold else "forward",
        )
        if self._gate is not None and not withhold:
            self._gate.keep(number)
        self.lane.put(entries, None if withhold else own.body)
        return _frame(entries[0]), entries[0].rows

    def release(self, frame_seq: int) -> None:
        """The agent may hear an answer that was recorded."""
        if self._gate is not None:
            self._gate.release(frame_seq)

    async def committed(self, frame_seq: int) -> None:
        """Wait until that number is in the ledger.

        Raises:
            CallFailed: It never will be.
        """
        await self.lane.reached(frame_seq)
        if self.lane.failure is not None:
            raise CallFailed("ledger", refusal(self.lane.failure), self.lane.failure.hint)

    # ---- the end

    async def read_to_the_end(self) -> None:
        """Nothing of the agent runs any more: record what it left in its pipe, as far as it comes by itself."""
        with trio.move_on_after(LAST_WORDS_SECONDS):
            while self._ended is None and self._source is not None:
                await self._read()
                while self._waiting and self._ended is None:
                    try:
                        self._observed(self._waiting.popleft())
                    except CallFailed:
                        return


def _frame(entry: Entry) -> Frame:
    if isinstance(entry.record, Frame):
        return entry.record
    raise TypeError("a line gives a frame first")


_CAUSE_OF: Final = {"stream_ended": Cause.AGENT, "transport_failed": Cause.READ, "limit": Cause.OVERSIZE}
