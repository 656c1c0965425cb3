"""What a caller asked for, checked: the limits, the policy and the names under which the daemon is its client.

What must not be broken here: everything is checked before anything starts, and a policy that a caller gives can be
looked up afterwards: its digest stands in the transport's row.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from acp_ledger import dialogue
from acp_ledger.errors import UsageError
from acp_ledger.policy import Policy, Rule
from acp_ledger.protocol.client_lines import McpServer
from acp_ledger.sections import LimitSettings, PolicySettings
from acp_ledger.store.opening import EPOCH_BOUND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_ledger.settings import Settings

NAME: Final = "acp-ledger"
"""Name and title that an agent hears of its client, where the caller gives none."""

_HEARD: Final = frozenset({dialogue.UPDATE, dialogue.QUESTION, dialogue.DECISION})


@dataclass(frozen=True, slots=True)
class Info:
    """What an agent is told of its client."""

    name: str
    title: str
    version: str


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a client, from its opening to its end. `callback_seconds` is how long its caller is waited for."""

    epoch: int | None
    info: Info
    limits: LimitSettings
    policy: Policy
    servers: tuple[McpServer, ...]
    hears: frozenset[str]
    callback_seconds: float


def terms_of(said: Mapping[str, Any], settings: Settings, policy: Policy) -> Terms:
    """Read what a caller opens with; `policy` is the settings' for this agent.

    Raises:
        UsageError: It cannot be had.
    """
    limits = _limits(_table(said, "limits"), settings.limits)
    _refuse_unholdable(limits.line_bytes)
    hears = said.get("hears") or []
    if not isinstance(hears, list) or not _HEARD.issuperset(map(str, hears)):
        raise UsageError(f"hears must name some of {', '.join(sorted(_HEARD))}")
    return Terms(
        epoch=_epoch(said.get("epoch")),
        info=_info(_table(said, "client")),
        limits=limits,
        policy=_policy(_table(said, "policy"), policy),
        servers=_servers(said.get("mcp_servers")),
        hears=frozenset(map(str, hears)),
        callback_seconds=settings.client.callback_seconds,
    )


def _table(said: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = said.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UsageError(f"{key} must be an object")
    return {name: value for name, value in found.items() if value is not None}


def _epoch(epoch: object) -> int | None:
    if epoch is None:
        return None
    if type(epoch) is not int or not 0 < epoch < EPOCH_BOUND:
        raise UsageError(
            f"an epoch is a number over 0 and under 2^53, not {epoch!r}", hint="leave it out: the ledger gives the next"
        )
    return epoch


def _info(given: dict[str, Any]) -> Info:
    for key, value in given.items():
        if key not in Info.__slots__ or not isinstance(value, str):
            raise UsageError(f"client.{key} must be one of name, title, version, and a text")
    return Info(**{"name": NAME, "title": NAME, "version": metadata.version("acp-ledger"), **given})


def _limits(given: dict[str, Any], base: LimitSettings) -> LimitSettings:
    try:
        return LimitSettings.model_validate({**base.model_dump(), **given})
    except ValidationError as fault:
        raise _unusable("limits", fault) from None


def _policy(given: dict[str, Any], base: Policy) -> Policy:
    """The policy with the caller's own keys over it. Nobody else is there to be asked, so nothing is left open."""
    try:
        checked = PolicySettings.model_validate(given)
    except ValidationError as fault:
        raise _unusable("policy", fault) from None
    own = {name: getattr(checked, name) for name in checked.model_fields_set}
    if "rules" in own:
        own["rules"] = tuple(Rule(**dict(rule)) for rule in own["rules"])
    merged = {name: getattr(base, name) for name in Policy.__slots__} | own
    return Policy(**{**merged, "mode": "unattended"})


def _servers(given: object) -> tuple[McpServer, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise UsageError("mcp_servers must be a list")
    try:
        return tuple(McpServer.from_json(each) for each in given)
    except ValueError as fault:
        raise UsageError(f"mcp_servers: {fault}") from None


def _unusable(what: str, fault: ValidationError) -> UsageError:
    first = fault.errors(include_input=False, include_url=False)[0]
    key = ".".join(map(str, (what, *first["loc"])))
    message = first["msg"].removeprefix("Value error, ")
    return UsageError(f"{key}: {message[:1].lower()}{message[1:]}", hint="ledgerctl config show lists what there is")


def _refuse_unholdable(line_bytes: int) -> None:
    """Ask the kernel for room for one line of that length and a byte; it is given back untouched."""
    room = None
    with suppress(OSError, OverflowError, ValueError):
        room = mmap.mmap(-1, line_bytes + 1)
    if room is None:
        raise UsageError(
            f"limits.line_bytes: a line of {line_bytes} bytes cannot be held here", hint="choose a smaller limit"
        )
    room.close()
