"""What is said in JSON on the daemon's socket, behind the greeting: lines of one object each.

``control``: one line each way. ``{"request": …}``, then ``{"ok": true, …}``, or ``{"ok": false, "error": …, "hint": …,
"status": …}``.

``client``: many lines, for the daemon is then the agent's client and whoever connected its *caller*. The caller says
``open`` first, and then one *call* after another, ``start`` and ``prompt``; it waits for the end of each before the
next. While a call runs the daemon sends *events*; three of them want a *reply* before anything goes on, if ``hears``
named them. These have a ``number``, which the reply repeats:

====================  =================================================================================================
the caller says       with
====================  =================================================================================================
``call: open``        ``epoch`` (or null), ``client`` (``name``, ``title``, ``version``), ``limits`` (by name, in bytes
                      or counts), ``policy`` (keys of the settings' ``[policy]``), ``mcp_servers``, ``hears`` (list of
                      events that want a reply: ``update``, ``question``, ``decision``)
``call: start``       ``load`` or ``resume``: the id of a session to go on with
``call: prompt``      ``blocks``: a list of content blocks
``call: cancel``      nothing; at any time, and nothing is answered: the prompt that runs ends as the agent tells it
``call: stop``        nothing; at any time: the agent's process group is ended at once, and no message sent first
``call: status``      nothing; between calls
``reply: EVENT``      ``number`` (the event's), ``error`` (why the call is to fail, or null); to a ``question`` also
                      ``answer``: null, or ``outcome``, ``option_id`` and ``option_kind``
====================  =================================================================================================

====================  =================================================================================================
the daemon says       with
====================  =================================================================================================
``event: opened``     ``transport_id``, ``epoch``, ``pid``: the agent runs
``event: refused``    ``error``, ``hint``, ``status``: it does not, and never will; the end
``event: started``    ``initialize`` (``protocol_version``, ``capabilities``, ``auth_methods``, ``agent_info``),
                      ``acp_session_id``, ``modes`` (``current``, ``available``; or null): the end of ``start``
``event: update``     ``update_sequence``, ``epoch``, ``acp_session_id``, ``kind``, ``text``, ``joined`` (whether its
                      text joined the reply), ``replay``, ``envelope`` (the line, trimmed); it is in the ledger
``event: question``   a request for permission, see below; ``outcome`` is ``pending``, ``envelope`` empty
``event: decision``   the same with its answer, in the ledger; the agent has not heard it yet
``event: done``       ``record``, ``agent_error``: the end of ``prompt``, whatever its outcome
``event: failed``     ``kind`` (one of ``FAILURES``), ``message``, ``hint``, ``agent_error`` (the agent's latest error
                      message, or null), ``record`` (as far as it goes, or null), ``initialize`` (of a ``start`` that
                      came so far, or null): the end of a call that failed
``event: ended``      ``kind``, ``message``, ``hint``: why there will be no more calls, where it was not the caller
``event: status``     ``reader``: ``limit``, ``storage``, ``buffered``, ``high_water``, ``rejected``, ``phase``,
                      ``terminal``
====================  =================================================================================================

A *request for permission* has ``epoch``, ``request`` (as ``ledgerctl decide`` names it), ``acp_session_id``,
``tool_call_id``, ``title``, ``tool_kind``, ``status``, ``options`` (each ``option_id``, ``name``, ``kind``),
``option_count``, ``outcome``, ``option_id``, ``option_kind``, ``decided_by``, ``rule`` and ``envelope``.

A *record* has ``text``, ``final_message``, ``outcome``, ``stop_reason``, ``acp_session_id``, ``transport_id``,
``epoch``, ``turn_id``, ``overflow`` (``kind``, ``admitted_bytes``, ``admitted_segments``,
``withheld_update_sequence``; or null), ``error`` (the sentence for people, or null), ``error_code``, ``steps``,
``decisions`` and ``not_recorded`` (how many, by kind).

The rule that must not be broken here: every reader is bounded and takes its bytes in any pieces; a field may be
missing, or be one that nobody here knows. The runner has no use for this module.
"""

