"""Secrets out of the stored line, and nothing else.

What must not be broken here: only the bytes of a secret's value change; every other byte of the line stays. What is
forwarded is never touched. Redacting twice changes nothing more, and no shape of a message makes it raise: a secret
in an unexpected type is replaced whole, and where a key occurs twice both values are.

The list, and why each is on it:

* `mcpServers[].env[].value`, `mcpServers[].headers[].value` of the requests that open a session: the API keys and
  bearer tokens an editor hands to tool servers.
* `_meta` of `authenticate` (`auth/login` in the draft of v2): gateway credentials travel there.
* `env[].value` of `terminal/create`: an environment, with whatever secrets it holds.
* `authMethods[].env` of the answer to `initialize`, whole: a map from name to value in v1, an array in v2.
* The params of `providers/set`, whole: `headers` is a map from name to value that holds authorization, a `baseUrl`
  may carry a token, and the method is not stable, so its next field may be a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acp_ledger.protocol.spans import TOKEN_BUDGET, Plan, Span, walk
from acp_ledger.protocol.strict import NODE_BOUND, NotStrict, read

if TYPE_CHECKING:
    from acp_ledger.protocol.envelope import Envelope

REDACTED: Final = b'"[redacted]"'
"""What stands where a secret stood: a JSON string, so that the line stays JSON."""

PARSED_BUDGET: Final = 4 * NODE_BOUND
"""Tokens the search for secrets may cost on a parsed line: more than any such line holds."""

UNPARSED_BUDGET: Final = 3 * TOKEN_BUDGET
"""The same on a line too big to parse, whose secrets past it stay; its `unparsed` anomaly says `unfinished`."""

_METHOD_BYTES: Final = 1024

_SECRET: Final = Plan(leaf="secret")
_METHOD: Final = Plan(mark="method")
_NAMED_VALUES: Final = Plan(each=Plan(members={"value": _SECRET}, leaf="secret"), leaf="secret")
_SERVER: Final = Plan(members={"env": _NAMED_VALUES, "headers": _NAMED_VALUES})
_SERVERS: Final = Plan(members={"mcpServers": Plan(each=_SERVER, rest=_SERVER)})
_META: Final = Plan(members={"_meta": _SECRET})

SECRET_PARAMS: Final[dict[str, Plan]] = {
    "session/new": _SERVERS,
    "session/load": _SERVERS,
    "session/resume": _SERVERS,
    "session/fork": _SERVERS,
    "authenticate": _META,
    "auth/login": _META,
    "terminal/create": Plan(members={"env": _NAMED_VALUES}),
    "providers/set": _SECRET,
}
"""The methods whose params hold secrets, and where."""

_METHODS: Final = Plan(members={"method": _METHOD}, each=Plan(members={"method": _METHOD}))
_INITIALIZED: Final = Plan(members={"authMethods": Plan(each=Plan(members={"env": _SECRET}))})


def redact(line: bytes, envelope: Envelope, answered_method: str | None) -> bytes:
    """The line as it may be stored: the same object where it holds no secret.

    `answered_method` is the method of the request this line answers, None where it is no answer or nobody knows of
    what; an answer to an unknown request is treated as one to `initialize`. A line that is not JSON stays exact.
    """
    if not (envelope.parsed or envelope.unparsed):
        return line
    members = _members(line, envelope, answered_method)
    if not members:
        return line
    budget = PARSED_BUDGET if envelope.parsed else UNPARSED_BUDGET
    found = walk(line, Plan(members=members, each=Plan(members=members)), budget=budget)
    return _replace(line, found.spans)


def _members(line: bytes, envelope: Envelope, answered_method: str | None) -> dict[str, Plan]:
    """Where to look: by the one method where the message is clear, else by every method it names."""
    if envelope.kind in ("request", "notification"):
        plan = SECRET_PARAMS.get(envelope.method or "")
        return {"params": plan} if plan else {}
    batch = isinstance(envelope.value, list)
    members: dict[str, Plan] = {}
    if envelope.kind == "opaque" and (batch or envelope.has_method):
        members.update(_params(line, PARSED_BUDGET if envelope.parsed else TOKEN_BUDGET))
    if (batch or envelope.has_result) and answered_method in ("initialize", None):
        members["result"] = _INITIALIZED
    return members


def _params(line: bytes, budget: int) -> dict[str, Plan]:
    """The secrets of every method that an opaque line names, at its top or in the messages of a batch."""
    plans = [SECRET_PARAMS[method] for method in _methods(line, budget) if method in SECRET_PARAMS]
    if not plans:
        return {}
    together: dict[str, Plan] = {}
    for plan in plans:
        together.update(plan.members)
    return {"params": _SECRET if _SECRET in plans else Plan(members=together)}


def _methods(line: bytes, budget: int) -> set[str]:
    methods: set[str] = set()
    for span in walk(line, _METHODS, budget=budget).spans:
        if 0 <= span.end - span.start <= _METHOD_BYTES:
            methods.update(_spelled(line[span.start : span.end]))
    return methods


def _spelled(token: bytes) -> list[str]:
    if not token.startswith(b'"'):
        return []
    try:
        return [str(read(token)[0])]
    except NotStrict:
        return []


def _replace(line: bytes, spans: tuple[Span, ...]) -> bytes:
    pieces: list[bytes] = []
    kept = 0
    for span in spans:
        # Null holds no secret.
        if line[span.start : span.end] not in (REDACTED, b"null"):
            pieces += (line[kept : span.start], REDACTED)
            kept = span.end
    return b"".join((*pieces, line[kept:])) if pieces else line
