"""One connection: an editor's runner on one side, an agent's process on the other, the ledger between them.

What must not be broken here: in one step without an await a line takes its number, is read by the observer and is
queued; so the order of the numbers is the order of the queue. What is forwarded are the bytes that were read. Neither
direction waits for the other's peer: each has a budget, a reader and an outlet of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import trio

from acp_ledger import logs
from acp_ledger.daemon.backlog import Backlog
from acp_ledger.daemon.clock import WallClock
from acp_ledger.daemon.guard import Guard, guard_of
from acp_ledger.daemon.streams import Budget, Hangup, LineReader, Outlet, RunnerOutlet
from acp_ledger.policy import Policy
from acp_ledger.protocol.framing import Oversize
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, DeliveryMark, Direction, EventKind
from acp_ledger.protocol.standing import summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_ledger.daemon.agent import Agent, Children
    from acp_ledger.daemon.committer import Committer
    from acp_ledger.daemon.lanes import Lane
    from acp_ledger.daemon.own import Own
    from acp_ledger.daemon.streams import Descriptor
    from acp_ledger.protocol.framing import Line
    from acp_ledger.protocol.standing import Standing

WAITING_LINES: Final = 4096
WAITING_BYTES: Final = 8 << 20
"""What one direction may hold between reading and having written; one longer line passes alone."""

_OBSERVE: Final = Policy()

LINES_A_STEP: Final = 32
"""Lines of one read after which other connections, and the committer, get a turn."""

MARK_EVERY: Final = 256
"""Lines written to a peer after which the ledger is told how far delivery came."""


class Cause(Enum):
    """Why a connection ends; the value is its `close_reason`."""

    AGENT = "agent_ended"
    EDITOR = "editor_ended"
    STOPPED = "daemon_stopped"
    OVERSIZE = "line_too_long"
    READ = "read_failed"
    NOT_STARTED = "agent_not_started"
    OPERATOR = "operator_stopped"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a relay goes by: limits in bytes, times in seconds."""

    line_bytes: int
    parse_bytes: int
    stop_seconds: float
    strict: bool = False
    waiting_lines: int = WAITING_LINES
    waiting_bytes: int = WAITING_BYTES


@dataclass(frozen=True, slots=True)
class House:
    """What all relays of a daemon share."""

    committer: Committer
    children: Children
    rules: Rules
    stopping: trio.Event
    hurry: trio.Event


