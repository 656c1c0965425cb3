"""Runs acplint, a linter for agents that nobody here wrote, against agents directly and through the relay.

What must not be broken here: a run is mostly waiting, a minute of it, so all runs begin together and nobody waits
before the reports are asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final

from tests.support.peers.find import peers
from tests.system.installed import PROGRAMS, InstalledDaemon

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE: Final = 300.0
AGENTS: Final = ("python", "typescript")


class LintRuns:
    """Every agent's run without the relay and with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemon = InstalledDaemon(folder / "daemon")
        self.daemon.start()
        installed = peers()
        commands = {"python": installed.agent("python"), "typescript": installed.example_agent()}
        self._runs = {
            (agent, relayed): self._start(f"{agent}-{relayed}", self.daemon.runner(command) if relayed else command)
            for agent, command in commands.items()
            for relayed in (False, True)
        }

    def _start(self, name: str, agent: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
        report = self.folder / f"{name}.json"
        command = [str(PROGRAMS / "acplint"), "--agent", agent[0], f"--agent-args={' '.join(agent[1:])}"]
        command += ["--cwd", str(self.folder), "--timeout", "15", "--output", "json", "--output-file", str(report)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        nothing = subprocess.DEVNULL
        run = subprocess.Popen(command, env=environment, stdin=nothing, stdout=nothing, stderr=nothing)
        return run, report

    def report(self, agent: str, *, relayed: bool) -> tuple[int, list[tuple[Any, ...]]]:
        """The status of a run, and name, verdict and message of each of its results."""
        process, report = self._runs[agent, relayed]
        status = process.wait(PATIENCE)
        results = json.loads(report.read_text())["results"]
        return status, [(each["name"], each["category"], each["status"], each["message"]) for each in results]

    def close(self) -> None:
        """End what still runs."""
        for process, _report in self._runs.values():
            process.kill()
            process.wait(PATIENCE)
        self.daemon.end()
