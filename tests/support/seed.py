"""Entries made by hand, so that the store is tested without the mapping that feeds it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from acp_ledger.protocol.records import (
    TABLE_OF,
    TO_AGENT,
    TO_CLIENT,
    Anomaly,
    Decision,
    Entry,
    Event,
    Frame,
    Message,
    PermissionOption,
    PermissionRequest,
    Prompt,
    Session,
    SessionOpening,
    ToolCallStep,
    Turn,
    TurnEnd,
)
from acp_ledger.store.ledger import Daemon, NewTransport

if TYPE_CHECKING:
    from acp_ledger.protocol.records import Derived, Direction, EventKind, Phase

START: Final = 1_796_000_000_000_000
"""2026-11-30T00:53:20Z in microseconds; number N is read N seconds later."""

DAEMON: Final = Daemon("daemon-1", "laptop", 1000)


def new_transport(opened_at: int = START, **changes: Any) -> NewTransport:
    """A transport about to be opened."""
    columns: dict[str, Any] = {
        "opened_at": opened_at,
        "mode": "relay",
        "agent": "agent-x",
        "argv": ["npx", "agent-x"],
        "cwd": "/home/mia",
        "mapping_version": "1+test",
        "env_names": ["PATH"],
        "label": {"team": "core"},
        "peer_uid": 1000,
        "os_user": "mia",
        "limits": {"line_bytes": 1024},
    }
    return NewTransport(**{**columns, **changes})


class Seed:
    """Numbers the entries of one transport, and their rows."""

    def __init__(self, revision: str = "acp/v1", first: int = 1) -> None:
        self.revision = revision
        self.next = first

    def _rows(self, number: int, rows: tuple[Derived, ...]) -> tuple[Derived, ...]:
        seen: Counter[str] = Counter()
        numbered = []
        for row in rows:
            table = TABLE_OF[type(row)]
            changes: Any = {"frame_seq": number, "ordinal": seen[table], "protocol_revision": self.revision}
            numbered.append(row._replace(**changes))
            seen[table] += 1
        return tuple(numbered)

    def event(self, kind: EventKind, *rows: Derived, **fields: Any) -> Entry:
        """An event with its rows."""
        number = self.next
        self.next += 1
        return Entry(
            Event(number, self.revision, kind, START + number * 1_000_000, **fields), self._rows(number, rows), None
        )

    def frame(
        self,
        direction: Direction,
        *rows: Derived,
        body: bytes | None = b'{"jsonrpc":"2.0"}',
        **fields: Any,
    ) -> Entry:
        """A frame with its rows."""
        number = self.next
        self.next += 1
        columns: dict[str, Any] = {
            "frame_seq": number,
            "protocol_revision": self.revision,
            "session_id": 1,
            "turn_id": None,
            "direction": direction,
            "origin": "peer",
            "delivery": "forward",
            "kind": "notification",
            "method": "session/update",
            "rpc_id": None,
            "phase": "turn",
            "update_sequence": None,
            "session_update": None,
            "disposition": "observed" if rows else "not_recorded",
            "received_at": START + number * 1_000_000,
            "byte_count": 0 if body is None else len(body),
            "terminated": True,
            "body_state": "absent" if body is None else "exact",
        }
        return Entry(Frame(**{**columns, **fields}), self._rows(number, rows), body)

    def update(self, word: str, *rows: Derived, turn: int | None = 1, phase: Phase = "turn", **fields: Any) -> Entry:
        """A session update."""
        return self.frame(TO_CLIENT, *rows, session_update=word, turn_id=turn, phase=phase, **fields)


def session(session_id: int = 1, name: str = "sess-1") -> Session:
    """A conversation."""
    return Session(0, 0, "", session_id, name)


def opening(origin: Any = "new", session_id: int = 1) -> SessionOpening:
    """An answered opening."""
    return SessionOpening(0, 0, "", session_id, origin, 6, None, "/home/mia/src", None, None, lossy=False)


def turn(turn_id: int, first_frame: int, session_id: int = 1) -> Turn:
    """A turn that a prompt opened."""
    return Turn(0, 0, "", session_id, turn_id, turn_id, first_frame, first_frame)


def prompt(turn_id: int) -> Prompt:
    """What was asked."""
    return Prompt(0, 0, "", 1, turn_id, "request", None, '["text"]', lossy=False)


def step(call: str, raw: str | None, turn_id: int | None = 1, **changes: Any) -> ToolCallStep:
    """A step of a call."""
    status = raw if raw in {"pending", "in_progress", "completed", "failed"} else "pending"
    row = ToolCallStep(0, 0, "", 1, turn_id, call, "update", status, raw, None, None, None, lossy=False)
    return row._replace(**changes)


def question(call: str | None, turn_id: int = 1) -> PermissionRequest:
    """A question about a call."""
    join: Any = "none" if call is None else "exact"
    return PermissionRequest(0, 0, "", 1, turn_id, call, call, join, "Run ls", "execute", None, 2, lossy=False)


def option(option_id: str, kind: str | None, turn_id: int = 1) -> PermissionOption:
    """An answer on offer."""
    return PermissionOption(0, 0, "", 1, turn_id, option_id, option_id.title(), kind, lossy=False)


def decision(request_frame: int, effect: Any = "reject", at: int = START, turn_id: int = 1) -> Decision:
    """The editor's answer."""
    return Decision(
        frame_seq=0,
        ordinal=0,
        protocol_revision="",
        session_id=1,
        turn_id=turn_id,
        request_frame=request_frame,
        outcome="selected",
        outcome_raw="selected",
        option_id="no",
        option_kind=f"{effect}_once",
        option_kind_claimed=None,
        offered=True,
        effect=effect,
        decided_by="client",
        rule=None,
        identity=None,
        detail="Run ls",
        asked_at=START + request_frame * 1_000_000,
        decided_at=at,
        lossy=False,
    )


