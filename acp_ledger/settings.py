"""The settings, complete and checked, and where each value comes from.

What must not be broken here: a key that is not understood is an error and never passed over; all problems are told at
once; and no message shows a secret.

A flag comes before the environment (`ACP_LEDGER_*`, `__` nests), that before the user's file, that before the
system's. Values are merged key by key.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import (
    Field,
    PrivateAttr,
    ValidationError,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from acp_ledger import paths, sources
from acp_ledger.errors import ConfigError
from acp_ledger.sections import (
    AgentSettings,
    ClientSettings,
    DatabaseSettings,
    FailureSettings,
    LimitSettings,
    LogSettings,
    PolicySettings,
    RelaySettings,
    SocketSettings,
)
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
        "ACP_LEDGER_TEST_AGENTS",
        "ACP_LEDGER_TEST_WORKERS",
    }
)
"""Variables that begin as settings do and are none."""

DEFAULT: Final = "the default"
"""The origin of a value that nobody gave."""

READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH
EXPOSED: Final = "it holds a database password, and others may read it"


class Settings(BaseSettings):
    """All settings, complete and checked. Made by `load`; `Settings()` is the defaults alone."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    socket: SocketSettings = Field(default_factory=SocketSettings)
    relay: RelaySettings = Field(default_factory=RelaySettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    policy: PolicySettings = Field(default_factory=PolicySettings)
    client: ClientSettings = Field(default_factory=ClientSettings)
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
            is_there = f"{config} is no regular file" if config.exists() else f"there is no settings file {config}"
            raise ConfigError(
                is_there, hint="Name a file that exists; where they are looked for: ledgerctl config path"
            )
        return (config.absolute(),)
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
