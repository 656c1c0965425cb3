"""A user with nothing but PATH, on a machine of their own: run by `test_bare` in namespaces of its own, it prints JSON.

What must not be broken here: nothing is found by a variable. HOME is not set, so the passwd entry counts, which the
namespace replaces; processes are its own, so that all of them are seen and none outlives it.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

RUNNERS = 20
PATIENCE = 60.0
PROGRAMS = Path(sys.executable).parent
PATH_ALONE = {"PATH": "/usr/bin:/bin"}
LINE = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\n'


def start() -> subprocess.Popen[bytes]:
    """A runner in a session and group of its own, as an editor starts it; its agent says everything again."""
    command = [str(PROGRAMS / "acp-ledger-run"), "--", "/bin/cat"]
    return subprocess.Popen(
        command, env=PATH_ALONE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
    )


def said(runner: subprocess.Popen[bytes]) -> str:
    """Say a line and hear it again."""
    assert runner.stdin is not None
    assert runner.stdout is not None
    runner.stdin.write(LINE)
    ready, _, _ = select.select([runner.stdout], [], [], PATIENCE)
    return runner.stdout.readline().decode() if ready else "nothing"


def processes() -> dict[int, tuple[int, list[str]]]:
    """Every process: its parent and its command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(folder.name)] = parent, (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue  # it ended
    return found


def daemons() -> list[int]:
    """Process ids of the daemons that run."""
    return [pid for pid, (_, words) in processes().items() if "acp_ledger.daemon.main" in words]


def family(pid: int) -> list[int]:
    """A process's descendants, as an editor finds them to kill them all."""
    children = [each for each, (parent, _) in processes().items() if parent == pid]
    return [*children, *(one for child in children for one in family(child))]


def kill(runner: subprocess.Popen[bytes], descendants: list[int]) -> None:
    """Kill a runner with its whole group and all of its descendants."""
    os.killpg(runner.pid, signal.SIGKILL)
    for pid in descendants:
        os.kill(pid, signal.SIGKILL)
    runner.wait(PATIENCE)


def end_of(pids: list[int]) -> bool:
    """Wait until these have ended."""
    ended = []
    for pid in pids:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended.append(bool(select.select([process], [], [], PATIENCE)[0]))
        os.close(process)
    return all(ended)


def closings(ledger: Path, count: int) -> list[str]:
    """Wait until so many transports are closed, and give why each was."""
    found: list[str] = []
    pause = select.poll()
    with closing(sqlite3.connect(ledger)) as reader:
        while len(found) < count:
            rows = reader.execute("SELECT close_reason FROM transport_events WHERE event = 'closed'").fetchall()
            found = [row[0] for row in rows]
            pause.poll(20)
    return found


def ledgerctl(*words: str) -> dict[str, Any]:
    """What the admin command makes of the same poor environment."""
    command = [str(PROGRAMS / "ledgerctl"), *words]
    done = subprocess.run(command, env=PATH_ALONE, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return {"status": done.returncode, "output": done.stdout, "errors": done.stderr}


def main() -> None:
    """Start many at once, kill them all, and look what is left."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    runners = [start() for _ in range(RUNNERS)]
    report: dict[str, Any] = {"heard": [said(runner) for runner in runners], "daemons": daemons()}
    agents = family(report["daemons"][0])
    descendants = [family(runner.pid) for runner in runners]
    report |= {"agents": len(agents), "descendants": descendants}
    for runner, theirs in zip(runners, descendants, strict=True):
        kill(runner, theirs)
    report["ended"] = end_of(agents)
    report["closings"] = closings(home / ".local/share/acp-ledger/ledger.db", RUNNERS)
    report["still"] = daemons()
    report["status"] = ledgerctl("status")
    report["transports"] = ledgerctl("sql", "-o", "json", "SELECT COUNT(*) AS n FROM audit_transports")
    report["again"] = said(last := start())
    kill(last, [])
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
