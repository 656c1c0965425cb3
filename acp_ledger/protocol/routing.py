"""What can be known of a line too big to parse: who it is for, which question it answers, what it is about.

What must not be broken here: the scan is bounded (a 64 MiB nest of brackets costs milliseconds), it never raises, and
it depends on nothing but the bytes. What it did not reach it does not guess: an unfinished scan leaves the line opaque.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from acp_ledger.protocol import strict
from acp_ledger.protocol.spans import TOKEN_BUDGET, UNFINISHED, Plan, Span, walk

WORD_BYTES: Final = 64 * 1024
"""A routing word whose token is longer reads as absent."""


def _word(path: str) -> Plan:
    return Plan(mark=path)


_PLAN: Final = Plan(
    members={
        "jsonrpc": _word("jsonrpc"),
        "id": _word("id"),
        "method": _word("method"),
        "params": Plan(
            mark="params",
            members={
                "sessionId": _word("params.sessionId"),
                "options": _word("params.options"),
                "update": Plan(
                    mark="params.update",
                    members={
                        "sessionUpdate": _word("params.update.sessionUpdate"),
                        "toolCallId": _word("params.update.toolCallId"),
                    },
                ),
                "toolCall": Plan(mark="params.toolCall", members={"toolCallId": _word("params.toolCall.toolCallId")}),
            },
        ),
        "result": Plan(
            mark="result",
            members={
                "sessionId": _word("result.sessionId"),
                "stopReason": _word("result.stopReason"),
                "outcome": Plan(
                    mark="result.outcome",
                    members={
                        "outcome": _word("result.outcome.outcome"),
                        "optionId": _word("result.outcome.optionId"),
                    },
                ),
            },
        ),
        "error": Plan(mark="error", members={"code": _word("error.code")}),
    }
)


class Routing(NamedTuple):
    """What the scan found: a skeleton of the message, the last id's token as written, and the value of every id.

    In the skeleton containers hold the routing words alone, other lists are empty, and a word too long is None.
    `repeated` are the paths that occur more than once; those but the top ones are left out of the skeleton.
    `complete` says that the whole line was walked.
    """

    skeleton: dict[str, Any]
    id_token: str | None
    ids: tuple[Any, ...]
    repeated: tuple[str, ...]
    complete: bool


def scan(line: bytes, *, budget: int = TOKEN_BUDGET) -> Routing:
    """Scan a line for its routing words. Never raises."""
    walked = walk(line, _PLAN, budget=budget)
    skeleton: dict[str, Any] = {}
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    token: str | None = None
    ids: list[Any] = []
    for span in walked.spans:
        if span.mark in seen:
            repeated[span.mark] = None
        seen.add(span.mark)
        value = _value(line, span)
        _place(skeleton, span.mark, value)
        if span.mark == "id" and span.end != UNFINISHED:
            token = line[span.start : span.end].decode("utf-8", "replace")
            ids.extend(_id(line[span.start : span.end]))
    for path in repeated:
        _forget(skeleton, path)
    return Routing(skeleton, token, tuple(ids), tuple(repeated), walked.complete)


def _id(token: bytes) -> list[Any]:
    """The id's value, in a list that is empty where the token is not JSON or too big to be read."""
    if strict.size_fault(token, WORD_BYTES) is not None:
        return []
    try:
        return [strict.read(token)[0]]
    except strict.NotStrict:
        return []


def _value(line: bytes, span: Span) -> Any:
    """The word, an empty container, or None where the token is too long or no JSON."""
    first = line[span.start : span.start + 1]
    if first == b"{":
        return {}
    if first == b"[":
        return []
    if span.end == UNFINISHED or span.end - span.start > WORD_BYTES:
        return None
    try:
        return strict.read(line[span.start : span.end])[0]
    except strict.NotStrict:
        return None


def _place(skeleton: dict[str, Any], path: str, value: Any) -> None:
    *owners, name = path.split(".")
    place = skeleton
    for owner in owners:
        inner = place.get(owner)
        if not isinstance(inner, dict):
            return
        place = inner
    place[name] = value


def _forget(skeleton: dict[str, Any], path: str) -> None:
    """Leave out a word that two readers may read differently; the members of the message itself stay."""
    *owners, name = path.split(".")
    place: Any = skeleton
    for owner in owners:
        place = place.get(owner) if isinstance(place, dict) else None
    if owners and isinstance(place, dict):
        place.pop(name, None)
