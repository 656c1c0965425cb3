"""Plans on settings as somebody with a taste for comments may write them: nothing else changes, and all comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_ledger.ctl.editor import jsonc
from acp_ledger.ctl.editor.catalog import editor_named
from acp_ledger.ctl.editor.entries import State, entries_of
from acp_ledger.ctl.editor.plans import Change, Request, is_same_elsewhere, plan_setup
from acp_ledger.ctl.editor.undoing import take_back
from tests.ctl.editor.test_jsonc import JSON, TRIVIA, written

if TYPE_CHECKING:
    from acp_ledger.ctl.editor.jsonc import Document

ZED: Final = editor_named("zed")
RUNNER: Final = "/bin/sh/acp-ledger-run"
WORDS: Final = st.lists(st.text(max_size=4), max_size=3)
CUSTOM: Final = st.fixed_dictionaries(
    {"type": st.just("custom"), "command": st.text(min_size=1, max_size=6)}, optional={"args": WORDS, "env": JSON}
)
REGISTRY: Final = st.fixed_dictionaries({"type": st.just("registry")}, optional={"env": st.just({"A": "b"})})
AGENTS: Final = st.dictionaries(st.sampled_from(["claude-acp", "codex-acp"]), REGISTRY) | st.dictionaries(
    st.text(max_size=5), CUSTOM, min_size=1, max_size=3
)


def comments(document: Document) -> list[bytes]:
    """The texts of the comments of a file."""
    return [document.text(comment) for comment in document.comments]


def agents_of(document: Document) -> dict[str, Any]:
    """The agents of Zed's settings, as read."""
    return {entry.name: entry.node.value for entry in entries_of(document, ZED)}


@settings(max_examples=40)
@given(
    st.data(),
    st.dictionaries(st.text(max_size=4), JSON, max_size=2),
    AGENTS,
    st.sampled_from(["agents first", "agents last"]),
)
def test_every_form_of_settings_is_set_up_and_comes_back(
    data: st.DataObject, rest: dict[str, Any], agents: dict[str, Any], order: str
) -> None:
    """However settings are written, a setup records what it can, changes nothing else, and is taken back."""
    own = {"agent_servers": agents}
    whole = {**own, **rest} if order == "agents first" else {**rest, **own}
    text = data.draw(TRIVIA) + data.draw(written(whole)) + data.draw(TRIVIA)
    before = jsonc.parse(text.encode())
    request = Request(RUNNER, "/home/mia", words=() if agents else ("--", "x"), title="X")
    plan = plan_setup(before.data, ZED, request)
    after = jsonc.parse(plan.content)
    states = {entry.state for entry in entries_of(after, ZED)}
    assert states <= {State.RUNNER_GONE, State.REGISTRY}  # this runner is nowhere, and known for ours all the same
    back = take_back(plan.content, ZED, plan.changes)
    assert back.left == ()
    again = jsonc.parse(back.content)
    assert agents_of(again) == agents_of(before)
    assert again.root is not None
    assert before.root is not None
    assert again.root.value == before.root.value
    assert comments(again) == comments(before)


BEFORE: Final = b'{"a": 1, "agent_servers": {"X": {"command": "x"}, "Y": {}} /* one */ /* two */}'


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        (b'"x"', b'"y"', True),
        (b"{}}", b"{}, }", True),
        (b"1", b"2", False),
        (b'"a": 1, ', b"", False),
        (b'"Y": {}', b'"Y": {"z": 1}', False),
        (b'"Y"', b'"Z"', False),
        (b"/* one */", b"", True),  # an entry of ours may go with the comments that its user wrote into it
        (b"/* one */", b"/* One */", False),
    ],
)
def test_a_change_of_anything_else_is_noticed(old: bytes, new: bytes, is_same: object) -> None:
    """The last look before a file is written sees every value and comment outside the entry that is meant."""
    assert is_same_elsewhere(BEFORE, BEFORE.replace(old, new, 1), ZED, [Change("wrapped", "X")]) is is_same
