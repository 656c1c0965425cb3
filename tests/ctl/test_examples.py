"""Every example that a help shows can be typed: each is parsed, and what only reads a ledger is run."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

import click
import pytest

from acp_ledger.ctl.main import root
from acp_ledger.ctl.options import Command, LazyGroup
from acp_ledger.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ctl.conftest import Cli

READS: Final = ("sessions", "events", "decisions", "agents", "coverage", "sql")
IDS: Final = {"claude": "calm", "01k5": "sess-plain"}
"""What stands in the examples, and what is in the seeded ledger instead."""


def _examples(command: Command | LazyGroup = root) -> Iterator[str]:
    yield from command.examples
    if isinstance(command, LazyGroup):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            assert isinstance(child, Command | LazyGroup)
            yield from _examples(child)


EXAMPLES: Final = tuple(dict.fromkeys(_examples()))


def _lines(example: str) -> Iterator[list[str]]:
    """Give the words of every `ledgerctl` in a line of a shell."""
    bare = re.sub(r"\s#\s.*$", "", example)
    lexer = shlex.shlex(re.sub(r'"\$\((.*)\)"', r"| \1", bare), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, "|"]:
        if set(word) <= set("|&<>;"):
            if words[:1] == ["ledgerctl"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_can_be_typed(example: str) -> None:
    """Each names a command there is, with options and values that it takes."""
    lines = list(_lines(example))
    assert lines
    for words in lines:
        _parse(root, words)


def _parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    context = command.make_context(command.name, list(words), parent=parent)
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        child = command.get_command(context, rest[0])
        assert child is not None, rest
        _parse(child, rest[1:], context)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=" ".join(words))
        for example in EXAMPLES
        for words in _lines(example)
        if words[0] in READS and not {"-f", "-", "-L"} & set(words)
    ],
)
def test_example_that_reads_runs(cli: Cli, seeded_file: Path, words: list[str]) -> None:
    """On a seeded ledger, the ids exchanged for some that are there, it does what it is there for."""
    known = [IDS.get(word, word) for word in words]
    result = cli(*known, "-L", str(seeded_file))
    assert result.exit_code in {ExitCode.OK, ExitCode.NOTHING_MATCHED}, result.stderr
