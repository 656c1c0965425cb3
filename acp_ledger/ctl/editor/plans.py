"""What `editor setup` changes in settings: bytes in, bytes out.

What must not be broken here: a second setup changes nothing; an agent that a registry runs is left as it is and gets a
recorded one beside it; and nothing but the entries that are named is different afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp_ledger.ctl.editor import jsonc, splice
from acp_ledger.ctl.editor.catalog import agent_of_registry
from acp_ledger.ctl.editor.entries import (
    Entry,
    State,
    container_of,
    entries_of,
    program_of,
    words_of,
)
from acp_ledger.ctl.editor.splice import Splice
from acp_ledger.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_ledger.ctl.editor.catalog import Editor
    from acp_ledger.ctl.editor.jsonc import Document, Node, Value
    from acp_ledger.ctl.editor.splice import Fresh

LAUNCHERS: Final = frozenset(
    {"npx", "uvx", "bunx", "pnpm", "npm", "node", "bun", "deno", "python", "python3", "env", "sh"}
)
"""Programs whose name says nothing of the agent they start; the record then takes the entry's name."""


class Request(NamedTuple):
    """What to set up: with `words`, an agent of this title that is not there yet; else those there are, or `only`."""

    runner: str
    home: str
    only: tuple[str, ...] = ()
    title: str = ""
    words: tuple[str, ...] = ()


class Change(NamedTuple):
    """One change, with what taking it back needs: `container`, `added`, `wrapped` or `repointed`.

    `was` is what stood in its place: the command as it was written, or the white space of an object that was empty.
    """

    kind: str
    name: str
    was: str = ""
    had_args: bool = True

    @classmethod
    def read(cls, stored: Any) -> Change:
        """Make a change from what a journal holds.

        Raises:
            ValueError: It is none.
        """
        try:
            change = cls(**stored)
        except TypeError:
            raise ValueError("this is no change") from None
        if not all(isinstance(each, str) for each in change[:3]):
            raise ValueError("this is no change")
        return change


class Plan(NamedTuple):
    """The settings as they would be, what changes, and what to tell; `left` are agents that stay unrecorded."""

    content: bytes
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()


def plan_setup(content: bytes, editor: Editor, request: Request) -> Plan:
    """Plan a setup.

    Raises:
        JsoncError: The settings cannot be read, with the place.
        UsageError: The request does not fit what is there.
    """
    entries = entries_of(jsonc.parse(content), editor)
    if request.words:
        return _plan_new(Plan(content), entries, editor, request)
    if not entries:
        raise UsageError(
            f"the settings of {editor.title} name no agent yet",
            hint=f"say which one: ledgerctl editor setup {editor.name} --agent claude",
        )
    unknown = set(request.only) - {entry.name for entry in entries}
    if unknown:
        known = ", ".join(entry.name for entry in entries)
        raise UsageError(f"no agent is named {min(unknown)} there (there are: {known})")
    plan = Plan(content)
    for entry in entries:
        if not request.only or entry.name in request.only:
            plan = _plan_entry(plan, entry, editor, request)
    return plan


def _plan_new(plan: Plan, entries: Sequence[Entry], editor: Editor, request: Request) -> Plan:
    there = next((entry for entry in entries if entry.name == request.title), None)
    twins = [entry for entry in entries if entry.state is State.REGISTRY and _is_run_as(entry, request.words)]
    plan = plan._replace(notes=tuple(_bypasses(twin, editor, request.title) for twin in twins))
    if there is None:
        fresh = _fresh(editor, request.runner, request.words, env=not twins)
        own = _other_members(jsonc.parse(plan.content), editor, twins[0].name) if twins else []
        return _add(plan, editor, request.title, [*fresh, *own])
    if there.state is State.RECORDED and (words_of(there.node) or [])[1:] == list(request.words):
        return plan._replace(recorded=(there.name,))
    other = ", recorded with another command" if there.state is State.RECORDED else ""
    raise UsageError(
        f"there is an agent named {there.name} already{other}; nothing was changed",
        hint=f"take another title: ledgerctl editor setup {editor.name} --title TITLE …; or change that one by hand",
    )


def _is_run_as(entry: Entry, words: Sequence[str]) -> bool:
    """Tell whether an agent that a registry runs is the one that our words name."""
    agent = agent_of_registry(entry.name)
    return words[:1] == ("--agent",) and words[1] in {entry.name, agent.name if agent else entry.name}


def _bypasses(entry: Entry, editor: Editor, instead: str = "") -> str:
    sentence = f'agent "{entry.name}" is started by {editor.title} itself and is NOT recorded'
    return f'{sentence}; use "{instead}" instead' if instead else sentence


def _plan_entry(plan: Plan, entry: Entry, editor: Editor, request: Request) -> Plan:
    if entry.state is State.RECORDED:
        return plan._replace(recorded=(*plan.recorded, entry.name))
    if entry.state is State.REGISTRY:
        return _plan_beside(plan, entry, editor, request)
    if entry.state is State.UNREADABLE:
        return plan._replace(left=(*plan.left, f'agent "{entry.name}" is left as it is: it {entry.reason}'))
    document = jsonc.parse(plan.content)
    node = _node(document, editor, entry.name)
    command = jsonc.member(node, "command").node
    kind = "wrapped" if entry.state is State.DIRECT else "repointed"
    source = document.data[command.start : command.end].decode()
    change = Change(kind, entry.name, source, jsonc.find(node, "args") is not None)
    if kind == "wrapped":
        edited = _wrap(document, node, request, _own_words(entry.name, str(command.value)))
    else:
        edited = splice.apply(document.data, [Splice(command.start, command.end, splice.token(request.runner))])
    return plan._replace(content=edited, changes=(*plan.changes, change))


