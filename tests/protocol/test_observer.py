"""A connection, followed from its first line to its last event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_ledger.protocol.observer import ANOMALY_CLASSES, Observer
from acp_ledger.protocol.records import (
    TO_AGENT,
    TO_CLIENT,
    Anomaly,
    Decision,
    DeliveryMark,
    Event,
    Frame,
    Gap,
    Message,
    PermissionOption,
    PermissionRequest,
    Prompt,
    Session,
    SessionOpening,
    ToolCallLocation,
    ToolCallStep,
    Turn,
    TurnEnd,
)
from tests.protocol.wire import (
    SESSION,
    Wire,
    call,
    chunk,
    ended,
    error,
    negotiated,
    note,
    offer,
    opened,
    prompt,
    prompted,
    question,
    result,
    selected,
    update,
)
from tests.support.strategies import lines

if TYPE_CHECKING:
    from acp_ledger.protocol.records import Direction, Entry, EventKind, Origin


def records(wire: Wire) -> list[Frame | Event]:
    """Every frame and event."""
    return [entry.record for entry in wire.entries]


class TestRevision:
    """Which revision the rows are stamped with."""

    def test_result_settles_what_comes_after(self) -> None:
        """Everything up to and including the result is unnegotiated, everything behind it carries the version."""
        wire = opened()
        stamped = [record.protocol_revision for record in records(wire)]
        assert stamped == ["acp/unnegotiated"] * 2 + ["acp/v1"] * 3
        assert wire.observer.revision == "acp/v1"

    def test_negotiated_names_both_ends(self) -> None:
        """The event behind the result tells the versions and who the two ends say they are."""
        wire = negotiated()
        event = wire.entries[2].record
        assert isinstance(event, Event)
        assert (event.event, event.requested_version, event.version) == ("negotiated", "1", "1")
        assert (event.client_name, event.client_version) == ("ed", "2")
        assert (event.agent_name, event.agent_version) == ("ag", "3")

    def test_answered_version_counts(self) -> None:
        """An editor that asks for 2 and hears 1 speaks version 1."""
        wire = Wire()
        wire.client(call(0, "initialize", protocolVersion=2))
        wire.agent(result(0, {"protocolVersion": 1}))
        assert wire.observer.revision == "acp/v1"

    @pytest.mark.parametrize("said", ["1", None, -1, 65536, 1.5, True, [1], {}, 10**30])
    def test_unreadable_version_settles_nothing(self, said: Any) -> None:
        """A result without a whole number for a version leaves the connection unnegotiated, and says so."""
        wire = negotiated(said)
        assert wire.observer.revision == "acp/unnegotiated"
        assert ("version_unreadable", None) in wire.anomalies()

    def test_refused_initialize_may_be_repeated(self) -> None:
        """An error settles nothing; the first success does."""
        wire = Wire()
        wire.client(call(0, "initialize", protocolVersion=9))
        wire.agent(error(0, -32022))
        wire.client(call(1, "initialize", protocolVersion=1))
        wire.agent(result(1, {"protocolVersion": 1}))
        assert wire.observer.revision == "acp/v1"
        assert wire.anomalies() == []

    def test_second_success_settles_nothing(self) -> None:
        """The version of a connection is settled once."""
        wire = negotiated()
        wire.client(call(1, "initialize", protocolVersion=2))
        wire.agent(result(1, {"protocolVersion": 2}))
        assert wire.observer.revision == "acp/v1"
        assert wire.anomalies() == [("initialize_repeated", None)]
        assert len(wire.last().rows) == 1

    def test_initialize_and_its_answer_are_observed(self) -> None:
        """The two frames that settle the reading are evidence."""
        wire = negotiated()
        assert [r.disposition for r in records(wire) if isinstance(r, Frame)] == ["observed", "observed"]

    @pytest.mark.parametrize("version", [0, 2, 7])
    def test_unmapped_version_is_kept_and_read_by_shape(self, version: int) -> None:
        """Updates are named and not read; prompts, questions and answers are."""
        wire = prompted(version)
        assert wire.agent(chunk("hello")).disposition == "not_recorded"
        frame = wire.agent(update("tool_call_update", toolCallId="c", status="completed"))
        assert (frame.session_update, frame.disposition) == ("tool_call_update", "not_recorded")
        wire.agent(question(0, "c", status="pending"))
        wire.client(selected(0, "yes"))
        wire.agent(result("p1", {"messageId": "m"}))
        assert [*wire.rows(ToolCallStep), *wire.rows(Message), *wire.rows(TurnEnd)] == []
        assert [row.effect for row in wire.rows(Decision)] == ["allow"]
        assert {record.protocol_revision for record in records(wire)[2:]} == {f"acp/v{version}"}
        assert ("version_unmapped", None) in wire.anomalies()

    def test_unmapped_version_ends_a_turn_that_says_how(self) -> None:
        """An agent that answers 2 and goes on in version 1 still tells its stop reasons."""
        wire = prompted(2)
        wire.agent(ended("p1"))
        wire.client(prompt("p2"))
        wire.agent(error("p2", -32603))
        assert [row.outcome for row in wire.rows(TurnEnd)] == ["completed", "failed"]

    def test_draft_question_is_read_by_shape(self) -> None:
        """A question of the draft names its call in a subject and has a title of its own."""
        wire = prompted(2)
        asked = {"type": "tool_call", "toolCall": {"toolCallId": "c", "kind": "edit"}}
        options = [offer("yes", "allow_once")]
        wire.agent(
            call(0, "session/request_permission", sessionId=SESSION, title="Edit?", subject=asked, options=options)
        )
        (row,) = wire.rows(PermissionRequest)
        assert (row.tool_call_id, row.title, row.tool_kind) == ("c", "Edit?", "edit")


class TestNumbers:
    """Numbers are dense, whatever arrives."""

    def test_frames_and_events_share_one_sequence(self) -> None:
        """From 1, without a hole, over both directions and over events."""
        wire = Wire()
        wire.event("opened")
        wire.client(call(0, "initialize", protocolVersion=1))
        wire.agent(result(0, {"protocolVersion": 1}))
        wire.event("exited", status=0)
        assert [record.frame_seq for record in records(wire)] == [1, 2, 3, 4, 5]
        assert wire.observer.next_seq == 6

    def test_updates_have_a_number_of_their_own(self) -> None:
        """Every update of the agent takes the next one, a malformed one too, over all sessions."""
        wire = opened()
        numbers = [
            wire.agent(chunk("a")).update_sequence,
            wire.agent(note("session/update", sessionId="other", update={"sessionUpdate": "plan"})).update_sequence,
            wire.agent(note("session/update")).update_sequence,
            wire.agent(note("_vendor/note", sessionId=SESSION)).update_sequence,
            wire.client(chunk("not the agent's to send")).update_sequence,
            wire.agent(chunk("b")).update_sequence,
        ]
        assert numbers == [1, 2, 3, None, None, 4]

    def test_ordinals_count_per_table(self) -> None:
        """Two rows of one table under one number are told apart by their ordinal."""
        wire = prompted()
        wire.agent(question(0, status="pending", locations=[{"path": "/a"}, {"path": "/b", "line": 3}]))
        assert [row.ordinal for row in wire.rows(PermissionOption)] == [0, 1]
        assert [(row.ordinal, row.path, row.line) for row in wire.rows(ToolCallLocation)] == [
            (0, "/a", None),
            (1, "/b", 3),
        ]


class TestFrames:
    """The columns of a frame."""

    def test_response_carries_its_request(self) -> None:
        """An answer names neither method nor session on the wire; its frame does."""
        wire = prompted()
        frame = wire.agent(ended("p1"))
        assert (frame.kind, frame.method, frame.session_id, frame.turn_id) == ("response", "session/prompt", 1, 1)
        assert frame.rpc_id == '"p1"'

    def test_id_is_the_raw_token(self) -> None:
        """A string id keeps its quotes, and an absent id is not a null one."""
        wire = negotiated()
        assert wire.client(call(1, "x")).rpc_id == "1"
        assert wire.client(call("1", "x")).rpc_id == '"1"'
        assert wire.client(call(None, "x")).rpc_id == "null"
        assert wire.client(note("x")).rpc_id is None

    @pytest.mark.parametrize(
        "line",
        [b"", b"  ", b"not json", b"42", b"null", b"[]", b'{"x":1}', b'{"id":1,"id":2,"method":"m"}', b"\xff\xfe"],
    )
    def test_opaque_line_is_one_entry(self, line: bytes) -> None:
        """What nobody can classify is kept, flagged, and moves nothing."""
        wire = prompted()
        frame = wire.agent(line)
        assert (frame.kind, frame.disposition, frame.session_id) == ("opaque", "not_recorded", None)
        assert (frame.method, frame.rpc_id, frame.turn_id) == (None, None, None)
        assert wire.last().body == line
        assert wire.rows(Anomaly)

    def test_unknown_methods_are_named(self) -> None:
        """Methods outside the protocol pass in both directions, with an underscore or without."""
        wire = prompted()
        for frame in (
            wire.agent(call(9, "craft/drainMidTurnQueue", sessionId=SESSION)),
            wire.agent(note("_auth/status_update")),
            wire.client(call("x", "session/set_model", sessionId=SESSION)),
        ):
            assert frame.disposition == "not_recorded"
        assert [frame.method for frame in records(wire)[6:] if isinstance(frame, Frame)] == [
            "craft/drainMidTurnQueue",
            "_auth/status_update",
            "session/set_model",
        ]
        assert wire.anomalies() == []

    @pytest.mark.parametrize(
        ("line", "field"),
        [
            (b'{"jsonrpc":"2.0","method":"session/update","params":[]}', "params"),
            (b'{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":"x"}', "params"),
            (b'{"jsonrpc":"2.0","id":"p1","error":"boom"}', "error"),
            (note("session/update", sessionId=7, update={}), "sessionId"),
            (note("session/update", sessionId=SESSION, update=[]), "update"),
            (update("agent_message_chunk", content="bare"), "content"),
        ],
    )
    def test_wrong_type_is_named(self, line: bytes, field: str) -> None:
        """A field of the wrong JSON type reads as absent, and the anomaly says which."""
        wire = prompted()
        wire.agent(line)
        assert [row.detail for row in wire.rows(Anomaly) if row.class_ == "wrong_type"] == [field]

    def test_params_of_a_vendor_may_be_a_list(self) -> None:
        """Nothing is read from them."""
        wire = prompted()
        wire.agent(b'{"jsonrpc":"2.0","method":"_vendor/note","params":[1]}')
        assert wire.anomalies() == []

    def test_secret_is_not_stored(self) -> None:
        """A line with a secret is stored without it, mapped from what is stored, with the length it came with."""
        wire = negotiated()
        servers = [{"name": "s", "command": "c", "args": [], "env": [{"name": "K", "value": "canary"}]}]
        line = call(1, "session/new", cwd="/src", mcpServers=servers)
        frame = wire.client(line)
        assert (frame.body_state, frame.byte_count) == ("redacted", len(line))
        body = wire.last().body
        assert body is not None
        assert b"canary" not in body

    def test_stored_line_is_taken_as_it_is(self) -> None:
        """The verifier feeds the body with its state and length, and gets the same entry."""
        wire = negotiated()
        servers = [{"env": [{"name": "K", "value": "canary"}]}]
        wire.client(call(1, "session/new", cwd="/src", mcpServers=servers))
        first = wire.last()
        again = negotiated()
        assert first.body is not None
        assert isinstance(first.record, Frame)
        again.client(first.body, byte_count=first.record.byte_count, body_state="redacted")
        assert again.last() == first

    def test_oversize_line_leaves_its_length_and_digest(self) -> None:
        """A line past the limit has no body; what was read of it is named."""
        observer = Observer()
        (entry,) = observer.oversize(TO_CLIENT, 5, length=99, prefix_digest="sha256:ab")
        assert isinstance(entry.record, Frame)
        assert (entry.record.byte_count, entry.record.body_state, entry.body) == (99, "absent", None)
        (row,) = entry.rows
        assert isinstance(row, Anomaly)
        assert (row.class_, row.detail) == ("oversize", "sha256:ab")

    def test_unfinished_line_says_so(self) -> None:
        """A last line without its newline is marked, and read like any other."""
        wire = prompted()
        assert wire.agent(ended("p1"), terminated=False).terminated is False
        assert len(wire.rows(TurnEnd)) == 1

    def test_line_too_big_to_parse_is_still_placed(self) -> None:
        """A big update keeps its number, session and kind; a big answer ends its turn."""
        wire = prompted(parse_bytes=200)
        frame = wire.agent(update("tool_call_update", toolCallId="c", rawOutput="x" * 500))
        assert (frame.session_update, frame.session_id, frame.update_sequence) == ("tool_call_update", 1, 1)
        assert [row.tool_call_id for row in wire.rows(ToolCallStep)] == ["c"]
        wire.agent(result("p1", {"stopReason": "end_turn", "_meta": "x" * 500}))
        assert [row.outcome for row in wire.rows(TurnEnd)] == ["completed"]
        assert wire.anomalies() == [("unparsed", None)] * 2

    def test_offers_of_a_line_too_big_are_not_known(self) -> None:
        """Nobody can say that an option was never offered when the offer was not read."""
        wire = prompted(parse_bytes=200)
        wire.agent(question(0, rawInput="x" * 500))
        wire.client(selected(0, "yes"))
        (row,) = wire.rows(Decision)
        assert (row.outcome, row.option_id, row.option_kind, row.offered) == ("selected", "yes", None, None)
        assert row.effect == "unknown"


class TestSessions:
    """Sessions, their openings and their numbers."""

    def test_new_session_is_opened_by_its_answer(self) -> None:
        """The opening tells where, with which modes, and which request asked for it."""
        wire = negotiated()
        wire.client(call(1, "session/new", cwd="/src", mcpServers=[]))
        modes = {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "auto"}]}
        frame = wire.agent(result(1, {"sessionId": "s", "modes": modes}))
        assert (frame.session_id, frame.phase, frame.disposition) == (1, "setup", "observed")
        (session,) = wire.rows(Session)
        assert (session.session_id, session.acp_session_id) == (1, "s")
        (row,) = wire.rows(SessionOpening)
        assert (row.origin, row.request_frame, row.cwd) == ("new", 4, "/src")
        assert (row.current_mode, row.modes) == ("ask", '["ask","auto"]')

    def test_update_before_the_answer_is_the_first_sight(self) -> None:
        """An agent may publish commands before it answers `session/new`; the session has one row."""
        wire = negotiated()
        wire.client(call(1, "session/new", cwd="/src", mcpServers=[]))
        assert wire.agent(update("available_commands_update", "s")).phase == "setup"
        wire.agent(result(1, {"sessionId": "s"}))
        assert [(row.frame_seq, row.session_id) for row in wire.rows(Session)] == [(5, 1)]
        assert [row.session_id for row in wire.rows(SessionOpening)] == [1]
        assert wire.agent(update("usage_update", "s")).phase == "between"

    @pytest.mark.parametrize("method", ["load", "resume"])
    def test_old_session_is_opened_by_the_id_that_was_asked_for(self, method: str) -> None:
        """A null result means success."""
        wire = negotiated()
        wire.client(call(1, f"session/{method}", sessionId="s", cwd="/src", mcpServers=[]))
        wire.agent(result(1, None))
        assert [(row.origin, row.session_id) for row in wire.rows(SessionOpening)] == [(method, 1)]

    def test_fork_names_its_parent(self) -> None:
        """A forked session is a new one, and remembers the id it came from."""
        wire = opened()
        wire.client(call(1, "session/fork", sessionId=SESSION, cwd="/src"))
        wire.agent(result(1, {"sessionId": "child"}))
        row = wire.rows(SessionOpening)[-1]
        assert (row.origin, row.session_id, row.parent_acp_session_id) == ("fork", 2, SESSION)

    def test_failed_opening_opens_nothing(self) -> None:
        """An error is no opening, and the connection is still being set up."""
        wire = negotiated()
        wire.client(call(1, "session/new", cwd="/src", mcpServers=[]))
        wire.agent(error(1, -32000))
        assert wire.rows(SessionOpening) == []
        assert wire.client(note("x")).phase == "setup"

    def test_two_sessions_do_not_mix(self) -> None:
        """Turns, steps and messages of two sessions on one connection keep apart."""
        wire = opened()
        wire.client(call(1, "session/new", cwd="/src", mcpServers=[]))
        wire.agent(result(1, {"sessionId": "two"}))
        wire.client(prompt("a"))
        wire.client(prompt("b", "two"))
        wire.agent(chunk("on", session=SESSION))
        wire.agent(chunk("zw", session="two"))
        wire.agent(chunk("e", session=SESSION))
        wire.agent(chunk("ei", session="two"))
        wire.agent(ended("b"))
        wire.agent(ended("a"))
        assert [(row.session_id, row.turn_id, row.text) for row in wire.rows(Message)] == [
            (2, 2, "zwei"),
            (1, 1, "one"),
        ]
        assert [(row.turn_id, row.text_bytes) for row in wire.rows(TurnEnd)] == [(2, 4), (1, 3)]

    def test_session_id_is_kept_by_identity(self) -> None:
        """An id that cannot be kept is known by its digest, everywhere the same."""
        wire = negotiated()
        first = wire.agent(update("plan", "s\ud800"))
        second = wire.agent(update("plan", "s\ud800"))
        assert first.session_id == second.session_id == 1
        assert wire.rows(Session)[0].acp_session_id.startswith("sha256:")
        assert wire.agent(update("plan", wire.rows(Session)[0].acp_session_id)).session_id == 2

    def test_missing_session_is_told(self) -> None:
        """A step needs the session it belongs to; a prompt without one is recorded, without a turn."""
        wire = negotiated()
        wire.agent(note("session/update", update={"sessionUpdate": "tool_call", "toolCallId": "c"}))
        wire.client(call(1, "session/prompt", prompt=[]))
        assert wire.anomalies() == [("missing_session", None)] * 2
        assert [*wire.rows(ToolCallStep), *wire.rows(Turn)] == []
        assert [(row.session_id, row.turn_id) for row in wire.rows(Prompt)] == [(None, None)]


class TestReplay:
    """A conversation that is told again."""

    @pytest.mark.parametrize(
        ("kind", "phase"),
        [
            ("user_message_chunk", "replay"),
            ("agent_message_chunk", "replay"),
            ("agent_thought_chunk", "replay"),
            ("tool_call", "replay"),
            ("tool_call_update", "replay"),
            ("plan", "replay"),
            ("_vendor_kind", "replay"),
            ("available_commands_update", "between"),
            ("current_mode_update", "between"),
            ("config_option_update", "between"),
            ("session_info_update", "between"),
            ("usage_update", "between"),
            ("notice", "between"),
        ],
    )
    def test_load_replays_conversation_and_never_state(self, kind: str, phase: str) -> None:
        """Between a load and its answer conversation is replay; what tells how things stand is not."""
        wire = opened()
        wire.client(call(1, "session/load", sessionId="old", cwd="/src", mcpServers=[]))
        told = update(kind, "old", toolCallId="c", content={"type": "text", "text": "then"})
        frame = wire.agent(told)
        assert (frame.phase, frame.turn_id, frame.disposition) == (phase, None, "not_recorded")
        assert wire.agent(update(kind)).phase == "between"
        wire.agent(result(1, None))
        assert wire.agent(told).phase == "between"

    def test_replayed_step_is_none(self) -> None:
        """A replayed call, prompt or text is neither a step, nor a prompt, nor part of a message."""
        wire = opened()
        wire.client(call(1, "session/load", sessionId="old", cwd="/src", mcpServers=[]))
        wire.agent(update("user_message_chunk", "old", content={"type": "text", "text": "then"}))
        wire.agent(update("tool_call", "old", toolCallId="c", title="T", status="completed"))
        wire.agent(chunk("then", session="old"))
        wire.agent(result(1, None))
        wire.agent(chunk("now", session="old"))
        wire.event("closed")
        assert [*wire.rows(ToolCallStep), *wire.rows(Prompt)] == []
        assert [row.text for row in wire.rows(Message)] == ["now"]

    def test_failed_load_ends_its_window(self) -> None:
        """A load that fails in the middle has replayed what it has replayed."""
        wire = negotiated()
        wire.client(call(1, "session/load", sessionId="s", cwd="/src", mcpServers=[]))
        assert wire.agent(chunk("a", session="s")).phase == "replay"
        wire.agent(error(1, -32002))
        assert wire.agent(chunk("b", session="s")).phase == "setup"

    def test_load_that_was_withheld_replays_nothing(self) -> None:
        """Only a load that reached the agent opens a window."""
        wire = negotiated()
        line = call(1, "session/load", sessionId="s", cwd="/src", mcpServers=[])
        wire.client(line, delivery="withhold")
        assert wire.agent(chunk("a", session="s")).phase == "setup"

    def test_fork_replays_for_a_session_not_yet_known(self) -> None:
        """What a fork tells of its new session is old; what the parent goes on telling is not."""
        wire = opened()
        wire.client(call(1, "session/fork", sessionId=SESSION, cwd="/src"))
        assert wire.agent(chunk("old", session="child")).phase == "replay"
        assert wire.agent(chunk("new")).phase == "between"
        wire.agent(result(1, {"sessionId": "child"}))
        assert wire.agent(chunk("new", session="child")).phase == "between"

    def test_each_fork_ends_its_own_window(self) -> None:
        """Of two forks the one that was answered goes on live, the other still tells what was."""
        wire = opened()
        wire.client(call(1, "session/fork", sessionId=SESSION, cwd="/src"))
        wire.client(call(2, "session/fork", sessionId=SESSION, cwd="/src"))
        assert [wire.agent(chunk("old", session=name)).phase for name in ("a", "b")] == ["replay", "replay"]
        wire.agent(result(1, {"sessionId": "a"}))
        assert [wire.agent(chunk("x", session=name)).phase for name in ("a", "b")] == ["between", "replay"]

    def test_failed_fork_ends_its_window(self) -> None:
        """The window of a fork that fails closes with its answer."""
        wire = opened()
        wire.client(call(1, "session/fork", sessionId=SESSION, cwd="/src"))
        assert wire.agent(chunk("old", session="child")).phase == "replay"
        wire.agent(error(1, -32603))
        assert wire.agent(chunk("new", session="child")).phase == "between"

    def test_resume_replays_nothing(self) -> None:
        """A resumed session goes on where it was."""
        wire = negotiated()
        wire.client(call(1, "session/resume", sessionId="s", cwd="/src"))
        assert wire.agent(chunk("a", session="s")).phase == "setup"

    def test_question_inside_a_load_is_live(self) -> None:
        """A question is never told again: whoever asks one wants an answer."""
        wire = negotiated()
        wire.client(call(1, "session/load", sessionId="s", cwd="/src", mcpServers=[]))
        assert wire.agent(question(0, session="s")).phase == "setup"
        assert len(wire.rows(PermissionRequest)) == 1


class TestOtherRows:
    """Rows that are handed in, and requests that wait."""

    @pytest.mark.parametrize(("origin", "told"), [("peer", ["orphan_response"]), ("daemon", [])])
    def test_error_of_ours_without_an_id_is_no_orphan(self, origin: Origin, told: list[str]) -> None:
        """An answer under no id is a stranger's; one of our own says what was withheld, and nothing is amiss."""
        line = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"withheld"}}'
        [entry] = Observer().line(TO_AGENT, line, 1, origin=origin)
        assert [row.class_ for row in entry.rows if isinstance(row, Anomaly)] == told

    def test_given_rows_take_the_number_of_their_entry(self) -> None:
        """Delivery marks and gaps are stored under the entry they came with, whatever number they had."""
        wire = opened()
        mark = DeliveryMark(0, 9, "acp/none", TO_CLIENT, 4)
        wire.agent(chunk("a"), marks=(mark, mark))
        assert wire.rows(DeliveryMark) == [
            DeliveryMark(6, 0, "acp/v1", TO_CLIENT, 4),
            DeliveryMark(6, 1, "acp/v1", TO_CLIENT, 4),
        ]
        gap = Gap(0, 0, "acp/none", "closed", 1, 2, 3, None)
        wire.event("gap", marks=(gap,))
        assert wire.rows(Gap) == [gap._replace(frame_seq=7, protocol_revision="acp/v1")]

    def test_words_no_database_takes_are_replaced_in_an_event(self) -> None:
        """A file's name or a stderr in bytes that are no text does not stop the record of how an agent ended."""
        wire = Wire()
        wire.event("exited", status=1, stderr_tail="caf\udce9\0")
        exited = records(wire)[-1]
        assert isinstance(exited, Event)
        assert exited.stderr_tail == "caf\ufffd\ufffd"

    def test_clock_step_is_an_anomaly(self) -> None:
        """A jump of the clock is something an auditor must know."""
        wire = Wire()
        wire.event("clock_step", detail="-3600 s")
        assert wire.anomalies() == [("clock_step", None)]

    def test_waiting_requests_are_listed_by_direction(self) -> None:
        """The daemon can answer what waits: the raw id, the method, and the frame it was asked in."""
        wire = prompted()
        wire.agent(question("p1"))
        wire.agent(question(0))
        wire.client(call("p2", "session/set_mode", sessionId=SESSION))
        assert [tuple(one) for one in wire.observer.open_requests(TO_AGENT)] == [
            ('"p1"', "session/prompt", 6),
            ('"p2"', "session/set_mode", 9),
        ]
        assert [one.id_token for one in wire.observer.open_requests(TO_CLIENT)] == ['"p1"', "0"]
        wire.client(selected("p1", "yes"))
        assert [one.id_token for one in wire.observer.open_requests(TO_CLIENT)] == ["0"]
        assert len(wire.observer.open_requests(TO_AGENT)) == 2

    def test_request_without_an_id_is_told(self) -> None:
        """Nothing can answer it, so nothing is opened by it."""
        wire = opened()
        wire.client(note("session/prompt", sessionId=SESSION, prompt=[]))
        wire.agent(note("fs/read_text_file", sessionId=SESSION, path="/a"))
        assert wire.anomalies() == [("missing_id", None)] * 2
        assert wire.rows(Turn) == []

    def test_notification_with_an_id_is_told(self) -> None:
        """An update that asks for an answer is no update."""
        wire = opened()
        frame = wire.agent(call(4, "session/update", sessionId=SESSION, update={"sessionUpdate": "plan"}))
        assert (frame.update_sequence, frame.session_update) == (None, None)
        assert wire.anomalies() == [("unexpected_id", None)]


