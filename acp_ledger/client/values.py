"""What goes into a client and comes out of it, as typed values.

What must not be broken here: a value is made from what the daemon said and from nothing else; a field that the daemon
of another version does not say has its default.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping


@dataclass(frozen=True)
class ClientInfo:
    """What an agent is told of its client (`clientInfo` of `initialize`)."""

    name: str = "acp-ledger"
    title: str = "acp-ledger"
    version: str = field(default_factory=lambda: metadata.version("acp-ledger"))


@dataclass(frozen=True)
class Limits:
    """What a client takes and writes, in bytes or counts, all over 0; None: the settings' (`[limits]`).

    Attributes:
        line_bytes: The longest line of the agent, without its newline. A longer one fails the call, for good.
        request_bytes: The longest line written to the agent, with its newline. A longer one is not written.
        update_bytes: The largest update, without the space around it. A larger one fails its call.
        update_count: Updates in all of the client's life. The first one past it fails its call and every later one.
        response_bytes: UTF-8 bytes of one prompt's reply. The chunk that would pass it is left out, and the prompt
            cancelled.
        response_segments: Chunks of one prompt's reply, likewise.
    """

    line_bytes: int | None = None
    request_bytes: int | None = None
    update_bytes: int | None = None
    update_count: int | None = None
    response_bytes: int | None = None
    response_segments: int | None = None


@dataclass(frozen=True)
class Rule:
    """A rule of a policy by name; it matches where everything it names is so."""

    name: str
    answer: Literal["allow_once", "allow_always", "reject_once", "reject_always", "ask"]
    tool_kind: str | None = None
    title_prefix: str | None = None


@dataclass(frozen=True)
class Policy:
    """Who answers a permission question, and with what; None: the settings' (`[policy]`, or the named agent's).

    Attributes:
        allow_tool_kinds: Kinds of tool calls that are granted, each compared whole.
        allow_title_prefixes: Beginnings of titles that are granted.
        rules: Rules by name; they come first.
        never_always: Whether `allow_always` is never chosen.
        ask: `operator`: every question waits for a person (`ledgerctl pending`); `unmatched`: those that nothing above
            matches; `nobody`.
        ask_seconds: Seconds that a person, or the observer's `answer`, has. Then the question is rejected.
    """

    allow_tool_kinds: tuple[str, ...] | None = None
    allow_title_prefixes: tuple[str, ...] | None = None
    rules: tuple[Rule, ...] | None = None
    never_always: bool | None = None
    ask: Literal["nobody", "operator", "unmatched"] | None = None
    ask_seconds: float | None = None


class _Told:
    """A value that the daemon tells as an object with fields of the same names."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Read it; what is not a field of it is skipped."""
        names = {each.name for each in fields(cls)}  # type: ignore[arg-type]  # every subclass is a dataclass
        return cls(**{name: value for name, value in told.items() if name in names})


@dataclass(frozen=True)
class Update(_Told):
    """A `session/update` of the agent's, in the ledger.

    Attributes:
        update_sequence: Its number, from 1 for all of the client's life.
        epoch: The client's own number; both together name the update for ever.
        kind: `sessionUpdate` in the agent's own spelling, known or not.
        text: A chunk's text; of a plan its entries, a line each; else empty.
        joined: Whether its text joins the reply.
        replay: Whether the agent tells an old session again.
        envelope: The exact line, without the space around it.
    """

    update_sequence: int
    epoch: int
    acp_session_id: str
    kind: str
    text: str
    joined: bool
    replay: bool
    envelope: str


@dataclass(frozen=True)
class Offer(_Told):
    """An option that a question offers; a word it lacks is empty."""

    option_id: str = ""
    name: str = ""
    kind: str = ""


