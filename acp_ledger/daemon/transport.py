"""The agent's side of a connection, and its place in the ledger: what a relay and a client have in common.

What must not be broken here: a line or a fact takes its number, is read by the observer and is queued in one step
without an await, so the order of the numbers is the order of the queue; and the first cause of an end counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import trio

from acp_ledger import logs
from acp_ledger.daemon.clock import WallClock
from acp_ledger.daemon.streams import Budget, Outlet
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, DeliveryMark, Direction, EventKind
from acp_ledger.protocol.standing import summary

if TYPE_CHECKING:
    from acp_ledger.daemon.agent import Agent, Children
    from acp_ledger.daemon.committer import Committer
    from acp_ledger.daemon.lanes import Lane, Outbox
    from acp_ledger.daemon.own import Own
    from acp_ledger.protocol.framing import Oversize
    from acp_ledger.protocol.observer import Observer
    from acp_ledger.protocol.standing import Standing

WAITING_LINES: Final = 4096
WAITING_BYTES: Final = 8 << 20
"""What one direction may hold between reading and having written; one longer line passes alone."""

MARK_EVERY: Final = 256
"""Lines written to a peer after which the ledger is told how far delivery came."""


class Cause(Enum):
    """Why a connection ends; the value is its `close_reason`."""

    AGENT = "agent_ended"
    EDITOR = "editor_ended"
    CALLER = "caller_ended"
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


class Transport(ABC):
    """A connection between its opening and its end."""

    def __init__(self, house: House, transport_id: int, observer: Observer, outboxes: dict[Direction, Outbox]) -> None:
        self.house = house
        self.rules = house.rules
        self.transport_id = transport_id
        self.observer = observer
        self.to_agent: Outlet | None = None
        self.agent: Agent | None = None
        self.lane: Lane = house.committer.lane(transport_id, outboxes)
        self.over = trio.Event()
        self.cause: Cause | None = None
        self.stopped_by: str | None = None
        self.oversized: Direction | None = None
        self.reading = trio.CancelScope()
        self.log = logs.get_logger(transport_id=transport_id)
        self._sessions = 0  # whose ids the log has
        self._clock = WallClock()
        self._marked = {TO_CLIENT: 0, TO_AGENT: 0}

    @abstractmethod
    def hear_stderr(self, data: bytes) -> None:
        """Take what the agent wrote to its standard error."""

    @abstractmethod
    def cancel(self, session: Standing, operator: str) -> tuple[int, int]:
        """Cancel what runs in a session, for an operator; gives the first and last number of what the agent hears."""

    def outlets(self) -> dict[Direction, Outlet | None]:
        """The ways to the peers there are."""
        return {TO_AGENT: self.to_agent}

    def end(self, cause: Cause) -> None:
        """The connection is to end; the first cause counts."""
        if self.cause is None:
            self.cause = cause
            self.over.set()

    def note(self, kind: EventKind, *, all_marks: bool = False, **fields: Any) -> None:
        """Record a fact that is not a line."""
        marks = self._marks(1 if all_marks else MARK_EVERY)
        self.lane.put(self.observer.event(kind, self._clock.now(), marks=marks, **fields))

    def say(self, own: Own) -> int:
        """Record a line of our own, and forward it once it is committed; gives its number."""
        if (outlet := self.outlets().get(own.direction)) is not None:
            outlet.budget.take(len(own.body))
        entries = self.observer.line(
            own.direction, own.body, self._clock.now(), origin=own.origin, rule=own.rule, operator=own.operator
        )
        self.lane.put(entries, own.body)
        return entries[0].record.frame_seq

    def stop(self, operator: str) -> None:
        """End the agent for good, because an operator says so; a hold ends with it."""
        if self.cause is None:
            self.stopped_by = operator
        self.halt(Cause.OPERATOR)

    def halt(self, cause: Cause) -> None:
        """End at once, also while the ledger is held."""
        if self.house.committer.health.held:
            self.lane.fail(self.house.committer.health.failure())
        self.end(cause)

    def connect(self, agent: Agent) -> Outlet:
        """Take the agent that was started as the other side; gives the way to it."""
        self.agent = agent
        self.to_agent = Outlet(agent.stdin, Budget(self.rules.waiting_lines, self.rules.waiting_bytes))
        return self.to_agent

    async def end_agent(self, patience: float) -> None:
        """End the agent for good; it has `patience` seconds to do so by itself, none in a hurry."""
        if self.agent is not None and self.to_agent is not None:
            self.to_agent.close()
            await self.agent.end(patience, self.house.hurry)

    def close(self) -> None:
        """Close both sides. An agent that still runs, because the daemon breaks down, is killed."""
        for outlet in self.outlets().values():
            if outlet is not None:
                outlet.close()
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

    async def watch_house(self) -> None:
        """Act on the daemon being stopped; a hold ends with it."""
        await self.house.stopping.wait()
        self.halt(Cause.STOPPED)

    def delivered(self) -> list[tuple[Direction, int]]:
        """The last number that was written whole to each peer; a peer that got nothing is left out."""
        ways = self.outlets().items()
        return [(way, outlet.through) for way, outlet in ways if outlet is not None and outlet.through]

    def _marks(self, every: int) -> tuple[DeliveryMark, ...]:
        """How far delivery came, for the directions that moved by `every` numbers since the ledger was told."""
        moved = [(way, through) for way, through in self.delivered() if through - self._marked[way] >= every]
        self._marked.update(moved)
        return tuple(DeliveryMark(0, 0, "", way, through) for way, through in moved)  # the observer stamps them

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

    def _log_sessions(self) -> None:
        """From here on the log's events of this connection are found by the ids of its sessions, the newest of them."""
        if len(self.observer.sessions) == self._sessions:
            return
        ids = list(self.observer.sessions)
        logs.get_logger(transport_id=self.transport_id, session_id=ids[self._sessions :]).info(logs.SESSION_SEEN)
        self.log = logs.get_logger(transport_id=self.transport_id, session_id=ids[-logs.LONGEST_LIST :])
        self._sessions = len(ids)