class Relay:
    """A connection between its opening and its end. `ending.finish` says how it ends."""

    def __init__(
        self, house: House, transport_id: int, runner: Descriptor, first: bytes = b"", policy: Policy = _OBSERVE
    ) -> None:
        rules = house.rules
        self.house = house
        self.rules = rules
        self.transport_id = transport_id
        self.observer = Observer(parse_bytes=rules.parse_bytes)
        self.to_client = RunnerOutlet(runner, Budget(rules.waiting_lines, rules.waiting_bytes))
        self.to_agent: Outlet | None = None
        self.agent: Agent | None = None
        self.lane: Lane = house.committer.lane(transport_id, {TO_CLIENT: self.to_client})
        self.lane.awaited = self._awaited
        self.over = trio.Event()
        self.cause: Cause | None = None
        self.stopped_by: str | None = None
        self.oversized: Direction | None = None
        self.reading = trio.CancelScope()
        self.editor_reading = trio.CancelScope()
        self.ended = {TO_CLIENT: trio.Event(), TO_AGENT: trio.Event()}
        self.log = logs.get_logger(transport_id=transport_id)
        self._policy = policy
        self._guard = guard_of(policy, self.observer, strict=rules.strict)
        self._backlog = {TO_CLIENT: Backlog(self.lane), TO_AGENT: Backlog(self.lane)}
        self._sessions = 0  # whose ids the log has
        self._runner = runner
        self._first = first
        self._clock = WallClock()
        self._marked = {TO_CLIENT: 0, TO_AGENT: 0}

    # ---- what the parts of a relay call

    def end(self, cause: Cause) -> None:
        """The connection is to end; the first cause counts."""
        if self.cause is None:
            self.cause = cause
            self.over.set()

    def note(self, kind: EventKind, *, all_marks: bool = False, **fields: Any) -> None:
        """Record a fact that is not a line."""
        marks = self._marks(1 if all_marks else MARK_EVERY)
        self.lane.put(self.observer.event(kind, self._clock.now(), marks=marks, **fields))

    def say(self, own: Own) -> None:
        """Record a line of our own, and forward it once it is committed."""
        if (outlet := self._outlet(own.direction)) is not None:
            outlet.budget.take(len(own.body))
        now = self._clock.now()
        entries = self.observer.line(
            own.direction, own.body, now, origin=own.origin, rule=own.rule, operator=own.operator
        )
        self.lane.put(entries, own.body)

    def call_off(self, session: Standing, operator: str) -> None:
        """From now on no question of the session's open turns is shown, and no late answer to one of ours passes."""
        if self._guard is None:
            self._guard = Guard(self._policy, self.observer, strict=self.rules.strict)
        self._guard.call_off(session, operator)

    def stop(self, operator: str) -> None:
        """End the agent for good, because an operator says so; a hold ends with it."""
        if self.cause is None:
            self.stopped_by = operator
        self._stop(Cause.OPERATOR)

    def _stop(self, cause: Cause) -> None:
        if self.house.committer.health.held:
            self.lane.fail(self.house.committer.health.failure())
        self.end(cause)

    def _outlet(self, direction: Direction) -> Outlet | None:
        return self.to_client if direction == TO_CLIENT else self.to_agent

    def connect(self, agent: Agent) -> Outlet:
        """Take the agent that was started as the other side; gives the way to it."""
        self.agent = agent
        self.to_agent = Outlet(agent.stdin, Budget(self.rules.waiting_lines, self.rules.waiting_bytes))
        self.lane.outboxes[TO_AGENT] = self.to_agent
        return self.to_agent

    async def hush_agent(self) -> None:
        """Close the agent's input, once everything it was told has reached it."""
        if self.to_agent is not None:
            await self.to_agent.drained(self.rules.stop_seconds)
            self.to_agent.close()

    async def end_agent(self, patience: float) -> None:
        """End the agent for good; it has `patience` seconds to do so by itself, none in a hurry."""
        if self.agent is not None and self.to_agent is not None:
            self.to_agent.close()
            await self.agent.end(patience, self.house.hurry)

    def close(self) -> None:
        """Close both sides. An agent that still runs, because the daemon breaks down, is killed."""
        self.to_client.close()
        if self.to_agent is not None:
            self.to_agent.close()
        if self.agent is not None:
            self.agent.close()

    def status(self) -> dict[str, Any]:
        """What `ledgerctl status` shows of it."""
        return {
            "transport_id": self.transport_id,
            **summary(self.observer.standings()),
            "pid": self.agent.facts.pid if self.agent else None,
            "revision": self.observer.revision,
            "numbers": self.observer.next_seq - 1,
            "queued": len(self.lane.pending),
            "ending": self.cause.value if self.cause else None,
        }

    def _awaited(self) -> bool:
        return self.cause is not Cause.EDITOR and bool(self.observer.open_requests(TO_AGENT))

    # ---- the long tasks

    async def watch_editor(self) -> None:
        """Act on the editor's end of the socket closing, also while its lines wait for the agent."""
        hangup = Hangup(self._runner.fd)
        try:
            await hangup.wait()
        finally:
            hangup.close()
        self.end(Cause.EDITOR)

    async def watch_house(self) -> None:
        """Act on the daemon being stopped; a hold ends with it."""
        await self.house.stopping.wait()
        self._stop(Cause.STOPPED)

    async def watch_agent(self, agent: Agent) -> None:
        """Act on the agent's end."""
        await agent.wait()
        self.end(Cause.AGENT)

    async def pump_editor(self, to_agent: Outlet) -> None:
        """Read what the editor says, as far as the agent takes it."""
        with self.editor_reading:
            await self._pump(LineReader(self._runner, self.rules.line_bytes, self._first), TO_AGENT, to_agent)

    async def pump_agent(self, agent: Agent) -> None:
        """Read what the agent says, as far as the editor takes it; nothing while the ledger is held."""
        with self.reading:
            await self._pump(LineReader(agent.stdout, self.rules.line_bytes), TO_CLIENT, self.to_client)

    async def _pump(self, reader: LineReader, direction: Direction, outlet: Outlet) -> None:
        try:
            while True:
                await outlet.budget.room()
                await reader.readable()
                if direction == TO_CLIENT:
                    await self.house.committer.health.released()
                if not await self._take(direction, outlet, reader.lines()):
                    return
        except EOFError:
            self._eof(direction)
        except OSError as fault:
            self.note("read_error", direction=direction, detail=fault.strerror or type(fault).__name__)
            self.end(Cause.READ if direction == TO_CLIENT else Cause.EDITOR)
            self.ended[direction].set()

    async def _take(self, direction: Direction, outlet: Outlet, lines: Sequence[Line | Oversize]) -> bool:
        """Take the lines of one read; False when nothing may be read any more."""
        now, marks = self._read_at(), self._marks(MARK_EVERY)
        for count, line in enumerate(lines, 1):
            if isinstance(line, Oversize):
                self._oversize(direction, line, now)
                return False
            if self._guard is not None and self._guard.concerns(line.body):
                await self._judge(self._guard, direction, outlet, line, now, marks)
            else:
                outlet.budget.take(len(line.body))
                entries = self.observer.line(direction, line.body, now, terminated=line.terminated, marks=marks)
                self.lane.put(entries, line.body)
            marks = ()
            if not count % LINES_A_STEP:
                await trio.lowlevel.checkpoint()
        if len(self.observer.sessions) != self._sessions:
            self._log_sessions()
        return True

    def _log_sessions(self) -> None:
        """From here on the log's events of this connection are found by the ids of its sessions, the newest of them."""
        ids = list(self.observer.sessions)
        logs.get_logger(transport_id=self.transport_id, session_id=ids[self._sessions :]).info(logs.SESSION_SEEN)
        self.log = logs.get_logger(transport_id=self.transport_id, session_id=ids[-logs.LONGEST_LIST :])
        self._sessions = len(ids)

    async def _judge(
        self,
        guard: Guard,
        direction: Direction,
        outlet: Outlet,
        line: Line,
        now: int,
        marks: Sequence[DeliveryMark],
    ) -> None:
        """Take a line that may have to be withheld; what is said in its place takes the numbers behind it."""
        envelope = self.observer.read(line.body)
        instead = guard.judge(direction, envelope, ending=self.cause is not None)
        entries = self.observer.line(
            direction,
            line.body,
            now,
            envelope=envelope,
            terminated=line.terminated,
            delivery="forward" if instead is None else "withhold",
            marks=marks,
        )
        if instead is None:
            outlet.budget.take(len(line.body))
            self.lane.put(entries, line.body)
            return
        backlog = self._backlog[direction]
        backlog.withheld(entries[0].record.frame_seq, len(line.body))
        self.lane.put(entries)
        for own in instead:
            if (way := self._outlet(own.direction)) is not None:
                backlog.said(self.observer.next_seq, way)
            self.say(own)
        await backlog.room()

    def _read_at(self) -> int:
        step = self._clock.step()
        if step is not None:
            self.log.warning(logs.CLOCK_STEPPED, microseconds=step)
            self.note("clock_step", detail=f"the wall clock moved by {step} microseconds")
        return self._clock.now()

    def _oversize(self, direction: Direction, line: Oversize, now: int) -> None:
        self.log.error(logs.FRAME_OVERSIZED, direction=direction, length=line.length)
        self.lane.put(
            self.observer.oversize(direction, now, length=line.length, prefix_digest=line.prefix_digest, marks=())
        )
        self.oversized = direction
        self.end(Cause.OVERSIZE)

    def _eof(self, direction: Direction) -> None:
        self.note("eof", direction=direction)
        self.end(Cause.AGENT if direction == TO_CLIENT else Cause.EDITOR)
        self.ended[direction].set()

    def _marks(self, every: int) -> tuple[DeliveryMark, ...]:
        """How far delivery came, for the directions that moved by `every` numbers since the ledger was told."""
        moved = [(way, through) for way, through in self.delivered() if through - self._marked[way] >= every]
        self._marked.update(moved)
        return tuple(DeliveryMark(0, 0, "", way, through) for way, through in moved)  # the observer stamps them

    def delivered(self) -> list[tuple[Direction, int]]:
        """The last number that was written whole to each peer; a peer that got nothing is left out."""
        outlets: tuple[tuple[Direction, Outlet | None], ...] = ((TO_CLIENT, self.to_client), (TO_AGENT, self.to_agent))
        return [(way, outlet.through) for way, outlet in outlets if outlet is not None and outlet.through]
