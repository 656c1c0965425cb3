"""What `relay.strict` keeps from its receiver: a line that does not parse, or that two readers may take differently.

What must not be broken here: the sender is told, and so is whoever waits for that line as an answer, for nobody may
wait for ever because of us. A line that is clear passes however strange its content is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp_ledger.daemon.own import INVALID_PARAMS, INVALID_REQUEST, NO_ID, PARSE_ERROR, Own, error_line
from acp_ledger.protocol.connection import OTHER_WAY
from acp_ledger.protocol.permission import METHOD

if TYPE_CHECKING:
    from acp_ledger.protocol.envelope import Envelope
    from acp_ledger.protocol.observer import Observer
    from acp_ledger.protocol.records import Direction

REASON: Final = "withheld"


class Fault(NamedTuple):
    """Why a line is withheld: JSON-RPC's code for it, and what it is."""

    code: int
    what: str


_FAULTS: Final[dict[str, Fault]] = {
    "blank": Fault(PARSE_ERROR, "a blank line"),
    "invalid_utf8": Fault(PARSE_ERROR, "a line that is not UTF-8"),
    "bom": Fault(PARSE_ERROR, "a line that starts with a byte order mark"),
    "not_json": Fault(PARSE_ERROR, "a line that is not JSON"),
    "constant": Fault(PARSE_ERROR, "a line with a word that JSON does not have"),
    "trailing_data": Fault(PARSE_ERROR, "a line with something behind its JSON value"),
    "unparsed": Fault(INVALID_REQUEST, "a line too big to be parsed whole (limits.parse_bytes)"),
    "not_an_object": Fault(INVALID_REQUEST, "a line that is no JSON object"),
    "mixed": Fault(INVALID_REQUEST, "a method beside a result or an error"),
    "wrong_type": Fault(INVALID_REQUEST, "a method that is no string"),
    "shapeless": Fault(INVALID_REQUEST, "neither a request, a notification nor an answer"),
    "ambiguous": Fault(INVALID_REQUEST, "a line that repeats a key that decides its meaning"),
    "duplicate_key": Fault(INVALID_REQUEST, "a line that repeats a key"),
    "id_type": Fault(INVALID_REQUEST, "an id that is neither a string nor a number"),
}
"""Classes of anomaly whose lines are withheld, the gravest first."""

CLASSES: Final = frozenset(_FAULTS)


def withheld(direction: Direction, envelope: Envelope, observer: Observer) -> tuple[Own, ...] | None:
    """What is said in the place of a line that is withheld; None for a line that passes.

    A blank line is withheld without a word: it says nothing, and some programs end their lines with one.
    """
    fault = _fault(envelope) or _out_of_place(direction, envelope, observer)
    if fault is None:
        return None
    if fault is _FAULTS["blank"]:
        return ()
    back = OTHER_WAY[direction]
    sentence = f"{fault.what} was not passed on (relay.strict)"
    to_sender = Own(back, error_line(_id_for(direction, envelope, observer), sentence, REASON, fault.code))
    asked = None if envelope.answers is None else observer.waiting(back, envelope.answers)
    if asked is None:
        return (to_sender,)
    words = f"the answer was not passed on (relay.strict): {fault.what}"
    return to_sender, Own(direction, error_line(asked.id_token, words, REASON))


def _id_for(direction: Direction, envelope: Envelope, observer: Observer) -> str:
    """The id of the sender's error: its request's own, where an answer under it can be taken for no other's."""
    key, token = envelope.id_key, envelope.id_token
    if envelope.kind != "request" or key is None or token is None or observer.waiting(direction, key) is not None:
        return NO_ID
    return token


def _fault(envelope: Envelope) -> Fault | None:
    """What is wrong with a line by itself."""
    if not envelope.anomalies:
        return None
    said = dict(reversed(envelope.anomalies))
    for class_, fault in _FAULTS.items():
        # A fraction is a strange id, and everybody reads it alike.
        if class_ in said and said[class_] != "fraction":
            detail = said[class_]
            return fault if detail is None else fault._replace(what=f"{fault.what} ({detail})")
    return None


def _out_of_place(direction: Direction, envelope: Envelope, observer: Observer) -> Fault | None:
    """A line that is clear by itself and may be taken for two things where it stands."""
    if envelope.kind == "request" and envelope.id_key is not None:
        if envelope.id_key[0] == "null":
            return Fault(INVALID_REQUEST, "a request under the id null")
        if observer.waiting(direction, envelope.id_key) is not None:
            return Fault(INVALID_REQUEST, "a request under an id that is in use")
        if envelope.method == METHOD and _repeats_an_option(envelope.params):
            return Fault(INVALID_PARAMS, "a question that offers the same option id twice")
    elif envelope.kind == "response":
        if envelope.has_result and envelope.error is not None:
            return Fault(INVALID_REQUEST, "an answer with a result and an error")
        if envelope.answers is not None and observer.waiting(OTHER_WAY[direction], envelope.answers) is None:
            return Fault(INVALID_REQUEST, "an answer to no request that waits")
    return None


def _repeats_an_option(params: Any) -> bool:
    options = params.get("options") if isinstance(params, dict) else None
    objects = [each for each in options if isinstance(each, dict)] if isinstance(options, list) else []
    ids = [each["optionId"] for each in objects if isinstance(each.get("optionId"), str)]
    return len(ids) != len(set(ids))
