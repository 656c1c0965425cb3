"""Who may answer a permission question, and with what.

What must not be broken here: a question is granted only by a rule that somebody wrote, only with an option that the
agent offered, and only where nobody can read question or answer in two ways. A policy decides on the kind of an
option, never on its name, and on the question's own words, never on what was said elsewhere. A silence is never an
approval: who has no answer says so (None), and then whoever else may be asked is asked.

The order: rules as they are written; then exact tool kinds; then title prefixes. The first that matches decides.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from acp_ledger.protocol.envelope import identity
from acp_ledger.protocol.permission import question_of

Mode: TypeAlias = Literal["observe", "enforce", "unattended"]
"""`observe`: whoever is asked answers everything. `enforce`: what matches is answered here. `unattended`: all is."""

OptionKind: TypeAlias = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
Ask: TypeAlias = Literal["nobody", "operator", "unmatched"]
"""Which questions wait for a person where nobody else is there: none, all, or those that nothing matches."""

Answer: TypeAlias = Literal["allow_once", "allow_always", "reject_once", "reject_always", "ask"]
"""What a rule answers with: the first option of that kind; `ask` leaves the question to whoever else is asked."""

UNATTENDED: Final = "mode=unattended"
"""Stands for a rule where nothing granted a question and nobody is there to be asked."""

UNANSWERED: Final = "ask_seconds"
"""Stands for a rule where whoever was asked did not answer in time, or could not."""

UNOFFERED_OPTION: Final = "unoffered_option=cancel"
"""Stands for a rule where `cancelled` took the place of an answer that nobody offered."""

_DIGEST: Final = b"acp-ledger/policy/1\0"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with a name: matches where everything it names is so."""

    name: str
    answer: Answer
    tool_kind: str | None = None
    title_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, as it is in force for a connection from its opening to its end."""

    mode: Mode = "observe"
    allow_tool_kinds: tuple[str, ...] = ()
    allow_title_prefixes: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    never_always: bool = False
    unoffered_option: Literal["forward", "cancel"] = "forward"
    ask: Ask = "nobody"
    ask_seconds: float = 300.0

    @property
    def digest(self) -> str:
        """SHA-256 as hex of the policy as JSON: keys in order, no spaces, every key written."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(_DIGEST + text.encode("utf-8", "surrogatepass")).hexdigest()


class Offer(NamedTuple):
    """An option that can be chosen: its id exactly as offered, and its kind."""

    option_id: str
    kind: str


class Asked(NamedTuple):
    """What a policy reads of a question: its own words. `offers` is None where there is no list of options."""

    tool_kind: str | None
    title: str | None
    offers: tuple[Offer, ...] | None


class Verdict(NamedTuple):
    """The answer: the option that is chosen, None for `cancelled`; and the rule that says so."""

    option_id: str | None
    rule: str


def asked_of(params: Any) -> Asked:
    """Read a question. An option that is no object, or lacks a string kind or id, is skipped.

    So is one that shares its id with an option of another kind: nobody could say which of them was chosen.
    """
    fields = params if isinstance(params, dict) else {}
    question = question_of(fields, [])
    options = fields.get("options")
    if not isinstance(options, list):
        return Asked(question.tool_kind, question.title, None)
    whole = [_offer(option) for option in options]
    kinds: dict[str, set[str | None]] = {}
    for option_id, kind in whole:
        if option_id is not None:
            kinds.setdefault(option_id, set()).add(kind)
    clear = (
        Offer(each, kind) for each, kind in whole if each is not None and kind is not None and len(kinds[each]) == 1
    )
    return Asked(question.tool_kind, question.title, tuple(clear))


def _offer(option: Any) -> tuple[str | None, str | None]:
    fields = option if isinstance(option, dict) else {}
    option_id, kind = fields.get("optionId"), fields.get("kind")
    return option_id if isinstance(option_id, str) else None, kind if isinstance(kind, str) else None


def decide(policy: Policy, asked: Asked, *, grantable: bool = True) -> Verdict | None:
    """The policy's answer to a question; None where it has none, so that whoever else may be asked is asked.

    `grantable` is False where no answer could be trusted to mean what it says: its turn was cancelled, or the
    question can be read in two ways. Such a question matches nothing.
    """
    if policy.mode == "observe":
        return None
    verdict = _matched(policy, asked) if grantable else None
    if verdict is None and policy.mode == "unattended":
        return refusal(asked, UNATTENDED) if grantable else Verdict(None, UNATTENDED)
    return verdict


def is_for_a_person(policy: Policy, asked: Asked) -> bool:
    """Whether a question waits for a person. One without a list of options does not: there is nothing to choose."""
    if policy.ask == "nobody" or asked.offers is None:
        return False
    return policy.ask == "operator" or _matched(policy, asked) is None


def refusal(asked: Asked, rule: str) -> Verdict:
    """What a question gets that nobody grants."""
    return Verdict(_refusal(asked), rule)


def _matched(policy: Policy, asked: Asked) -> Verdict | None:
    if asked.offers is None:
        return None
    found = _match(policy, asked)
    if found is None:
        return None
    name, answers = found
    for answer in answers:
        option = _first(asked.offers, answer)
        if option is not None and not (policy.never_always and answer == "allow_always"):
            return Verdict(option, name)
    return None


def _match(policy: Policy, asked: Asked) -> tuple[str, tuple[Answer, ...]] | None:
    """The first rule that matches: its name, and the kinds of option it answers with, the best one first."""
    for rule in policy.rules:
        if _fits(rule, asked):
            return rule.name, (rule.answer,)
    for kind in policy.allow_tool_kinds:
        if asked.tool_kind == identity(kind):
            return f"allow_tool_kinds={kind}", ("allow_once", "allow_always")
    for prefix in policy.allow_title_prefixes:
        if asked.title is not None and asked.title.startswith(prefix):
            return f"allow_title_prefixes={prefix}", ("allow_once", "allow_always")
    return None


def _fits(rule: Rule, asked: Asked) -> bool:
    kind = rule.tool_kind is None or asked.tool_kind == identity(rule.tool_kind)
    return kind and (rule.title_prefix is None or (asked.title or "").startswith(rule.title_prefix))


def _refusal(asked: Asked) -> str | None:
    """The first `reject_once`, else the last `reject_always`, else none: the answer is `cancelled`."""
    offers = asked.offers or ()
    once = _first(offers, "reject_once")
    return once if once is not None else _first(offers[::-1], "reject_always")


def _first(offers: tuple[Offer, ...], kind: str) -> str | None:
    return next((offer.option_id for offer in offers if offer.kind == kind), None)
