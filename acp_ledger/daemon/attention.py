"""What a call pays attention to until its own answer comes: the agent's updates, questions and other requests.

What must not be broken here: a line is handed to the caller in the order it came, before its text counts and before
the next one is read. A question is answered, or the call fails and the agent hears nothing: the answer is decided,
recorded, told to the caller, and only then let go.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from acp_ledger import dialogue
from acp_ledger.daemon.client import CallFailed
from acp_ledger.daemon.questions import Given, Question, refused
from acp_ledger.policy import asked_of
from acp_ledger.protocol import client_lines
from acp_ledger.protocol.client_side import update_seen
from acp_ledger.protocol.permission import METHOD as ASK
from acp_ledger.protocol.permission import question_of
from acp_ledger.protocol.records import Anomaly, Decision, Overflow, ToolCallStep

if TYPE_CHECKING:
    from acp_ledger.daemon.caller import Caller, Hearing
    from acp_ledger.daemon.client import Client, Seen
    from acp_ledger.daemon.own import Own
    from acp_ledger.protocol.envelope import Envelope

UPDATE: Final = "session/update"


class Attention:
    """One call's attention. `session` is the one that a prompt is about, None where there is none yet.

    `parts` is the text that joined the reply, as far as the caller took it; `steps`, `decisions` and `not_recorded`
    count what the ledger has of this call.
    """

    def __init__(self, client: Client, caller: Caller, hearing: Hearing, session: str | None) -> None:
        self.parts: list[str] = []
        self.steps = 0
        self.decisions = 0
        self.not_recorded: Counter[str] = Counter()
        self._client = client
        self._caller = caller
        self._hearing = hearing
        self._session = session
        self._segments = client.observer.reply.segments if session is None else 0

    async def answer(self) -> Envelope:
        """Read until the answer to the newest request comes.

        Raises:
            CallFailed: It does not.
        """
        while True:
            seen = await self._client.next_line()
            self._count(seen)
            if seen.fault is not None:
                raise CallFailed(_kind_of(seen), seen.fault)
            if seen.envelope.kind != "response":
                await self._taken(seen)
            self._client.inbox.through = seen.frame.frame_seq
            if seen.envelope.kind == "response":
                return seen.envelope

    async def _taken(self, seen: Seen) -> None:
        """Do what a line asks for; nothing, where it only tells something."""
        envelope = seen.envelope
        if envelope.method == UPDATE and envelope.kind == "notification":
            await self._updated(seen)
        elif envelope.method == ASK and envelope.kind == "request":
            await self._asked(seen)
        elif envelope.kind == "request" and envelope.id_token is not None:
            self._client.send(client_lines.not_found_line(envelope.id_token))

    def _count(self, seen: Seen) -> None:
        self.steps += sum(isinstance(row, ToolCallStep) for row in seen.rows)
        if seen.frame.session_update is not None and seen.frame.disposition == "not_recorded":
            self.not_recorded[seen.frame.session_update] += 1

    async def _updated(self, seen: Seen) -> None:
        update = update_seen(seen.envelope.params)
        if update is None:
            return
        overflow = next((row for row in seen.rows if isinstance(row, Overflow)), None)
        replay = seen.frame.phase == "replay"
        segments = self._client.observer.reply.segments
        joined, self._segments = segments > self._segments, segments
        fields = {
            "update_sequence": seen.frame.update_sequence,
            "epoch": self._client.epoch,
            "acp_session_id": update.acp_session_id,
            "kind": update.kind,
            "text": update.text,
            "joined": joined,
            "replay": replay,
            "envelope": _trimmed(seen.body),
        }
        await self._tell(dialogue.UPDATE, **fields)
        if joined:
            self.parts.append(update.text)
        if overflow is not None and self._session and not self._client.observer.is_cancelled(self._session):
            self._client.send(client_lines.cancel_line(self._session))

    async def _asked(self, seen: Seen) -> None:
        """Answer a question: decide, record, tell, and only then let the agent hear it."""
        client = self._client
        asked = asked_of(seen.envelope.params)
        told = self._told_of(seen)
        question = Question(seen.envelope.id_token or "null", asked, told, seen.frame.turn_id, seen.frame.received_at)
        failure: CallFailed | None = None
        try:
            own = await client.questions.decide(
                client.terms.policy,
                question,
                grantable=self._is_grantable(seen),
                ask_caller=self._ask_caller if dialogue.QUESTION in client.terms.hears else None,
            )
        except CallFailed as fault:  # who was asked first could not say: nothing is granted, and the call fails
            own, failure = question.settled or refused(question), fault
        try:
            await self._answered(question, own, seen)
        finally:
            question.over.set()
        if failure is not None:
            raise failure

    async def _answered(self, question: Question, own: Own, seen: Seen) -> None:
        client = self._client
        too_long = client.is_too_long(own.body)
        frame, rows = client.answer(own, withhold=too_long)
        await client.committed(frame.frame_seq)
        decision = next((row for row in rows if isinstance(row, Decision)), None)
        self.decisions += decision is not None
        if too_long:
            limit = client.terms.limits.request_bytes
            sentence = f"the answer to a question is over limits.request_bytes ({limit}) and was withheld"
            raise CallFailed("limit", sentence)
        await self._tell(
            dialogue.DECISION, **{**question.told, **_decided(own, decision), "envelope": _trimmed(seen.body)}
        )
        client.release(frame.frame_seq)
        question.frame_seq = frame.frame_seq

    async def _ask_caller(self, question: Question) -> Given | None:
        seconds = self._client.terms.policy.ask_seconds
        reply = await self._hearing.hear(dialogue.QUESTION, seconds, **question.told)
        answer = reply.get("answer")
        if answer is None:
            return None
        return _given(answer)

    async def _tell(self, event: str, **fields: Any) -> None:
        if event in self._client.terms.hears:
            await self._hearing.hear(event, self._client.terms.callback_seconds, **fields)
        else:
            await self._caller.tell(event, **fields)

    def _is_grantable(self, seen: Seen) -> bool:
        """Whether a question reads alike for everybody, and the turn it belongs to was not cancelled."""
        classes = {class_ for class_, _ in seen.envelope.anomalies}
        params = seen.envelope.params
        session = params.get("sessionId") if isinstance(params, dict) else None
        cancelled = isinstance(session, str) and self._client.observer.is_cancelled(session)
        return seen.envelope.parsed and not classes & {"ambiguous", "duplicate_key"} and not cancelled

    def _told_of(self, seen: Seen) -> dict[str, Any]:
        params = seen.envelope.params if isinstance(seen.envelope.params, dict) else {}
        question = question_of(params, [])
        options = params.get("options")
        offered = [each for each in options if isinstance(each, dict)] if isinstance(options, list) else []
        return {
            "epoch": self._client.epoch,
            "request": f"{self._client.transport_id}/{seen.frame.frame_seq}",
            "acp_session_id": _word(params, "sessionId"),
            "tool_call_id": question.tool_call_id or "",
            "title": question.title or "",
            "tool_kind": question.tool_kind or "",
            "status": question.tool_status or "",
            "options": [
                {"option_id": _word(each, "optionId"), "name": _word(each, "name"), "kind": _word(each, "kind")}
                for each in offered
            ],
            "option_count": question.option_count or 0,
            "outcome": "pending",
            "option_id": "",
            "option_kind": "",
            "decided_by": "",
            "rule": None,
            "envelope": "",
        }


def _kind_of(seen: Seen) -> str:
    is_oversize = any(isinstance(row, Anomaly) and row.class_ == "oversize" for row in seen.rows)
    return "limit" if is_oversize else "protocol_error"


def _trimmed(body: bytes) -> str:
    return body.strip(b" \t\r\n").decode("utf-8", "replace")


def _word(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _given(answer: Any) -> Given:
    if not isinstance(answer, dict) or not isinstance(answer.get("outcome"), str):
        raise CallFailed("observer", "the program's answer to a question must have an outcome, a text")
    return Given(answer["outcome"], _word(answer, "option_id"), _word(answer, "option_kind"))


def _decided(own: Own, decision: Decision | None) -> dict[str, Any]:
    """What was decided: the words the agent will hear, and what the offer makes of them."""
    said = json.loads(own.body)["result"]["outcome"]
    return {
        "outcome": said["outcome"],
        "option_id": said.get("optionId", ""),
        "option_kind": (decision.option_kind or "") if decision else "",
        "decided_by": decision.decided_by if decision else "",
        "rule": decision.rule if decision else None,
    }
