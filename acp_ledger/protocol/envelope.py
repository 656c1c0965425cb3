"""What kind of message a line is, strictly.

What must not be broken here: one line gives one `Envelope`, always, and `parse` never raises. Where two readers could
take the line for different messages it is `opaque`; where they could read a word in it differently, that word reads
as absent; both are named in `anomalies`. An id is known by its own kind and value: `1` is not `"1"`, `1.0` is `1`.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from acp_ledger.protocol import ambiguity, routing, spans, strict
from acp_ledger.protocol.strict import UNSTORABLE, Number

if TYPE_CHECKING:
    from acp_ledger.protocol.records import FrameKind

DEFAULT_PARSE_BYTES: Final = 4 * 1024 * 1024
"""A line over this is read by the routing scan alone."""

IDENTITY_BYTES: Final = 256
"""The longest identity, in UTF-8 bytes, that is kept as it is."""

IdKey: TypeAlias = tuple[str, str]
"""An id's kind (`string`, `number`, `null`, `boolean`, `object`, `array`) and its normalised value."""

Note: TypeAlias = tuple[str, str | None]
"""An anomaly: a class word of `ANOMALY_CLASSES`, and a detail."""

ANOMALY_CLASSES: Final[dict[str, str]] = {
    "invalid_utf8": "the line is not UTF-8; detail: the first bad byte",
    "bom": "the line starts with a byte order mark",
    "blank": "the line is empty or blank",
    "not_json": "the line is not JSON",
    "constant": "the line holds NaN or an Infinity, which some parsers take; detail: the word",
    "trailing_data": "something follows the JSON value",
    "not_an_object": "the JSON value is no object; detail: its type",
    "mixed": "a method stands beside a result or an error",
    "shapeless": "neither request, notification nor response; detail: what is missing",
    "jsonrpc": 'the `jsonrpc` member is not "2.0"; detail: `missing` or `other`',
    "no_id": "an error that answers no question: it has no id member",
    "id_type": "the id is neither a string, an integer nor null; detail: its type",
    "wrong_type": "a member has a JSON type it must not have; detail: its path",
    "null_error": "`error` is null beside a result and counts as absent",
    "ambiguous": "a key that decides the meaning occurs twice; detail: its path, and the ids it may answer",
    "duplicate_key": "another key occurs twice; detail: its path",
    "unparsed": "too big to parse, read by the routing scan; detail: `bytes`, `nodes`, `depth`, or also `unfinished`",
}
"""Every class of anomaly that a line can show by itself."""

_EXPONENT_DIGITS: Final = 18
_ID_PLAN: Final = spans.Plan(members={"id": spans.Plan(mark="id")})
# The usual head of a message: saves the walk over the rest of the line.
_LEADING_ID: Final = re.compile(
    rb'[ \t\r]*\{[ \t\r]*(?:"jsonrpc"[ \t\r]*:[ \t\r]*"2\.0"[ \t\r]*,[ \t\r]*)?"id"[ \t\r]*:[ \t\r]*("[^"\\]*")'
)


class Envelope(NamedTuple):
    """A line, classified. `parsed` and `unparsed` are both False where the line is not JSON.

    For an unparsed line `params`, `result` and `error` are skeletons that hold what the routing scan found, and
    `value` is None. `has_*` say whether the member is there, whatever its value: `error: null` is there.
    """

    kind: FrameKind
    method: str | None = None
    has_method: bool = False
    has_id: bool = False
    id_token: str | None = None
    id_key: IdKey | None = None
    has_params: bool = False
    params: Any = None
    has_result: bool = False
    result: Any = None
    has_error: bool = False
    error: Any = None
    value: Any = None
    anomalies: tuple[Note, ...] = ()
    parsed: bool = False
    unparsed: bool = False
    ambiguous_answer: bool = False
    possible_answers: tuple[IdKey, ...] = ()

    @property
    def answers(self) -> IdKey | None:
        """The id this response answers; None for an error without an id or with a null one, which answer nothing."""
        if self.kind != "response" or self.id_key is None:
            return None
        failed = self.has_error and not (self.error is None and self.has_result)
        return None if failed and self.id_key[0] == "null" else self.id_key


def parse(line: bytes, *, parse_bytes: int = DEFAULT_PARSE_BYTES) -> Envelope:
    """Read one line, given without its newline. Never raises."""
    fault = strict.size_fault(line, parse_bytes)
    if fault is not None:
        return _routed(line, fault)
    try:
        value, repeated = strict.read(line)
    except strict.NotStrict as error:
        return Envelope("opaque", anomalies=((error.fault, error.detail),), possible_answers=_loose_answers(line))
    if isinstance(value, dict):
        return _classified(line, value, repeated)
    answers = _batch_answers(value) if isinstance(value, list) else ()
    note = ("not_an_object", kind_of(value))
    return Envelope("opaque", value=value, anomalies=(note,), parsed=True, possible_answers=answers)


