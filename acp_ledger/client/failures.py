"""How a call fails: what a program catches.

What must not be broken here: whatever the agent had said by then is in the error, for the turn is over and the text is
not lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_ledger.errors import LedgerError

if TYPE_CHECKING:
    from acp_ledger.client.values import Record


class CallFailed(LedgerError):
    """A call could not be made, or could not go on.

    Attributes:
        kind: One of `acp_ledger.dialogue.FAILURES`: `usage`, `limit`, `auth_required`, `agent_error`, `protocol_error`,
            `stream_ended`, `transport_failed`, `stopped`, `observer`, `ledger`.
        agent_error: The message of the agent's latest error answer; None where it never gave one.
        record: What the ledger has of the prompt; None where the call was none, or never began.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        hint: str | None = None,
        agent_error: str | None = None,
        record: Record | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.agent_error = agent_error
        self.record = record


class PromptFailed(LedgerError):
    """The agent answered a prompt, and not with a completed turn.

    Attributes:
        outcome: `refused`, `truncated`, `cancelled`, `auth_required`, `failed` or `protocol_error`.
        record: The whole record, with the text as far as it came.
    """

    def __init__(self, record: Record) -> None:
        super().__init__(record.error or f"the turn ended as {record.outcome}")
        self.outcome = record.outcome
        self.record = record
