"""Lines that we make ourselves: for a peer that would wait for ever, or in the place of a line that is withheld.

What must not be broken here: an id is written back exactly as its question wrote it, and every line says that it is
ours.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp_ledger.protocol.requests import CANCEL, WITHDRAWAL

if TYPE_CHECKING:
    from acp_ledger.protocol.records import Direction, Origin

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""JSON-RPC's own codes; the last is for "it is not the request's fault"."""

NO_ID: Final = "null"
"""The id of an error that answers no request, or one whose id nobody can know."""


class Own(NamedTuple):
    """A line of our own, and the policy's rule that made it, or the operator it was made for.

    `claimed` is the kind of option that a caller says it chose.
    """

    direction: Direction
    body: bytes
    origin: Origin = "daemon"
    rule: str | None = None
    operator: str | None = None
    claimed: str | None = None


def notification_line(method: str, params: dict[str, Any]) -> bytes:
    """A JSON-RPC notification."""
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}, separators=(",", ":")).encode()


def cancel_line(acp_session_id: str, operator: str) -> bytes:
    """Tell an agent to end the turn of a session, and who says so."""
    return notification_line(CANCEL, {"sessionId": acp_session_id, "_meta": {"acp_ledger": {"cancelled_by": operator}}})


def withdrawal_line(id_token: str) -> bytes:
    """Tell a peer that the request under an id as it was written wants no answer any more."""
    return f'{{"jsonrpc":"2.0","method":"{WITHDRAWAL}","params":{{"requestId":{id_token}}}}}'.encode()


def error_line(id_token: str, sentence: str, reason: str, code: int = INTERNAL_ERROR) -> bytes:
    """A JSON-RPC error under an id as it was written; every client shows its message."""
    message = sentence if sentence.startswith("acp-ledger") else f"acp-ledger: {sentence}"
    error = {"code": code, "message": message, "data": {"details": message, "reason": reason}}
    return f'{{"jsonrpc":"2.0","id":{id_token},"error":{json.dumps(error, separators=(",", ":"))}}}'.encode()
