"""How a connection ends: who ended it, what the other side is told, and what is recorded of it.

What must not be broken here:

* The end is recorded before the runner is let go, and `closed` is the last entry of its transport.
* An editor that still waits gets an error for each open request, for several clients hang for ever on a bare end of
  file. It gets none when its own side ended first, and a question is never answered for it.
* When the ledger cannot be written the errors go out unrecorded. They are counted, and the gap tells of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from acp_ledger import handshake, logs
from acp_ledger.daemon.agent import Ending, first
from acp_ledger.daemon.closing import CLOSE_REASONS
from acp_ledger.daemon.own import NO_ID, Own, error_line
from acp_ledger.daemon.transport import Cause
from acp_ledger.errors import AgentFault
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT

if TYPE_CHECKING:
    from acp_ledger.daemon.agent import Agent, Command
    from acp_ledger.daemon.lanes import Failure
    from acp_ledger.daemon.relay import Relay

STATUS_SECONDS = 0.5
"""How long an agent that closed its output has to exit before the editor is told, so that the status can be named."""

_BIDDEN = (Cause.STOPPED, Cause.OPERATOR)
"""The agent does not end by itself: it is told to."""

LAST_WORDS_SECONDS = 2.0
"""How long output is awaited that something else may hold open, once the agent itself is gone."""


async def live(relay: Relay, command: Command) -> None:
    """Run a connection that was opened, from its first entry to its end."""
    committer = relay.house.committer
    unrecorded = 0
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay.to_client.run)
            await _until_failure(relay, nursery, command)
            if relay.lane.failure is not None:
                unrecorded = await _end_unrecorded(relay, relay.lane.failure)
            nursery.cancel_scope.cancel()
    finally:
        relay.close()
        committer.forget(relay.lane, unrecorded, relay.delivered())
    relay.log.info(logs.TRANSPORT_CLOSED, close_reason=_close_reason(relay))


async def _until_failure(relay: Relay, tasks: trio.Nursery, command: Command) -> None:
    """Live and end in good order; break off where that is, when the ledger fails the connection."""
    async with trio.open_nursery() as nursery:

        async def fail() -> None:
            await relay.lane.failed.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(fail)
        if (agent := await _start(relay, tasks, command)) is not None:
            await relay.over.wait()
            await _end_recorded(relay, agent)
        nursery.cancel_scope.cancel()


async def _start(relay: Relay, tasks: trio.Nursery, command: Command) -> Agent | None:
    """Record that the transport is open, then start its agent; None when it does not start."""
    relay.note("opened")
    if not await relay.lane.flushed():
        return None
    try:
        agent = await relay.house.children.spawn(command, relay.transport_id)
    except AgentFault as fault:
        await _not_started(relay, fault)
        return None
    to_agent = relay.connect(agent)
    relay.note("spawned", **agent.facts._asdict())
    relay.log.info(logs.AGENT_SPAWNED, pid=agent.facts.pid)
    tasks.start_soon(relay.watch_agent, agent)
    tasks.start_soon(agent.drain_stderr, relay.hear_stderr)
    tasks.start_soon(to_agent.run)
    tasks.start_soon(relay.pump_agent, agent)
    tasks.start_soon(relay.pump_editor, to_agent)
    tasks.start_soon(relay.watch_editor)
    tasks.start_soon(relay.watch_house)
    return agent


async def _not_started(relay: Relay, fault: AgentFault) -> None:
    relay.log.warning(logs.AGENT_NOT_SPAWNED, status=int(fault.exit_code))
    relay.end(Cause.NOT_STARTED)
    relay.note("closed", close_reason=Cause.NOT_STARTED.value, detail=fault.message)
    if await relay.lane.flushed():
        relay.lane.finish()
        relay.to_client.refuse(f"acp-ledger: {fault}", int(fault.exit_code))
        await relay.to_client.drained(relay.rules.stop_seconds)


# ---- in good order


async def _end_recorded(relay: Relay, agent: Agent) -> None:
    if relay.cause is Cause.EDITOR:
        await _after_editor(relay, agent)
    else:
        await _after_agent(relay, agent)
    ending = agent.ending or Ending(None, None)
    relay.log.info(logs.AGENT_EXITED, status=ending.status, signal=ending.signal)
    relay.note("exited", status=ending.status, signal=ending.signal, stderr_tail=tail_of(agent))
    if relay.cause is not Cause.EDITOR:
        _answer_open_requests(relay)
    await relay.lane.flushed()
    await relay.to_client.drained(relay.rules.stop_seconds)
    relay.note("closed", all_marks=True, close_reason=_close_reason(relay), detail=_by(relay))
    if await relay.lane.flushed():
        relay.lane.finish()
        relay.to_client.exit(ending.code)
        await relay.to_client.drained(relay.rules.stop_seconds)


async def _after_editor(relay: Relay, agent: Agent) -> None:
    """The editor is through: the agent gets what was said, then its own end of file, and time to finish.

    Output is recorded until the agent's end. A runner that still listens is let go when the time is up.
    """
    with trio.move_on_after(relay.rules.stop_seconds) as time:
        await relay.ended[TO_AGENT].wait()
        await relay.lane.flushed()
        await relay.hush_agent()
        await first(agent.exited, relay.house.hurry)
        await relay.ended[TO_CLIENT].wait()
    if time.cancelled_caught:
        relay.editor_reading.cancel()
        relay.to_client.exit(0)  # the agent's own status is not known yet
        relay.to_client.close()
    await relay.end_agent(0)
    await _read_to_the_end(relay)


async def _after_agent(relay: Relay, agent: Agent) -> None:
    """The agent is through, or must be: the editor gets what was said, then an error for what it still waits for."""
    if relay.cause in _BIDDEN:
        await relay.end_agent(relay.rules.stop_seconds)
    else:
        with trio.move_on_after(STATUS_SECONDS):
            await agent.exited.wait()
            await relay.ended[TO_CLIENT].wait()
    if relay.ended[TO_CLIENT].is_set() or relay.cause is Cause.OVERSIZE:
        _answer_open_requests(relay)
    if relay.oversized is TO_AGENT:
        relay.say(Own(TO_CLIENT, error_line(NO_ID, *_why(relay))))
    await relay.end_agent(relay.rules.stop_seconds)
    await _read_to_the_end(relay)


async def _read_to_the_end(relay: Relay) -> None:
    """Nothing of the agent runs any more: take what it left in its pipe, as long as the editor reads."""
    while not relay.ended[TO_CLIENT].is_set() and relay.cause is not Cause.OVERSIZE:
        await relay.house.committer.health.released()
        before = relay.to_client.written, relay.observer.next_seq
        with trio.move_on_after(LAST_WORDS_SECONDS):
            await relay.ended[TO_CLIENT].wait()
        if before == (relay.to_client.written, relay.observer.next_seq):
            break
    relay.reading.cancel()


def _answer_open_requests(relay: Relay) -> None:
    """Answer what the editor still waits for; from here on nothing is taken from it."""
    relay.editor_reading.cancel()
    sentence, reason = _why(relay)
    for request in relay.observer.open_requests(TO_AGENT):
        relay.say(Own(TO_CLIENT, error_line(request.id_token, sentence, reason)))


def _why(relay: Relay) -> tuple[str, str]:
    ending = relay.agent.ending if relay.agent else None
    if relay.cause is Cause.STOPPED:
        return "acp-ledgerd was stopped, and the agent with it", Cause.STOPPED.value
    if relay.cause is Cause.OPERATOR:
        return f"the agent was stopped by {relay.stopped_by} with ledgerctl stop", Cause.OPERATOR.value
    if relay.cause is Cause.OVERSIZE:
        who = "editor" if relay.oversized is TO_AGENT else "agent"
        return (
            f"a line of the {who} is longer than limits.line_bytes ({relay.rules.line_bytes} bytes) allows",
            Cause.OVERSIZE.value,
        )
    how = f"ended ({ending.words})" if ending else "closed its output"
    return f"the agent {how} before it answered", Cause.AGENT.value


def _close_reason(relay: Relay) -> str:
    if relay.lane.failure is not None:
        return CLOSE_REASONS[relay.lane.failure.cause]
    return relay.cause.value if relay.cause else Cause.STOPPED.value


def _by(relay: Relay) -> str | None:
    """Who ended it, where that was an operator."""
    return f"stopped by {relay.stopped_by}" if relay.cause is Cause.OPERATOR else None


# ---- when the ledger failed


async def _end_unrecorded(relay: Relay, failure: Failure) -> int:
    """End a connection whose ledger cannot be written; gives the number of lines the editor got unrecorded."""
    relay.log.error(logs.TRANSPORT_FAILED, cause=failure.cause, error=failure.sentence)
    relay.reading.cancel()
    relay.editor_reading.cancel()
    said = 0
    if relay.cause is not Cause.EDITOR:
        said = _answer_unrecorded(relay, failure)
        relay.to_client.refuse(refusal(failure), handshake.EXIT_UNAVAILABLE)
    await relay.end_agent(0)
    await relay.to_client.drained(relay.rules.stop_seconds)
    return said


def _answer_unrecorded(relay: Relay, failure: Failure) -> int:
    """Answer every open request of the editor, those whose answer was read and cannot be forwarded with them."""
    waiting = [request.id_token for request in relay.observer.open_requests(TO_AGENT)]
    said = 0
    for token in dict.fromkeys((*relay.lane.unheard, *waiting)):
        if not token.startswith("sha256:"):  # an id too long to be kept
            relay.to_client.unrecorded(error_line(token, refusal(failure), f"ledger_{failure.cause}"))
            said += 1
    return said


def refusal(failure: Failure) -> str:
    """What people are told when the record cannot be kept."""
    hint = f" {failure.hint}." if failure.hint else ""
    return (
        f"acp-ledger: this session cannot be recorded and was stopped: {failure.sentence}.{hint} See: ledgerctl status"
    )


def tail_of(agent: Agent) -> str | None:
    """The agent's last words on its standard error, as the ledger keeps them."""
    return agent.stderr_tail.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}") or None
