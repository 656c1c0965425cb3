"""The page that lists the behaviours and the tests named after them say the same."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parent.parent / "docs" / "sources.md").read_text(encoding="utf-8")
BEHAVIOURS = {"AP": 25, "TY": 74, "AI": 20}


def _listed() -> list[tuple[str, str]]:
    return re.findall(r"(?m)^\| ((?:AP|TY|AI)\d+) \| .+ \| `(\w+)` \|$", PAGE)


def test_every_behaviour_is_listed_once_and_in_order() -> None:
    """Twenty-five, seventy-four and twenty of them."""
    wanted = [f"{text}{number}" for text, count in BEHAVIOURS.items() for number in range(1, count + 1)]
    assert [id_ for id_, _ in _listed()] == wanted


def test_every_listed_test_is_there_and_named_after_its_behaviour() -> None:
    """And every test with the name of a behaviour is listed."""
    files = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py"))
    there = set(re.findall(r"(?m)^(?:async )?def (test_(?:ap|ty|ai)\d+\w*)\(", files))
    assert {test for _, test in _listed()} == there
    assert [id_ for id_, test in _listed() if f"_{id_.lower()}_" not in f"{test}_"] == []
