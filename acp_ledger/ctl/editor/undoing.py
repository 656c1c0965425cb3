"""How a change to settings is taken back where others may have written since, by the change alone.

What must not be broken here: only our own words go; an entry of ours that somebody made into something else, or gave
another name, is left, and named.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from acp_ledger.ctl.editor import jsonc, splice
from acp_ledger.ctl.editor.entries import container_of, entries_of, is_runner, through_runner, words_of
from acp_ledger.ctl.editor.plans import Change, Plan
from acp_ledger.ctl.editor.splice import Splice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_ledger.ctl.editor.catalog import Editor
    from acp_ledger.ctl.editor.jsonc import Document, Node

_OURS: Final = ("command", "args")
"""The members of an entry that a setup changes."""


def take_back(content: bytes, editor: Editor, changes: Sequence[Change]) -> Plan:
    """Take changes back, the last first, from settings that others may have changed since.

    Raises:
        JsoncError: The settings cannot be read, with the place.
    """
    plan = Plan(content)
    for change in reversed(changes):
        document = jsonc.parse(plan.content)
        container = container_of(document, editor)
        if container is None:
            continue
        edited = _edited(document, container, change)
        if edited is None:
            plan = plan._replace(left=(*plan.left, f'agent "{change.name}" is left as it is: it was changed since'))
        elif edited != plan.content:
            plan = plan._replace(content=edited, changes=(*plan.changes, change))
    return plan


def renamed(before: bytes, after: bytes, editor: Editor, changes: Sequence[Change]) -> tuple[str, ...]:
    """Name the agents that stay behind the ledger where an entry of ours is gone: one of them may be it, renamed.

    Args:
        before: The settings as they were found.
        after: The settings with the changes taken back.
        editor: Whose settings they are.
        changes: All the changes that are taken back.

    Raises:
        JsoncError: The settings cannot be read, with the place.
    """
    ours = dict.fromkeys(change.name for change in changes if change.kind != "container")
    there = {entry.name for entry in entries_of(jsonc.parse(before), editor)}
    gone = " and ".join(f'"{name}"' for name in ours if name not in there)
    if not gone:
        return ()
    others = [entry for entry in entries_of(jsonc.parse(after), editor) if entry.name not in ours]
    return tuple(
        f'agent "{entry.name}" runs through acp-ledger-run and is left as it is; it may be {gone}, which is gone: '
        "then take it out by hand"
        for entry in others
        if through_runner(words_of(entry.node) or [])
    )


def _edited(document: Document, container: Node, change: Change) -> bytes | None:
    """Take one change back; None where what it made is not there in that form."""
    if change.kind == "container":
        return _without_container(document, container, change)
    found = jsonc.find(container, change.name)
    if found is None:
        return document.data  # somebody removed it already
    words = words_of(found.node)
    repeated = jsonc.is_repeated(container, change.name) or any(map(partial(jsonc.is_repeated, found.node), _OURS))
    if words is None or repeated or not through_runner(words):
        return None
    if change.kind == "added":
        return splice.remove_member(document, container, change.name, change.was.encode())
    if not is_runner(words[0]):
        return None
    take_back_one = _with_path if change.kind == "repointed" else _unwrapped
    return take_back_one(document, found.node, change)


def _without_container(document: Document, container: Node, change: Change) -> bytes:
    """Remove the object that held our entries, where nothing else came into it."""
    if document.root is None or document.data[container.start + 1 : container.end - 1].strip():
        return document.data
    return splice.remove_member(document, document.root, change.name, change.was.encode())


def _with_path(document: Document, entry: Node, change: Change) -> bytes:
    command = jsonc.member(entry, "command").node
    return splice.apply(document.data, [Splice(command.start, command.end, change.was.encode())])


def _unwrapped(document: Document, entry: Node, change: Change) -> bytes | None:
    """Put the agent's command back where it was, and drop our words, which stand before it in the arguments."""
    args = jsonc.find(entry, "args")
    ends = [place for place, item in enumerate(args.node.items) if item.value == "--"] if args else []
    if args is None or not ends or ends[0] + 1 == len(args.node.items):
        return None
    items, place = args.node.items, ends[0] + 1
    command, moved = jsonc.member(entry, "command").node, items[place]
    back = Splice(command.start, command.end, _original(document, moved, change))
    if len(items) > place + 1:
        return splice.apply(document.data, [back, Splice(items[0].start, items[place + 1].start, b"")])
    if change.had_args:
        commas = args.node.commas
        end = commas[place] + 1 if place < len(commas) else moved.end
        return splice.apply(document.data, [back, Splice(items[0].start, end, b"")])
    without = splice.remove_member(document, entry, "args")
    return splice.apply(without, [back])  # the command stands before its args, as we put them


def _original(document: Document, moved: Node, change: Change) -> bytes:
    """Give the command as it was written, unless somebody named another one since."""
    before = jsonc.parse(change.was.encode()).root
    was, now = str(before.value) if before else "", str(moved.value)
    is_same = now == was or (was.startswith("~/") and now.endswith(was[1:]))
    return change.was.encode() if is_same else document.data[moved.start : moved.end]
