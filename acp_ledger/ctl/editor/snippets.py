"""What `editor print` prints: for each editor the text that puts an agent behind the ledger, ready to be pasted.

What must not be broken here: a snippet works as it is printed, in the poorest environment that editor gives; so the
runner's path is absolute, and every word of a command is quoted for the language it stands in.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acp_ledger.ctl.editor.catalog import Editor

_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]*")
_CODECOMPANION: Final = {
    "claude": "claude_code",
    "codex": "codex",
    "gemini": "gemini_cli",
    "opencode": "opencode",
    "auggie": "auggie_cli",
    "goose": "goose",
}
"""The adapters that CodeCompanion brings, by the agents they are for."""
_AGENT_SHELL: Final = {"claude": "anthropic-claude", "codex": "openai-codex", "gemini": "google-gemini"}
_MARIMO: Final = {"claude": 3017, "gemini": 3019, "codex": 3021, "opencode": 3023}
"""The ports at which marimo looks for its agents."""


class Wanted(NamedTuple):
    """The agent a snippet is for: a name for the record, a title for people, and the runner with all its words."""

    name: str
    title: str
    words: tuple[str, ...]


def snippet(editor: Editor, wanted: Wanted) -> str:
    """Give an editor's snippet, which ends with a newline."""
    return _WRITERS[editor.name](editor, wanted)


def _agents(editor: Editor, wanted: Wanted) -> str:
    """Write settings that hold one agent as command, args and env."""
    kind = {"type": editor.kind} if editor.kind else {}
    entry = {**kind, "command": wanted.words[0], "args": list(wanted.words[1:]), "env": {}}
    return _json({str(editor.key): {wanted.title: entry}})


def _acpx(_editor: Editor, wanted: Wanted) -> str:
    name = f"{wanted.name}-ledger"
    return _json({"defaultAgent": name, "agents": {name: {"argv": list(wanted.words)}}})


def _json(value: object) -> str:
    """Write JSON for people: a list of words stays on its line."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # Between the brackets of a list of strings json puts each on a line; no string holds a real newline.
    flat = re.sub(r'\[\n\s+("(?:[^"\\]|\\.)*"(?:,\n\s+"(?:[^"\\]|\\.)*")*)\n\s+\]', _on_one_line, text)
    return flat + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return "[" + re.sub(r",\n\s+", ", ", found[1]) + "]"


def _codecompanion(_editor: Editor, wanted: Wanted) -> str:
    base = _CODECOMPANION.get(wanted.name)
    adapter = base or "ledger"
    lines = [
        'require("codecompanion").setup({',
        f'  interactions = {{ chat = {{ adapter = "{adapter}" }} }},',
        "  adapters = {",
        "    acp = {",
        f"      {adapter} = function()",
        f'        return require("codecompanion.adapters").extend("{base or "goose"}", {{',
        *([] if base else [f'          name = "{adapter}",', f"          formatted_name = {_lua(wanted.title)},"]),
        f"          commands = {{ default = {_lua_list(wanted.words)} }},",
        "          defaults = { timeout = 20000 },",
        "        })",
        "      end,",
        "    },",
        "  },",
        "})",
    ]
    return "\n".join(lines) + "\n"


def _avante(_editor: Editor, wanted: Wanted) -> str:
    name = f"{wanted.name}_ledger".replace("-", "_")
    key = name if _IDENTIFIER.fullmatch(name) else f"[{_lua(name)}]"
    lines = [
        'require("avante").setup({',
        f"  provider = {_lua(name)},",
        "  acp_providers = {",
        f"    {key} = {{",
        f"      command = {_lua(wanted.words[0])},",
        f"      args = {_lua_list(wanted.words[1:])},",
        "      -- Of Neovim's environment avante hands on PATH alone: name here whatever else the agent needs.",
        '      env = { HOME = os.getenv("HOME"), NODE_NO_WARNINGS = "1" },',
        "    },",
        "  },",
        "})",
    ]
    return "\n".join(lines) + "\n"


def _lua_list(words: Sequence[str]) -> str:
    return "{ " + ", ".join(map(_lua, words)) + " }"


def _lua(text: str) -> str:
    """Quote a string for Lua, whose escapes of bytes are decimal."""
    return '"' + re.sub(r'["\\\x00-\x1f\x7f]', lambda found: f"\\{ord(found[0]):03d}", text) + '"'


def _agent_shell(_editor: Editor, wanted: Wanted) -> str:
    variable = f"agent-shell-{_AGENT_SHELL.get(wanted.name, wanted.name)}-acp-command"
    return f"(setq {variable}\n      '({' '.join(map(_elisp, wanted.words))}))\n"


def _elisp(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _toad(_editor: Editor, wanted: Wanted) -> str:
    return f"toad acp {shlex.quote(shlex.join(wanted.words))} .\n"


def _marimo(_editor: Editor, wanted: Wanted) -> str:
    port = _MARIMO.get(wanted.name, _MARIMO["claude"])
    return f"npx -y stdio-to-ws {shlex.quote(shlex.join(wanted.words))} --port {port}\n"


_WRITERS: Final[dict[str, Callable[[Editor, Wanted], str]]] = {
    "zed": _agents,
    "jetbrains": _agents,
    "vscode": _agents,
    "codecompanion": _codecompanion,
    "avante": _avante,
    "agent-shell": _agent_shell,
    "toad": _toad,
    "acpx": _acpx,
    "marimo": _marimo,
}
