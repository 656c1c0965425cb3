"""Gets a daemon as the runner gets one, in a process of its own, and prints where it listens.

What must not be broken here: a program that holds a client may have threads, and one that has must not fork without
becoming another program at once. So a client starts this, and this starts the daemon.
"""

from __future__ import annotations

import os
import sys

from acp_ledger import handshake, paths, spawn
from acp_ledger.dial import NoDaemon


def main() -> int:
    """Start a daemon on the usual socket, unless somebody else was faster; give the status to exit with."""
    uid = os.getuid()
    try:
        path = spawn.configured_socket(os.environ, uid) or paths.socket_path(os.environ, uid)
        spawn.start_daemon(path, os.environ, uid).close()
    except (NoDaemon, paths.PathError, OSError) as failure:
        sys.stderr.write(f"{failure}\n")
        return handshake.EXIT_UNAVAILABLE
    sys.stdout.write(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
