"""The questions of one agent whose client we are: who is asked, in which order, and what is said in the end.

What must not be broken here: a silence is never an approval, and neither is a failure. Whoever is asked first decides;
one who does not answer in time has rejected. A question of a turn that was cancelled is answered `cancelled`, whoever
is being asked.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from acp_ledger import policy
from acp_ledger.daemon.own import Own
from acp_ledger.protocol.client_lines import reply_line
from acp_ledger.protocol.permission import answer_line
from acp_ledger.protocol.records import TO_AGENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from acp_ledger.policy import Asked, Policy


class Given(NamedTuple):
    """An answer of the caller's own, sent as given; `option_kind` is what it claims, and never sent."""

    outcome: str
    option_id: str = ""
    option_kind: str = ""


class Question:
    """A question that waits for its answer.

    `told` is what people and programs are told of it; it was asked `at`, in UTC microseconds.
    """

    def __init__(self, id_token: str, asked: Asked, told: Mapping[str, Any], turn_id: int | None, at: int) -> None:
        self.id_token = id_token
        self.asked = asked
        self.told = told
        self.turn_id = turn_id
        self.asked_at = at
        self.until: int | None = None  # UTC microseconds, while a person is asked
        self.over = trio.Event()
        self.frame_seq: int | None = None  # of its answer, once the agent may hear it
        self.settled: Own | None = None
        self.deciding = trio.CancelScope()

    @property
    def name(self) -> str:
        """The form that means this question and no other."""
        return str(self.told["request"])

    def settle(self, own: Own) -> None:
        """Answer it, whoever else is being asked."""
        self.settled = own
        self.deciding.cancel()

    def answer(self, option_id: str | None, operator: str) -> Own:
        """The line by which a person chooses that option, or `cancelled` where it is None."""
        return Own(TO_AGENT, answer_line(self.id_token, option_id), "operator", operator=operator)


class Questions:
    """Who decides. `held` are the questions that wait for a person, by name; `open` is the one being decided."""

    def __init__(self, transport_id: int) -> None:
        self.transport_id = transport_id
        self.held: dict[str, Question] = {}
        self.open: Question | None = None
        self._called_off: tuple[str, tuple[int, ...]] | None = None

    def call_off(self, turns: tuple[int, ...], operator: str | None) -> None:
        """What runs was cancelled, by that operator or by the caller: its questions are answered `cancelled`."""
        if operator is not None:
            self._called_off = operator, turns
        if self.open is not None:
            self.open.settle(self._cancelled(self.open, operator))

    async def decide(
        self,
        rules: Policy,
        question: Question,
        *,
        grantable: bool,
        ask_caller: Callable[[Question], Awaitable[Given | None]] | None,
    ) -> Own:
        """Give the answer to a question: its caller's, else a person's, else the policy's."""
        if self._called_off is not None and question.turn_id in self._called_off[1]:
            return self._cancelled(question, self._called_off[0])
        if not grantable:
            return _own(question, policy.decide(rules, question.asked, grantable=False))
        self.open = question
        try:
            with question.deciding:
                return await self._ask(rules, question, ask_caller)
        finally:
            self.open = None
        assert question.settled is not None  # noqa: S101  # nothing else cancels the scope and lets us come here
        return question.settled

    async def _ask(
        self, rules: Policy, question: Question, ask_caller: Callable[[Question], Awaitable[Given | None]] | None
    ) -> Own:
        given = await ask_caller(question) if ask_caller is not None else None
        if given is not None:
            line = reply_line(question.id_token, given.outcome, given.option_id)
            return Own(TO_AGENT, line, "peer", claimed=given.option_kind)
        if policy.is_for_a_person(rules, question.asked):
            await self._hold(question, rules.ask_seconds)
            return _own(question, policy.refusal(question.asked, policy.UNANSWERED))
        return _own(question, policy.decide(rules, question.asked))

    async def _hold(self, question: Question, seconds: float) -> None:
        """Wait for a person: their answer settles the question, and ends this from outside. Returns when it is late."""
        question.until = time.time_ns() // 1_000 + int(seconds * 1e6)
        self.held[question.name] = question
        try:
            await trio.sleep(seconds)
        finally:
            del self.held[question.name]

    def _cancelled(self, question: Question, operator: str | None) -> Own:
        line = answer_line(question.id_token, None)
        if operator is None:
            return Own(TO_AGENT, line, "peer")
        return Own(TO_AGENT, line, "operator", operator=operator)


def refused(question: Question) -> Own:
    """The answer of a question whose asking failed."""
    return _own(question, policy.refusal(question.asked, policy.UNANSWERED))


def _own(question: Question, verdict: policy.Verdict | None) -> Own:
    option, rule = (verdict.option_id, verdict.rule) if verdict is not None else (None, policy.UNATTENDED)
    return Own(TO_AGENT, answer_line(question.id_token, option), "policy", rule)
