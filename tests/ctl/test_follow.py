"""`events -f`: what is committed is shown once, whatever becomes of the daemon, the server or the reader."""

from __future__ import annotations

import os
import pty
import shutil
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import pytest

from acp_ledger.errors import ExitCode
from acp_ledger.protocol.revisions import MAPPING_VERSION
from acp_ledger.store.ledger import Ledger, NewTransport
from acp_ledger.store.recovery import close_open
from tests.ctl.seeding import DAEMON, START, entries, plain_lines, seed, wild_lines
from tests.support.follower import PATIENCE, follow
from tests.support.postgres import ON_POSTGRES
from tests.support.proxy import Proxy, _cut

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ctl.conftest import Cli

__all__ = ["follow"]

PAST: Final = "2026-11-30T00:53:20.009Z"
WILD: Final = START + 1
"""The id of the seeded transport that is still open."""


def _record(ledger: Ledger, lines: Any, *, closed: bool = True) -> list[tuple[int, int]]:
    """Commit a transport as the daemon would, and give the places of its rows."""
    new = NewTransport(opened_at=START, mode="relay", agent="x", argv=["x"], cwd="/", mapping_version=MAPPING_VERSION)
    transport = ledger.open_transport(new).id
    made = entries(lines, closed=closed)
    ledger.commit([(transport, made[:5])])
    ledger.commit([(transport, made[5:])])
    return [(transport, entry.record.frame_seq) for entry in made]


def test_rows_come_once_whatever_the_daemon_does(seeded: str, follow: Any) -> None:
    """Rows follow what is there; a daemon that goes, and one that comes and recovers, change nothing; ^C is 130."""
    follower = follow(seeded, "-n", "1", "-o", "jsonl")
    assert follower.places(1) == [(WILD, 17)]
    for _ in range(2):
        ledger = Ledger.open(seeded, DAEMON, at=START)
        written = _record(ledger, plain_lines())
        assert follower.places(len(written)) == written
        written = _record(ledger, wild_lines(), closed=False)
        assert follower.places(len(written)) == written
        ledger.close()
    ledger = Ledger.open(seeded, DAEMON, at=START)
    close_open(ledger, WILD, event="interrupted", at=START + 10**7, close_reason="daemon_lost")
    ledger.close()
    assert follower.places(1) == [(WILD, 18)]
    assert follower.interrupt() == (ExitCode.INTERRUPTED, b"", b"")


@pytest.mark.parametrize(
    "filters",
    [
        ("-n", "100"),
        ("-n", "3"),
        ("-n", "0"),
        ("-S", "2026-11-30T00:53:20.004Z"),
        ("-n", "100", "--agent", "calm"),
        ("-n", "100", "--last"),
        ("-n", "2", "-g", "request_permission"),
        ("-n", "100", "-o", "csv", "--columns", "at,kind"),
    ],
    ids=" ".join,
)
def test_filters_and_forms_are_those_of_the_list(cli: Cli, seeded: str, filters: tuple[str, ...]) -> None:
    """With an end that has passed, following gives what the list gives, and ends."""
    usual = cli("events", "-L", seeded, "-q", "-U", PAST, *filters)
    found = cli("events", "-f", "-L", seeded, "-U", PAST, *filters)
    assert (found.exit_code, found.stdout, found.stderr) == (ExitCode.OK, usual.stdout, "")


def test_a_few_rows_come_first(cli: Cli, seeded_file: Path) -> None:
    """Without a word about it the ten newest rows stand before what comes; with nothing at all the header alone."""
    usual = cli("events", "-L", str(seeded_file), "-q", "-n", "10", "-U", PAST)
    assert cli("events", "-f", "-L", str(seeded_file), "-U", PAST).stdout == usual.stdout
    none = cli("events", "-f", "-L", str(seeded_file), "-U", PAST, "--agent", "none", "--require-match")
    assert (none.exit_code, none.stdout.count("\n")) == (ExitCode.NOTHING_MATCHED, 1)


def test_new_rows_are_filtered(seeded: str, follow: Any) -> None:
    """What comes is narrowed as the list is: by agent, by text and by columns."""
    follower = follow(seeded, "-n", "5", "-g", "request_permission", "--columns", "frame_seq,method")
    shown = follower.lines(6)
    assert shown[0] == "frame_seq\tmethod"
    ledger = Ledger.open(seeded, DAEMON, at=START)
    _record(ledger, plain_lines())
    ledger.close()
    asked = [f"{number}\tsession/request_permission" for number in (11, 12)]
    assert follower.lines(2) == asked
    assert follower.interrupt() == (ExitCode.INTERRUPTED, b"", b"")


