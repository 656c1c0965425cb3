"""Logs: for people on a terminal, for machines elsewhere, and without a word of a user's or an agent's."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

from acp_ledger import logs
from acp_ledger.errors import ConfigError, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "canary-4711"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture(autouse=True)
def _defaults_afterwards() -> Iterator[None]:
    """Leave structlog as it was found."""
    yield
    structlog.reset_defaults()


def _logged(**fields: object) -> dict[str, object]:
    stream = io.StringIO()
    logs.configure(form="json", stream=stream)
    logs.get_logger().info(logs.AGENT_EXITED, **fields)
    event: dict[str, object] = json.loads(stream.getvalue())
    return event


def test_event_is_one_json_line_off_a_terminal() -> None:
    """A machine reads one object a line, with time, level and name."""
    stream = io.StringIO()
    logs.configure(stream=stream)
    logs.get_logger(transport_id=7).warning(logs.AGENT_EXITED, status=3)
    line = stream.getvalue()
    assert line.endswith("}\n")
    assert line.count("\n") == 1
    event = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", event.pop("timestamp"))
    assert event == {"event": "agent.exited", "level": "warning", "transport_id": 7, "status": 3}


def test_event_is_for_people_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who runs the daemon by hand reads words, and no colours when they asked for none."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    logs.configure(stream=stream)
    logs.get_logger().info(logs.DAEMON_READY, pid=7)
    assert "daemon.ready" in stream.getvalue()
    assert "pid=7" in stream.getvalue()
    assert not {"{", "\x1b"} & set(stream.getvalue())


def test_level_holds_back_lesser_events() -> None:
    """`log.level` is the least important level that is written."""
    stream = io.StringIO()
    logs.configure(form="json", level="warning", stream=stream)
    logs.get_logger().info(logs.DAEMON_READY)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("field", ["body", "line", "title", "text", "prompt", "env", "argv", "params", "anything_new"])
@pytest.mark.parametrize("value", [CANARY, CANARY.encode(), [CANARY], {"k": CANARY}, {CANARY: 1}, LedgerError(CANARY)])
def test_content_never_reaches_the_log(field: str, value: object) -> None:
    """Text passes under known names alone, so a field somebody adds tomorrow leaks nothing either."""
    event = _logged(**{field: value})
    assert CANARY not in json.dumps(event)
    assert str(event[field]).startswith("[withheld: ")


@pytest.mark.parametrize("value", [{"k": CANARY}, CANARY.encode(), object()])
def test_known_field_takes_text_alone(value: object) -> None:
    """A structure under a known name is withheld too: only text was meant."""
    assert str(_logged(reason=value)["reason"]).startswith("[withheld: ")


def test_password_never_reaches_the_log() -> None:
    """The database's address is logged, its password is not, not even in a list."""
    address = f"postgresql://ann:{CANARY}@db/acp"
    event = _logged(database=address, path=[address])
    assert event["database"] == "postgresql://ann:***@db/acp"
    assert CANARY not in json.dumps(event)


def test_foreign_error_shows_type_and_place_alone() -> None:
    """A library quotes what it choked on; of its errors only where and what kind is written."""
    stream = io.StringIO()
    logs.configure(form="json", stream=stream)
    try:
        try:
            os.environ[CANARY]  # raises, and that is all it is for
        except KeyError as error:
            raise ExceptionGroup(CANARY, [error, ConfigError("the reason")]) from error
    except ExceptionGroup:
        logs.get_logger().exception(logs.DAEMON_FAILED)
    event = json.loads(stream.getvalue())
    # The line of source that raised names the canary's variable, never its value.
    assert CANARY not in stream.getvalue()
    assert "KeyError" in event["exception"]
    assert "ExceptionGroup" in event["exception"]
    assert "ConfigError: the reason" in event["exception"]
    assert "test_logs.py" in event["exception"]


def test_system_error_shows_its_words() -> None:
    """What the operating system says is what an operator needs."""
    stream = io.StringIO()
    logs.configure(form="json", stream=stream)
    logs.get_logger().error(logs.DAEMON_FAILED, exc_info=OSError(28, "No space left on device", CANARY))
    assert "OSError: No space left on device" in json.loads(stream.getvalue())["exception"]
    assert CANARY not in stream.getvalue()


@pytest.mark.parametrize("around", ["", " \r\n"])
def test_terminal_is_not_steered_by_an_agents_name(monkeypatch: pytest.MonkeyPatch, around: str) -> None:
    """A name with control characters is spelled out, on a terminal above all."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    logs.configure(form="console", stream=stream)
    logs.get_logger().info(logs.AGENT_SPAWNED, agent=f"{around}\x1b[2J\x9b2J\u202eevil", count=1)
    assert r"\x1b[2J\x9b2J\u202eevil" in stream.getvalue().replace("\\\\", "\\")
    assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(stream.getvalue())


def test_long_text_is_cut() -> None:
    """A name of a megabyte does not fill the journal."""
    shown = str(_logged(agent="x" * 10**6)["agent"])
    assert len(shown) < 2 * logs.LONGEST_TEXT
    assert shown.endswith("(1000000 characters)")


def test_event_names_are_dotted_and_unlike() -> None:
    """Names are what operators search for: lower case, dotted, each once."""
    names = [value for name, value in vars(logs).items() if name.isupper() and value in logs.EVENTS]
    assert len(names) == len(set(names)) > 20
    assert all(re.fullmatch(r"[a-z]+\.[a-z_]+", name) for name in names)


def test_event_names_are_used_by_their_constants() -> None:
    """No log call in the package spells a name out, so none is misspelled."""
    package = Path(logs.__file__).parent
    spelled = re.compile(r"\.(?:debug|info|warning|error|exception|critical)\(\s*[frb]?[\"']")
    found = [str(path) for path in package.rglob("*.py") if spelled.search(path.read_text(encoding="utf-8"))]
    assert found == []
