"""What a stored word is called on a screen."""

from __future__ import annotations

from typing import Any

import pytest

from acp_ledger.ctl.words import answer_words, prompt_words
from acp_ledger.store.answers import Decision


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ('[{"type":"text","text":"Hello"},{"type":"text","text":"there"}]', "Hello\nthere"),
        ('[{"type":"image","data":"aGk="},{"type":"text","text":"what is it?"}]', "[image]\nwhat is it?"),
        ('[{"type":"text"},7,{}]', "[text]\n[unreadable]\n[unreadable]"),
        ("[]", ""),
        ('"Hello"', None),
    ],
)
def test_prompt_is_shown_as_it_was_asked(prompt: str, words: str | None) -> None:
    """Text as it is, every other block by its kind, and nothing where there is no list of blocks."""
    line = f'{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{{"sessionId":"s","prompt":{prompt}}}}}'
    assert prompt_words(line.encode()) == words


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (("selected", "allow_once", "allow", "client", None), "allow_once (allow), by client"),
        (("selected", "", "unknown", "client", None), "(not offered) (unknown), by client"),
        (("selected", "allow_once", "allow", "policy", "a\x1b[1m"), "allow_once (allow), by policy: a\\u001b[1m"),
        (("cancelled", None, "none", "policy", "mode=unattended"), "cancelled, by policy: mode=unattended"),
        (("cancelled", None, "none", "client", None), "cancelled"),
        (("unanswered", None, "none", "nobody", None), "unanswered"),
        (("open", None, None, None, None), "open: no answer yet"),
    ],
)
def test_answer_names_who_gave_it(told: tuple[Any, ...], words: str) -> None:
    """A policy's answer stands with its rule, and no silence is shown as an answer."""
    outcome, kind, effect, by, rule = told
    nothing = Decision(**dict.fromkeys(Decision._fields))  # type: ignore[arg-type]  # what an answer's words leave out
    decision = nothing._replace(outcome=outcome, option_kind=kind, effect=effect, decided_by=by, rule=rule)
    assert answer_words(decision) == words


@pytest.mark.parametrize("body", [None, b"not JSON"])
def test_prompt_that_cannot_be_read_has_no_words(body: bytes | None) -> None:
    """An erased line, or one nobody can read, is not given words."""
    assert prompt_words(body) is None
