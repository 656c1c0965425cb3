"""Every error we raise on purpose: what happened, what mends it, and the status a program exits with.

What must not be broken here: nothing of ours is imported, an exit code never changes its meaning, and no message or
hint shows a secret (`without_secrets` is applied to both).
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """The statuses of `ledgerctl` and `acp-ledgerd`. Scripts depend on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    NOTHING_MATCHED = 4
    INTEGRITY = 5
    NO_LEDGER = 10
    LOCKED = 11
    REFUSED = 12
    SCHEMA = 13
    TURN_REFUSED = 40
    TURN_TRUNCATED = 41
    TURN_CANCELLED = 42
    TURN_AUTH_REQUIRED = 43
    TURN_FAILED = 44
    TURN_PROTOCOL_ERROR = 45
    TURN_STREAM_ENDED = 46
    TURN_TRANSPORT_FAILED = 47
    TURN_INTERRUPTED = 48
    TURN_PAST_A_LIMIT = 49
    UNREACHABLE = 69
    CONFIG = 78
    CANNOT_EXECUTE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS: Final[dict[ExitCode, str]] = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "wrong usage, or a setting that cannot be used",
    ExitCode.INCOMPLETE: "done, but something was not checked or is incomplete",
    ExitCode.NOTHING_MATCHED: "nothing matched, and `--require-match` was given",
    ExitCode.INTEGRITY: "the ledger's integrity is violated",
    ExitCode.NO_LEDGER: "there is no ledger at that place",
    ExitCode.LOCKED: "another daemon holds the ledger",
    ExitCode.REFUSED: "the database refused us",
    ExitCode.SCHEMA: "the ledger's schema differs from this program's",
    ExitCode.TURN_REFUSED: "`prompt`: the agent refused (`refused`)",
    ExitCode.TURN_TRUNCATED: "`prompt`: the agent stopped before its work was done (`truncated`)",
    ExitCode.TURN_CANCELLED: "`prompt`: the turn was cancelled (`cancelled`)",
    ExitCode.TURN_AUTH_REQUIRED: "`prompt`: the agent asks for a login (`auth_required`)",
    ExitCode.TURN_FAILED: "`prompt`: the agent answered with an error (`failed`)",
    ExitCode.TURN_PROTOCOL_ERROR: "`prompt`: the agent sent what ACP does not allow (`protocol_error`)",
    ExitCode.TURN_STREAM_ENDED: "`prompt`: the agent closed its output (`stream_ended`)",
    ExitCode.TURN_TRANSPORT_FAILED: "`prompt`: reading the agent's output failed (`transport_failed`)",
    ExitCode.TURN_INTERRUPTED: "`prompt`: the agent was stopped, or the daemon ended (`interrupted`)",
    ExitCode.TURN_PAST_A_LIMIT: "`prompt`: a limit of ours ended the call",
    ExitCode.UNREACHABLE: "the daemon is not reachable",
    ExitCode.CONFIG: "the daemon's settings cannot be used",
    ExitCode.CANNOT_EXECUTE: "the agent's command cannot be executed (`acp-ledger-run`)",
    ExitCode.NOT_FOUND: "the agent's command was not found (`acp-ledger-run`)",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.PIPE_CLOSED: "the reader of our output went away",
}
"""The one table of exit codes; the documentation is made from it."""

_URL_PASSWORD = re.compile(r"(?<=://)([^\s/:]*):\S*@")
_NAMED_PASSWORD = re.compile(r"(?i)\b((?:ssl)?password|passwd|pwd)(\s*=\s*)('[^']*'|[^\s&;,'\")]+)")


def without_secrets(text: str) -> str:
    """Mask the password of every URL in a text, and every `password=…`.

    Errs on the side of masking: of a URL everything between the first `:` behind the user and the last `@` goes, for
    a password may hold both.
    """
    return _NAMED_PASSWORD.sub(r"\1\2***", _URL_PASSWORD.sub(r"\1:***@", text))


class LedgerError(Exception):
    """An error for people.

    `message` says what happened, and on what; `hint` is the command or the change that mends it, None where nobody
    knows one; `exit_code` is what a program that ends because of it exits with.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = without_secrets(message)
        self.hint = without_secrets(hint) if hint is not None else None
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(LedgerError):
    """The command line does not say what to do."""

    exit_code = ExitCode.USAGE


class ConfigError(LedgerError):
    """A setting cannot be used. `ledgerctl` reports it as wrong usage (2), the daemon by its own status (78)."""

    exit_code = ExitCode.CONFIG


class StoreFault(LedgerError):
    """The ledger could not be opened, read or written."""


class NoLedger(StoreFault):
    """There is no ledger where one was to be read."""

    exit_code = ExitCode.NO_LEDGER


class LedgerLocked(StoreFault):
    """Another daemon is the ledger's writer."""

    exit_code = ExitCode.LOCKED


class DatabaseRefused(StoreFault):
    """The database did not let us in, or does not keep what we commit (a setting read back differs)."""

    exit_code = ExitCode.REFUSED


class SchemaDiffers(StoreFault):
    """The ledger's schema is not one this program may write to. Nothing was changed."""

    exit_code = ExitCode.SCHEMA


class IntegrityViolation(StoreFault):
    """What is stored is not what was committed."""

    exit_code = ExitCode.INTEGRITY


class DaemonUnreachable(LedgerError):
    """No daemon answers on the socket, and none could be started."""

    exit_code = ExitCode.UNREACHABLE


class AgentFault(LedgerError):
    """The agent's command could not be started."""

    exit_code = ExitCode.CANNOT_EXECUTE


class AgentNotFound(AgentFault):
    """The agent's command does not exist."""

    exit_code = ExitCode.NOT_FOUND


class PeerFault(LedgerError):
    """The other end of a socket did not keep to the words agreed on."""