def turn_end(turn_id: int, outcome: Any = "completed", stop: str | None = "end_turn") -> TurnEnd:
    """The end of a turn."""
    return TurnEnd(0, 0, "", 1, turn_id, stop, outcome, None, None, 5, lossy=False)


def message(turn_id: int, text: str, frame: int) -> Message:
    """A message of the agent's."""
    size = len(text.encode())
    return Message(
        0, 0, "", 1, turn_id, "agent", None, 1, cleared=False, truncated=False, text=text, text_bytes=size,
        first_frame=frame, last_frame=frame, lossy=False,
    )  # fmt: skip


def anomaly(class_: str, session_id: int | None = None) -> Anomaly:
    """A thing an auditor must know."""
    return Anomaly(0, 0, "", session_id, None, class_, "words", None)


def opening_entries(seed: Seed, origin: Any = "new", name: str = "sess-1") -> list[Entry]:
    """Numbers 1 to 7: a transport opens, negotiates, and opens a session."""
    unnegotiated: dict[str, Any] = {"session_id": None, "phase": "setup", "protocol_revision": "acp/unnegotiated"}
    negotiated: dict[str, Any] = {"version": "1", "client_name": "editor", "client_version": "9", "agent_version": "2"}
    rows = (session(1, name), opening(origin))
    return [
        seed.event("opened"),
        seed.event("spawned", pid=4242, start_time=77, boot_id="boot-a", pgid=4242, cgroup="/user.slice"),
        seed.frame(TO_AGENT, kind="request", method="initialize", rpc_id="0", disposition="observed", **unnegotiated),
        seed.frame(TO_CLIENT, kind="response", method="initialize", rpc_id="0", disposition="observed", **unnegotiated),
        seed.event("negotiated", **negotiated),
        seed.frame(TO_AGENT, kind="request", method="session/new", rpc_id="1", phase="setup", disposition="observed"),
        seed.frame(TO_CLIENT, *rows, kind="response", method=f"session/{origin}", rpc_id="1", phase="setup"),
    ]


def turn_entries(seed: Seed) -> list[Entry]:
    """Numbers 8 to 15: a turn with a call that was asked about and rejected, and a text."""
    answer_at = START + 12_500_000
    return [
        seed.frame(TO_AGENT, turn(1, 8), prompt(1), kind="request", method="session/prompt", rpc_id="2", turn_id=1),
        seed.update("tool_call", step("call-1", None, kind="execute", title="Run ls")),
        seed.frame(
            TO_CLIENT,
            question("call-1"),
            option("yes", "allow_once"),
            option("no", "reject_once"),
            kind="request",
            method="session/request_permission",
            rpc_id="7",
            turn_id=1,
        ),
        seed.frame(
            TO_AGENT,
            decision(10, at=answer_at),
            kind="response",
            method="session/request_permission",
            rpc_id="7",
            turn_id=1,
        ),
        seed.update("tool_call_update", step("call-1", "failed")),
        seed.update("agent_message_chunk"),
        seed.update("weird_update"),
        seed.frame(
            TO_CLIENT,
            turn_end(1),
            message(1, "Done.", 13),
            kind="response",
            method="session/prompt",
            rpc_id="2",
            turn_id=1,
        ),
    ]


def open_ends(seed: Seed) -> list[Entry]:
    """Numbers 16 and 17: a second turn, and a question nobody has answered."""
    return [
        seed.frame(TO_AGENT, turn(2, 16), prompt(2), kind="request", method="session/prompt", rpc_id="3", turn_id=2),
        seed.frame(
            TO_CLIENT,
            question(None, 2),
            option("yes", "allow_once", 2),
            kind="request",
            method="session/request_permission",
            rpc_id="8",
            turn_id=2,
        ),
    ]


def conversation(seed: Seed | None = None) -> list[Entry]:
    """All of it: 17 entries with one of nearly everything, and open ends."""
    seed = seed or Seed()
    return [*opening_entries(seed), *turn_entries(seed), *open_ends(seed)]
