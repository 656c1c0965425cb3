"""Makes the manual pages: what `man ledgerctl` and its neighbours show.

What must not be broken here: a page says what the code says, and nothing in its text is taken for a request of roff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAMES: Final = {
    "ledgerctl.1": "read, check and look after a ledger of coding agents' sessions",
    "acp-ledger-run.1": "start a coding agent and have its session recorded",
    "acp-ledger.toml.5": "settings of acp-ledger",
    "acp-ledger-schema.7": "views and tables of a ledger, for SQL",
    "acp-ledgerd.8": "the daemon that supervises coding agents and keeps the ledger",
}
"""Every page, and what its subject is in one line."""

SECTIONS: Final = {"1": "User Commands", "5": "File Formats", "7": "Miscellanea", "8": "System Administration"}

_FILES: Final = {
    "~/.local/share/acp-ledger/ledger.db": "The ledger, where no other is named.",
    "~/.config/acp-ledger/config.toml, /etc/acp-ledger/config.toml": "Settings; see acp-ledger.toml(5).",
    "~/.local/state/acp-ledger/": "What a daemon keeps between two starts, and its log where nobody reads its stderr.",
    "/run/user/UID/acp-ledger/ledgerd.sock": "The daemon's socket; in the state directory where there is no such folder.",
}


class Titled(NamedTuple):
    """A heading, and text that is shown as it stands."""

    title: str
    text: str


def command_page(page: str, usage: str, texts: Iterable[Titled], statuses: Mapping[str, str]) -> str:
    """The page of a program: its help, that of its commands, its exit statuses and files."""
    lines = [*_head(page), ".SH SYNOPSIS", _line(usage), ".SH DESCRIPTION"]
    for title, text in texts:
        lines += [*([f".SS {_quoted(title)}"] if title else []), *_as_it_stands(text)]
    lines += [".SH EXIT STATUS", *_list(statuses)]
    return _page([*lines, ".SH FILES", *_list(_FILES)], page)


def list_page(page: str, opening: str, chapters: Iterable[tuple[str, str, Mapping[str, str]]]) -> str:
    """A page of chapters: each a title, a sentence, and words with their meanings."""
    lines = [*_head(page), ".SH DESCRIPTION", _line(opening)]
    for title, sentence, words in chapters:
        lines += [f".SH {_quoted(title)}", *([_line(sentence)] if sentence else []), *_list(words)]
    return _page(lines, page)


def _head(page: str) -> list[str]:
    name, _, section = page.rpartition(".")
    title = f'.TH "{name.upper()}" "{section}" "" "acp_ledger" "{SECTIONS[section]}"'
    return [title, ".SH NAME", f"{_escaped(name)} \\- {_escaped(NAMES[page])}"]


def _page(lines: list[str], page: str) -> str:
    others = (other.rpartition(".") for other in NAMES if other != page)
    also = ", ".join(f"{_escaped(name)}({section})" for name, _, section in others)
    return "\n".join(['.\\" Made by python -m docs.generate', *lines, ".SH SEE ALSO", also]) + "\n"


def _list(words: Mapping[str, str]) -> list[str]:
    return [part for word, meaning in words.items() for part in (".TP", f".B {_quoted(word)}", _line(meaning))]


def _as_it_stands(text: str) -> list[str]:
    return [".nf", *(_line(line) for line in text.splitlines()), ".fi"]


def _line(text: str) -> str:
    """A line of text. One that begins with a dot or a quote would be a request of roff."""
    plain = _escaped(text.replace("`", ""))
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("…", "\\[u2026]")


def _quoted(text: str) -> str:
    """An argument of a request."""
    return '"' + _line(text).replace('"', '""') + '"'
