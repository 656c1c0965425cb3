"""What is known of editors and agents: where an editor keeps its agents, and the commands of the common agents.

What must not be broken here: a path is where the editor itself looks, whatever the ledger's own paths follow; and an
agent's command is one that its makers publish, without a version, so that it does not grow old here.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from acp_ledger.errors import LedgerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RUNNER: Final = "acp-ledger-run"

_NPX: Final = ("npx", "-y")
_FLATPAK: Final = ".var/app"


class Agent(NamedTuple):
    """A common agent: the title people know it by, its command, and the ids registries give it."""

    name: str
    title: str
    command: tuple[str, ...]
    ids: tuple[str, ...]


AGENTS: Final = (
    Agent(
        "claude", "Claude", (*_NPX, "@agentclientprotocol/claude-agent-acp"), ("claude-acp", "claude-code", "claude")
    ),
    Agent("codex", "Codex", (*_NPX, "@agentclientprotocol/codex-acp"), ("codex-acp", "codex")),
    Agent("gemini", "Gemini", (*_NPX, "@google/gemini-cli", "--acp"), ("gemini", "gemini-cli")),
    Agent("opencode", "OpenCode", (*_NPX, "opencode-ai", "acp"), ("opencode",)),
    Agent("qwen", "Qwen Code", (*_NPX, "@qwen-code/qwen-code", "--acp"), ("qwen-code",)),
    Agent("auggie", "Auggie", (*_NPX, "@augmentcode/auggie", "--acp"), ("auggie",)),
    Agent("pi", "pi", (*_NPX, "pi-acp"), ("pi-acp",)),
    Agent("goose", "Goose", ("goose", "acp"), ("goose",)),
)


def agent_named(name: str) -> Agent | None:
    """Give the common agent of this name."""
    return next((agent for agent in AGENTS if agent.name == name), None)


def agent_of_registry(entry: str) -> Agent | None:
    """Give the common agent that a registry knows under this id."""
    return next((agent for agent in AGENTS if entry in agent.ids), None)


class Editor(NamedTuple):
    """An editor or client: how it is called, and what its settings are.

    `places` are its settings files below the home directory, the usual one first; a place that begins with `config:`
    lies below `XDG_CONFIG_HOME`, which these editors follow. `key` is the member that holds the agents, None where the
    settings are code or a command line: those are printed, never edited. `kind` is the entry's `type`, where it needs
    one, and `after` what has to be done for the editor to see a change.
    """

    name: str
    title: str
    where: str
    places: tuple[str, ...] = ()
    key: str | None = None
    kind: str | None = None
    after: str = ""


_CODE: Final = "Code/User/settings.json"

EDITORS: Final = (
    Editor(
        "zed",
        "Zed",
        "~/.config/zed/settings.json (zed: open settings file)",
        ("config:zed/settings.json", f"{_FLATPAK}/dev.zed.Zed/config/zed/settings.json"),
        "agent_servers",
        "custom",
        "open a new thread in Zed (restart Zed if the agent is not listed)",
    ),
    Editor(
        "jetbrains",
        "JetBrains IDEs",
        "~/.jetbrains/acp.json (AI Chat menu, Add Custom Agent)",
        (".jetbrains/acp.json",),
        "agent_servers",
        None,
        "open a new chat in AI Assistant",
    ),
    Editor(
        "vscode",
        "VS Code ACP Client",
        "~/.config/Code/User/settings.json (Preferences: Open User Settings (JSON))",
        (
            f"config:{_CODE}",
            f"config:{_CODE.replace('Code', 'Code - Insiders', 1)}",
            f"config:{_CODE.replace('Code', 'VSCodium', 1)}",
            f"config:{_CODE.replace('Code', 'Cursor', 1)}",
            f"{_FLATPAK}/com.visualstudio.code/config/{_CODE}",
        ),
        "acp.agents",
        None,
        "connect to the agent again in the ACP view",
    ),
    Editor("codecompanion", "Neovim CodeCompanion", "your Neovim configuration, e.g. ~/.config/nvim/init.lua"),
    Editor("avante", "Neovim avante", "your Neovim configuration, e.g. ~/.config/nvim/init.lua"),
    Editor("agent-shell", "Emacs agent-shell", "your Emacs configuration, e.g. ~/.emacs.d/init.el"),
    Editor("toad", "Toad", "a terminal: it starts Toad in this directory"),
    Editor("acpx", "acpx", "~/.acpx/config.json, or .acpxrc.json in a project"),
    Editor("marimo", "marimo", "a terminal: keep it running, and connect marimo's agent panel to it"),
)


def editor_named(name: str) -> Editor:
    """Give the editor of this name.

    Raises:
        UsageError: There is none.
    """
    for editor in EDITORS:
        if editor.name == name:
            return editor
    known = ", ".join(editor.name for editor in EDITORS)
    raise UsageError(f"no editor is named {name} here (there are: {known})", hint="ledgerctl editor list")


def files_of(editor: Editor, home: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Give the places of an editor's settings, the usual one first."""
    named = environ.get("XDG_CONFIG_HOME", "")
    below = Path(named) if named.startswith("/") else home / ".config"
    return tuple(
        below / place.removeprefix("config:") if place.startswith("config:") else home / place
        for place in editor.places
    )


def find_runner(environ: Mapping[str, str]) -> str:
    """Give the absolute path of `acp-ledger-run`, for an editor may have no PATH that finds it.

    The one beside this command comes first, as it was called: a link in `~/.local/bin` outlives the environment it
    leads into.

    Raises:
        LedgerError: There is none.
    """
    for candidate in _runners(environ):
        if is_program(candidate):
            return candidate
    raise LedgerError(f"{RUNNER} was not found beside ledgerctl, nor on PATH", hint="name it with --runner PATH")


def chosen_runner(path: str) -> str:
    """Give the absolute path of a runner that was named.

    Raises:
        UsageError: It is no program, or has another name, by which nobody would know it again.
    """
    absolute = str(Path(path).absolute())
    if not is_program(absolute):
        raise UsageError(f"--runner names no program that can be executed: {absolute}")
    if Path(absolute).name != RUNNER:
        raise UsageError(f"--runner names {absolute}, and editors' entries are known by the name {RUNNER}")
    return absolute


def _runners(environ: Mapping[str, str]) -> Iterator[str]:
    for program in (sys.argv[0], sys.executable):
        if os.sep in program:
            yield str(Path(program).absolute().parent / RUNNER)
    found = shutil.which(RUNNER, path=environ.get("PATH"))
    if found:
        yield str(Path(found).absolute())


def is_program(path: str) -> bool:
    """Tell whether an absolute path names a file that can be executed."""
    return path.startswith("/") and Path(path).is_file() and os.access(path, os.X_OK)
