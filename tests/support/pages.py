"""Reads pages: their fenced blocks, the commands and output in a console block, and the marks that stand above a block.

A mark is an HTML comment on a line of its own, directly above the fence, or for a whole page anywhere on it:

    <!-- test: not run; REASON -->          left out, for a reason that a reader of the page's source can judge
    <!-- test: loose -->                    figures, times, hashes and widths of the output shown may be others
    <!-- test: status 3 -->                 every command of the block ends with this status; 0 where nothing is said
    <!-- test: background WORD -->          the block's one command goes on; the next begins once it has said WORD
    <!-- test: psql -->                     an SQL block that goes to `psql`, and not to `ledgerctl sql`
    <!-- test page: empty -->               this page starts without a ledger; else with the recorded demo
    <!-- test page: postgres -->            this page has a Postgres of its own, new and empty (PGHOST, PGPORT, PGUSER)

In the output shown `…` stands for anything on its line, and alone on a line for any lines.
What must not be broken here: a mark that is not one of these is an error, and so is a reason too short to be one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

SHORTEST_REASON: Final = 20
MARKS: Final = ("not run", "loose", "status", "background", "psql")
PAGE_MARKS: Final = ("empty", "postgres")

_FENCE: Final = re.compile(r"^ {0,3}```(\w*)\s*$")
_COMMENT: Final = re.compile(r"^<!--.*-->$")
_MARK: Final = re.compile(r"^<!-- test: (.+?) -->$")
_PAGE_MARK: Final = re.compile(r"(?m)^<!-- test page: (.+?) -->$")
_FIGURE: Final = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")
_RUN: Final = re.compile(r"\s+|[-─━]{2,}")


class PageError(AssertionError):
    """A page is not written as pages are; the text says where and what."""


class Command(NamedTuple):
    """One command of a console block, and what the page shows as its output."""

    line: int
    text: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the number of its first line, its language, its text, and the marks above it."""

    line: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def left_out(self) -> str | None:
        """The reason for which it is not run."""
        return self.marks.get("not run")

    @property
    def status(self) -> int:
        """How its commands have to end."""
        return int(self.marks.get("status", "0"))

    def commands(self) -> list[Command]:
        """The commands of a console block.

        Raises:
            PageError: It begins with something else.
        """
        found: list[Command] = []
        lines = list(enumerate(self.text.split("\n"), self.line))
        while lines:
            number, line = lines.pop(0)
            if line.startswith("$ "):
                words = [line[2:]]
                while lines and (words[-1].endswith("\\") or lines[0][1].startswith("> ")):
                    words.append(lines.pop(0)[1].removeprefix("> "))
                found.append(Command(number, "\n".join(words), ()))
            elif found:
                found[-1] = found[-1]._replace(shown=(*found[-1].shown, line))
            else:
                raise PageError(f"line {number}: a console block begins with a command: $ COMMAND")
        return found


@dataclass(frozen=True, slots=True)
class Page:
    """A page, its blocks, and what it starts with."""

    path: Path
    blocks: tuple[Block, ...]
    marks: frozenset[str]

    def runnable(self) -> list[Block]:
        """What is run of it, in order."""
        return [block for block in self.blocks if block.language in {"console", "sql"} and block.left_out is None]


def read(path: Path) -> Page:
    """Read a page.

    Raises:
        PageError: A mark on it means nothing, or a block has no end.
    """
    text = path.read_text(encoding="utf-8")
    marks = frozenset(word.strip() for found in _PAGE_MARK.findall(text) for word in found.split(","))
    if unknown := marks - set(PAGE_MARKS):
        raise PageError(f"{path.name}: no such mark of a page: {', '.join(sorted(unknown))}")
    return Page(path, tuple(_blocks(path.name, text.split("\n"))), marks)


def _blocks(name: str, lines: list[str]) -> list[Block]:
    found: list[Block] = []
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        number += 1
        if fence is None:
            continue
        start = number
        while number < len(lines) and lines[number].strip() != "```":
            number += 1
        if number == len(lines):
            raise PageError(f"{name}, line {start}: a block without an end")
        text = "\n".join(lines[start:number])
        found.append(Block(start + 1, fence[1], text, _marks(name, lines, start - 2)))
        number += 1
    return found


def _marks(name: str, lines: list[str], number: int) -> dict[str, str]:
    """Read the marks that stand in the lines above a fence, the last of them at `number`, among other comments."""
    found: dict[str, str] = {}
    while number >= 0 and _COMMENT.match(lines[number].strip()):
        if mark := _MARK.match(lines[number].strip()):
            word, rest = _divided(mark[1])
            if word is None or (word == "not run" and len(rest) < SHORTEST_REASON):
                raise PageError(f"{name}, line {number + 1}: not a mark, or one without its reason: {mark[1]}")
            found[word] = rest
        number -= 1
    return found


def _divided(mark: str) -> tuple[str | None, str]:
    """The word of a mark, None where it is none of ours, and what follows it."""
    word = next((each for each in MARKS if re.match(rf"{each}\b", mark)), None)
    return word, mark[len(word or "") :].strip(" ;")


def fits(shown: tuple[str, ...], said: str, *, loose: bool) -> bool:
    """Whether what a command said is what the page shows; blanks at the ends of lines and pages do not count."""
    pattern = r"\n".join(_pattern(line, loose=loose) for line in "\n".join(shown).strip("\n").split("\n"))
    # Any lines means none too.
    pattern = pattern.replace(r"\n[\s\S]*", r"[\s\S]*").replace(r"[\s\S]*\n", r"[\s\S]*")
    return re.fullmatch(pattern, "\n".join(line.strip() for line in said.strip("\n").split("\n"))) is not None


def _pattern(line: str, *, loose: bool) -> str:
    line = line.strip()
    if line == "…":
        return r"[\s\S]*"
    return ".*?".join(_loose(part) if loose else re.escape(part) for part in line.split("…"))


def _loose(text: str) -> str:
    """A pattern for the text in which figures, hashes and the widths of columns may differ."""
    pieces = re.split(rf"({_FIGURE.pattern}|{_RUN.pattern})", text)
    return "".join(
        "[0-9a-f]+" if _FIGURE.fullmatch(piece) else _width(piece) if _RUN.fullmatch(piece) else re.escape(piece)
        for piece in pieces
    )


def _width(run: str) -> str:
    return r"\s+" if run.isspace() else f"[{re.escape(run[0])}]+"
