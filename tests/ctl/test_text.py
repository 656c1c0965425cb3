"""Foreign text on its way to a terminal."""

from __future__ import annotations

import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.ctl.text import HIDDEN, escape, escape_json, shorten, wants_color


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@given(st.text(st.characters()))
def test_escaped_text_holds_no_hidden_character(text: str) -> None:
    """Whatever an agent writes, no character that steers, hides or reorders is left."""
    assert not [character for character in escape(text) if unicodedata.category(character) in HIDDEN]


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J", r"\u001b[2J"),
        ("a\rb", r"a\u000db"),
        ("\x9b31m", r"\u009b31m"),
        ("\x7f", r"\u007f"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("a\u200bb", r"a\u200bb"),
        ("\ud800", r"\ud800"),
        ("\ue000", r"\ue000"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\U000e0041", r"\U000e0041"),
        ("\U0010ffff", r"\U0010ffff"),
        ("npm test, ça va 你好 🎉", "npm test, ça va 你好 🎉"),
    ],
)
def test_hidden_character_is_spelled_out(hostile: str, shown: str) -> None:
    """Each category of hidden characters is written as its number; ordinary text of any script stays."""
    assert escape(hostile) == shown


def test_kept_character_stays() -> None:
    """A caller may keep the line breaks that are its own."""
    assert escape("a\nb\x1b", keep="\n") == "a\nb\\u001b"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_value_when_escaped(text: str) -> None:
    """Escaping a JSON text changes no value and leaves no hidden character."""
    document = escape_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(document) == {"text": text}
    assert escape(document) == document


def test_cut_text_says_how_much_is_shown() -> None:
    """A text that is cut says how much of how much is there."""
    assert shorten("x" * 10_000, 4_000).endswith("… (4,000 of 10,000 characters shown)")
    assert shorten("x" * 4_000, 4_000) == "x" * 4_000


@pytest.mark.parametrize(
    ("when", "environ", "terminal", "colored"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"CLICOLOR_FORCE": "1"}, False, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, False, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_color_is_decided_in_order(when: str, environ: dict[str, str], *, terminal: bool, colored: bool) -> None:
    """The flag wins, then NO_COLOR, then the forcing variables, then the terminal."""
    assert wants_color(when, Terminal() if terminal else io.StringIO(), environ) is colored
