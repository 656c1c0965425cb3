"""One connection: an editor's runner on one side, an agent's process on the other, the ledger between them.

What must not be broken here: in one step without an await a line takes its number, is read by the observer and is
queued; so the order of the numbers is the order of the queue. What is forwarded are the bytes that were read. Neither
direction waits for the other's peer: each has a budget, a reader and an outlet of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from acp_ledger.daemon.backlog import Backlog
from acp_ledger.daemon.guard import Guard, guard_of
from acp_ledger.daemon.own import Own, cancel_line, withdrawal_line
from acp_ledger.daemon.streams import Budget, Hangup, LineReader, Outlet, RunnerOutlet
from acp_ledger.daemon.transport import MARK_EVERY, Cause, Transport
from acp_ledger.policy import Policy
from acp_ledger.protocol.framing import Oversize
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.permission import answer_line
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, DeliveryMark, Direction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_ledger.daemon.agent import Agent
    from acp_ledger.daemon.streams import Descriptor
    from acp_ledger.daemon.transport import House
    from acp_ledger.protocol.framing import Line
    from acp_ledger.protocol.standing import Standing

_OBSERVE: Final = Policy()

LINES_A_STEP: Final = 32
"""Lines of one read after which other connections, and the committer, get a turn."""


class Relay(Transport):
    """A connection between an editor and an agent. `ending.live` says how it ends."""

    def __init__(
        self, house: House, transport_id: int, runner: Descriptor, first: bytes = b"", policy: Policy = _OBSERVE
    ) -> None:
        rules = house.rules
        self.to_client = RunnerOutlet(runner, Budget(rules.waiting_lines, rules.waiting_bytes))
        super().__init__(
            house, transport_id, Observer(parse_bytes=rules.parse_bytes), outboxes={TO_CLIENT: self.to_client}
        )
        self.lane.awaited = self._awaited
        self.editor_reading = trio.CancelScope()
        self.ended = {TO_CLIENT: trio.Event(), TO_AGENT: trio.Event()}
        self._policy = policy
        self._guard = guard_of(policy, self.observer, strict=rules.strict)
        self._backlog = {TO_CLIENT: Backlog(self.lane), TO_AGENT: Backlog(self.lane)}
        self._runner = runner
        self._first = first

    # ---- what the parts of a relay call

    def outlets(self) -> dict[Direction, Outlet | None]:
        """The ways to the peers there are."""
        return {TO_CLIENT: self.to_client, TO_AGENT: self.to_agent}

    def hear_stderr(self, data: bytes) -> None:
        """Pass on what the agent wrote to its standard error, as far as the runner takes it."""
        self.to_client.stderr(data)

    def cancel(self, session: Standing, operator: str) -> tuple[int, int]:
        """Cancel what runs in a session, for an operator; gives the first and the last number of what the agent hears.

        From now on no question of the session's open turns is shown, and no late answer to one of ours passes.
        """
        first = last = self.say(
            Own(TO_AGENT, cancel_line(session.acp_session_id, operator), "operator", operator=operator)
        )
        for question in session.questions:
            last = self.say(Own(TO_AGENT, answer_line(question.id_token, None), "operator", operator=operator))
        for question in session.questions:
            self.say(Own(TO_CLIENT, withdrawal_line(question.id_token), "operator", operator=operator))
        if self._guard is None:
            self._guard = Guard(self._policy, self.observer, strict=self.rules.strict)
        self._guard.call_off(session, operator)
        return first, last

    def connect(self, agent: Agent) -> Outlet:
        """Take the agent that was started as the other side; gives the way to it."""
        self.lane.outboxes[TO_AGENT] = to_agent = super().connect(agent)
        return to_agent

    async def hush_agent(self) -> None:
        """Close the agent's input, once everything it was told has reached it."""
        if self.to_agent is not None:
            await self.to_agent.drained(self.rules.stop_seconds)
            self.to_agent.close()

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
                self.end(Cause.OVERSIZE)
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
        self._log_sessions()
        return True

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
            if (way := self.outlets().get(own.direction)) is not None:
                backlog.said(self.observer.next_seq, way)
            self.say(own)
        await backlog.room()

    def _eof(self, direction: Direction) -> None:
        self.note("eof", direction=direction)
        self.end(Cause.AGENT if direction == TO_CLIENT else Cause.EDITOR)
        self.ended[direction].set()
