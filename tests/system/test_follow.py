"""Following through the life of a real daemon: killed, started anew, and gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_ledger.errors import ExitCode
from tests.support.follower import follow
from tests.system.echo import echo
from tests.system.installed import daemon_at

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["follow"]


def test_follower_outlives_daemons(database_url: str, tmp_path: Path, follow: Any) -> None:
    """A line shows while its conversation runs; after a kill the new daemon's words show; the end is 130."""
    first, second = tmp_path / "one", tmp_path / "two"
    for folder in (first, second):
        folder.mkdir()
    with daemon_at(tmp_path / "daemon", database_url) as daemon:
        with echo(daemon, first) as client:
            client.pass_line(b"before")
            follower = follow(daemon.url, "-n", "1", "-o", "jsonl")
            (seen,) = follower.places(1)
            client.pass_line(b"during")
            shown = [seen, *follower.places(2)]
            daemon.kill()
        daemon.start()
        with echo(daemon, second) as client:
            client.pass_line(b"after")
        daemon.end()
        statement = (
            "SELECT transport_id, frame_seq FROM frames UNION SELECT transport_id, frame_seq FROM transport_events"
        )
        committed = sorted((row[0], row[1]) for row in daemon.query(statement))
        missing = committed[committed.index(seen) :]
        shown += follower.places(len(missing) - len(shown))
        assert sorted(shown) == missing
        assert len({transport for transport, _ in shown}) == 2
        ends = daemon.query("SELECT event FROM transport_events WHERE event IN ('interrupted', 'closed') ORDER BY 1")
        assert [row[0] for row in ends] == ["closed", "interrupted"]
    assert follower.interrupt() == (ExitCode.INTERRUPTED, b"", b"")
