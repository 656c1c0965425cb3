"""The life of a connection whose client we are, from its opening to its end.

What must not be broken here: the agent lives no longer than its caller listens. It is ended at once and told nothing
first; what it leaves in its pipe is recorded, and `closed` is the last entry. The caller's socket is closed last, so
whoever waits for that knows that nothing runs any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from acp_ledger import logs
from acp_ledger.daemon.agent import Ending
from acp_ledger.daemon.calls import Calls
from acp_ledger.daemon.closing import CLOSE_REASONS
from acp_ledger.daemon.ending import tail_of
from acp_ledger.daemon.transport import Cause
from acp_ledger.errors import AgentFault
from acp_ledger.handshake import HandshakeError

if TYPE_CHECKING:
    from acp_ledger.daemon.agent import Agent, Command
    from acp_ledger.daemon.caller import Caller
    from acp_ledger.daemon.client import Client

FAREWELL_SECONDS: Final = 1.0
"""How long a caller has to be told that its call was cut off, before the agent is ended without."""


async def live(client: Client, caller: Caller, command: Command) -> None:
    """Run a connection that was opened, from its first entry to its end."""
    try:
        async with trio.open_nursery() as tasks:
            agent = await _start(client, tasks, caller, command)
            if agent is not None:
                await _serve(client, caller, agent)
                await _end(client, agent)
            tasks.cancel_scope.cancel()
    finally:
        client.close()
        client.house.committer.forget(client.lane, 0, client.delivered())
    client.log.info(logs.TRANSPORT_CLOSED, close_reason=_close_reason(client))


async def _start(client: Client, tasks: trio.Nursery, caller: Caller, command: Command) -> Agent | None:
    """Record that the transport is open, then start its agent; None when it does not start."""
    client.note("opened")
    if not await client.lane.flushed():
        await caller.tell("refused", error=client.lane.failure and client.lane.failure.sentence, hint=None, status=1)
        return None
    try:
        agent = await client.house.children.spawn(command, client.transport_id)
    except AgentFault as fault:
        await _not_started(client, caller, fault)
        return None
    to_agent = client.connect(agent)
    client.note("spawned", **agent.facts._asdict())
    client.log.info(logs.AGENT_SPAWNED, pid=agent.facts.pid)
    tasks.start_soon(agent.wait)
    tasks.start_soon(agent.drain_stderr, client.hear_stderr)
    tasks.start_soon(to_agent.run)
    return agent


async def _not_started(client: Client, caller: Caller, fault: AgentFault) -> None:
    client.log.warning(logs.AGENT_NOT_SPAWNED, status=int(fault.exit_code))
    client.end(Cause.NOT_STARTED)
    client.note("closed", close_reason=Cause.NOT_STARTED.value, detail=fault.message)
    if await client.lane.flushed():
        client.lane.finish()
    await caller.tell("refused", error=fault.message, hint=fault.hint, status=int(fault.exit_code))


async def _serve(client: Client, caller: Caller, agent: Agent) -> None:
    """Make the caller's calls until the connection is to end."""
    calls = Calls(client, caller)
    await caller.tell("opened", transport_id=client.transport_id, epoch=client.epoch, pid=agent.facts.pid)
    async with trio.open_nursery() as nursery:
        begun, made = trio.open_memory_channel[dict[str, Any]](1)
        nursery.start_soon(client.watch_house)
        nursery.start_soon(_watch_lane, client)
        nursery.start_soon(_listen, client, caller, calls, begun)
        nursery.start_soon(_make, calls, made)
        await client.over.wait()
        client.reading.cancel()
        with trio.move_on_after(FAREWELL_SECONDS):
            await calls.idle()
            if client.cause is not Cause.CALLER:
                await calls.farewell()
        nursery.cancel_scope.cancel()


async def _watch_lane(client: Client) -> None:
    """The ledger does not take this connection any more."""
    await client.lane.failed.wait()
    client.over.set()


async def _make(calls: Calls, made: trio.MemoryReceiveChannel[dict[str, Any]]) -> None:
    async for said in made:
        await calls.run(said)


async def _listen(client: Client, caller: Caller, calls: Calls, begun: trio.MemorySendChannel[dict[str, Any]]) -> None:
    """Take what the caller says, until it says no more."""
    try:
        while (said := await caller.receive()) is not None:
            if "reply" in said:
                calls.hearing.came(said)
            elif said.get("call") == "cancel":
                calls.cancel()
            elif said.get("call") == "stop":
                break
            elif said.get("call") == "status":
                await caller.tell("status", reader=client.reader())
            elif calls.busy:
                await calls.refuse("another call of this client is not over yet")
            else:
                calls.busy = True
                begun.send_nowait(said)
    except HandshakeError as fault:
        client.log.warning(logs.PEER_REFUSED, reason="malformed", error=str(fault))
    client.halt(Cause.CALLER)


def _close_reason(client: Client) -> str:
    if client.lane.failure is not None:
        return CLOSE_REASONS[client.lane.failure.cause]
    return (client.cause or Cause.STOPPED).value


async def _end(client: Client, agent: Agent) -> None:
    await client.end_agent(0)
    if client.lane.failure is not None:
        return
    await client.read_to_the_end()
    ending = agent.ending or Ending(None, None)
    client.log.info(logs.AGENT_EXITED, status=ending.status, signal=ending.signal)
    client.note("exited", status=ending.status, signal=ending.signal, stderr_tail=tail_of(agent))
    await client.lane.flushed()
    by = f"stopped by {client.stopped_by}" if client.cause is Cause.OPERATOR else None
    client.note("closed", all_marks=True, close_reason=_close_reason(client), detail=by)
    if await client.lane.flushed():
        client.lane.finish()