def _plan_beside(plan: Plan, entry: Entry, editor: Editor, request: Request) -> Plan:
    """Plan a recorded agent beside one that the editor starts itself, with the same settings."""
    agent = agent_of_registry(entry.name)
    if agent is None:
        unknown = _bypasses(entry, editor)
        add = f"ledgerctl editor setup {editor.name} --agent {shell_name(entry.name)} -- COMMAND"
        return plan._replace(left=(*plan.left, f"{unknown}; its command is not known here. Add it with: {add}"))
    title = title_of(agent.title)
    note = _bypasses(entry, editor, title)
    container = container_of(jsonc.parse(plan.content), editor)
    if container is not None and jsonc.find(container, title) is not None:
        return plan._replace(notes=(*plan.notes, note))
    fresh = _fresh(editor, request.runner, ("--agent", agent.name, "--", *agent.command), env=False)
    fresh += _other_members(jsonc.parse(plan.content), editor, entry.name)
    return _add(plan._replace(notes=(*plan.notes, note)), editor, title, fresh)


def _other_members(document: Document, editor: Editor, name: str) -> list[tuple[str, Fresh]]:
    """Give the settings of an entry that hold for any agent, as they are written."""
    node = _node(document, editor, name)
    return [
        (member.key, document.data[member.node.start : member.node.end])
        for member in node.members
        if member.key not in {"type", "command", "args"}
    ]


def title_of(agent: str) -> str:
    """Give the name under which an agent is listed when it is recorded."""
    return f"{agent} (ledger)"


def shell_name(name: str) -> str:
    """Give a name that a shell reads as one word; NAME where it would not."""
    return name if name.replace("-", "").replace("_", "").isalnum() else "NAME"


def _fresh(editor: Editor, runner: str, words: Sequence[str], *, env: bool) -> list[tuple[str, Fresh]]:
    """Give the members of a new entry."""
    fresh: list[tuple[str, Fresh]] = [("type", splice.token(editor.kind))] if editor.kind else []
    fresh += [("command", splice.token(runner)), ("args", b"[" + splice.tokens(words) + b"]")]
    return [*fresh, ("env", [])] if env else fresh


def _add(plan: Plan, editor: Editor, title: str, fresh: Fresh) -> Plan:
    document = jsonc.parse(plan.content)
    container = container_of(document, editor)
    change = Change("added", title, splice.blank_of(document, container).decode())
    if container is not None:
        edited = splice.add_member(document, container, title, fresh)
        return plan._replace(content=edited, changes=(*plan.changes, change))
    whole: Fresh = [(title, fresh)]
    blank = splice.blank_of(document, document.root).decode()
    changes = (*plan.changes, Change("container", str(editor.key), blank), change)
    if document.root is not None:
        edited = splice.add_member(document, document.root, str(editor.key), whole)
    else:
        newline = document.newline()
        gap = newline if document.data.strip() and not document.data.endswith(b"\n") else b""
        text = splice.layout(document).write([(str(editor.key), whole)], b"")
        edited = document.data + gap + text + newline
    return plan._replace(content=edited, changes=changes)


def _own_words(name: str, command: str) -> list[str]:
    """Give the words that stand before an agent's own command."""
    if name and program_of(command) in LAUNCHERS:
        return ["--agent", name, "--"]
    return ["--"]


def _wrap(document: Document, node: Node, request: Request, own: list[str]) -> bytes:
    """Put the runner before an entry's command: the command becomes the first argument behind our own words."""
    data, (_, start, command) = document.data, jsonc.member(node, "command")
    moved = data[command.start : command.end]
    if isinstance(command.value, str) and command.value.startswith("~/"):
        # Some editors expand a command's `~`, and none an argument's.
        moved = splice.token(request.home.rstrip("/") + command.value[1:])
    text = splice.tokens(own) + b", " + moved
    runner = Splice(command.start, command.end, splice.token(request.runner))
    args = jsonc.find(node, "args")
    if args is not None and args.node.items:
        at = args.node.items[0].start
        return splice.apply(data, [runner, Splice(at, at, text + b", ")])
    if args is not None:
        return splice.apply(data, [runner, Splice(args.node.start + 1, args.node.start + 1, text)])
    gap = splice.line_break_before(document, start) or b" "
    return splice.apply(data, [runner, Splice(command.end, command.end, b"," + gap + b'"args": [' + text + b"]")])


def _node(document: Document, editor: Editor, name: str) -> Node:
    container = container_of(document, editor)
    if container is None:
        raise LookupError(name)
    return jsonc.member(container, name).node


def is_same_elsewhere(before: bytes, after: bytes, editor: Editor, changes: Sequence[Change]) -> bool:
    """Tell whether two states of the settings differ in the changed entries alone, and share their comments."""
    old, new = jsonc.parse(before), jsonc.parse(after)
    names = {change.name for change in changes}
    fewer, more = sorted(([each.text(comment) for comment in each.comments] for each in (old, new)), key=len)
    rest = iter(more)
    return _rest(old, editor, names) == _rest(new, editor, names) and all(comment in rest for comment in fewer)


def _rest(document: Document, editor: Editor, names: set[str]) -> Value:
    """Give what the settings say beside the agents of these names."""
    root = document.root.value if document.root else {}
    members = dict(root) if isinstance(root, dict) else {}
    agents = members.pop(str(editor.key), {})
    others = {name: value for name, value in agents.items() if name not in names} if isinstance(agents, dict) else {}
    return {**members, str(editor.key): others}
