"""A client of an agent, as a program holds it: opened, started, prompted, and gone when its block is left.

What must not be broken here: one call at a time, and each takes what the daemon tells until its own end. A call that is
cancelled leaves nothing half said: the connection is closed, and with it the agent ends.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from acp_ledger import dialogue
from acp_ledger.client.failures import CallFailed, PromptFailed
from acp_ledger.client.opening import connected, greeting_of, refusal
from acp_ledger.client.streams import stream_of
from acp_ledger.client.values import (
    ClientInfo,
    Limits,
    Observer,
    PermissionReply,
    PermissionRequest,
    Policy,
    ReaderStatus,
    Record,
    Started,
    Update,
    given,
)
from acp_ledger.errors import DaemonUnreachable, PeerFault
from acp_ledger.handshake import HandshakeError
from acp_ledger.protocol.content import Text

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Mapping, Sequence

    from acp_ledger.client.streams import Stream
    from acp_ledger.protocol.client_lines import McpServer
    from acp_ledger.protocol.content import Block

_HEARS: Final = {dialogue.UPDATE: "update", dialogue.QUESTION: "answer", dialogue.DECISION: "commit"}
"""The events an observer may hear of, by its method."""


@asynccontextmanager
async def open_client(
    command: Sequence[str] | None = None,
    *,
    agent: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    epoch: int | None = None,
    client: ClientInfo | None = None,
    limits: Limits | None = None,
    policy: Policy | None = None,
    mcp_servers: Sequence[McpServer] = (),
    observer: Observer | None = None,
    labels: Mapping[str, str] | None = None,
    socket: str | os.PathLike[str] | None = None,
) -> AsyncIterator[Client]:
    """Start an agent through the daemon, and be its client while the block runs; then its process group is ended.

    Where no daemon runs one is started, as `acp-ledger-run` would; the program is blocked meanwhile, for some seconds
    at most.

    Args:
        command: The agent's command and arguments; not needed where `agent` names one with a command.
        agent: Its name in the ledger and in the settings' `[agents.NAME]`.
        cwd: Its working directory, also that of its sessions; None: ours.
        env: Its environment; None: ours. The ledger keeps the names and never the values.
        epoch: A number of the caller's own for this client, over 0, under 2^53 and unused; None: the ledger gives one.
        client: What the agent is told of its client.
        limits: What is taken and written at most; what it leaves out, the settings say.
        policy: Who answers questions, and with what; likewise.
        mcp_servers: Tool servers that the agent is asked to start for each session.
        observer: Hears what happens; what it does not override, nobody hears, and the ledger alone keeps.
        labels: Labels of the connection in the ledger.
        socket: The daemon's socket; None: as `acp-ledger-run` finds it.

    Raises:
        DaemonUnreachable: No daemon answers, and none could be started.
        UsageError: The terms cannot be had; nothing was started.
        LedgerError: The agent cannot be started (`AgentFault`, `AgentNotFound`), or the ledger cannot be written; with
            the status to exit with.
    """
    greeting = greeting_of(command or (), agent, cwd, env, labels or {})
    terms = {
        "epoch": epoch,
        "client": given(client or ClientInfo()),
        "limits": given(limits or Limits()),
        "policy": given(policy or Policy()),
        "mcp_servers": [server.to_json() for server in mcp_servers],
        "hears": [event for event, name in _HEARS.items() if observer is not None and _is_waited_for(observer, name)],
    }
    stream = await stream_of(connected(socket))
    found = Client(stream, observer or Observer())
    try:
        await found._open(greeting + dialogue.encode(call="open", **terms))  # noqa: SLF001  # its maker
        # A program that is cancelled does not wait: it closes the socket, and the daemon does the rest.
        async with AsyncExitStack() as leaving:
            leaving.push_async_callback(found._leave)  # noqa: SLF001  # likewise
            yield found
    finally:
        stream.close()


def _is_waited_for(observer: Observer, name: str) -> bool:
    """Whether the daemon is to wait for this method: it is one of the observer's own, and not merely told."""
    method = getattr(type(observer), name, None)
    return method is not None and method is not getattr(Observer, name) and name not in observer.told_only


