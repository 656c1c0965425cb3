"""The tables of the settings file: every key with its unit, its default and its meaning.

What must not be broken here: a table is closed to keys it does not know, and a setting that does nothing yet is not
accepted.
"""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003  # pydantic reads the annotations
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from acp_ledger import paths
from acp_ledger.ledger_url import LedgerUrl

DEFAULT_LEDGER: Final = "sqlite:///~/.local/share/acp-ledger/ledger.db"


def _no_truth(value: object) -> object:
    """`true` is no number, though Python says it is 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004  # pydantic turns ValueError alone into a report
    return value


def _at_home(value: object) -> object:
    """Expand a leading `~/`; only the home directory all three programs agree on is meant, never another user's."""
    if not isinstance(value, str):
        return value
    if not value:
        raise ValueError("must not be empty")
    if value.startswith("~/"):
        return paths.home(os.environ, os.getuid()).rstrip("/") + value[1:]
    return value


def _storable(value: str) -> str:
    """What is compared with an agent's words and stands in the ledger: an empty beginning would match everything."""
    if not value or "\0" in value:
        raise ValueError("must not be empty" if not value else "must not hold NUL")
    return value


def _unlike_a_setting(name: str) -> str:
    """In the ledger a name with `=` in it is a setting and its value."""
    if "=" in name:
        raise ValueError("must not hold =")
    return name


Count = Annotated[int, BeforeValidator(_no_truth), Field(gt=0, le=2**53 - 1)]
Seconds = Annotated[float, BeforeValidator(_no_truth), Field(gt=0, le=86_400)]
Text = Annotated[str, BeforeValidator(_at_home)]
Word = Annotated[str, AfterValidator(_storable)]