from __future__ import annotations

import json
from typing import Any, Final

from acp_ledger.handshake import HandshakeError

CONTROL_LINE_BYTES: Final = 1 << 20
"""Bound of a control request or answer, without its newline."""

CLIENT_LINE_BYTES: Final = 512 << 20
"""Bound of a line between a caller and the daemon: the longest line of an agent, escaped, fits."""

REQUEST_STATUS: Final = "status"
REQUEST_SHUTDOWN: Final = "shutdown"
REQUEST_CANCEL: Final = "cancel"
"""What runs in a `session`, or in the newest one, of an `agent`."""
REQUEST_STOP: Final = "stop"
"""The agent of a `transport`, for good; the answer comes once it ended, or after `seconds`."""
REQUEST_PENDING: Final = "pending"
"""The questions that wait for an operator."""
REQUEST_DECIDE: Final = "decide"
"""Answer the question `question` with the option `option`, or with `cancelled` where that is null."""

UPDATE: Final = "update"
QUESTION: Final = "question"
DECISION: Final = "decision"

FAILURES: Final = (
    "usage",  # the call could not be made: wrong in itself, or out of turn
    "limit",  # a limit of ours
    "auth_required",  # the agent demands a login before it opens a session
    "agent_error",  # the agent answered `initialize` or `session/new` with an error
    "protocol_error",  # the agent sent what this call cannot go on with
    "stream_ended",
    "transport_failed",
    "stopped",  # the agent was stopped, by its caller, an operator, or with the daemon
    "observer",  # a callback of the caller's failed, or did not answer in time
    "ledger",  # the ledger cannot be written
)
"""The kinds of failure of a call."""


def encode(**fields: Any) -> bytes:
    """Write one object as it travels: a line of ASCII, whatever it holds."""
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


class ObjectReader:
    """Reads lines of one JSON object each from bytes in any pieces."""

    def __init__(self, limit: int = CLIENT_LINE_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Take some bytes; give the objects whose lines are whole now.

        Raises:
            HandshakeError: A line is over the limit, or no JSON object.
        """
        *lines, rest = data.split(b"\n")
        found = []
        for line in lines:
            self._buffer += line
            found.append(self._object())
            self._buffer.clear()
        self._buffer += rest
        self._bounded()
        return found

    def _object(self) -> dict[str, Any]:
        self._bounded()
        try:
            value = json.loads(self._buffer)
        except (ValueError, RecursionError) as failure:
            raise HandshakeError(f"a control line that is not JSON: {failure}") from failure
        if not isinstance(value, dict):
            raise HandshakeError("a control line that is not a JSON object")
        return value

    def _bounded(self) -> None:
        if len(self._buffer) > self._limit:
            raise HandshakeError(f"a control line over {self._limit} bytes")


class ControlReader:
    """Reads the one line of a control request or answer from bytes in any pieces."""

    def __init__(self, limit: int = CONTROL_LINE_BYTES) -> None:
        self._objects = ObjectReader(limit)

    def feed(self, data: bytes) -> dict[str, Any] | None:
        """Take some bytes; give the object once its line is whole, else None.

        Raises:
            HandshakeError: The line is over the limit, or no JSON object.
        """
        found = self._objects.feed(data)
        return found[0] if found else None


def encode_request(request: str, **fields: Any) -> bytes:
    """Write a control request, to be sent after a `PURPOSE_CONTROL` greeting."""
    return encode(request=request, **fields)


def encode_answer(**fields: Any) -> bytes:
    """Write the answer to a control request that was granted."""
    return encode(ok=True, **fields)


def encode_refusal(error: str, hint: str | None = None, status: int = 1) -> bytes:
    """Write the answer to a control request that was not: what happened, what mends it, and what to exit with."""
    return encode(ok=False, error=error, hint=hint, status=status)