def plausible() -> st.SearchStrategy[bytes]:
    """Lines of a conversation, in no order that makes sense."""
    number = st.integers(0, 3)
    session = st.sampled_from([SESSION, "two"])
    return st.one_of(
        number.map(lambda id_: call(id_, "initialize", protocolVersion=1)),
        st.tuples(number, st.sampled_from([1, 2, "x"])).map(lambda two: result(two[0], {"protocolVersion": two[1]})),
        st.tuples(number, st.sampled_from(["new", "load", "resume", "fork"]), session).map(
            lambda three: call(three[0], f"session/{three[1]}", sessionId=three[2], cwd="/")
        ),
        st.tuples(number, session).map(lambda two: result(two[0], {"sessionId": two[1]})),
        st.tuples(number, session).map(lambda two: prompt(*two)),
        st.tuples(number, session).map(lambda two: question(two[0], "c", two[1], title="T", status="pending")),
        number.map(ended),
        number.map(lambda id_: selected(id_, "yes")),
        number.map(lambda id_: error(id_, -32800)),
        number.map(lambda id_: note("$/cancel_request", requestId=id_)),
        st.tuples(number, st.just("/a")).map(lambda two: call(two[0], "fs/read_text_file", path=two[1])),
        st.tuples(session, st.sampled_from(["a", None])).map(lambda two: chunk("x", session=two[0], message_id=two[1])),
        session.map(lambda name: update("tool_call", name, toolCallId="c", title="T")),
        session.map(lambda name: update("user_message_chunk", name, title=1)),
    )