class Client:
    """An agent's client. Make one with `open_client`.

    Attributes:
        transport_id: The connection's number in the ledger; `epoch` names it for ever.
        pid: The agent's process.
        initialize: The agent's latest good answer to `initialize`; None before. It names the logins there are.
        acp_session_id: The session prompts go to, of the last start that succeeded; None before.
        modes: That session's modes; None where it has none.
        agent_error: The message of the agent's latest error answer; None where it never gave one.
    """

    def __init__(self, stream: Stream, observer: Observer) -> None:
        self.transport_id = 0
        self.epoch = 0
        self.pid = 0
        self.initialize: dict[str, Any] | None = None
        self.acp_session_id: str | None = None
        self.modes: dict[str, Any] | None = None
        self.agent_error: str | None = None
        self._stream = stream
        self._observer = observer
        self._objects = dialogue.ObjectReader()
        self._told: list[dict[str, Any]] = []
        self._calling = False
        self._is_stopping = False
        self._closed: CallFailed | None = None  # why no call can be made any more
        self._raised: Exception | None = None

    async def start(self, *, load: str | None = None, resume: str | None = None) -> Started:
        """Open a session: `initialize`, then `session/new`, or the session to go on with.

        Called again it does both again; one that fails keeps the old session.

        Raises:
            CallFailed: The agent answered with an error, spoke another version or nonsense, or does not offer that.
        """
        told = await self._call("started", call="start", load=load, resume=resume)
        started = Started.of(told)
        self.initialize, self.acp_session_id, self.modes = started.initialize, started.acp_session_id, started.modes
        return started

    async def prompt(self, *blocks: str | Block) -> str:
        """Send a prompt, and give the text of its answer, which may be empty.

        Raises:
            PromptFailed: The turn ended, and was not completed; its record has the partial text.
            CallFailed: See `prompt_detailed`.
        """
        record = await self.prompt_detailed(*blocks)
        if record.outcome != "completed":
            raise PromptFailed(record)
        return record.text

    async def prompt_detailed(self, *blocks: str | Block) -> Record:
        """Send a prompt of these content blocks in order (a `str` is a text), and give its record, however it ended.

        Raises:
            CallFailed: It could not be sent (nothing was), or the agent never answered; with the record as far as it
                goes.
        """
        sent = [(Text(block) if isinstance(block, str) else block).to_json() for block in blocks]
        told = await self._call("done", call="prompt", blocks=sent)
        record = Record.of(told.get("record") or {})
        self.agent_error = told.get("agent_error", self.agent_error)
        return record

    async def cancel(self) -> None:
        """Ask the agent to end the prompt that runs in another task; that ends as the agent tells it.

        Questions that wait are answered `cancelled`. Nothing happens where no prompt runs.
        """
        await self._say(call="cancel")

    async def stop(self) -> None:
        """End the agent's process group at once: TERM, then KILL, and no message first. Again, it does nothing.

        The call that runs in another task fails with `stopped`, and so does every later one. Where none runs this
        returns when nothing of the agent is left.
        """
        if self._closed is None and not self._is_stopping:
            self._is_stopping = True
            await self._say(call="stop")
            if not self._calling:
                await self._to_the_end()

    async def reader_status(self) -> ReaderStatus:
        """How the reading of the agent's lines stands; between calls.

        Raises:
            CallFailed: The client is stopped, or a call runs.
        """
        told = await self._call("status", call="status")
        return ReaderStatus.of(told["reader"])

    # ---- the connection

    async def _open(self, opening: bytes) -> None:
        await self._send(opening)
        told = await self._next()
        if told is None:
            raise DaemonUnreachable("the daemon closed the connection", hint="ledgerctl status")
        if told.get("event") != "opened":
            raise refusal(told)
        self.transport_id, self.epoch, self.pid = told["transport_id"], told["epoch"], told["pid"]

    async def _leave(self) -> None:
        """End the agent, and wait until nothing of it runs, also where a call was cut off."""
        self._stream.half_close()
        await self._to_the_end()

    async def _to_the_end(self) -> None:
        while await self._stream.receive():
            pass
        self._closed = _stopped()

    async def _say(self, **said: Any) -> None:
        try:
            await self._send(dialogue.encode(**said))
        except CallFailed:
            return  # it is over, and whoever waits for something hears that

    async def _send(self, data: bytes) -> None:
        if self._closed is not None:
            raise self._closed
        try:
            await self._stream.send(data)
        except OSError as gone:
            raise _gone() from gone

    async def _next(self) -> dict[str, Any] | None:
        while not self._told:
            data = await self._stream.receive()
            if not data:
                self._closed = self._closed or _gone()
                return None
            try:
                self._told += self._objects.feed(data)
            except HandshakeError as fault:
                raise PeerFault(
                    f"the daemon sent {fault}", hint="is it the same version? restart acp-ledgerd"
                ) from fault
        told = self._told.pop(0)
        if told.get("event") == "ended":
            self._closed = self._failure(told)
        return told

    # ---- a call

    async def _call(self, end: str, **said: Any) -> dict[str, Any]:
        """Make a call, and give the event that ends it."""
        if self._calling:
            raise CallFailed("usage", "another call of this client is not over yet")
        if self._is_stopping:
            raise self._closed or _stopped()
        self._calling = True
        over = False
        try:
            await self._send(dialogue.encode(**said))
            told = await self._heard(end)
            over = True
        except CallFailed:
            over = True
            raise
        finally:
            self._calling = False
            if not over:  # cancelled, or a callback ended the program: what the agent would say next has no taker
                self._closed = CallFailed("stopped", "a call of this client was cut off, and the agent ended with it")
                self._stream.half_close()
        return told

    async def _heard(self, end: str) -> dict[str, Any]:
        self._raised = None
        while (told := await self._next()) is not None:
            event = told.get("event")
            if event == end:
                return told
            if event == "failed":
                raise self._failure(told) from self._raised
            if event in _HEARS:
                await self._take(str(event), told)
        raise self._closed or _gone()

    def _failure(self, told: Mapping[str, Any]) -> CallFailed:
        self.agent_error = told.get("agent_error", self.agent_error)
        self.initialize = told.get("initialize") or self.initialize
        record = told.get("record")
        return CallFailed(
            str(told.get("kind")),
            str(told.get("message")),
            hint=told.get("hint"),
            agent_error=self.agent_error,
            record=None if record is None else Record.of(record),
        )

    async def _take(self, event: str, told: Mapping[str, Any]) -> None:
        """Let the observer hear of it, and reply where the daemon waits for that."""
        value = Update.of(told) if event == dialogue.UPDATE else PermissionRequest.of(told)
        if "number" not in told:
            if _HEARS[event] in self._observer.told_only:
                await self._heard_by_observer(event, value)
            return
        error: str | None = None
        answer: PermissionReply | None = None
        try:
            answer = await self._heard_by_observer(event, value)
        except Exception as fault:  # noqa: BLE001  # whatever it is: the daemon is told, and the call raises from it
            self._raised, error = fault, f"{type(fault).__name__}: {fault}"
        given_answer = None if answer is None else vars(answer)
        await self._send(dialogue.encode(reply=event, number=told["number"], error=error, answer=given_answer))

    async def _heard_by_observer(self, event: str, value: Update | PermissionRequest) -> PermissionReply | None:
        heard = getattr(self._observer, _HEARS[event])(value)
        answer: PermissionReply | None = await heard if inspect.isawaitable(heard) else heard
        return answer


def _stopped() -> CallFailed:
    return CallFailed("stopped", "the agent was stopped")


def _gone() -> CallFailed:
    return CallFailed("stopped", "the daemon closed the connection", hint="ledgerctl status")
