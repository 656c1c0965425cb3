"""The calls of one caller: `start` and `prompt`, one at a time, each from its request to its own answer.

What must not be broken here: a call reads until its own answer comes; what it reads on the way is handed to the caller
in order, before its text counts and before the next line is read. A question is answered, or the call fails and the
agent hears nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from acp_ledger.daemon.attention import Attention
from acp_ledger.daemon.caller import Hearing
from acp_ledger.daemon.client import CallFailed
from acp_ledger.protocol import client_lines
from acp_ledger.protocol.client_lines import McpServer
from acp_ledger.protocol.client_side import initialized_of, modes_of, plain, session_id_of
from acp_ledger.protocol.content import unsupported
from acp_ledger.protocol.outcome import failure_message, turn_reading

if TYPE_CHECKING:
    from acp_ledger.daemon.caller import Caller
    from acp_ledger.daemon.client import Client
    from acp_ledger.protocol.client_side import Initialized, Modes
    from acp_ledger.protocol.envelope import Envelope
    from acp_ledger.protocol.records import Overflow


class Calls:
    """What a caller does with a client, call by call."""

    def __init__(self, client: Client, caller: Caller) -> None:
        self.hearing = Hearing(caller)
        self.running: str | None = None
        self.busy = False
        self._client = client
        self._caller = caller
        self._next_id = 0
        self._initialized: Initialized | None = None
        self._session: str | None = None
        self._agent_error: str | None = None
        self._idle = trio.lowlevel.ParkingLot()
        self._telling = False
        self._turn_id: int | None = None
        self._attention = Attention(client, caller, self.hearing, None)

    # ---- what the caller says

    async def run(self, said: dict[str, Any]) -> None:
        """Make one call, and tell the caller how it ended."""
        call = self.running = str(said.get("call"))
        self._telling = True
        failure: CallFailed | None = None
        told: tuple[str, dict[str, Any]] | None = None
        self._client.reading = scope = trio.CancelScope()
        if self._client.over.is_set():
            scope.cancel()
        with scope:
            try:
                told = await self._made(call, said)
            except CallFailed as fault:
                failure = fault
            await self._client.lane.flushed()
        self.running = None
        if scope.cancelled_caught or (failure is None and told is None):
            failure = self._stopped()
        self.busy = False
        if failure is not None:
            await self._tell_failure(call, failure)
        elif told is not None:
            await self._caller.tell(told[0], **told[1])
        self._idle.unpark_all()
        self._telling = False

    async def idle(self) -> None:
        """Wait until no call runs, and the caller was told how the last one ended."""
        while self._telling:
            await self._idle.park()

    async def farewell(self) -> None:
        """Tell the caller why there will be no more calls."""
        why = self._stopped()
        await self._caller.tell("ended", kind=why.kind, message=why.message, hint=why.hint)

    async def refuse(self, sentence: str) -> None:
        """Tell the caller that a call is not made."""
        await self._tell_failure("", CallFailed("usage", sentence))

    def cancel(self) -> None:
        """The caller cancels what runs: the agent is told once, and questions of that turn are answered `cancelled`."""
        session = self._session
        if self.running != "prompt" or session is None or self._client.observer.is_cancelled(session):
            return
        self._client.send(client_lines.cancel_line(session))
        self._client.questions.call_off((), None)

    async def _made(self, call: str, said: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if call == "start":
            return "started", await self._start(said.get("load"), said.get("resume"))
        if call == "prompt":
            record = await self._prompt(said.get("blocks"))
            return "done", {"record": record, "agent_error": self._agent_error}
        raise CallFailed("usage", f"there is no call {call!r}")

    def _stopped(self) -> CallFailed:
        lane = self._client.lane
        if lane.failure is not None:
            return CallFailed("ledger", lane.failure.sentence, lane.failure.hint)
        by = f" by {self._client.stopped_by} with ledgerctl stop" if self._client.stopped_by else ""
        with_daemon = ", with acp-ledgerd" if self._client.house.stopping.is_set() and not by else ""
        return CallFailed("stopped", f"the agent was stopped{by}{with_daemon}")

    async def _tell_failure(self, call: str, failure: CallFailed) -> None:
        record = self._failed_record(failure) if call == "prompt" else None
        await self._caller.tell(
            "failed",
            kind=failure.kind,
            message=failure.message,
            hint=failure.hint,
            agent_error=self._agent_error,
            initialize=self._client.opened.get("initialize") if call == "start" else None,
            record=record,
        )

    # ---- start

    async def _start(self, load: object, resume: object) -> dict[str, Any]:
        terms = self._client.terms
        number = self._take_id()
        info = terms.info
        self._attention = Attention(self._client, self._caller, self.hearing, None)
        answer = await self._request(client_lines.initialize_line(number, info.name, info.title, info.version))
        initialized = initialized_of(self._result(answer, "initialize"))
        if initialized is None:
            raise CallFailed("protocol_error", "the agent's answer to initialize has no readable protocolVersion")
        if initialized.protocol_version != client_lines.PROTOCOL_VERSION:
            raise CallFailed(
                "protocol_error",
                f"the agent speaks version {initialized.protocol_version} of ACP and this client version "
                f"{client_lines.PROTOCOL_VERSION}",
            )
        self._initialized = initialized
        self._client.opened["initialize"] = _told(initialized)
        session, modes = await self._open_session(initialized, load, resume)
        self._session = session
        self._client.opened |= {"acp_session_id": session, "modes": _modes(modes)}
        return {**self._client.opened}

    async def _open_session(self, initialized: Initialized, load: object, resume: object) -> tuple[str, Modes | None]:
        old, method, line = _opening(initialized, load, resume)
        number = self._take_id()
        servers, cwd = self._client.terms.servers, self._client.cwd
        if line is not None and old is not None:
            answer = await self._request(line(number, old, cwd, servers))
        else:
            answer = await self._request(client_lines.session_new_line(number, cwd, servers))
        result = self._result(answer, method)
        named = session_id_of(result) if old is None else old
        if named is None:
            raise CallFailed("protocol_error", "the agent's answer to session/new names no session")
        return named, modes_of(result)

    def _result(self, answer: Envelope, method: str) -> Any:
        """The result of an answer that must have one; the agent's own words for it where it does not."""
        if answer.error is not None:
            reading = turn_reading(None, answer.error)
            self._remember_error(answer.error)
            if reading.outcome == "auth_required":
                raise CallFailed("auth_required", failure_message(reading, logins=self._logins()))
            code = "" if reading.error_code is None else f" (code {reading.error_code})"
            told = reading.error_message or "no message"
            raise CallFailed("agent_error", f"the agent answered {method} with an error{code}: {told}")
        if not isinstance(answer.result, dict):
            raise CallFailed("protocol_error", f"the agent's answer to {method} has neither a result nor an error")
        return answer.result

    def _remember_error(self, error: Any) -> None:
        message = error.get("message") if isinstance(error, dict) else None
        if isinstance(message, str):
            self._agent_error = message

    def _logins(self) -> list[str]:
        methods = self._initialized.auth_methods if self._initialized else ()
        return [name or id_ for id_, name in methods]

    # ---- prompt

    async def _prompt(self, blocks: object) -> dict[str, Any]:
        self._turn_id = None
        self._attention = Attention(self._client, self._caller, self.hearing, self._session)
        if self._session is None or self._initialized is None:
            raise CallFailed("usage", "no session is open: start the client before its first prompt")
        if self._client.observer.exhausted:
            count = self._client.terms.limits.update_count
            raise CallFailed("limit", f"the agent has sent more updates than limits.update_count ({count}) allows")
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise CallFailed("usage", "a prompt is a list of content blocks")
        if (sentence := unsupported(blocks, self._initialized.capabilities)) is not None:
            raise CallFailed("usage", sentence)
        number = self._take_id()
        self._client.send(_prompt_line(number, self._session, blocks))
        self._turn_id = self._client.newest_turn()
        return self._record(await self._attention.answer())

    def _record(self, answer: Envelope) -> dict[str, Any]:
        reading = turn_reading(answer.result, answer.error)
        self._remember_error(answer.error)
        reply = self._client.observer.reply
        error = None
        if reading.outcome != "completed":
            error = failure_message(reading, reply.text, _written(answer), logins=self._logins())
        return {
            **self._base_record(),
            "text": reply.text,
            "final_message": reply.final_message,
            "outcome": reading.outcome,
            "stop_reason": reading.stop_reason,
            "overflow": _overflow(reply.overflow),
            "error": error,
            "error_code": reading.error_code,
        }

    def _failed_record(self, failure: CallFailed) -> dict[str, Any]:
        text = "".join(self._attention.parts)
        return {
            **self._base_record(),
            "text": text,
            "final_message": text,
            "outcome": _OUTCOME_OF.get(failure.kind),
            "stop_reason": None,
            "overflow": None if self._turn_id is None else _overflow(self._client.observer.reply.overflow),
            "error": failure.message,
            "error_code": None,
        }

    def _base_record(self) -> dict[str, Any]:
        client = self._client
        return {
            "acp_session_id": self._session,
            "transport_id": client.transport_id,
            "epoch": client.epoch,
            "turn_id": self._turn_id,
            "steps": self._attention.steps,
            "decisions": self._attention.decisions,
            "not_recorded": dict(self._attention.not_recorded),
        }

    def _take_id(self) -> int:
        """The id of the next request: integers from 0, for all of the client's life."""
        self._next_id += 1
        return self._next_id - 1

    async def _request(self, line: bytes) -> Envelope:
        self._client.send(line)
        return await self._attention.answer()


