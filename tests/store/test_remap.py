"""Connections whose client we were, mapped again from what is stored: the limits come from the transport's own row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.client_side import ClientLimits
from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, Anomaly, Decision, Overflow, TurnEnd
from acp_ledger.protocol.revisions import MAPPING_VERSION
from acp_ledger.store.chain import Sealed
from acp_ledger.store.numbers import Numbered, Record
from acp_ledger.store.recovery import recover
from acp_ledger.store.remap import Remapper
from acp_ledger.store.verify import verify
from tests.protocol.wire import chunk, ended, note, question, result, selected, update
from tests.protocol.wire import prompt as prompted
from tests.support.conversation import START, call
from tests.support.ledgers import DAEMON, reading, transport, writer
from tests.support.strategies import lines

if TYPE_CHECKING:
    from acp_ledger.protocol.records import Direction, Entry

TIGHT: Final = ClientLimits(update_bytes=220, update_count=9, response_bytes=12, response_segments=3)
UNSEALED: Final = Sealed(b"", b"", b"", None, b"", None)

Said = tuple["Direction", bytes, dict[str, Any]]


def row_of(limits: ClientLimits | None = TIGHT, mode: str = "client") -> dict[str, Any]:
    """A transport's row, as far as mapping again looks at it."""
    kept = {"line_bytes": 1_000, "parse_bytes": 400, **(limits._asdict() if limits else {})}
    return {"mode": mode, "limits": json.dumps(kept), "mapping_version": MAPPING_VERSION}


def observed(said: list[Said], limits: ClientLimits = TIGHT) -> list[Entry]:
    """The entries of those lines, a microsecond apart."""
    observer = Observer(parse_bytes=400, client=limits)
    entries = list(observer.event("opened", START))
    for direction, body, given_ in said:
        entries += observer.line(direction, body, START + observer.next_seq, **given_)
    entries += observer.event("eof", START + observer.next_seq, direction=TO_CLIENT)
    return [*entries, *observer.event("closed", START + observer.next_seq, close_reason="caller_left")]


def differences(entries: list[Entry], row: dict[str, Any]) -> list[Any]:
    """What mapping these entries again finds to differ."""
    again = Remapper(row)
    found = [
        difference
        for entry in entries
        for difference in again.check(
            Numbered(entry.record.frame_seq, (Record(entry.record, UNSEALED, entry.body),), entry.rows), erased=False
        )
    ]
    assert again.stopped is None
    return found


def our_lines() -> st.SearchStrategy[Said]:
    """What we say: requests under the next ids, and answers, some of them kept from the agent."""
    asked = st.sampled_from(
        [
            call(0, "initialize", protocolVersion=1),
            call(1, "session/new", cwd="/", mcpServers=[{"name": "m", "env": [{"name": "K", "value": "secret"}]}]),
            call(1, "session/load", sessionId="sess-1", cwd="/", mcpServers=[]),
            prompted(2),
            prompted(3),
            note("session/cancel", sessionId="sess-1"),
            selected(7, "yes"),
        ]
    )
    made = st.fixed_dictionaries(
        {
            "origin": st.sampled_from(["daemon", "policy", "operator", "peer"]),
            "delivery": st.sampled_from(["forward", "forward", "withhold"]),
            "claimed": st.sampled_from([None, "allow_once"]),
        }
    )
    return st.tuples(st.just(TO_AGENT), asked, made)


def agent_lines() -> st.SearchStrategy[Said]:
    """What an agent says: what it should, and whatever else."""
    said = st.sampled_from(
        [
            result(0, {"protocolVersion": 1}),
            result(1, {"sessionId": "sess-1"}),
            chunk("four"),
            chunk("", message_id="m"),
            chunk("nineteen characters"),
            b" " + chunk("x") + b"\r",
            update("tool_call", toolCallId="c", title="x" * 200),
            update("plan", entries=[]),
            note("session/update", sessionId="sess-1", update=7),
            note("session/request_permission", sessionId="sess-1"),
            question(7),
            ended(2),
            ended(3),
            ended("2"),
            b"junk",
            b"",
        ]
    )
    return st.tuples(st.just(TO_CLIENT), said | lines(), st.just({}))


@given(st.lists(agent_lines() | our_lines(), max_size=30))
def test_any_conversation_of_ours_maps_again(said: list[Said]) -> None:
    """Every row of such a connection follows from its lines and its limits, wherever calls fail and replies stop."""
    assert differences(observed(said), row_of()) == []


SAID: Final[list[Said]] = [
    (TO_AGENT, call(0, "initialize", protocolVersion=1), {"origin": "daemon"}),
    (TO_CLIENT, result(0, {"protocolVersion": 1}), {}),
    (TO_AGENT, call(1, "session/new", cwd="/", mcpServers=[]), {"origin": "daemon"}),
    (TO_CLIENT, result(1, {"sessionId": "sess-1"}), {}),
    (TO_AGENT, prompted(2), {"origin": "daemon"}),
    (TO_CLIENT, chunk("four"), {}),
    (TO_CLIENT, question(7), {}),
    (TO_AGENT, selected(7, "yes"), {"origin": "policy", "rule": "r", "delivery": "withhold"}),
    (TO_CLIENT, chunk("nineteen characters"), {}),
    (TO_AGENT, note("session/cancel", sessionId="sess-1"), {"origin": "daemon"}),
    (TO_CLIENT, ended(2, "cancelled"), {}),
    (TO_AGENT, prompted(3), {"origin": "daemon"}),
    (TO_CLIENT, question(8), {}),
    (TO_AGENT, selected(8, "no"), {"origin": "peer", "claimed": "allow_once"}),
    (TO_CLIENT, update("tool_call", toolCallId="c", title="x" * 200), {}),
    (TO_CLIENT, ended(3), {}),
]
"""A reply that overflows, and a call that an update past a limit ends."""


def test_conversation_holds_what_limits_bring_about() -> None:
    """What is mapped again below is no idle talk."""
    rows = [row for entry in observed(SAID) for row in entry.rows]
    assert [row.outcome for row in rows if isinstance(row, TurnEnd)] == ["cancelled", "protocol_error"]
    assert [row.kind for row in rows if isinstance(row, Overflow)] == ["response_bytes"]
    assert [row.class_ for row in rows if isinstance(row, Anomaly)] == ["oversize", "call_failed"]
    assert len([row for row in rows if isinstance(row, Decision)]) == 2


def test_limits_of_the_row_are_the_ones_mapped_by() -> None:
    """With other limits, in another mode or without any, the same lines give other rows."""
    entries = observed(SAID)
    assert differences(entries, row_of()) == []
    assert differences(entries, row_of(TIGHT._replace(response_bytes=1_000))) != []
    assert differences(entries, row_of(TIGHT._replace(update_bytes=1_000))) != []
    assert differences(entries, row_of(mode="relay")) != []
    assert differences(entries, row_of(None)) != []


def test_record_of_ours_that_breaks_off_anywhere_maps_again(ledger_url: str) -> None:
    """A daemon that dies in the middle of a call, or right behind its failure, leaves a record that proves itself."""
    entries = observed(SAID)
    limits = json.loads(row_of()["limits"])
    with writer(ledger_url) as ledger:
        for cut in range(1, len(entries)):
            ledger.commit([(transport(ledger, mode="client", limits=limits), entries[:cut])])
        assert len(recover(ledger, DAEMON.daemon_id, START + 60_000_000)) == len(entries) - 1
    with reading(ledger_url) as connection:
        report = verify(connection, full=True)
    assert not report.findings
    assert not report.not_checked
