"""Asks the user's service manager to start the daemon: under it a daemon is nobody's descendant, and easy to find.

The rules that must not be broken here: a manager that is missing, or hangs, costs little, for an editor waits; and no
value of an environment variable becomes an argument, for every user of the machine can read a command line.
"""

from __future__ import annotations

import os
import select
import signal
import stat

TYPE_CHECKING = False  # typing itself would cost the runner more than everything else here
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ANSWER_SECONDS = 2.0
"""How long the manager may take for one answer, of which there are two; a healthy one takes a twentieth of that."""

_ANSWER_BYTES = 4096


class Unanswered(Exception):
    """The manager did not answer in time, and may yet do what it was asked."""


def is_there(runtime: str | None) -> bool:
    """Tell whether the manager of this runtime directory's user has its socket there."""
    try:
        return runtime is not None and stat.S_ISSOCK(os.stat(f"{runtime}/systemd/private").st_mode)
    except OSError:
        return False


def start(command: Sequence[str], environment: Mapping[str, str], runtime: str, log: str) -> int | None:
    """Have a daemon started as a unit of its own.

    Args:
        command: Its command line, with the full path of its program.
        environment: What it gets beside the manager's own environment.
        runtime: The runtime directory of our user.
        log: The file its stderr is appended to.

    Returns:
        Its process id: 0 where it has ended already, -1 where that is not told. None where nothing was started.

    Raises:
        Unanswered: Whether it was started is not known.
    """
    unit = f"acp-ledgerd-{os.getpid()}.service"
    ours = {**environment, "XDG_RUNTIME_DIR": runtime}
    if _ask(["systemd-run", *_options(unit, environment, log), "--", *map(_literal, command)], ours) is None:
        return None
    try:
        answer = _ask(["systemctl", "--user", "show", "--property=MainPID", "--value", "--", unit], ours)
    except Unanswered:
        return -1
    return int(answer) if answer and answer.strip().isdigit() else -1


def _options(unit: str, environment: Mapping[str, str], log: str) -> list[str]:
    properties = ("Type=exec", "UMask=0077", "OOMPolicy=continue", "StandardOutput=null", f"StandardError=append:{log}")
    return [
        *("--user", "--quiet", "--collect", f"--unit={unit}", "--description=acp-ledger daemon, started by a runner"),
        "--working-directory=/",
        *(f"--property={each}" for each in properties),
        *(f"--setenv={name}" for name in environment),
    ]


def _literal(word: str) -> str:
    return word.replace("$", "$$")  # a unit's command line has variables


def _ask(command: list[str], environment: Mapping[str, str]) -> bytes | None:
    """Run a program of the manager's; give its output, None where it fails.

    Raises:
        Unanswered: It did not end in time.
    """
    answer, said = os.pipe()
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 2)]
    try:
        actions = [*null, (os.POSIX_SPAWN_DUP2, said, 1)]
        pid = os.posix_spawnp(command[0], command, environment, file_actions=actions, setsigdef=[signal.SIGPIPE])
    except OSError:
        os.close(answer)
        return None  # there is no such program
    finally:
        os.close(said)
    try:
        if not _ends_in_time(pid):
            raise Unanswered(command[0])
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return os.read(answer, _ANSWER_BYTES) if status == 0 else None
    finally:
        os.close(answer)


def _ends_in_time(pid: int) -> bool:
    """Wait for a child's end, and kill it where that takes too long."""
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    ended = bool(poll.poll(ANSWER_SECONDS * 1000))
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(process)
    return ended