class Section(BaseModel):
    """A table of the settings file. Frozen, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, arbitrary_types_allowed=True)


class DatabaseSettings(Section):
    """Where the ledger is, and how hard it holds on to what was committed."""

    url: Annotated[LedgerUrl, BeforeValidator(LedgerUrl.parse)] = Field(
        default=DEFAULT_LEDGER,  # validated like any value: `~` is expanded then
        validate_default=True,
        description="The ledger: `sqlite:///` and a path, or `postgresql+psycopg://user@host/database`. "
        "Keep a password in `~/.pgpass` rather than here.",
    )
    synchronous: Literal["full", "normal"] = Field(
        default="full",
        description="`full`: a commit has reached the disk. `normal` (SQLite only): a power cut may lose the last "
        "moments, though it never corrupts the ledger.",
    )

    @model_validator(mode="after")
    def _postgres_is_always_full(self) -> DatabaseSettings:
        if self.synchronous == "normal" and self.url.is_postgres:
            raise ValueError('database.synchronous = "normal" is for SQLite; on Postgres only "full" is accepted')
        return self


class SocketSettings(Section):
    """Where the daemon listens for runners and for `ledgerctl`."""

    path: Annotated[Path, BeforeValidator(_at_home)] | None = Field(
        default=None,
        description="The daemon's Unix socket, made with mode 0600. Not set: `/run/user/UID/acp-ledger/ledgerd.sock` "
        "where that directory is yours, else `~/.local/state/acp-ledger/ledgerd.sock`.",
    )


class RelaySettings(Section):
    """How lines pass between an editor and its agent."""

    stop_seconds: Seconds = Field(
        default=2.0,
        description="Seconds an agent has to end by itself once its input is closed; then its process group is ended.",
    )
    strict: bool = Field(
        default=False,
        description="Whether a line is withheld that does not parse, or that two parsers may read differently: bad "
        "UTF-8, `NaN`, a repeated key, an id in use, an answer to nothing that waits, a line over "
        "`limits.parse_bytes`. It is stored, its sender gets a JSON-RPC error, and so does whoever waits for it. "
        "Otherwise such a line is flagged and forwarded.",
    )


class LimitSettings(Section):
    """What is refused for its size. Every limit is checked before anything starts."""

    line_bytes: Count = Field(
        default=64 * 2**20,
        description="Bytes of the longest line, without its newline. A longer one ends its transport.",
    )
    parse_bytes: Count = Field(
        default=4 * 2**20,
        description="Bytes of the longest line that is parsed whole. A longer one is kept and forwarded, read by a "
        "routing scan alone, and marked `unparsed`.",
    )
    request_bytes: Count = Field(
        default=16 * 2**20,
        description="Bytes, with the newline, of the longest line that is written to an agent whose client the daemon "
        "is. A longer one is not written, and the call fails.",
    )
    update_bytes: Count = Field(
        default=64 * 2**20,
        description="Bytes of the largest `session/update` that the daemon takes as a client, without the space around "
        "it. A larger one fails the call.",
    )
    update_count: Count = Field(
        default=1_000_000,
        description="Updates that the daemon takes as a client, in all of a connection. The first one past it fails "
        "its call, and so does every later call.",
    )
    response_bytes: Count = Field(
        default=16 * 2**20,
        description="Bytes of UTF-8 of one prompt's reply. The chunk that would pass it is left out, and the prompt "
        "cancelled.",
    )
    response_segments: Count = Field(
        default=1_000_000,
        description="Chunks of one prompt's reply. The chunk past it is left out, and the prompt cancelled.",
    )


class RuleSettings(Section):
    """A rule of a policy: matches where everything it names is so."""

    name: Annotated[Word, AfterValidator(_unlike_a_setting)]
    tool_kind: Word | None = None
    title_prefix: Word | None = None
    answer: Literal["allow_once", "allow_always", "reject_once", "reject_always", "ask"]

    @model_validator(mode="after")
    def _names_something(self) -> RuleSettings:
        if self.tool_kind is None and self.title_prefix is None:
            raise ValueError(f"the rule {self.name!r} needs a tool_kind or a title_prefix")
        return self


class PolicySettings(Section):
    """Who answers a permission question. Fixed for a connection when it opens; the ledger keeps its digest.

    The first match decides: `rules` as they are written, then `allow_tool_kinds`, then `allow_title_prefixes`. Kind and
    title are the agent's own words: a policy saves questions, it is no sandbox.
    """

    mode: Literal["observe", "enforce", "unattended"] = Field(
        default="observe",
        description="`observe`: the editor answers every question. `enforce`: a question that matches is answered here "
        "and not shown; the editor answers all others, and those that offer nothing to grant them with. `unattended`: "
        "every question is answered here, and what nothing grants is rejected.",
    )
    allow_tool_kinds: tuple[Word, ...] = Field(
        default=(),
        description="Kinds of tool calls that are granted, each compared whole with `toolCall.kind`: with the first "
        "`allow_once` on offer, else the first `allow_always`.",
    )
    allow_title_prefixes: tuple[Word, ...] = Field(
        default=(),
        description="Beginnings of titles that are granted in the same way. `npm test` matches `npm test; rm -rf /` "
        "too.",
    )
    rules: tuple[RuleSettings, ...] = Field(
        default=(),
        description='Rules by name, such as `{ name = "no-force-push", tool_kind = "execute", title_prefix = '
        '"git push --force", answer = "reject_once" }`. A rule matches where its `tool_kind` and its '
        "`title_prefix` do; one of them may be left out. It answers with the first option on offer of the kind "
        "`answer` names: `allow_once`, `allow_always`, `reject_once` or `reject_always`; or not at all, with `ask`.",
    )
    never_always: bool = Field(
        default=False,
        description="Whether `allow_always` is never chosen here. An agent does not ask again after it.",
    )
    unoffered_option: Literal["forward", "cancel"] = Field(
        default="forward",
        description="What becomes of an editor's answer that chooses an option its question never offered. `forward`: "
        "it passes, and is flagged. `cancel`: it is withheld, and the agent hears `cancelled`.",
    )

    ask: Literal["nobody", "operator", "unmatched"] = Field(
        default="nobody",
        description="Whom the daemon asks where it is the client itself. `operator`: every question waits for a person "
        "(`ledgerctl pending`, `ledgerctl decide`). `unmatched`: so does what nothing above matches, or a rule leaves "
        "open. Who does not answer in time has rejected.",
    )
    ask_seconds: Seconds = Field(
        default=300.0,
        description="Seconds a question waits for a person, or for the program whose client the daemon is. Then it is "
        "rejected.",
    )

    @model_validator(mode="after")
    def _names_each_rule_once(self) -> PolicySettings:
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two rules are named {name!r}")
        return self


class FailureSettings(Section):
    """What happens while the ledger cannot commit."""

    mode: Literal["closed"] = Field(
        default="closed",
        description="`closed`: nothing passes that is not in the ledger.",
    )
    hold_seconds: Seconds = Field(
        default=10.0,
        description="Seconds a session is held while the ledger cannot commit. Then the agent is ended, and the "
        "editor is told why.",
    )


class ClientSettings(Section):
    """Where the daemon itself is an agent's client, for `ledgerctl prompt` and for programs."""

    callback_seconds: Seconds = Field(
        default=60.0,
        description="Seconds a program has to take an update or a decision it wants to hear of. Then its call fails.",
    )


class LogSettings(Section):
    """What the daemon says about itself, on standard error. Never what an agent or a user wrote."""

    format: Literal["auto", "console", "json", "journal"] = Field(
        default="auto",
        description="`console` for people, `json` for machines, `journal` for systemd's journal, with a field for each "
        "fact; `auto` looks where standard error leads.",
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="The least important event that is written.",
    )


class AgentPolicySettings(PolicySettings):
    """This agent's own policy, with COMMAND or without: `[policy]` has what is left out here."""


class AgentSettings(Section):
    """An agent by name, for `acp-ledger-run --agent NAME`. Its `args` and `env` go with its `command`."""

    command: Text | None = Field(
        default=None,
        description="The agent's program: a path, or a name on the editor's `PATH`. Not needed where the editor gives "
        "COMMAND.",
    )
    args: tuple[str, ...] = Field(default=(), description="Its arguments. The ledger keeps them.")
    env: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Variables added to the editor's environment. The ledger keeps their names, never their values.",
    )
    policy: AgentPolicySettings = Field(default_factory=AgentPolicySettings)

    @model_validator(mode="after")
    def _args_need_a_command(self) -> AgentSettings:
        if self.command is None and (self.args or self.env):
            raise ValueError("args and env go with a command, and there is none")
        return self
