"""The log's events of a connection are found by the ids of its sessions, in a journal of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

from acp_ledger import logs
from tests.daemon.house import greeting, open_house, request
from tests.support.datagrams import Datagrams

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _defaults_afterwards() -> Iterator[None]:
    """Leave structlog as it was found."""
    yield
    structlog.reset_defaults()


async def _logged(folder: Path, *ids: str) -> list[tuple[str, list[str]]]:
    """Run a connection with these sessions; gives its events and the session ids each is found by."""
    answers = [["answer", f"/{number}", {"sessionId": each}] for number, each in enumerate(ids)]
    asked = b"".join(request(str(number), "session/new", cwd=f"/{number}") for number in range(len(ids)))
    with Datagrams(str(folder / "journal")) as listener:
        logs.configure(form="journal", journal_socket=str(folder / "journal"))
        async with open_house(f"sqlite:///{folder}/ledger.db", folder) as house:
            async with house.editor(greeting(*answers, ["wait", "bye"]) + asked) as editor:
                await editor.hear(f'"id": {len(ids) - 1}'.encode())
                await editor.say(b'"bye"\n')
                await editor.rest()
            await house.quiet()
        logs.get_logger().info(logs.DAEMON_STOPPED)
        found: list[tuple[str, list[str]]] = []
        while not found or found[-1][0] != logs.DAEMON_STOPPED:
            fields = listener.entry()
            found.append((dict(fields)["ACP_EVENT"], [value for name, value in fields if name == "ACP_SESSION_ID"]))
    return found


async def test_events_name_the_sessions_of_their_connection(tmp_path: Path) -> None:
    """Each session is logged when it is first seen, and every later event of the connection has its id."""
    found = await _logged(tmp_path, "sess_1", "sess_2")
    seen = [each for event, ids in found if event == logs.SESSION_SEEN for each in ids]
    assert seen == ["sess_1", "sess_2"]
    by_event = dict(found)
    assert by_event[logs.TRANSPORT_OPENED] == by_event[logs.AGENT_SPAWNED] == []
    assert by_event[logs.AGENT_EXITED] == by_event[logs.TRANSPORT_CLOSED] == ["sess_1", "sess_2"]


async def test_session_of_a_hostile_name_is_counted_alone(tmp_path: Path) -> None:
    """An id that could be content, or an order to a terminal, is withheld, and the connection lives on."""
    found = dict(await _logged(tmp_path, "two words\x1b[2J"))
    assert found[logs.SESSION_SEEN] == found[logs.TRANSPORT_CLOSED] == ["[withheld: str, 13]"]
