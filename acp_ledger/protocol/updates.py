"""What a `session/update` gives rise to.

What must not be broken here: every update is named, whatever is in it, and numbered, unless it is past a limit of ours;
a conversation that is told again never becomes a step, nor part of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from acp_ledger.protocol.envelope import identity, text_of
from acp_ledger.protocol.records import Delivery, Prompt, ToolCallLocation, ToolCallStep
from acp_ledger.protocol.v1 import (
    ENDED_STATUSES,
    STATE_KINDS,
    STATUSES,
    Fields,
    Prompted,
    ToolCall,
    chunk_of,
    fields_of,
)

if TYPE_CHECKING:
    from acp_ledger.protocol.connection import Connection
    from acp_ledger.protocol.draft import Draft
    from acp_ledger.protocol.sessions import SessionState
    from acp_ledger.protocol.transcript import Stream


def update(
    connection: Connection, draft: Draft, params: Fields, session: SessionState | None, delivery: Delivery
) -> None:
    """Number an update and read it.

    A withheld chunk joins no message: its text never reached anybody.
    """
    connection.updates += 1
    draft.update_sequence = connection.updates
    told(connection, draft, params, session, delivery)


def told(
    connection: Connection, draft: Draft, params: Fields, session: SessionState | None, delivery: Delivery
) -> None:
    """Name an update and add the rows it is evidence for, whether or not it has a number."""
    fields = fields_of(params, "update", draft.wrong)
    kind = text_of(fields, "sessionUpdate", draft.wrong)
    if kind is None:
        return
    draft.session_update = identity(kind)
    if session is not None and session.replays and kind not in STATE_KINDS:
        draft.phase = "replay"
        draft.turn_id = None
        return
    mapped = connection.reading.step_of(fields, draft.wrong)
    if type(mapped) is ToolCall and session is not None:
        tool_call_step(connection, draft, mapped, session, "update")
    elif type(mapped) is Prompted:
        _prompted(draft, mapped)
    stream = connection.reading.streams.get(kind)
    if stream is not None and session is not None and delivery == "forward":
        _join(connection, draft, fields, session, stream)


def tool_call_step(
    connection: Connection, draft: Draft, step: ToolCall, session: SessionState, source: Literal["update", "permission"]
) -> None:
    """Add a step of a tool call and the paths it names, and remember the call."""
    draft.observed = True
    number, turn_id = session.number, draft.turn_id
    draft.rows.append(
        ToolCallStep(
            draft.seq,
            draft.ordinal(ToolCallStep),
            draft.revision,
            number,
            turn_id,
            step.tool_call_id,
            source,
            step.status,
            step.status_raw,
            step.kind,
            step.name,
            step.title,
            step.lossy,
        )
    )
    for path, line, lossy in step.locations:
        draft.rows.append(
            ToolCallLocation(
                draft.seq,
                draft.ordinal(ToolCallLocation),
                draft.revision,
                number,
                turn_id,
                step.tool_call_id,
                path,
                line,
                lossy,
            )
        )
    ended = step.status_raw in ENDED_STATUSES if step.status_raw in STATUSES else None
    connection.calls.note(number, step.tool_call_id, step.title, ended=ended)


def _prompted(draft: Draft, mapped: Prompted) -> None:
    draft.observed = True
    draft.rows.append(
        Prompt(
            frame_seq=draft.seq,
            ordinal=draft.ordinal(Prompt),
            protocol_revision=draft.revision,
            session_id=draft.session_id,
            turn_id=draft.turn_id,
            source="chunk",
            detail=mapped.detail,
            block_kinds=None,
            lossy=mapped.lossy,
        )
    )


def _join(connection: Connection, draft: Draft, fields: Fields, session: SessionState, stream: Stream) -> None:
    message_id, text = chunk_of(fields, draft.wrong)
    ended = connection.transcript.chunk(session.number, stream, message_id, text, draft.turn_id, draft.seq)
    if ended is not None:
        connection.write_messages(draft, [ended])
