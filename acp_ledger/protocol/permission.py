"""Permission questions and their answers, read by shape in every version of the protocol.

What must not be broken here: nothing is guessed. The agent owns the ids and kinds of what it offers, and the client
the words of its answer; an answer that cannot be read is `malformed`, and what nobody offered has no kind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp_ledger.protocol.envelope import array_of, identity, text_of
from acp_ledger.protocol.outcome import error_words
from acp_ledger.protocol.text import shown
from acp_ledger.protocol.v1 import Fields, ToolCall, as_objects, call_step, fields_of, word

if TYPE_CHECKING:
    from acp_ledger.protocol.records import DecisionOutcome, Effect


METHOD: Final = "session/request_permission"


class Option(NamedTuple):
    """An answer on offer."""

    option_id: str | None
    name: str | None
    kind: str | None
    lossy: bool


class Question(NamedTuple):
    """A permission question, as asked.

    `options` is None where the offer is missing or no list; `offers_known` is False where it was not read.
    """

    tool_call_id: str | None
    title: str | None
    lossy: bool
    call: ToolCall | None
    tool_kind: str | None
    tool_status: str | None
    option_count: int | None
    options: tuple[Option, ...] | None
    offers_known: bool


class Answer(NamedTuple):
    """What an answer to a permission question says."""

    outcome: DecisionOutcome
    outcome_raw: str | None
    option_id: str | None
    option_kind: str | None
    offered: bool | None
    effect: Effect


UNANSWERED: Final = Answer("unanswered", None, None, None, None, "none")


def question_of(params: Fields, wrong: list[str]) -> Question:
    """A permission question.

    The draft of version 2 names the call in `subject` and has a `title` of its own; both are read where v1's are not.
    """
    call = fields_of(params, "toolCall", wrong)
    if not call and "subject" in params:
        subject = fields_of(params, "subject", wrong)
        call = fields_of(subject, "toolCall", wrong) or subject
    call_id = text_of(call, "toolCallId", wrong)
    step = call_step(call, call_id or "", wrong)
    title, lossy = (step.title, step.lossy) if step.title else shown(text_of(params, "title", wrong))
    options = array_of(params, "options", wrong)
    return Question(
        tool_call_id=None if call_id is None else step.tool_call_id,
        title=title,
        lossy=lossy,
        call=None if call_id is None or step.status_raw is None else step,
        tool_kind=step.kind,
        tool_status=step.status_raw,
        option_count=None if options is None else len(options),
        options=None if options is None else _options(options, wrong),
        offers_known=True,
    )


def unread_offers(question: Question) -> Question:
    """The question of a line too big to parse: what it offered is not known."""
    return question._replace(option_count=None, options=None, offers_known=False)


def _options(options: list[Any], wrong: list[str]) -> tuple[Option, ...]:
    return tuple(_option(option, wrong) for option in as_objects(options, "options", wrong))


def _option(option: Fields, wrong: list[str]) -> Option:
    name, lossy = shown(text_of(option, "name", wrong))
    return Option(word(option, "optionId", wrong), name, word(option, "kind", wrong), lossy)


def decision_of(question: Question, result: Any, error: Any, *, ambiguous: bool = False) -> Answer:
    """What an answer to a question says; `None` stands for a member that is absent or null.

    The first offer with the chosen id gives the option's kind: `''` when it was never offered, None when its offer
    names no kind or the offers were not read. An answer that is `ambiguous`, that has both members, or whose
    outcome cannot be read is malformed.
    """
    if ambiguous or (result is not None and error is not None):
        return _malformed(None)
    if error is not None:
        code = error_words(error)[0]
        return Answer("error", None if code is None else str(code), None, None, None, "none")
    outcome = result.get("outcome") if isinstance(result, dict) else None
    said = outcome.get("outcome") if isinstance(outcome, dict) else None
    if said == "cancelled":
        return Answer("cancelled", "cancelled", None, None, None, "none")
    chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
    if said == "selected" and type(chosen) is str:
        return _selected(question, identity(chosen))
    return _malformed(identity(said) if type(said) is str else None)


def _malformed(said: str | None) -> Answer:
    return Answer("malformed", said, None, None, None, "unknown")


def _selected(question: Question, chosen: str) -> Answer:
    for option in question.options or ():
        if option.option_id == chosen:
            return Answer("selected", "selected", chosen, option.kind, offered=True, effect=effect_of(option.kind))
    if not question.offers_known:
        return Answer("selected", "selected", chosen, None, offered=None, effect="unknown")
    return Answer("selected", "selected", chosen, "", offered=False, effect="unknown")


def answer_line(id_token: str, option_id: str | None) -> bytes:
    """The answer that chooses an option, or `cancelled` where that is None; `id_token` as the question wrote it."""
    outcome = {"outcome": "cancelled"} if option_id is None else {"outcome": "selected", "optionId": option_id}
    result = json.dumps({"outcome": outcome}, separators=(",", ":"))
    return f'{{"jsonrpc":"2.0","id":{id_token},"result":{result}}}'.encode()


def effect_of(option_kind: str | None) -> Effect:
    """What choosing an option of that kind does; a kind nobody knows does something nobody knows."""
    if option_kind is None:
        return "unknown"
    if option_kind.startswith("allow_"):
        return "allow"
    return "reject" if option_kind.startswith("reject_") else "unknown"
