"""How a turn ended, read once for every mode: the outcome kept in the ledger and the words told to people.

What must not be broken here: `end_turn` alone is a completed turn. A refusal, a limit, a cancellation or a word nobody
knows is never told as one, and nothing is invented: an empty answer stays empty, an unknown word is kept as it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp_ledger.protocol.envelope import identity, integer_of, kind_of, parse, text_of
from acp_ledger.protocol.text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_ledger.protocol.records import TurnOutcome

CANCELLED_PREFIX: Final = "the turn was cancelled"
"""What the text of every cancellation begins with, whichever way the agent said it."""

PARTIAL_TEXT_BYTES: Final = 4_000
"""UTF-8 bytes of a turn's partial text that a failure message carries. It bounds the message, not the record."""

AUTH_REQUIRED: Final = -32000
"""The error code by which an agent demands authentication (ACP, error codes)."""

REQUEST_CANCELLED: Final = -32800
"""The error code of a request that was cancelled (ACP, `$/cancel_request`)."""

OUTCOME_OF_STOP: Final[dict[str, TurnOutcome]] = {
    "end_turn": "completed",
    "refusal": "refused",
    "max_tokens": "truncated",
    "max_turn_requests": "truncated",
    "cancelled": "cancelled",
}
"""The stop reasons of ACP v1. Any other word, or none, is a `protocol_error`."""

_OUTCOME_OF_CODE: Final[dict[int, TurnOutcome]] = {AUTH_REQUIRED: "auth_required", REQUEST_CANCELLED: "cancelled"}


class TurnReading(NamedTuple):
    """An outcome with the words it was read from: identity text for the stop reason, readable text for the error."""

    outcome: TurnOutcome
    stop_reason: str | None = None
    error_code: int | None = None
    error_message: str | None = None
    lossy: bool = False


class CompletedTurn(NamedTuple):
    """What a completed turn hands to a caller: `text` is every answer joined, `final_message` the last one alone."""

    text: str
    final_message: str
    stop_reason: str
    acp_session_id: str


STREAM_ENDED: Final = TurnReading("stream_ended")
INTERRUPTED: Final = TurnReading("interrupted")


def transport_failed(words: str | None) -> TurnReading:
    """The reading of a stream that could not be read any further; the reader's own words are kept."""
    message, lossy = shown(words)
    return TurnReading("transport_failed", error_message=message, lossy=lossy)


def turn_reading(result: Any, error: Any) -> TurnReading:
    """Read the answer to a `session/prompt`; `None` stands for a member that is absent or null.

    An error is looked at before a result, so an answer with both failed. Never raises, whatever the two hold.
    """
    if error is not None:
        return _error_reading(error)
    word = result.get("stopReason") if isinstance(result, dict) else None
    if type(word) is not str:
        return TurnReading("protocol_error")
    return TurnReading(OUTCOME_OF_STOP.get(word, "protocol_error"), stop_reason=identity(word))


def _error_reading(error: Any) -> TurnReading:
    code, message, lossy = error_words(error)
    outcome = "failed" if code is None else _OUTCOME_OF_CODE.get(code, "failed")
    return TurnReading(outcome, error_code=code, error_message=message, lossy=lossy)


def error_words(error: Any) -> tuple[int | None, str | None, bool]:
    """Code and message of an error object; None for what is missing, of another type, or past 64 bits."""
    unread: list[str] = []
    text, lossy = shown(text_of(error, "message", unread))
    return integer_of(error, "code", unread), text, lossy


def completed_turn(reading: TurnReading, answers: Sequence[str], acp_session_id: str) -> CompletedTurn:
    """The record of a completed turn, its answers joined with nothing between. No answer at all is an empty text."""
    final = answers[-1] if answers else ""
    return CompletedTurn("".join(answers), final, reading.stop_reason or "", acp_session_id)


def failure_message(reading: TurnReading, partial: str = "", answer: str = "", logins: Sequence[str] = ()) -> str:
    """What a person is told about a turn that did not complete, with as much of its text as fits.

    Args:
        reading: any reading but a completed one.
        partial: the text the agent had streamed, whole; at most `PARTIAL_TEXT_BYTES` of it are told.
        answer: the result of the agent's answer, as JSON; its type where that is no object, and its beginning, are
            told where no outcome could be read from it.
        logins: the logins the agent offers, by name or id; they are told where it demands one.
    """
    said = _said(reading)
    if reading.outcome == "protocol_error" and answer:
        said = f"{_what_came(answer) or said}: {answer[:_ANSWER_CHARS]}"
    told = _TOLD[reading.outcome]
    if reading.outcome == "protocol_error" and reading.error_message is not None:
        told = _BROKEN
    return told.format(
        said=said, words=reading.error_message or "no detail", offered=_offered(logins)
    ) + _partial_output(partial)


_ANSWER_CHARS: Final = 500

_TOLD: Final[dict[TurnOutcome, str]] = {
    "completed": "the turn completed ({said})",
    "refused": "the agent refused the prompt ({said})",
    "truncated": "the agent stopped before its work was done ({said})",
    "cancelled": CANCELLED_PREFIX + " ({said})",
    "auth_required": "the agent asks for a sign-in first ({said}){offered}. Nobody can sign in during an unattended"
    " run: sign in once with the agent's own command, as the user who runs it, or put its credentials into the"
    " environment the run is started with, which the agent gets as it is; then retry",
    "failed": "the agent answered the prompt with an error ({said})",
    "protocol_error": "the agent's answer to the prompt tells no outcome that ACP knows ({said})",
    "stream_ended": "the agent closed its output with the prompt unanswered; its stderr may say why",
    "transport_failed": "reading the agent's output failed with the prompt unanswered: {words}",
    "interrupted": "the ledger's daemon ended with the prompt unanswered",
}

_BROKEN: Final = "the prompt could not go on: {words}"

_LOGINS: Final = 8
"""Logins that are named, and characters of each: a message is read by a person."""
_LOGIN_CHARS: Final = 80


def _offered(logins: Sequence[str]) -> str:
    """The agent's logins, as many as a person reads."""
    named = ", ".join(login[:_LOGIN_CHARS] for login in logins[:_LOGINS])
    more = f" and {len(logins) - _LOGINS} more" if len(logins) > _LOGINS else ""
    return f"; its logins are: {named}{more}" if named else ""


def _what_came(result: str) -> str | None:
    """What stands where an object with a stop reason belongs; None where the reading itself says as much."""
    envelope = parse(result.encode("utf-8", "replace"))
    kind = kind_of(envelope.value) if envelope.parsed else "object"
    return None if kind in ("object", "null") else f"its result is of type {kind}, not an object"


def _said(reading: TurnReading) -> str:
    """The peer's own words for how it ended."""
    if reading.stop_reason is not None:
        return f"stopReason: {reading.stop_reason}"
    if reading.error_code is None and reading.error_message is None:
        return "neither a stop reason nor an error"
    code = "no code" if reading.error_code is None else f"code {reading.error_code}"
    return f"{code}: {reading.error_message or 'no message'}"


def _partial_output(text: str) -> str:
    """The labelled partial text, or nothing: a label without text would claim that there was some."""
    if not text:
        return ""
    data = text.encode("utf-8", "replace")
    if len(data) <= PARTIAL_TEXT_BYTES:
        return f"; partial output: {data.decode()}"
    kept = data[:PARTIAL_TEXT_BYTES].decode("utf-8", "ignore")
    size = len(kept.encode())
    return f"; partial output: {kept}… [truncated for this message: {size} of {len(data)} bytes shown]"
