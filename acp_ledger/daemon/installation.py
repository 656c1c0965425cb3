"""This installation's name: the `daemon_id` that all its daemons' transports carry.

What must not be broken here: the file is made once, whole, and never written again; two daemons that start at the
same moment end up with the same name.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from acp_ledger import paths
from acp_ledger.errors import ConfigError
from acp_ledger.store.ledger import Daemon

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = re.compile(r"[0-9a-f]{32}")


def identify(file: Path) -> Daemon:
    """Give the name kept in `file`; a missing one is made up first.

    Raises:
        ConfigError: It cannot be read or made, or holds something else.
    """
    try:
        paths.make_private_directory(str(file.parent), os.getuid())
        if not file.exists():
            _make(file)
        name = file.read_text("ascii").strip()
    except (OSError, ValueError, paths.PathError) as fault:
        raise ConfigError(
            f"the file of this installation's id cannot be used: {file}", hint=f"look at it: ls -l {file}"
        ) from fault
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{file} does not hold an id of 32 hex digits", hint=f"move it away: mv {file} {file}.old")
    return Daemon(name, socket.gethostname(), os.getuid())


def _make(file: Path) -> None:
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_text(secrets.token_hex(16) + "\n", "ascii")
    with suppress(FileExistsError):
        os.link(draft, file)  # whole or not at all, and never over another's
    draft.unlink()
