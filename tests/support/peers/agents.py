"""Real coding agents: how each is started on a model of this machine, and what it is known to do with an answer.

codex is one of the npm peers and runs wherever those do; the others are large, and run where `ACP_LEDGER_TEST_AGENTS`
names the folder that `deploy/agents.sh` made. What must not be broken here: an agent knows a home of the test's alone,
and no way to any network but the model.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.peers.find import CODEX, peers

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMED: Final = os.environ.get("ACP_LEDGER_TEST_AGENTS")
FOLDER: Final = Path(NAMED).resolve() if NAMED else None
"""Where the large ones are."""


@dataclass(frozen=True)
class Agent:
    """An agent, as its user has set it up: it asks before it runs a command.

    Attributes:
        program: Its program within `node_modules`; node runs it where it is a script.
        arguments: What makes it speak ACP.
        variables: Its environment, with `{url}` for the model's address.
        settings: Its settings files within its home, likewise.
        rejected: The outcome of a turn whose question was rejected.
        left: The status of the call that was rejected; `pending` where the question was the last word about it.
        large: Whether `deploy/agents.sh` installs it, and not `deploy/test.sh` with the other npm peers.
    """

    program: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    rejected: str = "completed"
    left: str = "failed"
    large: bool = True

    def command(self) -> list[str]:
        """Its command line."""
        installed = peers()
        program = (FOLDER if self.large and FOLDER else installed.folder) / "node_modules" / self.program
        if not program.exists():
            pytest.fail(f"{program} is missing: sh deploy/agents.sh {FOLDER}")
        return [*([installed.node] if program.suffix == ".js" else []), str(program), *self.arguments]

    def environment(self, home: Path, url: str) -> dict[str, str]:
        """A home with its settings, and the environment to start it in."""
        for name, text in self.settings.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text.replace("{url}", url))
        nowhere = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
        own = {name: value.replace("{url}", url) for name, value in self.variables.items()}
        return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **nowhere, **own}


CODEX_SETTINGS: Final = """
model = "mock"
model_provider = "mock"
approval_policy = "on-request"
sandbox_mode = "read-only"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
env_key = "MODEL_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""

OPENCODE_SETTINGS: Final[dict[str, Any]] = {
    "autoupdate": False,
    "share": "disabled",
    "model": "mock/mock",
    "small_model": "mock/mock",
    "provider": {
        "mock": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "{url}/v1", "apiKey": "none"},
            "models": {"mock": {"limit": {"context": 100_000, "output": 8_000}}},
        }
    },
    "permission": {"bash": "ask"},
}

AGENTS: Final = {
    "codex": Agent(
        CODEX,
        variables={"MODEL_KEY": "none"},
        settings={".codex/config.toml": CODEX_SETTINGS},
        rejected="cancelled",
        left="pending",
        large=False,
    ),
    "opencode": Agent(
        "opencode-linux-x64/bin/opencode",
        ("acp",),
        variables={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        settings={".config/opencode/opencode.json": json.dumps(OPENCODE_SETTINGS)},
    ),
    "claude": Agent(
        "@agentclientprotocol/claude-agent-acp/dist/index.js",
        variables={
            "ANTHROPIC_BASE_URL": "{url}",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        settings={".claude/settings.json": json.dumps({"permissions": {"defaultMode": "default"}})},
    ),
}

PARAMETERS: Final = [
    pytest.param(agent, marks=pytest.mark.agents if agent.large else (), id=name) for name, agent in AGENTS.items()
]
"""Each of them, for a test that is run with all."""