_Open: TypeAlias = Callable[[int, str, str, Sequence[McpServer]], bytes]

_OUTCOME_OF: Final = {
    "protocol_error": "protocol_error",
    "limit": "protocol_error",
    "stream_ended": "stream_ended",
    "transport_failed": "transport_failed",
}
"""How the ledger has the turn of a call that failed; of any other kind the turn's end is not known yet."""


def _opening(initialized: Initialized, load: object, resume: object) -> tuple[str | None, str, _Open | None]:
    """The session to go on with, the method that opens it, and what writes the request."""
    if load is not None and resume is not None:
        raise CallFailed("usage", "a session is either loaded or resumed")
    if isinstance(load, str):
        if not initialized.load_session:
            raise CallFailed("usage", "the agent does not offer session/load (loadSession)", "try --resume, or neither")
        return load, "session/load", client_lines.session_load_line
    if isinstance(resume, str):
        if not initialized.resume_session:
            sentence = "the agent does not offer session/resume (sessionCapabilities.resume)"
            raise CallFailed("usage", sentence, "try --load, or neither")
        return resume, "session/resume", client_lines.session_resume_line
    return None, "session/new", None


def _prompt_line(number: int, session: str, blocks: list[dict[str, Any]]) -> bytes:
    try:
        return client_lines.prompt_line(number, session, blocks)
    except ValueError as fault:
        raise CallFailed("usage", f"a content block holds what JSON cannot: {fault}") from None


def _written(answer: Envelope) -> str:
    """An answer as JSON, for a sentence about one that tells no outcome."""
    return json.dumps(plain(answer.result), ensure_ascii=False)


def _told(initialized: Initialized) -> dict[str, Any]:
    return {
        "protocol_version": initialized.protocol_version,
        "capabilities": initialized.capabilities,
        "auth_methods": [{"id": id_, "name": name} for id_, name in initialized.auth_methods],
        "agent_info": initialized.agent_info,
    }


def _modes(modes: Modes | None) -> dict[str, Any] | None:
    if modes is None:
        return None
    return {"current": modes.current, "available": [{"id": id_, "name": name} for id_, name in modes.available]}


def _overflow(overflow: Overflow | None) -> dict[str, Any] | None:
    if overflow is None:
        return None
    names = ("kind", "admitted_bytes", "admitted_segments", "withheld_update_sequence")
    return {name: getattr(overflow, name) for name in names}