def _classified(line: bytes, value: dict[str, Any], repeated: bool) -> Envelope:  # noqa: FBT001  # private, and hot
    notes: list[Note] = []
    kind = _kind(value, notes)
    unclear = ambiguity.resolve(value, notes) if repeated else ambiguity.NONE
    if unclear.frame:
        kind = "opaque"
    has_id = "id" in value
    method = value.get("method")
    return Envelope(
        kind,
        method if isinstance(method, str) else None,
        "method" in value,
        has_id,
        _token(line, value["id"]) if has_id else None,
        _id_key(value["id"], notes) if has_id else None,
        "params" in value,
        value.get("params"),
        "result" in value,
        value.get("result"),
        "error" in value,
        value.get("error"),
        value,
        tuple(notes),
        parsed=True,
        ambiguous_answer=unclear.answer,
        possible_answers=_answers_of(value) if kind == "opaque" else (),
    )


def _kind(value: dict[str, Any], notes: list[Note]) -> FrameKind:
    if value.get("jsonrpc") != "2.0":
        notes.append(("jsonrpc", "other" if "jsonrpc" in value else "missing"))
    answer = "result" in value or "error" in value
    if "method" in value:
        if answer:
            notes.append(("mixed", None))
        elif isinstance(value["method"], str):
            return "request" if "id" in value else "notification"
        else:
            notes.append(("wrong_type", "method"))
        return "opaque"
    if not answer:
        # Under an id it is an answer without content: whoever waits for that id has heard something, and nothing.
        notes.append(("shapeless", "no result or error" if "id" in value else "no method, result or error"))
        return "response" if "id" in value else "opaque"
    return _response(value, notes)


def _response(value: dict[str, Any], notes: list[Note]) -> FrameKind:
    if "result" in value and "error" in value and value["error"] is None:
        notes.append(("null_error", None))
    if "id" in value:
        return "response"
    if "error" in value:
        notes.append(("no_id", None))
        return "response"
    notes.append(("shapeless", "a result without an id"))
    return "opaque"


def _routed(line: bytes, fault: str) -> Envelope:
    """A line too big to parse: what the routing scan found of it."""
    found = routing.scan(line)
    value = found.skeleton
    notes: list[Note] = [("unparsed", fault if found.complete else f"{fault}, unfinished")]
    kind = _kind(value, notes) if found.complete and value else "opaque"
    unclear = ambiguity.judge(found.repeated, notes)
    if unclear.frame:
        kind = "opaque"
    has_id = "id" in value
    method = value.get("method")
    return Envelope(
        kind,
        method if isinstance(method, str) else None,
        "method" in value,
        has_id,
        found.id_token,
        _id_key(found.ids[-1], notes) if found.ids else None,
        "params" in value,
        value.get("params"),
        "result" in value,
        value.get("result"),
        "error" in value,
        value.get("error"),
        anomalies=tuple(notes),
        unparsed=True,
        ambiguous_answer=unclear.answer,
        possible_answers=_loose(found) if kind == "opaque" else (),
    )


def _answers_of(value: dict[str, Any]) -> tuple[IdKey, ...]:
    """Every id that a message nobody can classify may be answering."""
    if "id" not in value or not ("result" in value or "error" in value):
        return ()
    ids = value.every("id") if isinstance(value, strict.Repeated) else [value["id"]]
    return tuple(dict.fromkeys(id_key(each) for each in ids))


def _batch_answers(value: list[Any]) -> tuple[IdKey, ...]:
    found = (key for each in value if isinstance(each, dict) for key in _answers_of(each))
    return tuple(dict.fromkeys(found))


def _loose_answers(line: bytes) -> tuple[IdKey, ...]:
    """The ids that a more lenient parser may find answered by a line that is not JSON."""
    return _loose(routing.scan(line))


def _loose(found: routing.Routing) -> tuple[IdKey, ...]:
    if "result" not in found.skeleton and "error" not in found.skeleton:
        return ()
    return tuple(dict.fromkeys(id_key(each) for each in found.ids))


