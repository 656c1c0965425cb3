"""What we tell people to type can be typed: a help's examples, which are run where they only read, and every hint."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import pytest

import acp_ledger
from acp_ledger.ctl.main import root
from acp_ledger.ctl.options import Command, LazyGroup
from acp_ledger.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

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


VALUE: Final = "VALUE"
"""Stands where a sentence takes a value."""

PROSE: Final = {VALUE, "speak"}
"""Words that follow our name in a sentence and are no command."""


def _texts(tree: ast.AST) -> Iterator[str]:
    """Give every text of a module as people read it, with `VALUE` for each value that goes in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _told() -> Iterator[tuple[str, ...]]:
    """Give the words after every `ledgerctl` in the program's texts, as far as they may belong to the command."""
    for file in sorted(Path(acp_ledger.__file__).parent.rglob("*.py")):
        for text in _texts(ast.parse(file.read_text(encoding="utf-8"))):
            for line in re.findall(r"(?<![-\w])ledgerctl +((?:(?!ledgerctl)[^&|;`()\n\"])+)", text):
                words = tuple(word.rstrip(".,:…") for word in line.split())
                if words[0] not in PROSE:
                    yield words


def _unknown(words: tuple[str, ...]) -> list[str]:
    """Give the words that name no command, or no option of the command."""
    command: click.Command = root
    unknown, rest = [], list(words)
    while rest and rest[0] != "--":
        word = rest.pop(0)
        context = click.Context(command)
        options = {name: each for each in command.params if isinstance(each, click.Option) for name in each.opts}
        if word.startswith("-") and word not in {*options, "-", "--help", "--version"}:
            unknown.append(word)
        elif word in options and not options[word].is_flag:
            rest = rest[1:]
        elif isinstance(command, click.Group) and not word.startswith("-"):
            child = command.get_command(context, word)
            if child is None:
                return [word]
            command = child
    return unknown


@pytest.mark.parametrize("words", [pytest.param(words, id=" ".join(words)) for words in dict.fromkeys(_told())])
def test_hint_names_what_there_is(words: tuple[str, ...]) -> None:
    """A hint, a note or a finding sends nobody to a command or an option that is not there."""
    assert _unknown(words) == []
