"""The address of a ledger: a URL that is checked once, and that never shows its password.

What must not be broken here: only `text` holds the password; every other way to write the address masks it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acp_ledger import paths
from acp_ledger.errors import without_secrets

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = frozenset({"postgres", "postgresql", "postgresql+psycopg"})
_PORT: Final = re.compile(r"(?:\[[^\]]*\]|[^:\[]*)(?::\d*)?")


@dataclass(frozen=True, slots=True)
class LedgerUrl:
    """An SQLAlchemy URL of a file of SQLite's, by absolute path, or of a Postgres database read through psycopg."""

    text: str

    @classmethod
    def parse(cls, given: object) -> LedgerUrl:
        """Read an address as people write it: `~/` is the home directory, a relative path is one of this directory.

        Raises:
            ValueError: It is none of ours; the message shows no part that may be secret.
        """
        if isinstance(given, LedgerUrl):
            return given
        if not isinstance(given, str):
            raise ValueError("must be text, such as sqlite:////var/lib/acp-ledger/ledger.db")  # noqa: TRY004  # pydantic turns ValueError alone into a report
        scheme = _SCHEME.match(given)
        if scheme is None:
            raise ValueError("is no URL; write a file as sqlite:////absolute/path or sqlite:///~/path")
        name = scheme.group(1).lower()
        if name in _POSTGRES:
            return cls("postgresql+psycopg://" + _unmistakable(given[scheme.end() :]))
        if name in {"sqlite", "sqlite+pysqlite"}:
            return cls(_SQLITE + _file_of(given[scheme.end() :]))
        raise ValueError(f"a ledger is kept in sqlite or postgresql, not in {name}")

    @property
    def is_postgres(self) -> bool:
        """Whether the ledger is a Postgres database."""
        return not self.text.startswith(_SQLITE)

    @property
    def sqlite_file(self) -> Path | None:
        """The ledger's file, None on Postgres."""
        return None if self.is_postgres else Path(self.text.removeprefix(_SQLITE).partition("?")[0])

    @property
    def has_password(self) -> bool:
        """Whether the address holds a secret, in whatever place."""
        return str(self) != self.text

    def __str__(self) -> str:
        return without_secrets(self.text)

    def __repr__(self) -> str:
        return f"LedgerUrl({str(self)!r})"


def _unmistakable(rest: str) -> str:
    """What stands behind the scheme of a Postgres URL, when its parts can be told apart in one way only.

    A password with a reserved character in it would be cut in two, and its rest be taken for the host, the port or the
    database: words that a driver shows.
    """
    if any(character.isspace() or not character.isprintable() for character in rest):
        raise ValueError("write a blank in a URL as %20; other blanks and control characters have no place in it")
    user, at, place = rest.rpartition("@")
    if "@" in user:
        raise ValueError("write @ in a password as %40; one alone may stand in the URL, before the host")
    if at and re.search(r"[/?#]", user):
        raise ValueError("write / ? # and @ in a password, a user or an option as %2F %3F %23 and %40")
    if _PORT.fullmatch(re.split(r"[/?#]", place, maxsplit=1)[0]) is None:
        raise ValueError("the port must be a number; write user:password@ before the host, : in a password as %3A")
    return rest


def _file_of(rest: str) -> str:
    """The absolute path behind `sqlite://`, its options with it."""
    if not rest.startswith("/"):
        raise ValueError("a ledger of SQLite's is a file: three slashes, then the path, as in sqlite:////absolute/path")
    path = rest[1:]
    if path in {"", ":memory:"} or path.startswith(("?", "file:")):
        raise ValueError("a ledger is kept in a file, never in memory; write sqlite:////absolute/path")
    if path.startswith("~/"):
        path = paths.home(os.environ, os.getuid()).rstrip("/") + path[1:]
    return os.path.abspath(path)  # noqa: PTH100  # keeps the options behind `?`, which are no path