def _token(line: bytes, value: Any) -> str:
    """The id's own text on the line. Only a string on a line with escapes, or a container, must be looked for."""
    if isinstance(value, int):
        return str(value) if not isinstance(value, bool) else str(value).lower()
    if isinstance(value, Number):
        return value.literal
    if value is None:
        return "null"
    if isinstance(value, str) and b"\\" not in line:
        return f'"{value}"'
    found = _LEADING_ID.match(line)
    # Where the id occurs twice the last one counts, and the head holds the first.
    if found and found[1].decode() == f'"{value}"':
        return f'"{value}"'
    ids = spans.walk(line, _ID_PLAN, budget=len(line)).spans
    return line[ids[-1].start : ids[-1].end].decode()


def _id_key(value: Any, notes: list[Note]) -> IdKey:
    key = id_key(value)
    if key[0] in ("boolean", "object", "array"):
        notes.append(("id_type", key[0]))
    elif isinstance(value, Number) and "." in key[1]:
        notes.append(("id_type", "fraction"))
    return key


def id_key(value: Any) -> IdKey:
    """The key under which an id is pending: its kind, and a value that equal ids share however they are written."""
    kind = kind_of(value)
    if kind == "string":
        return kind, identity(value)
    if kind == "number":
        return kind, identity(_decimal(str(value) if isinstance(value, int) else value.literal))
    return kind, identity(json.dumps(value, sort_keys=True, separators=(",", ":")))


def _decimal(literal: str) -> str:
    """One spelling for every way to write a number: `1`, `-20`, `1.5`, `1e400`; exact, and linear in its length."""
    mantissa, _, exponent = literal.lower().partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return "0"
    if len(exponent) > _EXPONENT_DIGITS:
        return literal
    power = int(exponent or "0") - len(fraction) + len(digits) - len(kept)
    if power >= 0 and len(kept) + power <= strict.INTEGER_DIGITS * 2:
        return sign + kept + "0" * power
    return f"{sign}{kept}{'.' if power < 0 else ''}e{power}"


def kind_of(value: Any) -> str:
    """The JSON type of a parsed value: `null`, `boolean`, `number`, `string`, `array` or `object`."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | Number):
        return "number"
    if value is None:
        return "null"
    return "object" if isinstance(value, dict) else "array"


def identity(text: str) -> str:
    """The text under which an id or a word of the agent is known: itself, or `sha256:HEX` where it cannot be kept.

    It cannot where it is over `IDENTITY_BYTES`, holds NUL or a lone surrogate, or starts with `sha256:`. HEX is the
    digest of its UTF-8 bytes, a lone surrogate encoded as its three bytes.
    """
    if len(text) <= IDENTITY_BYTES and text.isascii() and "\x00" not in text and not text.startswith("sha256:"):
        return text
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= IDENTITY_BYTES and not UNSTORABLE.search(text) and not text.startswith("sha256:"):
        return text
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def projection(text: str) -> tuple[str, bool]:
    """The text for reading, storable on every engine, and whether that lost anything (NUL or a lone surrogate)."""
    if text.isascii() and "\x00" not in text:
        return text, False
    readable, lost = UNSTORABLE.subn("\ufffd", text)
    return readable, lost > 0


def text_of(owner: Any, key: str, faults: list[str]) -> str | None:
    """The string member `key`; None where it is absent or null, or of another type, whose key then joins `faults`."""
    value = owner.get(key) if isinstance(owner, dict) else None
    if value is None or isinstance(value, str):
        return value
    faults.append(key)
    return None


def object_of(owner: Any, key: str, faults: list[str]) -> dict[str, Any] | None:
    """The object member `key`, read like `text_of`."""
    value = owner.get(key) if isinstance(owner, dict) else None
    if value is None or isinstance(value, dict):
        return value
    faults.append(key)
    return None


def array_of(owner: Any, key: str, faults: list[str]) -> list[Any] | None:
    """The array member `key`, read like `text_of`."""
    value = owner.get(key) if isinstance(owner, dict) else None
    if value is None or isinstance(value, list):
        return value
    faults.append(key)
    return None


def integer_of(owner: Any, key: str, faults: list[str]) -> int | None:
    """The integer member `key`, read like `text_of`; `1.0` is 1, and what 64 bits do not hold is a fault."""
    value = owner.get(key) if isinstance(owner, dict) else None
    if value is None:
        return None
    whole = value
    if isinstance(value, Number):
        text = _decimal(value.literal)
        whole = int(text) if len(text) <= strict.INTEGER_DIGITS and text.lstrip("-").isdigit() else None
    if isinstance(whole, int) and not isinstance(whole, bool) and -(1 << 63) <= whole < 1 << 63:
        return whole
    faults.append(key)
    return None
