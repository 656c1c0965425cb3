"""Settings that are read again while the daemon runs: which of them count at once, and which wait for a restart.

What must not be broken here: a file that cannot be used changes nothing; a change that needs a restart is named and
never half made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from acp_ledger.settings import Settings

_Look: TypeAlias = tuple[tuple[int, int, int, int] | None, ...]
"""Device, inode, size and time of change of each file; None for one that is not there."""

SECTIONS: Final = ("relay", "limits", "policy", "client", "agents")
"""What counts, whole, for connections that open after it was read again; one that is open keeps what it began with."""

LEVEL: Final = "log.level"
"""What counts at once, for everything."""


class Reloaded(NamedTuple):
    """The settings as they are from now on, the keys that changed, and those that will only after a restart."""

    settings: Settings
    changed: tuple[str, ...]
    restart: tuple[str, ...]


class Source:
    """Where the settings come from: `read` reads them, from these files among others."""

    def __init__(self, read: Callable[[], Settings], files: Iterable[Path]) -> None:
        self._read = read
        self._files = tuple(files)
        self._seen: _Look = ()

    def read(self) -> Settings:
        """Read them, and keep in mind what was read.

        Raises:
            ConfigError: They cannot be used.
        """
        self._seen = self._look()  # before: a change meanwhile is noticed the next time
        return self._read()

    def changed(self) -> bool:
        """Whether a file was written, made or taken away since they were last read."""
        return self._look() != self._seen

    def _look(self) -> _Look:
        return tuple(map(_stat, self._files))


def _stat(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def reloaded(old: Settings, new: Settings) -> Reloaded:
    """Take over from `new` what may change while the daemon runs."""
    differing = sorted(_differing(old.model_dump(), new.model_dump()))
    changed = tuple(key for key in differing if key == LEVEL or key.partition(".")[0] in SECTIONS)
    taken: dict[str, Any] = {section: getattr(new, section) for section in SECTIONS}
    taken["log"] = old.log.model_copy(update={"level": new.log.level})
    restart = tuple(key for key in differing if key not in changed)
    return Reloaded(old.model_copy(update=taken), changed, restart)


def _differing(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys whose values differ. Never their values: any of them may be a secret."""
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict) and prefix == "":
            yield from _differing(before, after, f"{key}.")
        elif before != after:
            yield f"{prefix}{key}"
