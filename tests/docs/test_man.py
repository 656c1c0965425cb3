"""The manual pages are what `man` can show, and say all there is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from acp_ledger.ctl.main import root
from acp_ledger.store import views
from docs import generate, man

FOLDER = Path(man.__file__).with_name("man")


def _shown(page: str) -> str:
    """A page as a terminal shows it."""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    command = ["groff", "-man", "-Tutf8", "-ww", "-rLL=110n", "-P-c", "-P-b", "-P-u", str(FOLDER / page)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("page", man.NAMES)
def test_page_is_shown_without_a_complaint(page: str) -> None:
    """Roff finds no fault in a page, and every page leads to the others."""
    shown = " ".join(_shown(page).split())
    assert man.NAMES[page] in shown.replace("\u2010", "-")
    others = [other.rpartition(".") for other in man.NAMES if other != page]
    assert [name for name, _, section in others if f"{name}({section})" not in shown] == []


def test_help_stands_in_the_manual_line_by_line() -> None:
    """What a command says of itself with --help is in the manual to the letter."""
    shown = [line.strip() for line in _shown("ledgerctl.1").splitlines()]
    for path, command in generate.commands(root, ("ledgerctl",)):
        for line in generate.help_of(command, path).splitlines():
            assert line.replace("`", "").strip() in shown


def test_schema_page_names_every_view() -> None:
    """An auditor finds each view in the manual."""
    shown = _shown("acp-ledger-schema.7")
    assert [name for name in views.view_names() if name not in shown] == []


def test_text_is_never_a_request() -> None:
    """A line that begins as a request of roff does is text all the same."""
    made = man.list_page("acp-ledger.toml.5", ".so /etc/passwd", [("A", "'tis \\(co", {".br": ".nf"})])
    assert "\n.so" not in made
    assert "\n'" not in made
    assert "\\(co" not in made.replace("\\e(co", "")
