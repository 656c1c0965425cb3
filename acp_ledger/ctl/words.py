"""What a stored word is called on a screen for people.

What must not be broken here: only `end_turn` is ever called completed, an unknown word claims the least and is shown as
the agent wrote it, and no silence is shown as an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acp_ledger.ctl.text import escape

if TYPE_CHECKING:
    from acp_ledger.store.answers import Decision, ToolCall, Turn

_OUTCOMES: Final = {
    "completed": "completed",
    "refused": "refused",
    "cancelled": "cancelled",
    "auth_required": "auth required",
    "stream_ended": "agent closed its output",
    "transport_failed": "transport failed",
    "interrupted": "interrupted (the daemon died)",
}


def outcome_words(turn: Turn) -> str:
    """Say how a turn ended; `running` while nothing says that it did."""
    if turn.outcome is None:
        return "running"
    if turn.outcome == "truncated":
        return f"stopped short ({escape(turn.stop_reason or '')})"
    if turn.outcome == "failed":
        return f"failed (error {turn.error_code})"
    if turn.outcome == "protocol_error":
        return f'unknown: "{escape(turn.stop_reason)}"' if turn.stop_reason else "unknown: no stop reason"
    return _OUTCOMES.get(turn.outcome, f'unknown: "{escape(turn.outcome)}"')


def status_words(call: ToolCall) -> str:
    """Say how far a tool call went, by the agent's own word; a word we do not know counts as `pending`."""
    return step_words(call.status, call.status_raw)


def step_words(status: str, raw: str | None) -> str:
    """Say a status; the agent's word stands beside ours where they differ."""
    return status if raw is None or raw == status else f'{status} ("{escape(raw)}")'


def answer_words(decision: Decision) -> str:
    """Say what became of a question."""
    if decision.outcome != "selected":
        silent = {"open": "open: no answer yet", "unanswered": "unanswered"}.get(decision.outcome)
        return silent or escape(decision.outcome) + (f", by {_by(decision)}" if decision.rule else "")
    kind = escape(decision.option_kind) if decision.option_kind else "(not offered)"
    return f"{kind} ({decision.effect}), by {_by(decision)}"


def _by(decision: Decision) -> str:
    """Who decided, and by which rule of a policy."""
    rule = "" if decision.rule is None else f": {escape(decision.rule)}"
    return f"{decision.decided_by}{rule}"


def prompt_words(body: bytes | None) -> str | None:
    """Give what the user asked, read from the stored line of a prompt; other blocks by their kind, as `[image]`.

    None where the line is gone or cannot be read.
    """
    from acp_ledger.protocol.envelope import parse

    params = parse(body).params if body is not None else None
    blocks = params.get("prompt") if isinstance(params, dict) else None
    if not isinstance(blocks, list):
        return None
    return "\n".join(_block_words(block) for block in blocks)


def _block_words(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    text = block.get("text") if isinstance(block, dict) and kind == "text" else None
    return text if isinstance(text, str) else f"[{kind or 'unreadable'}]"