class TestAnything:
    """Whatever arrives, in whatever order."""

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_lines_give_dense_numbers_and_the_same_rows_again(self, data: st.DataObject) -> None:
        """Nothing raises, no number is skipped, every class is documented, and the stored bytes give the same rows."""
        directions: st.SearchStrategy[Direction] = st.sampled_from([TO_AGENT, TO_CLIENT])
        step = st.tuples(directions, plausible() | lines(), st.sampled_from(["peer", "peer", "daemon", "policy"]))
        kinds: st.SearchStrategy[EventKind] = st.sampled_from(["eof", "read_error", "closed", "interrupted"])
        wire = Wire()
        for direction, line, origin in data.draw(st.lists(step, max_size=20)):
            wire.line(direction, line, origin=origin, delivery=data.draw(st.sampled_from(["forward", "withhold"])))
        for kind in data.draw(st.lists(kinds, max_size=3)):
            wire.event(kind, direction=TO_CLIENT)
        wire.client(call(1, "after"))
        assert [entry.record.frame_seq for entry in wire.entries] == list(range(1, len(wire.entries) + 1))
        assert {row.class_ for row in wire.rows(Anomaly)} <= set(ANOMALY_CLASSES)
        assert again(wire.entries) == wire.entries


def again(entries: list[Entry]) -> list[Entry]:
    """The entries that the stored bytes and events give."""
    observer = Observer()
    made: list[Entry] = []
    for entry in entries:
        record = entry.record
        if isinstance(record, Event):
            if record.event != "negotiated":
                fields = record._asdict()
                del fields["frame_seq"], fields["protocol_revision"]
                made.extend(observer.event(fields.pop("event"), fields.pop("at"), **fields))
            continue
        assert entry.body is not None
        made.extend(
            observer.line(
                record.direction,
                entry.body,
                record.received_at,
                terminated=record.terminated,
                origin=record.origin,
                delivery=record.delivery,
                byte_count=record.byte_count,
                body_state=record.body_state,
            )
        )
    return made


def test_memory_stays_flat_over_many_updates() -> None:
    """Ever new calls, sessions, ids and messages leave no more behind than the documented bounds."""
    observer = Observer()
    sizes = []
    for number in range(4_800):
        for line in (
            update("tool_call", toolCallId=f"c{number}", title=f"t{number}"),
            chunk("x", message_id=f"m{number}"),
            update("plan", f"s{number}"),
        ):
            observer.line(TO_CLIENT, line, 1)
        observer.line(TO_AGENT, result(number, {}), 1)
        observer.line(TO_CLIENT, call(number, "_never/answered"), 1)
        if number in (4_299, 4_799):
            sizes.append(held(observer))
    assert sizes[0] == sizes[1]


def held(thing: object, seen: set[int] | None = None) -> int:
    """How many objects hang from one."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type | str | int | bytes | None):
        return 0
    seen.add(id(thing))
    inner: list[object] = []
    if isinstance(thing, dict):
        inner = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        inner = list(thing)
    elif type(thing).__module__.startswith("acp_ledger"):
        slots = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
        inner = [getattr(thing, name, None) for name in [*slots, *getattr(thing, "__dict__", {})]]
    return 1 + sum(held(each, seen) for each in inner)
