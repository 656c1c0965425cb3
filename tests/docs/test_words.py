"""Pages that are written by hand and list what the code knows leave nothing out, and tests they lean on are there."""

from __future__ import annotations

import re
from typing import Final, get_args

import pytest

from acp_ledger.protocol import redaction, requests, revisions, v1
from acp_ledger.protocol.observer import ANOMALY_CLASSES
from acp_ledger.protocol.outcome import OUTCOME_OF_STOP
from acp_ledger.protocol.records import NO_CONNECTION, UNNEGOTIATED, DecidedBy, DecisionOutcome, Origin, TurnOutcome
from tests.support.terminal import CHECKOUT

PROTOCOL: Final = (CHECKOUT / "docs" / "protocol.md").read_text(encoding="utf-8")
SECURITY: Final = (CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8")
METHODS: Final = {method for _direction, method in requests._HANDLERS} | requests._NOTIFICATIONS
REVISIONS: Final = {v1.REVISION, UNNEGOTIATED, NO_CONNECTION, revisions.reading_of(2).revision}


@pytest.mark.parametrize(
    "words",
    [
        METHODS,
        {f"{beginning}…" for beginning in v1.CLIENT_CALLS},
        set(v1.UPDATE_KINDS),
        set(OUTCOME_OF_STOP) | set(get_args(TurnOutcome)),
        set(get_args(DecisionOutcome)) | set(get_args(DecidedBy)),
        set(get_args(Origin)) - {"peer"},
        REVISIONS,
    ],
    ids=["methods", "client calls", "kinds", "turns", "answers", "origins", "revisions"],
)
def test_protocol_page_names_every_word(words: set[str]) -> None:
    """Whatever the mapping knows by name is on the page that says what becomes of it."""
    assert {word for word in words if f"`{word}`" not in PROTOCOL} == set()


def test_protocol_page_has_every_anomaly() -> None:
    """The table of anomalies is the code's own, word for word."""
    table = PROTOCOL.partition("## Anomalies")[2].partition("\n## ")[0]
    assert dict(re.findall(r"(?m)^\| `(\w+)` \| (.+) \|$", table)) == ANOMALY_CLASSES


def test_security_page_has_every_redacted_message() -> None:
    """Whoever relies on the list of what is never stored sees all of it."""
    table = SECURITY.partition("## What is never stored")[2].partition("\n## ")[0]
    named = {word for row in re.findall(r"(?m)^\| (`.+?) \|", table) for word in re.findall(r"`([a-z/_]+)`", row)}
    assert named == {*redaction.SECRET_PARAMS, "initialize"}


def test_security_page_leans_on_tests_that_are_there() -> None:
    """Each line of the table of who can do what names a test of this suite."""
    rows = re.findall(r"(?m)^\| .+ \| .+ \| .+ \| `(test_\w+)` \|$", SECURITY)
    assert len(rows) > 15
    suite = "\n".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "tests").rglob("test_*.py"))
    assert [name for name in rows if f"def {name}(" not in suite] == []
