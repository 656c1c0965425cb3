"""What an operator does to a running connection: cancel what runs in a session, or end an agent for good.

What must not be broken here:

* Whoever asks is who the kernel says, and is kept with what was done.
* A cancellation is what an editor owes an agent, whole: `session/cancel`, then `cancelled` for every question that
  waits in that session, and for every one that still comes while the turn lasts. Each is a line of ours, in the ledger
  before the agent hears it. The editor is told that its questions want no answer any more; one that it gives all the
  same is kept, and withheld.
* Nothing is guessed: what could mean two sessions is refused, with both of them named.
"""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from acp_ledger import logs
from acp_ledger.daemon.agent import first
from acp_ledger.daemon.client import Client
from acp_ledger.errors import LedgerError, UsageError
from acp_ledger.protocol.records import TO_AGENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from acp_ledger.daemon.opening import Peer
    from acp_ledger.daemon.questions import Question
    from acp_ledger.daemon.transport import Transport
    from acp_ledger.protocol.standing import Standing

SHORTEST_PREFIX: Final = 4
LONGEST_WAIT: Final = 600.0
SENT_SECONDS: Final = 2.0
"""How long an agent has to take what it is told, before the operator hears that it was recorded."""

_LISTED: Final = 10
_STATUS: Final = "see what is open: ledgerctl status"
_PENDING: Final = "see what waits: ledgerctl pending"


class Running(NamedTuple):
    """A session of an open connection."""

    relay: Transport
    session: Standing

    @property
    def name(self) -> str:
        """The form that means this session and no other."""
        return f"{self.relay.transport_id}/{self.session.acp_session_id}"


class Desk:
    """Serves operators. `relays` and `terminals` are what is open, and `gone` waits for the end of a relay."""

    def __init__(
        self,
        relays: Mapping[int, tuple[Transport, str]],
        terminals: Mapping[int, object],
        gone: Callable[[int], Awaitable[None]],
    ) -> None:
        self._relays = relays
        self._terminals = terminals
        self._gone = gone
        self._log = logs.get_logger()

    async def cancel(self, request: Mapping[str, Any], peer: Peer) -> dict[str, Any]:
        """End the turn of a session, as its editor would.

        Raises:
            LedgerError: There is no such session, nothing runs in it, or it could not be recorded.
        """
        running = self._session(request)
        relay, session = running
        _refuse_idle(running)
        first, last = relay.cancel(session, _name(peer))
        self._log.info(logs.OPERATOR_CANCELLED, transport_id=relay.transport_id, uid=peer.uid, pid=peer.pid)
        await relay.lane.reached(last)
        if relay.lane.failure is not None:
            raise LedgerError(
                f"the ledger cannot be written, so the agent of transport {relay.transport_id} is ended instead",
                hint=relay.lane.failure.hint or "ledgerctl doctor",
            )
        return {
            **self._about(relay),
            "acp_session_id": session.acp_session_id,
            "frame_seq": first,
            "turns": len(session.turns),
            "questions": len(session.questions),
            "heard": await _heard(relay, last),
        }

    async def stop(self, request: Mapping[str, Any], peer: Peer) -> dict[str, Any]:
        """End an agent for good, and wait for that.

        Raises:
            LedgerError: There is no such connection, or it ends already.
        """
        relay = self._transport(str(request.get("transport", "")))
        _refuse_ending(relay)
        waiting = len(relay.observer.open_requests(TO_AGENT))
        relay.stop(_name(peer))
        self._log.info(logs.OPERATOR_STOPPED, transport_id=relay.transport_id, uid=peer.uid, pid=peer.pid)
        about = self._about(relay)
        with trio.move_on_after(_seconds(request.get("seconds"))) as wait:
            await self._gone(relay.transport_id)
        ending = relay.agent.ending if relay.agent is not None else None
        return {
            **about,
            "ended": not wait.cancelled_caught,
            "how": ending.words if ending is not None else None,
            "requests": waiting,
        }

    def pending(self) -> dict[str, Any]:
        """The questions that wait for a person, the oldest first."""
        return {"questions": [self._shown(*each) for each in self._held()]}

    async def decide(self, request: Mapping[str, Any], peer: Peer) -> dict[str, Any]:
        """Answer a question that waits for a person, and wait until the answer is in the ledger and on its way.

        Raises:
            LedgerError: There is no such question, it does not offer that option, or its call failed meanwhile.
        """
        client, question = self._question(str(request.get("question", "")))
        option = request.get("option")
        offered = [each["option_id"] for each in question.told["options"]]
        if option is not None and option not in offered:
            listed = ", ".join(map(repr, offered[:_LISTED])) or "nothing"
            raise UsageError(f"the question offers no option {option!r}; it offers {listed}", hint=_PENDING)
        question.settle(question.answer(option, _name(peer)))
        self._log.info(logs.OPERATOR_DECIDED, transport_id=client.transport_id, uid=peer.uid, pid=peer.pid)
        await first(question.over, client.over)
        if question.frame_seq is None:
            sentence = f"the agent of transport {client.transport_id} did not hear it: its call failed meanwhile"
            raise LedgerError(sentence, hint=f"see what is recorded: ledgerctl show {client.transport_id}")
        return {**self._shown(client, question), "frame_seq": question.frame_seq, "option": option}

    def _held(self) -> list[tuple[Client, Question]]:
        clients = [each for each, _ in self._relays.values() if isinstance(each, Client)]
        held = [(client, question) for client in clients for question in client.questions.held.values()]
        return sorted(held, key=lambda each: each[1].until or 0)

    def _question(self, named: str) -> tuple[Client, Question]:
        held = self._held()
        found = [each for each in held if each[1].name == named]
        if not found and len(named) >= SHORTEST_PREFIX:
            found = [each for each in held if each[1].name.startswith(named)]
        if not found:
            raise LedgerError(f"no question called {named!r} waits for a person", hint=_PENDING)
        if len(found) > 1:
            raise _ambiguous(named, [question.name for _, question in found])
        return found[0]

    def _shown(self, client: Client, question: Question) -> dict[str, Any]:
        keys = ("request", "acp_session_id", "tool_call_id", "title", "tool_kind", "options")
        told = {key: question.told[key] for key in keys}
        return {**self._about(client), **told, "asked_at": question.asked_at, "until": question.until}

    def _about(self, relay: Transport) -> dict[str, Any]:
        agent = self._relays[relay.transport_id][1]
        return {"transport_id": relay.transport_id, "agent": agent, "pid": relay.agent and relay.agent.facts.pid}

    # ---- what was meant

    def _session(self, request: Mapping[str, Any]) -> Running:
        named, agent = request.get("session"), request.get("agent")
        every = [
            Running(relay, session)
            for relay, name in self._relays.values()
            for session in relay.observer.standings()
            if agent is None or name == agent
        ]
        if named is None:
            busy = [each for each in every if not each.session.is_idle]
            if not busy:
                raise LedgerError("nothing runs in any session", hint=_STATUS)
            return max(busy, key=lambda each: (each.relay.transport_id, max(each.session.turns, default=0)))
        return _one(str(named), every)

    def _transport(self, named: str) -> Transport:
        """The connection of that transport, or of the session of that name."""
        if named.isdecimal() and int(named) in self._terminals:
            raise LedgerError(
                f"transport {named} is a login at a terminal: its command is that person's own process",
                hint="end it at its terminal",
            )
        ids = {str(transport_id): relay for transport_id, (relay, _) in self._relays.items()}
        found = [ids[named]] if named in ids else [ids[each] for each in _beginning(named, ids)]
        if not found:
            every = [Running(each, session) for each in ids.values() for session in each.observer.standings()]
            return _one(named, every).relay
        if len(found) > 1:
            raise _ambiguous(named, [str(relay.transport_id) for relay in found])
        return found[0]


