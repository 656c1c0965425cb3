"""Lines that were withheld, and what was said in their place: mapped again alike, wherever the record breaks off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_ledger.daemon.own import error_line
from acp_ledger.policy import UNOFFERED_OPTION
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.permission import answer_line
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT
from acp_ledger.store.recovery import recover
from acp_ledger.store.verify import verify
from tests.support.conversation import OPENING, SESSION, START, answer, call, observed, question
from tests.support.ledgers import DAEMON, reading, tampered, transport, writer

if TYPE_CHECKING:
    from acp_ledger.protocol.records import Entry

TWICE = b'{"jsonrpc":"2.0","id":2,"result":{"stopReason":"refusal","stopReason":"end_turn"}}'
LATER = START + 60_000_000


def withheld() -> list[Entry]:
    """A turn in which a policy answers, replaces and a strict relay withholds the turn's own end."""
    observer = Observer()
    entries = [*observer.event("opened", START), *observed(observer, OPENING)]

    def say(direction: str, body: bytes, **given: str) -> None:
        entries.extend(observer.line(direction, body, START + observer.next_seq * 1000, **given))  # type: ignore[arg-type]  # words

    say(TO_AGENT, call(2, "session/prompt", sessionId=SESSION, prompt=[]))
    say(TO_CLIENT, question(0, "c1"), delivery="withhold")
    say(TO_AGENT, answer_line("0", "no"), origin="policy", rule="allow_tool_kinds=read")
    say(TO_CLIENT, question(1, "c2"))
    say(TO_AGENT, answer(1, "never-offered"), delivery="withhold")
    say(TO_AGENT, answer_line("1", None), origin="policy", rule=UNOFFERED_OPTION)
    say(TO_CLIENT, question(3, "c3"))
    say(TO_CLIENT, question(3, "c4"), delivery="withhold")
    say(TO_AGENT, error_line("null", "an id in use", "withheld"), origin="daemon")
    say(TO_CLIENT, TWICE, delivery="withhold")
    say(TO_AGENT, error_line("null", "a key twice", "withheld"), origin="daemon")
    say(TO_CLIENT, error_line("2", "a key twice", "withheld"), origin="daemon")
    return entries


def test_record_that_breaks_off_anywhere_maps_again(ledger_url: str) -> None:
    """A crash between a question and its answer, or between two lines of ours, leaves a record that proves itself."""
    entries = withheld()
    with writer(ledger_url) as ledger:
        for cut in range(1, len(entries) + 1):
            ledger.commit([(transport(ledger), entries[:cut])])
        assert len(recover(ledger, DAEMON.daemon_id, LATER)) == len(entries)
    with reading(ledger_url) as connection:
        report = verify(connection, full=True)
    assert not report.findings
    assert not report.not_checked


def test_changed_rule_is_found(ledger_url: str) -> None:
    """Which rule decided follows from no line, and is proven by its digest; what was withheld follows from the rest."""
    with writer(ledger_url) as ledger:
        ledger.commit([(transport(ledger), withheld())])
        recover(ledger, DAEMON.daemon_id, LATER)
    for change in (
        "UPDATE decisions SET rule = 'another' WHERE rule = 'allow_tool_kinds=read'",
        "UPDATE decisions SET decided_by = 'client' WHERE rule = 'allow_tool_kinds=read'",
        "UPDATE frames SET delivery = 'forward' WHERE delivery = 'withhold'",
        "UPDATE frames SET origin = 'peer' WHERE origin = 'policy'",
    ):
        with tampered(ledger_url, change) as connection:
            assert verify(connection, full=True).findings, change
