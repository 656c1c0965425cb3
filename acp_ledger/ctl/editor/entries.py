"""What an editor's settings say about its agents: which there are, and which of them run through `acp-ledger-run`.

What must not be broken here: an agent counts as recorded only when what the editor starts is our runner, and an entry
that cannot be read is named, never passed over.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from acp_ledger.ctl.editor import jsonc
from acp_ledger.ctl.editor.catalog import RUNNER, is_program

if TYPE_CHECKING:
    from acp_ledger.ctl.editor.catalog import Editor
    from acp_ledger.ctl.editor.jsonc import Document, Node


class State(StrEnum):
    """How an agent is started."""

    RECORDED = "recorded"
    RUNNER_GONE = "runner gone"
    DIRECT = "direct"
    REGISTRY = "registry"
    UNREADABLE = "unreadable"


class Entry(NamedTuple):
    """An agent in an editor's settings; `reason` says of one that is not recorded why: what follows its name."""

    name: str
    state: State
    node: Node
    reason: str = ""


def container_of(document: Document, editor: Editor) -> Node | None:
    """Give the object that holds an editor's agents, None where the settings have none.

    Raises:
        JsoncError: The settings are no object, or the agents are none, or there are two of them.
    """
    root = document.root
    if root is None or editor.key is None:
        return None
    if not isinstance(root.value, dict):
        raise jsonc.JsoncError(document.data, root.start, "the settings must be an object in braces")
    found = jsonc.find(root, editor.key)
    if found is None:
        return None
    if jsonc.is_repeated(root, editor.key):
        raise jsonc.JsoncError(document.data, found.start, f'"{editor.key}" is given twice; join the two')
    if not isinstance(found.node.value, dict):
        raise jsonc.JsoncError(document.data, found.node.start, f'"{editor.key}" must be an object in braces')
    return found.node


def entries_of(document: Document, editor: Editor) -> list[Entry]:
    """Give an editor's agents, in the order of the file.

    Raises:
        JsoncError: As `container_of`.
    """
    container = container_of(document, editor)
    if container is None:
        return []
    return [_entry(container, member.key, member.node, editor) for member in container.members]


def _entry(container: Node, name: str, node: Node, editor: Editor) -> Entry:
    if jsonc.is_repeated(container, name):
        return Entry(name, State.UNREADABLE, node, "is given twice")
    if not isinstance(node.value, dict):
        return Entry(name, State.UNREADABLE, node, "is no object in braces")
    repeated = [key for key in ("type", "command", "args") if jsonc.is_repeated(node, key)]
    if repeated:
        return Entry(name, State.UNREADABLE, node, f'gives its "{repeated[0]}" twice')
    kind = node.value.get("type", editor.kind if "command" in node.value else None)
    if editor.kind and kind != editor.kind:
        return Entry(name, State.REGISTRY, node, f"is started by {editor.title} itself")
    words = words_of(node)
    if words is None:
        return Entry(name, State.UNREADABLE, node, "has a command that is no text, or args that are no list of texts")
    return Entry(name, *_state(words, node))


def _state(words: list[str], node: Node) -> tuple[State, Node, str]:
    if not through_runner(words):
        return State.DIRECT, node, f"starts {words[0]} and not acp-ledger-run"
    if words[0].startswith("/") and is_runner(words[0]) and not is_program(words[0]):
        return State.RUNNER_GONE, node, f"starts {words[0]}, which is gone"
    return State.RECORDED, node, ""


def words_of(node: Node) -> list[str] | None:
    """Give an entry's command and arguments, None where they cannot be read."""
    if not isinstance(node.value, dict):
        return None
    command, args = node.value.get("command"), node.value.get("args", [])
    if not isinstance(command, str) or not command or not isinstance(args, list):
        return None
    texts = [each for each in args if isinstance(each, str)]
    return [command, *texts] if len(texts) == len(args) else None


def through_runner(words: list[str]) -> bool:
    """Tell whether a command line starts our runner, by itself or through a program such as `env`."""
    own = words[: words.index("--")] if "--" in words else words
    return any(is_runner(word) for word in own)


def is_runner(word: str) -> bool:
    """Tell whether a word of a command line names our runner."""
    return program_of(word) == RUNNER


def program_of(word: str) -> str:
    """Give the name of the program that a command names, without its directory."""
    return word.rpartition("/")[2]
