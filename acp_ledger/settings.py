"""The settings: every key with its unit, its default and its meaning, and where a value comes from.

What must not be broken here: a key that is not understood is an error and never passed over; all problems are told at
once; and no message shows a secret. A setting that does nothing yet is not accepted.

A flag comes before the environment (`ACP_LEDGER_*`, `__` nests), that before the user's file, that before the
system's. Values are merged key by key.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from acp_ledger import paths, sources
from acp_ledger.errors import ConfigError
from acp_ledger.ledger_url import LedgerUrl
from acp_ledger.sources import FLAG, PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

IGNORED_VARIABLES: Final = frozenset(
    {
        "ACP_LEDGER_TRANSPORT",  # names its transport to an agent and whatever the agent starts
        "ACP_LEDGER_TEST_REQUIRE_POSTGRES",  # the test suite's own
        "ACP_LEDGER_TEST_REQUIRE_PEERS",
        "ACP_LEDGER_TEST_POSTGRES_BIN",
        "ACP_LEDGER_TEST_PEERS",
    }
)
"""Variables that begin as settings do and are none."""

DEFAULT: Final = "the default"
"""The origin of a value that nobody gave."""

READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH
EXPOSED: Final = "it holds a database password, and others may read it"

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


class Settings(BaseSettings):
    """All settings, complete and checked. Made by `load`; `Settings()` is the defaults alone."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    socket: SocketSettings = Field(default_factory=SocketSettings)
    relay: RelaySettings = Field(default_factory=RelaySettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    policy: PolicySettings = Field(default_factory=PolicySettings)
    failure: FailureSettings = Field(default_factory=FailureSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    agents: dict[str, AgentSettings] = Field(default_factory=dict)

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(default=None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # the signature is the library's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # likewise
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # likewise
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # likewise
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what `load` merged, and nothing from anywhere else."""
        return (init_settings,)

    def origin(self, key: str) -> str:
        """Where a value comes from: `a flag`, a variable's name, a file's path, or `the default`."""
        return self._origins.get(key, DEFAULT)

    @property
    def file(self) -> Path:
        """The settings file: the one that was named or read first, else where the user's would be."""
        return self._file or Path(paths.config_files(os.environ, os.getuid())[0])

    def exposed_file(self) -> Path | None:
        """The settings file that gives the ledger's password away, for others may read it; None where none does."""
        origin = self.origin("database.url")
        if not self.database.url.has_password or origin in {FLAG, DEFAULT} or origin.startswith(PREFIX):
            return None
        try:
            mode = Path(origin).stat().st_mode
        except OSError:
            return None  # it was there a moment ago, and nothing else depends on it
        return Path(origin) if mode & READABLE_BY_OTHERS else None

    def listen_path(self) -> Path | None:
        """The socket to listen on, or None when one has to be given.

        A daemon whose ledger was named by a flag or by the environment takes a socket it was given and never the
        default one: whoever connects there expects the ledger of the settings file.
        """
        if self.socket.path is not None:
            return self.socket.path
        if self.origin("database.url") == FLAG or self.origin("database.url").startswith(PREFIX):
            return None
        return Path(paths.socket_path(os.environ, os.getuid()))


def load(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read every source and give the settings.

    Args:
        config: A file that takes the place of the user's and the system's; it must exist.
        overrides: Values of flags, nested or under dotted keys; None means that the flag was not given.

    Raises:
        ConfigError: With every problem found, one a line, and what mends the first.
    """
    try:
        return _load(config, overrides or {})
    except paths.PathError as error:
        raise ConfigError(str(error), hint="Set HOME to your home directory.") from error


def _load(config: Path | None, overrides: Mapping[str, Any]) -> Settings:
    files = _files(config)
    values, origins, problems = sources.gather(Settings, files, overrides, IGNORED_VARIABLES)
    settings = _validated(values, origins, problems)
    if problems or settings is None:
        raise ConfigError("\n".join(problems), hint="Every key, its unit and its default: docs/config.md")
    settings._file = next(iter(files), None)  # noqa: SLF001  # which file it was is no setting and has no field
    return settings


def _files(config: Path | None) -> tuple[Path, ...]:
    if config is not None:
        if not config.is_file():
            raise ConfigError(f"there is no settings file {config}", hint="Give --config a file that exists.")
        return (config,)
    return tuple(Path(file) for file in paths.config_files(os.environ, os.getuid()) if Path(file).is_file())


def _validated(values: dict[str, Any], origins: dict[str, str], problems: list[str]) -> Settings | None:
    try:
        settings = Settings(**values)
    except ValidationError as error:
        problems += [_problem(detail, origins) for detail in error.errors(include_input=False, include_url=False)]
        return None
    settings._origins.update(origins)  # noqa: SLF001  # a value's origin is no setting and has no field
    return settings


def _problem(detail: ErrorDetails, origins: dict[str, str]) -> str:
    location = [str(part) for part in detail["loc"]]
    key = ".".join(location)
    while location and ".".join(location) not in origins:
        location.pop()
    origin = origins.get(".".join(location), DEFAULT)
    inside = key[len(".".join(location)) :].removeprefix(".")  # where in a variable's list or table
    what = f"{origin}: {inside}".removesuffix(": ") if origin.startswith(PREFIX) else f"{origin}: {key}"
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] in {"model_type", "dict_type", "model_attributes_type"}:
        message = f"is a table; write its keys under [{key}]"
    return f"{what}: {message[:1].lower()}{message[1:]}"
