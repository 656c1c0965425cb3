"""What `ledgerctl doctor` says of one thing, and what it starts from.

What must not be broken here: a finding that is not `ok` says what mends it, and nothing of a case changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from acp_ledger.ctl.options import Options
    from acp_ledger.errors import LedgerError
    from acp_ledger.ledger_url import LedgerUrl
    from acp_ledger.settings import Settings

Level: TypeAlias = Literal["ok", "warn", "fail"]
"""`warn` works and should be seen to; `fail` does not work, or not safely."""


class CannotAskError(Exception):
    """This role may not read what a check asks for; the text says what."""


class Finding(NamedTuple):
    """What was found: about what, one sentence for people, and the command or change that mends it."""

    level: Level
    check: str
    sentence: str
    mend: str | None = None


@dataclass(frozen=True)
class Case:
    """What every check starts from.

    `settings` is None where they cannot be used, and `problem` says why; `daemon` is its own answer to `status`, None
    where it gave none, and `silence` says why.
    """

    options: Options
    settings: Settings | None
    problem: LedgerError | None
    socket: str | None
    daemon: dict[str, Any] | None
    silence: LedgerError | None
    refused: list[LedgerError] = field(default_factory=list)
    """Why the ledger could not be opened, once that was tried: a database that is away is not waited for twice."""

    @property
    def url(self) -> LedgerUrl | None:
        """The ledger's address; None where the settings do not tell it."""
        return None if self.settings is None else self.settings.database.url