@pytest.mark.parametrize("more", [("-o", "json"), ("-r",)], ids=" ".join)
def test_what_has_no_end_is_refused(cli: Cli, seeded_file: Path, more: tuple[str, ...]) -> None:
    """A document that needs an end, and an order that needs one, are wrong usage."""
    result = cli("events", "-f", "-L", str(seeded_file), *more)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")


def test_missing_ledger_is_told_at_once(cli: Cli, tmp_path: Path) -> None:
    """Only a ledger that was there is waited for."""
    assert cli("events", "-f", "-L", str(tmp_path / "none.db")).exit_code == ExitCode.NO_LEDGER


def test_reader_that_goes_away_ends_it_while_nothing_happens(seeded: str, follow: Any) -> None:
    """`| head -1` ends a follower that has nothing to write: no words, and the status a shell expects."""
    follower = follow(seeded, "-n", "1")
    follower.lines(2)
    follower.process.stdout.close()
    assert follower.process.wait(PATIENCE / 1000) == ExitCode.PIPE_CLOSED
    assert follower.process.stderr.read() == b""


def test_file_that_is_moved_is_waited_for(seeded_file: Path, follow: Any) -> None:
    """It says once that the ledger is gone, goes on where it was when it is back, and ends where another one is."""
    follower = follow(str(seeded_file), "-n", "1", "-o", "jsonl")
    follower.lines(1)
    shutil.move(seeded_file.parent, seeded_file.parent.with_name("away"))
    assert "is no longer at" in follower.lines(1, "stderr")[0]
    ledger = Ledger.open(f"sqlite:///{seeded_file.parent.with_name('away') / seeded_file.name}", DAEMON, at=START)
    written = _record(ledger, plain_lines())
    ledger.close()
    shutil.move(seeded_file.parent.with_name("away"), seeded_file.parent)
    assert follower.lines(1, "stderr") == ["-- the ledger can be read again --"]
    assert follower.places(len(written)) == written
    shutil.rmtree(seeded_file.parent)
    assert "is no longer at" in follower.lines(1, "stderr")[0]
    seeded_file.parent.mkdir()
    seed(f"sqlite:///{seeded_file}")
    assert follower.process.wait(PATIENCE / 1000) == ExitCode.FAILED
    assert follower.lines(1, "stderr")[0].startswith("error: another ledger has taken the place")


@ON_POSTGRES
def test_server_that_goes_is_waited_for(seeded: str, follow: Any) -> None:
    """A connection that breaks is told, made again, and nothing is shown twice or left out."""
    address, _, database = seeded.rpartition("/")
    host, _, port = address.rpartition(":")
    with Proxy(int(port)) as proxy:
        follower = follow(f"{host}:{proxy.port}/{database}", "-n", "1", "-o", "jsonl")
        follower.lines(1)
        for each in list(proxy._sockets):
            _cut(each)
        assert "trying again" in follower.lines(1, "stderr")[0]
        ledger = Ledger.open(seeded, DAEMON, at=START)
        written = _record(ledger, plain_lines())
        ledger.close()
        assert follower.places(len(written)) == written
        assert follower.lines(1, "stderr") == ["-- the ledger can be read again --"]
        assert follower.interrupt() == (ExitCode.INTERRUPTED, b"", b"")


def test_nothing_hostile_reaches_a_terminal_while_it_follows(seeded_file: Path, follow: Any) -> None:
    """Of all control characters only line ends arrive; what was meant to harm arrives as text."""
    main, side = pty.openpty()
    columns = "transport_id,event,close_reason,detail,session_update"
    follower = follow(str(seeded_file), "-n", "500", "--color", "never", "--columns", columns, stdout=side)
    os.close(side)
    ledger = Ledger.open(f"sqlite:///{seeded_file}", DAEMON, at=START)
    _record(ledger, wild_lines())
    ledger.close()
    received = b""
    while received.count(b"editor_ended") < 2:
        received += os.read(main, 65_536)
    assert follower.interrupt()[0] == ExitCode.INTERRUPTED
    os.close(main)
    text = received.decode().replace("\r\n", "\n")
    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert {character for character in text if unicodedata.category(character) in bad} == {"\n"}
    assert text.count("\\u001b[31mkind\\u202e") == 2
