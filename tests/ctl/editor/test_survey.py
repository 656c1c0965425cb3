"""What `doctor` asks: which agents in the editors' settings the ledger does not see."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from acp_ledger.ctl.editor import Bypass, bypasses

if TYPE_CHECKING:
    from tests.ctl.editor.conftest import Desk


def seen(found: list[Bypass]) -> list[tuple[str, str, str, str]]:
    """What tells a bypass from another."""
    return [(bypass.editor, bypass.agent, bypass.state, bypass.fix) for bypass in found]


def test_every_way_past_the_ledger_is_found(desk: Desk) -> None:
    """Registry agents, plain commands, runners that are gone and what cannot be read are found in every editor."""
    desk.settings(
        "zed",
        desk.here(
            b'{"agent_servers": {"claude-acp": {"type": "registry"}, "codex-acp": {"type": "registry"},'
            b' "Claude (ledger)": {"type": "custom", "command": "RUNNER", "args": ["--agent", "claude"]},'
            b' "Env": {"type": "custom", "command": "env", "args": ["A=1", "acp-ledger-run", "--", "x"]},'
            b' "Feint": {"type": "custom", "command": "x", "args": ["--", "acp-ledger-run"]}, "old": {},'
            b' "Bare": {"type": "custom"}}}'
        ),
    )
    desk.settings(
        "jetbrains", b'{"agent_servers": {"Old": {"command": "/opt/old/acp-ledger-run", "args": ["--", "x"]}}}'
    )
    desk.settings("vscode", b'{"acp.agents": {"Odd": {"args": []}}}')
    assert seen(bypasses(desk.home, {})) == [
        ("zed", "claude-acp", "registry", 'use "Claude (ledger)" in Zed instead'),
        ("zed", "codex-acp", "registry", "ledgerctl editor setup zed"),
        ("zed", "Feint", "direct", "ledgerctl editor setup zed"),
        ("zed", "old", "registry", "ledgerctl editor setup zed --agent old -- COMMAND"),
        ("zed", "Bare", "unreadable", "ledgerctl editor setup zed"),
        ("jetbrains", "Old", "runner gone", "ledgerctl editor setup jetbrains"),
        ("vscode", "Odd", "unreadable", "ledgerctl editor setup vscode"),
    ]


def test_setup_ends_the_bypasses_it_can_end(desk: Desk) -> None:
    """After a setup what is left is what the editor starts itself."""
    desk.settings(
        "zed", b'{"agent_servers": {"claude-acp": {"type": "registry"}, "G": {"type": "custom", "command": "g"}}}'
    )
    said = [(bypass.agent, bypass.reason) for bypass in bypasses(desk.home, {})]
    assert said == [("claude-acp", "is started by Zed itself"), ("G", "starts g and not acp-ledger-run")]
    desk.setup("zed")
    assert [bypass.agent for bypass in bypasses(desk.home, {})] == ["claude-acp"]


def test_broken_settings_are_told_not_raised(desk: Desk) -> None:
    """A file that cannot be read is one finding, whatever is wrong with it; no file is none."""
    assert bypasses(desk.home, {}) == []
    desk.settings("zed", b"{\n oops }")
    desk.settings("jetbrains").mkdir(parents=True)
    found = bypasses(desk.home, {"XDG_CONFIG_HOME": "relative/and/ignored"})
    assert [(bypass.editor, bypass.agent, bypass.state) for bypass in found] == [
        ("zed", "", "unreadable"),
        ("jetbrains", "", "unreadable"),
    ]
    assert "line 2, column 2" in found[0].reason
    (unseen, *_) = bypasses(desk.home, {"XDG_CONFIG_HOME": f"/{'x' * 300}"})
    assert (unseen.editor, unseen.state, unseen.reason) == ("zed", "unreadable", "cannot be read: File name too long")


def test_asking_costs_little() -> None:
    """Whoever asks for bypasses pays for nothing but reading."""
    heavy = {"sqlalchemy", "pydantic", "rich", "trio", "click"}
    check = f"import acp_ledger.ctl.editor, sys; sys.exit(', '.join({heavy!r} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", check], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