def _one(named: str, every: Iterable[Running]) -> Running:
    """The session of that name: its id, the beginning of it, or TRANSPORT/ID."""
    transport, slash, rest = named.partition("/")
    qualified = bool(slash) and transport.isdigit()
    wanted = rest if qualified else named
    of = [each for each in every if not qualified or each.relay.transport_id == int(transport)]
    found = [each for each in of if each.session.acp_session_id == wanted]
    if not found and len(wanted) >= SHORTEST_PREFIX:
        found = [each for each in of if each.session.acp_session_id.startswith(wanted)]
    if not found:
        short = f"; a beginning needs {SHORTEST_PREFIX} characters" if len(wanted) < SHORTEST_PREFIX else ""
        raise LedgerError(f"nothing open is called {named!r}{short}", hint=_STATUS)
    if len(found) > 1:
        raise _ambiguous(named, [each.name for each in found])
    return found[0]


def _beginning(named: str, ids: Iterable[str]) -> list[str]:
    return [each for each in ids if len(named) >= SHORTEST_PREFIX and each.startswith(named)]


def _ambiguous(named: str, names: list[str]) -> UsageError:
    listed = ", ".join(names[:_LISTED])
    return UsageError(f"{named!r} may mean {len(names)} things: {listed}", hint="write one of these whole")


def _refuse_idle(running: Running) -> None:
    relay, session = running
    _refuse_ending(relay)
    if relay.to_agent is None:
        raise LedgerError(f"the agent of transport {relay.transport_id} has not started yet", hint="try again")
    if session.acp_session_id.startswith("sha256:"):
        raise LedgerError(
            "the id of this session is too long to be kept, so the agent cannot be told of it",
            hint=f"ledgerctl stop {relay.transport_id}",
        )
    if session.is_idle:
        raise LedgerError(
            f"nothing runs in session {running.name}: it is over, or has not begun",
            hint=f"to end its agent: ledgerctl stop {relay.transport_id}",
        )


def _refuse_ending(relay: Transport) -> None:
    if relay.cause is not None:
        raise LedgerError(f"transport {relay.transport_id} is ending already ({relay.cause.value})", hint=_STATUS)


async def _heard(relay: Transport, frame_seq: int) -> bool:
    """Whether the agent took everything up to that number."""
    if relay.to_agent is not None:
        with trio.move_on_after(SENT_SECONDS):
            await relay.to_agent.reached(frame_seq)
    return relay.to_agent is not None and relay.to_agent.through >= frame_seq


def _seconds(asked: object) -> float:
    """How long whoever asked will wait."""
    if isinstance(asked, int | float) and asked >= 0:
        return min(float(asked), LONGEST_WAIT)
    return 0.0


def _name(peer: Peer) -> str:
    """Who a process belongs to, in the kernel's word."""
    try:
        user = pwd.getpwuid(peer.uid).pw_name
    except KeyError:
        return f"uid {peer.uid}"
    return f"{user} (uid {peer.uid})"
