"""Errors for people: a message, a hint, a status, and never a secret."""

from __future__ import annotations

import pytest

from acp_ledger import errors
from acp_ledger.errors import ExitCode, LedgerError


def _tree(kind: type[LedgerError]) -> list[type[LedgerError]]:
    return [kind, *(found for each in kind.__subclasses__() for found in _tree(each))]


def test_exit_codes_keep_their_numbers() -> None:
    """Scripts test for these numbers, so they are written down a second time."""
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "INCOMPLETE": 3,
        "NOTHING_MATCHED": 4,
        "INTEGRITY": 5,
        "NO_LEDGER": 10,
        "LOCKED": 11,
        "REFUSED": 12,
        "SCHEMA": 13,
        "TURN_REFUSED": 40,
        "TURN_TRUNCATED": 41,
        "TURN_CANCELLED": 42,
        "TURN_AUTH_REQUIRED": 43,
        "TURN_FAILED": 44,
        "TURN_PROTOCOL_ERROR": 45,
        "TURN_STREAM_ENDED": 46,
        "TURN_TRANSPORT_FAILED": 47,
        "TURN_INTERRUPTED": 48,
        "TURN_PAST_A_LIMIT": 49,
        "UNREACHABLE": 69,
        "CONFIG": 78,
        "CANNOT_EXECUTE": 126,
        "NOT_FOUND": 127,
        "INTERRUPTED": 130,
        "PIPE_CLOSED": 141,
    }


def test_exit_codes_all_have_a_meaning() -> None:
    """The table that the documentation is made from leaves no code out."""
    assert list(errors.MEANINGS) == list(ExitCode)


@pytest.mark.parametrize("kind", _tree(LedgerError), ids=lambda kind: kind.__name__)
def test_error_has_exit_code_and_meaning(kind: type[LedgerError]) -> None:
    """Whatever error ends a program, its status is one of the table's and never that of success."""
    assert kind.exit_code in errors.MEANINGS
    assert kind.exit_code != ExitCode.OK
    assert kind.__doc__


def test_error_shows_message_then_hint() -> None:
    """A person reads what happened, and on the next line what mends it."""
    assert str(LedgerError("the ledger is older", hint="ledgerctl db upgrade")) == (
        "the ledger is older\nledgerctl db upgrade"
    )
    assert str(LedgerError("it failed")) == "it failed"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://ann:CANARY@db/acp", "postgresql://ann:***@db/acp"),
        ("postgresql://ann@corp:CANARY@db/acp", "postgresql://ann@corp:***@db/acp"),
        ("postgresql://ann@db:5432/acp", "postgresql://ann@db:5432/acp"),
        ("postgresql://:CANARY@db/acp", "postgresql://:***@db/acp"),
        ("postgresql://ann:CAN@ARY/CANARY:CANARY@db/acp", "postgresql://ann:***@db/acp"),
        (
            "cannot reach postgresql+psycopg://ann:CANARY@db: refused",
            "cannot reach postgresql+psycopg://ann:***@db: refused",
        ),
        ("postgresql://db/acp?user=ann&password=CANARY&x=1", "postgresql://db/acp?user=ann&password=***&x=1"),
        ("postgresql://db/acp?sslpassword=CANARY", "postgresql://db/acp?sslpassword=***"),
        ("host=db Password = 'CANARY CANARY' user=ann", "host=db Password = *** user=ann"),
        ("nothing secret: 10:30 at x@y", "nothing secret: 10:30 at x@y"),
        ("sqlite:////home/ann/ledger.db", "sqlite:////home/ann/ledger.db"),
    ],
)
def test_secrets_are_masked(given: str, shown: str) -> None:
    """No spelling of a password survives in a message or in a hint, and the rest of the text does."""
    error = LedgerError(given, hint=given)
    assert error.message == error.hint == shown
    assert "CANARY" not in f"{error!s}{error!r}{error.args}"
