"""Following a ledger: every committed row once, whoever wrote it, in pages, and nothing is held while waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from acp_ledger.store import follow
from acp_ledger.store.ledger import Daemon, Ledger
from acp_ledger.store.queries import EVERYTHING, Filter
from tests.support import seed
from tests.support.ledgers import reading
from tests.support.postgres import ON_POSTGRES, ON_SQLITE
from tests.support.seed import DAEMON, START, Seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

OTHER = Daemon("daemon-2", "desktop", 1000)


@pytest.fixture
def reader(ledger: Ledger, ledger_url: str) -> Iterator[Connection]:
    """A connection that reads what the ledger writes."""
    assert ledger is not None
    with reading(ledger_url) as connection:
        yield connection


def _places(found: follow.Fresh) -> list[tuple[int, int]]:
    return [(row.transport_id, row.frame_seq) for row in found.rows]


def _opened(ledger: Ledger, **changes: Any) -> tuple[int, Seed]:
    return ledger.open_transport(seed.new_transport(**changes)).id, Seed()


def test_rows_are_given_once_and_in_their_order(ledger: Ledger, reader: Connection) -> None:
    """What was there is left out; what comes, on old transports and new ones, is given once, by time."""
    old, script = _opened(ledger)
    ledger.commit([(old, [script.event("opened"), script.update("x")])])
    place = follow.start(reader, EVERYTHING)
    assert _places(follow.fresh(reader, place)) == []
    new, second = _opened(ledger)
    ledger.commit([(old, [script.update("y")]), (new, [second.event("opened")])])
    ledger.commit([(new, [second.update("z"), second.event("closed")]), (old, [script.update("y")])])
    found = _places(follow.fresh(reader, place))
    assert sorted(found) == [(old, 3), (old, 4), (new, 1), (new, 2), (new, 3)]
    assert [number for transport, number in found if transport == new] == [1, 2, 3]
    assert _places(follow.fresh(reader, place)) == []
    assert set(place.reached) == {old}


def test_many_rows_come_in_pages(ledger: Ledger, reader: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a page is given page by page, and said to be; a page that is just full leaves nothing behind."""
    monkeypatch.setattr(follow, "PAGE", 3)
    transport, script = _opened(ledger)
    place = follow.start(reader, EVERYTHING)
    ledger.commit([(transport, [script.update("x") for _ in range(6)])])
    pages = [follow.fresh(reader, place) for _ in range(3)]
    assert [(len(page.rows), page.more) for page in pages] == [(3, True), (3, True), (0, False)]
    assert [number for page in pages for _, number in _places(page)] == [1, 2, 3, 4, 5, 6]


def test_filter_narrows_what_comes(ledger: Ledger, reader: Connection) -> None:
    """A session, an agent and a transport narrow what is followed; what does not match is passed, not kept back."""
    one, script = _opened(ledger)
    ledger.commit([(one, seed.opening_entries(script))])
    wanted = {
        "session": Filter(acp_session_id="sess-1"),
        "agent": Filter(agent="agent-y"),
        "transport": Filter(transport_id=one),
    }
    places = {name: follow.start(reader, each) for name, each in wanted.items()}
    two, second = _opened(ledger, agent="agent-y")
    ledger.commit([(two, seed.opening_entries(second, name="sess-2"))])
    ledger.commit([(one, [script.update("x", turn=None), script.event("eof")])])
    found = {name: _places(follow.fresh(reader, place)) for name, place in places.items()}
    assert found["session"] == [(one, 8)]
    assert found["agent"] == [(two, number) for number in range(1, 8)]
    assert found["transport"] == [(one, 8), (one, 9)]
    assert places["session"].reached[one] == 9


@ON_POSTGRES
def test_daemon_whose_clock_is_behind_is_not_missed(ledger: Ledger, ledger_url: str, reader: Connection) -> None:
    """Ids are made from clocks: a transport of another machine is found though its id is below the newest."""
    ahead, script = _opened(ledger, opened_at=START + 10**9)
    ledger.commit([(ahead, [script.event("opened")])])
    place = follow.start(reader, EVERYTHING)
    other = Ledger.open(ledger_url, OTHER, at=START)
    behind, second = _opened(other, opened_at=START)
    other.commit([(behind, [second.event("opened")])])
    found = [each for _ in range(follow.THOROUGH) for each in _places(follow.fresh(reader, place))]
    assert behind < ahead
    assert found == [(behind, 1)]
    later, third = _opened(other, opened_at=START + 1)
    newest, fourth = _opened(other, opened_at=START + 2 * 10**9)
    other.commit([(later, [third.event("opened")]), (newest, [fourth.event("opened")])])
    assert sorted(_places(follow.fresh(reader, place))) == [(later, 1), (newest, 1)]
    other.close()


@ON_SQLITE
def test_idle_ledger_is_not_read(ledger: Ledger, reader: Connection) -> None:
    """SQLite tells by itself that nothing was committed; a commit shows at the next look."""
    place = follow.start(reader, EVERYTHING)
    assert [follow.changed(reader, place) for _ in range(3)] == [True, False, False]
    _opened(ledger)
    assert [follow.changed(reader, place) for _ in range(2)] == [True, False]


@ON_POSTGRES
def test_no_transaction_is_held_between_looks(ledger: Ledger, reader: Connection) -> None:
    """Whoever follows for weeks keeps the server from nothing."""
    place = follow.start(reader, EVERYTHING)
    assert follow.changed(reader, place)
    follow.fresh(reader, place)
    query = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'")
    assert ledger.reading().execute(query).scalar_one() == 0


def test_another_ledger_is_told(ledger: Ledger, reader: Connection, tmp_path: Any) -> None:
    """A place in one ledger is none in another."""
    place = follow.start(reader, EVERYTHING)
    follow.resume(reader, place)
    other = Ledger.open(f"sqlite:///{tmp_path}/other.db", DAEMON, at=START)
    with pytest.raises(follow.AnotherLedger):
        follow.resume(other.reading(), place)
    other.close()
    assert ledger is not None
