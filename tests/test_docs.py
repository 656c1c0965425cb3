"""The pages say what is so: made ones are current, commands exist, links lead somewhere, vectors can be recomputed."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shlex
import struct
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pytest

from acp_ledger import settings, sources
from acp_ledger.ctl.main import root
from docs import generate
from tests.support import pages

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = [
    path
    for folder in (".", "docs", "migrations", "deploy")
    for path in sorted((ROOT / folder).glob("*.md"))
    if path.name != "LICENSE.md"
]


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("name", generate.PAGES)
def test_generated_page_is_current(name: str) -> None:
    """Whoever changed the code ran `python -m docs.generate`."""
    assert (ROOT / name).read_text(encoding="utf-8") == generate.PAGES[name]()


def test_example_means_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying config.example.toml changes nothing."""
    for variable in list(settings.IGNORED_VARIABLES):
        monkeypatch.delenv(variable, raising=False)
    assert settings.load(ROOT / "config.example.toml").model_dump() == settings.Settings().model_dump()


def test_example_names_every_key() -> None:
    """With its comment marks removed the example holds every key there is, and nothing else."""
    text = (ROOT / "config.example.toml").read_text(encoding="utf-8")
    bare = re.sub(r"(?m)^# (?=\[|\w+ = )", "", text)
    named = {key.replace("agents.claude", "agents.NAME") for key in _leaves(tomllib.loads(bare))}
    assert named == set(sources.keys(settings.Settings))


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_every_command_is_described_and_shown_in_use() -> None:
    """Every command has a help of its own and at least two examples."""
    commands = list(generate.commands(root, ("ledgerctl",)))
    assert len(commands) > 10
    for path, command in commands:
        help_text = generate.help_of(command, path)
        shown = help_text.partition("Examples:")[2].split("Options:")[0]
        assert command.help, path
        assert isinstance(command, click.Group) or shown.count("ledgerctl") >= 2, path


@pytest.mark.parametrize("path", PAGES, ids=_relative)
def test_relative_links_lead_somewhere(path: Path) -> None:
    """A link between pages names a file that exists, and a heading that is there."""
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"(?m)^#+ (.+)$", file.read_text(encoding="utf-8"))
            assert anchor in {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}, target


@pytest.mark.parametrize("path", PAGES, ids=_relative)
def test_commands_shown_exist(path: Path) -> None:
    """A command of ours in a block that the tests leave out is there, and takes what is shown behind it."""
    typed = [
        command.text for block in pages.read(path).blocks if block.language == "console" for command in block.commands()
    ]
    for command in (part for line in typed for part in re.split(r" (?:&&|\|) ", line)):
        words = shlex.split(command, comments=True)
        if words[0] == "sh":
            assert (ROOT / words[1]).is_file(), command
        elif words[0] in {"ledgerctl", "acp-ledgerctl"}:
            _check_command(words[1:])


def _check_command(words: list[str]) -> None:
    """Find the command that the words name, and parse the rest as it would, without running it."""
    command: click.Command = root
    context = click.Context(root, info_name="ledgerctl")
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found, words
        command, context = found, click.Context(found, info_name=found.name, parent=context)
    command.make_parser(context).parse_args(words)


@pytest.mark.parametrize("path", sorted((ROOT / "acp_ledger").rglob("*.py")), ids=_relative)
def test_commands_named_in_hints_exist(path: Path) -> None:
    """An error never sends anybody to a command that is not there."""
    names = set(root.list_commands(click.Context(root)))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            for name in re.findall(r"ledgerctl ([a-z]+)", node.value):
                assert name in names | {"speak"}, node.value


def test_schema_vectors_can_be_recomputed() -> None:
    """The bytes on the page give the digests on the page, by the formulas on the page and hashlib alone."""
    text = (ROOT / "docs/schema.md").read_text(encoding="utf-8")
    transport, *links = json.loads(re.findall(r"(?s)```json\n(.+?)\n```", text)[-1])
    assert transport["facts"] == _sha("facts", transport["canonical_facts"].encode())
    assert transport["private"] == _private(transport)
    epoch = struct.pack(">Q", transport["epoch"])
    digests = bytes.fromhex(transport["private"] + transport["facts"])
    assert transport["genesis"] == _sha("genesis", bytes.fromhex(transport["ledger_id"]) + epoch + digests)
    previous = transport["genesis"]
    assert [link["of"] for link in links] == ["event", "frame"]
    for link in links:
        assert link["previous"] == previous
        body = _salted(link["salt"], link["body"]) if "body" in link else None
        assert link["commitment"] == (_sha("body", body) if body else "00" * 32)
        assert link["facts"] == _sha("facts", link["canonical_facts"].encode())
        assert link["private"] == _private(link)
        digests = bytes.fromhex(link["commitment"] + link["private"] + link["facts"])
        number = struct.pack(">Q", link["frame_seq"])
        assert link["chain"] == _sha("link", bytes.fromhex(previous) + number + digests)
        previous = link["chain"]


def _sha(tag: str, data: bytes) -> str:
    return hashlib.sha256(f"acp-ledger/{tag}/1\0".encode() + data).hexdigest()


def _salted(salt: str, text: str) -> bytes:
    raw = bytes.fromhex(salt)
    return struct.pack(">I", len(raw)) + raw + text.encode()


def _private(vector: dict[str, Any]) -> str:
    if "canonical_private" not in vector:
        return "00" * 32
    return _sha("private", _salted(vector["private_salt"], vector["canonical_private"]))


def test_readme_is_two_screens() -> None:
    """Nobody scrolls three times to find out what this is."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110
