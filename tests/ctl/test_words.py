"""What a stored word is called on a screen."""

from __future__ import annotations

import pytest

from acp_ledger.ctl.words import prompt_words


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


@pytest.mark.parametrize("body", [None, b"not JSON"])
def test_prompt_that_cannot_be_read_has_no_words(body: bytes | None) -> None:
    """An erased line, or one nobody can read, is not given words."""
    assert prompt_words(body) is None