@dataclass(frozen=True)
class PermissionRequest(_Told):
    """A permission question. Words the agent left out are empty.

    Attributes:
        request: What `ledgerctl decide` calls it.
        status: The tool call's status in the agent's own word.
        option_count: How many options were offered, those that cannot be chosen with them.
        outcome: `pending` when it is asked; then the answer's.
        option_id: The option that was chosen; empty when it is asked, and where none was.
        option_kind: Of the first offer with that id; empty when it was never offered.
        decided_by: `client` (the observer's `answer`), `policy` or `operator`.
        rule: The policy's rule; None where none decided.
        envelope: The question's exact line, without the space around it; empty when it is asked.
    """

    epoch: int
    request: str
    acp_session_id: str = ""
    tool_call_id: str = ""
    title: str = ""
    tool_kind: str = ""
    status: str = ""
    options: tuple[Offer, ...] = ()
    option_count: int = 0
    outcome: str = "pending"
    option_id: str = ""
    option_kind: str = ""
    decided_by: str = ""
    rule: str | None = None
    envelope: str = ""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Read it, with its options."""
        return super().of({**told, "options": tuple(Offer.of(each) for each in told.get("options") or ())})


@dataclass(frozen=True)
class PermissionReply:
    """An answer of the observer's, sent as given: the option id is not checked, and left out when empty.

    `option_kind` is a claim: it is recorded beside what the offer says, and never sent.
    """

    outcome: str
    option_id: str = ""
    option_kind: str = ""


@dataclass(frozen=True)
class Overflow(_Told):
    """A reply that stopped at a limit: `response_bytes` or `response_segments`.

    `admitted_bytes` and `admitted_segments` count what it keeps; the update with `withheld_update_sequence` was the
    first that is not in it.
    """

    kind: str
    admitted_bytes: int
    admitted_segments: int
    withheld_update_sequence: int | None


@dataclass(frozen=True)
class Record(_Told):
    """How a prompt ended, and what the ledger has of it.

    Attributes:
        text: Every answer of the agent joined, with nothing between. Empty is honest: it may have said nothing.
        final_message: The last message alone.
        outcome: `completed` only for `end_turn`; None where the call failed and the turn's end is not known.
        stop_reason: The agent's own word; None where it gave none.
        overflow: Set where the reply stopped at a limit.
        error: A sentence for people, with at most 4,000 bytes of the text; None for a completed turn.
        error_code: Of the agent's error answer, where it gave one.
        steps: Tool-call steps recorded.
        decisions: Permission questions decided.
        not_recorded: How many updates the ledger keeps as lines alone, by kind.
    """

    text: str = ""
    final_message: str = ""
    outcome: str | None = None
    stop_reason: str | None = None
    acp_session_id: str | None = None
    transport_id: int = 0
    epoch: int = 0
    turn_id: int | None = None
    overflow: Overflow | None = None
    error: str | None = None
    error_code: int | None = None
    steps: int = 0
    decisions: int = 0
    not_recorded: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Read it, with its overflow."""
        overflow = told.get("overflow")
        return super().of({**told, "overflow": None if overflow is None else Overflow.of(overflow)})


@dataclass(frozen=True)
class Started(_Told):
    """What the agent answered when its session was opened.

    Attributes:
        initialize: `protocol_version`, `capabilities`, `auth_methods` (each `id` and `name`) and `agent_info`.
        modes: `current` and `available` (each `id` and `name`); None where the agent told none.
    """

    initialize: dict[str, Any]
    acp_session_id: str
    modes: dict[str, Any] | None = None


@dataclass(frozen=True)
class ReaderStatus(_Told):
    """How the reading of the agent's lines stands, in bytes.

    Attributes:
        limit: `line_bytes`; `storage` is what a line may occupy, one byte more.
        buffered: What is held of lines that were not taken yet.
        high_water: The longest line seen.
        rejected: Lines past the limit; after one `terminal` is True, and nothing more is read.
        phase: `starting`, `steady` or `ended`.
    """

    limit: int
    storage: int
    buffered: int
    high_water: int
    rejected: int
    phase: str
    terminal: bool


class Observer:
    """Hears what happens, as it happens. Override what you want to hear of; each may be a coroutine function or not.

    All of it runs inside the call that waits, and the agent waits for it, for `client.callback_seconds` of the settings
    (`answer`: `Policy.ask_seconds`). An exception fails that call, which raises `CallFailed` from it.

    Attributes:
        told_only: Names of methods, of `update` and `commit`, that nothing waits for: they hear the same in the same
            order, take as long as they like, and stop nothing. What they raise the call raises, and the client is
            stopped.
    """

    told_only: ClassVar[Collection[str]] = ()

    def update(self, update: Update) -> Awaitable[None] | None:
        """Take an update, before its text joins the reply and before the next line is read."""

    def answer(self, request: PermissionRequest) -> Awaitable[PermissionReply | None] | PermissionReply | None:
        """Answer a question first; None leaves it to whoever else is asked. An exception rejects it."""

    def commit(self, request: PermissionRequest) -> Awaitable[None] | None:
        """Take a decision, which is in the ledger; an exception keeps the answer from the agent."""


def given(value: Limits | Policy | ClientInfo) -> dict[str, Any]:
    """What was given of a value, for the daemon to lay over its settings."""
    return {name: each for name, each in asdict(value).items() if each is not None}
