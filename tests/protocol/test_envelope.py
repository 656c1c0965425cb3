"""The strict reader and classifier: every line gives one envelope, and nothing in it is guessed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_ledger.protocol import strict
from acp_ledger.protocol.envelope import (
    ANOMALY_CLASSES,
    Envelope,
    array_of,
    id_key,
    identity,
    integer_of,
    object_of,
    parse,
    projection,
    text_of,
)
from acp_ledger.protocol.strict import Number
from tests.support.strategies import JSON_TEXT, ids, json_values, lines, messages, spelled

SANE = b'{"jsonrpc":"2.0",'


def classes(envelope: Envelope) -> list[str]:
    """The anomalies' class words."""
    return [word for word, _ in envelope.anomalies]


@given(lines())
def test_every_line_is_classified(line: bytes) -> None:
    """Whatever the bytes, one envelope comes back, its anomalies are known words and its id is a slice of the line."""
    envelope = parse(line)
    assert envelope.kind in {"request", "notification", "response", "opaque"}
    assert set(classes(envelope)) <= ANOMALY_CLASSES.keys()
    assert envelope.id_token is None or envelope.id_token.encode() in line
    assert not any(strict.UNSTORABLE.search(detail or "") for _, detail in envelope.anomalies)
    assert parse(line) == envelope


@given(messages(), st.data())
def test_id_token_is_the_ids_text(message: dict[str, Any], data: st.DataObject) -> None:
    """The id's token reads back as the id, is on the line as it stands, and equal ids have equal keys."""
    line = data.draw(spelled(message))
    envelope = parse(line)
    assert envelope.has_id == ("id" in json.loads(line))
    if envelope.id_token is not None:
        assert envelope.id_token.encode() in line
        value = strict.read(envelope.id_token.encode())[0]
        assert value == envelope.value["id"]
        assert id_key(value) == envelope.id_key


@given(json_values(), st.data())
def test_values_agree_with_plain_reader(value: Any, data: st.DataObject) -> None:
    """What the strict reader gives is what a plain JSON reader gives, numbers aside, which keep their text."""
    line = data.draw(spelled(value))
    assert plain(strict.read(line)[0]) == json.loads(line)


def plain(value: Any) -> Any:
    """A strictly read value with its numbers made plain ones."""
    if isinstance(value, Number):
        return json.loads(value.literal)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("line", "kind", "anomalies"),
    [
        (SANE + b'"id":0,"method":"session/new","params":{}}', "request", []),
        (SANE + b'"method":"session/update","params":{}}', "notification", []),
        (SANE + b'"id":0,"result":null}', "response", []),
        (SANE + b'"id":0,"error":{"code":1,"message":""}}', "response", []),
        (SANE + b'"id":0,"result":{},"error":{"code":1}}', "response", []),
        (SANE + b'"id":0,"result":{},"error":null}', "response", [("null_error", None)]),
        (SANE + b'"id":0,"error":null}', "response", []),
        (SANE + b'"error":{"code":1}}', "response", [("no_id", None)]),
        (SANE + b'"id":null,"error":{"code":1}}', "response", []),
        (SANE + b'"result":{}}', "opaque", [("shapeless", "a result without an id")]),
        (SANE + b'"id":1}', "response", [("shapeless", "no result or error")]),
        (SANE + b'"params":{}}', "opaque", [("shapeless", "no method, result or error")]),
        (SANE + b'"id":1,"method":"x","result":{}}', "opaque", [("mixed", None)]),
        (SANE + b'"id":1,"method":7}', "opaque", [("wrong_type", "method")]),
        (SANE + b'"id":1,"method":null}', "opaque", [("wrong_type", "method")]),
        (b'{"id":1,"method":"x"}', "request", [("jsonrpc", "missing")]),
        (b'{"jsonrpc":"1.0","id":1,"method":"x"}', "request", [("jsonrpc", "other")]),
        (b'{"jsonrpc":2.0,"method":"x"}', "notification", [("jsonrpc", "other")]),
        (SANE + b'"method":"x"}\r', "notification", []),
        (b" \t" + SANE + b'"method":"x"} ', "notification", []),
        (SANE + b'"method":"x","unknown":1,"_meta":{}}', "notification", []),
        (SANE + '"method":"a\u2028b"}'.encode(), "notification", []),
        (SANE + b'"method":"x","params":{"a":"\\ud83d"}}', "notification", []),
        (SANE + b'"method":"x","params":{"a":"\\u0000"}}', "notification", []),
        (SANE + b'"method":"x","params":{"a":1e999,"b":18446744073709551616}}', "notification", []),
        (b"", "opaque", [("blank", None)]),
        (b" \t\r", "opaque", [("blank", None)]),
        (b"\xff\xfe{\x00}\x00", "opaque", [("invalid_utf8", "byte 0")]),
        (b'{"a":"\xed\xa0\x80"}', "opaque", [("invalid_utf8", "byte 6")]),
        (b'{"a":"\xc0\xaf"}', "opaque", [("invalid_utf8", "byte 6")]),
        (b"\xef\xbb\xbf{}", "opaque", [("bom", None)]),
        (SANE + b'"method":"x\x00y"}', "opaque", [("not_json", None)]),
        (SANE + b'"method":"x"}\x00', "opaque", [("trailing_data", "from character 30")]),
        (b"Starting agent...", "opaque", [("not_json", None)]),
        (b'{"method":"x",}', "opaque", [("not_json", None)]),
        (b"{'method':'x'}", "opaque", [("not_json", None)]),
        (b'{"id":01,"method":"x"}', "opaque", [("not_json", None)]),
        (b'{"method":"x"}{"method":"y"}', "opaque", [("trailing_data", "from character 14")]),
        (b'{"method":"x","a":NaN}', "opaque", [("constant", "NaN")]),
        (b'{"method":"x","a":[-Infinity]}', "opaque", [("constant", "-Infinity")]),
        (b"[]", "opaque", [("not_an_object", "array")]),
        (b'"method"', "opaque", [("not_an_object", "string")]),
        (b"17", "opaque", [("not_an_object", "number")]),
        (b"null", "opaque", [("not_an_object", "null")]),
        (b"true", "opaque", [("not_an_object", "boolean")]),
        (SANE + b'"' + b"k" * (1 << 20) + b'":1,"method":"x"}', "notification", []),
        (b"{" + b'"k":1,' * 1_000_000 + b'"k":1}', "opaque", [("unparsed", "bytes, unfinished")]),
        (b"[" + b"0," * 1_000_000 + b"0]", "opaque", [("unparsed", "nodes")]),
        (b"[" * 100_000, "opaque", [("unparsed", "nodes, unfinished")]),
        (b"[" * 60_000, "opaque", [("unparsed", "depth, unfinished")]),
        (SANE + b'"method":"x","params":' + b"[" * 128 + b"]" * 128 + b"}", "notification", [("unparsed", "depth")]),
    ],
)
def test_line_is_classified(line: bytes, kind: str, anomalies: list[tuple[str, str | None]]) -> None:
    """Each shape of line is the kind of message it is, and says what is odd about it."""
    envelope = parse(line)
    assert (envelope.kind, list(envelope.anomalies)) == (kind, anomalies)


@pytest.mark.parametrize(
    ("token", "key", "anomalies"),
    [
        ("0", ("number", "0"), []),
        ("1", ("number", "1"), []),
        ("1.0", ("number", "1"), []),
        ("1e0", ("number", "1"), []),
        ("10e-1", ("number", "1"), []),
        ("1E+2", ("number", "100"), []),
        ("-0", ("number", "0"), []),
        ("-0.0", ("number", "0"), []),
        ("-5", ("number", "-5"), []),
        ('"1"', ("string", "1"), []),
        ('""', ("string", ""), []),
        (r'"\u0031"', ("string", "1"), []),
        ("null", ("null", "null"), []),
        ("true", ("boolean", "true"), ["id_type"]),
        ("1.5", ("number", "15.e-1"), ["id_type"]),
        ("{}", ("object", "{}"), ["id_type"]),
        ('[ 1 , "]" ]', ("array", '[1,"]"]'), ["id_type"]),
        ("9007199254740993", ("number", "9007199254740993"), []),
        ("9007199254740992", ("number", "9007199254740992"), []),
        ("18446744073709551616", ("number", "18446744073709551616"), []),
        ("1e400", ("number", "1e400"), []),
        ("1" + "0" * 400, ("number", "1e400"), []),
    ],
)
def test_id_is_kept_and_keyed(token: str, key: tuple[str, str], anomalies: list[str]) -> None:
    """An id keeps its own text, is known by its kind and exact value, and a wrong type is kept and flagged."""
    for line in (
        f'{{"jsonrpc":"2.0","id":{token},"result":"\\n"}}',
        f'{{"jsonrpc":"2.0","result":{{"id":5}},"id": {token} }}',
    ):
        envelope = parse(line.encode())
        assert (envelope.id_token, envelope.id_key, classes(envelope)) == (token, key, anomalies)


def test_last_of_two_ids_is_the_token() -> None:
    """Where an id occurs twice the token is the one whose value is shown, however either is spelled."""
    for first in (rb'"\u0061"', b'"a"', b"7"):
        envelope = parse(SANE + b'"id":' + first + rb',"method":"x","id":"\u0062"}')
        assert (envelope.id_token, envelope.id_key) == (r'"\u0062"', ("string", "b"))


def test_details_are_storable() -> None:
    """What an anomaly quotes of a line holds nothing that a text column refuses, and is no longer than needed."""
    key = json.dumps("\ud800\x00" + "k" * 1000)
    envelope = parse(f'{{"jsonrpc":"2.0","method":"x","params":{{{key}:1,{key}:2}}}}'.encode())
    assert envelope.anomalies == (("duplicate_key", "params.\ufffd\ufffd" + "k" * 62),)


def test_integer_of_5000_digits_is_exact() -> None:
    """A number no int conversion admits is an id like any other: kept as written, and only its equal matches it."""
    digits = "7" * 5000
    envelope = parse(SANE + f'"id":{digits},"result":{{}}}}'.encode())
    assert (envelope.kind, envelope.id_token, envelope.anomalies) == ("response", digits, ())
    assert id_key(Number(digits)) == envelope.id_key
    assert id_key(Number(digits + ".0")) == envelope.id_key
    assert id_key(Number(digits[1:] + "8")) != envelope.id_key


@given(st.integers(), st.integers(0, 30))
def test_equal_numbers_share_a_key(value: int, zeros: int) -> None:
    """However a number is written, its key is that of its exact value."""
    spellings = [f"{value}", f"{value}.{'0' * (zeros + 1)}", f"{value}e0", f"{value}{'0' * zeros}E-{zeros}"]
    assert {id_key(Number(text)) for text in spellings} == {id_key(value)}


@given(ids(), ids())
def test_keys_meet_only_when_equal(one: Any, other: Any) -> None:
    """Two ids share a key exactly when they are of one JSON type and equal."""
    one, other = (strict.read(json.dumps(each).encode())[0] for each in (one, other))
    alike = json.dumps(plain_id(one), sort_keys=True) == json.dumps(plain_id(other), sort_keys=True)
    assert (id_key(one) == id_key(other)) == alike


def plain_id(value: Any) -> Any:
    """The id with whole floats as ints, as JSON means them."""
    number = plain(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        (b'{"id":1,"result":{}}', ("number", "1")),
        (b'{"id":"1","error":{}}', ("string", "1")),
        (b'{"id":null,"result":{}}', ("null", "null")),
        (b'{"id":null,"result":{},"error":null}', ("null", "null")),
        (b'{"id":null,"error":{}}', None),
        (b'{"error":{}}', None),
        (b'{"id":1,"method":"x"}', None),
        (b'{"id":1,"id":1,"result":{}}', None),
    ],
)
def test_response_says_what_it_answers(line: bytes, answers: tuple[str, str] | None) -> None:
    """A response answers its id; an error that has none, or a null one, answers nothing."""
    assert parse(line).answers == answers


@pytest.mark.parametrize("path", ["id", "method", "params", "params.sessionId", "params.update", "params.options"])
def test_repeated_request_key_is_opaque(path: str) -> None:
    """A request in which a key that says what it is occurs twice is no request, and the key is named."""
    body = {
        "id": '"id":1,"id":2,"method":"m","params":{}',
        "method": '"id":1,"method":"m","params":{},"\\u006dethod":"n"',
        "params": '"id":1,"method":"m","params":{},"params":{}',
        "params.sessionId": '"id":1,"method":"m","params":{"sessionId":"a","sessionId":"a"}',
        "params.update": '"id":1,"method":"m","params":{"update":{},"update":{}}',
        "params.options": '"id":1,"method":"m","params":{"options":[],"options":[]}',
    }[path]
    envelope = parse(SANE + body.encode() + b"}")
    assert (envelope.kind, envelope.anomalies, envelope.possible_answers) == ("opaque", (("ambiguous", path),), ())


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ('"result":{"outcome":{},"outcome":{}}', "result.outcome"),
        ('"result":{"outcome":{"outcome":"selected","outcome":"cancelled"}}', "result.outcome.outcome"),
        ('"result":{"outcome":{"optionId":"a","optionId":"b"}}', "result.outcome.optionId"),
        ('"result":{"stopReason":"end_turn","stopReason":"refusal"}', "result.stopReason"),
    ],
)
def test_repeated_answer_key_reads_as_absent(body: str, path: str) -> None:
    """An answer that says two things is still an answer, but to read it as either would be a guess."""
    envelope = parse(SANE + b'"id":1,' + body.encode() + b"}")
    assert (envelope.kind, envelope.ambiguous_answer) == ("response", True)
    assert envelope.anomalies == (("ambiguous", path),)
    place: Any = envelope.value
    for step in path.split(".")[:-1]:
        place = place[step]
    assert path.rsplit(".", maxsplit=1)[-1] not in place


def test_repeated_word_reads_as_absent() -> None:
    """A question whose offer names two kinds for one option is a question, and that kind is not known."""
    offer = b'[{"optionId":"a","kind":"allow_once"},{"optionId":"b","kind":"reject_once","kind":"allow_once"}]'
    envelope = parse(SANE + b'"id":1,"method":"session/request_permission","params":{"options":' + offer + b"}}")
    assert (envelope.kind, envelope.anomalies) == ("request", (("ambiguous", "params.options[1].kind"),))
    assert envelope.params["options"] == [{"optionId": "a", "kind": "allow_once"}, {"optionId": "b"}]


def test_repeated_key_elsewhere_is_flagged() -> None:
    """A key that decides nothing keeps its last value, and its path is named."""
    envelope = parse(SANE + b'"method":"m","params":{"_meta":[{"a":1,"a":2}],"options[0]":{"kind":1,"kind":2}}}')
    assert envelope.kind == "notification"
    assert envelope.anomalies == (("duplicate_key", "params._meta[0].a"), ("duplicate_key", "params.options[0].kind"))
    assert envelope.params == {"_meta": [{"a": 2}], "options[0]": {"kind": 2}}


def test_many_repeats_are_counted() -> None:
    """A line full of repeated keys gives a bounded list that says how many there are and hides no decisive one."""
    body = b",".join(b'"a%d":1,"a%d":2' % (n, n) for n in range(100))
    envelope = parse(b'{"jsonrpc":"2.0",' + body + b',"id":1,"id":2,"result":{}}')
    assert ("duplicate_key", "101 repeated keys in all") in envelope.anomalies
    assert ("ambiguous", "id") in envelope.anomalies
    assert len(envelope.anomalies) < 40


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        (b'{"id":1,"id":"1","result":{}}', [("number", "1"), ("string", "1")]),
        (b'{"id":1,"result":{},"result":{}}', [("number", "1")]),
        (b'{"id":1,"method":"x","result":{}}', [("number", "1")]),
        (b'[{"id":1,"result":{}},{"id":2,"error":{}},{"id":3,"method":"x"},7]', [("number", "1"), ("number", "2")]),
        (b'{"id":1,"result":{"a":NaN}}', [("number", "1")]),
        (b'{"id":1,"result":{"a":"\xff"}}', [("number", "1")]),
        (b'\xef\xbb\xbf{"id":1,"result":{}}', [("number", "1")]),
        (b'{"id":1,"result":{}}{"id":2,"result":{}}', [("number", "1"), ("number", "2")]),
        (b'{"id":1,"method":"x"}{"id":2,"method":"y"}', []),
        (b'{"id":1,"method":"x","method":"y"}', []),
        (b"not json", []),
    ],
)
def test_opaque_names_what_it_may_answer(line: bytes, answers: list[tuple[str, str]]) -> None:
    """A line that somebody may take for an answer names every question it may be an answer to."""
    envelope = parse(line)
    assert (envelope.kind, list(envelope.possible_answers)) == ("opaque", answers)


def test_big_line_is_routed() -> None:
    """A line over the parse limit is still known by its routing words, and marked."""
    padding = b'"padding":"' + b"x" * 100 + b'"'
    line = SANE + b'"method":"session/update","params":{"sessionId":"s","update":{' + padding + b',"toolCallId":"c"}}}'
    envelope = parse(line, parse_bytes=100)
    assert (envelope.kind, envelope.unparsed, envelope.parsed) == ("notification", True, False)
    assert envelope.params == {"sessionId": "s", "update": {"toolCallId": "c"}}
    assert envelope.anomalies == (("unparsed", "bytes"),)
    assert parse(line, parse_bytes=len(line)).parsed


@pytest.mark.parametrize(
    ("body", "kind", "answer", "result"),
    [
        (b'"id":1,"result":{"stopReason":"end_turn"}', "response", False, {"stopReason": "end_turn"}),
        (b'"id":1,"id":2,"result":{}', "opaque", False, {}),
        (b'"id":1,"result":{"stopReason":"end_turn","stopReason":"refusal"}', "response", True, {}),
        (b'"id":1,"result":{"outcome":{"outcome":"selected","outcome":"x"}}', "response", True, {"outcome": {}}),
        (b'"id":1,"result":{"outcome":{"outcome":"selected"},"outcome":{}}', "response", True, {}),
    ],
)
def test_big_line_is_as_careful(body: bytes, kind: str, answer: bool, result: Any) -> None:  # noqa: FBT001  # a table
    """Repeated keys mean the same on a line that is too big to parse."""
    envelope = parse(SANE + body + b',"z":"' + b"z" * 100 + b'"}', parse_bytes=100)
    assert (envelope.kind, envelope.ambiguous_answer, envelope.result) == (kind, answer, result)
    assert envelope.unparsed


@given(messages(), st.data())
def test_routing_agrees_with_parsing(message: dict[str, Any], data: st.DataObject) -> None:
    """A line read by the routing scan is the kind of message, with the id, that a parser would have found."""
    line = data.draw(spelled(message))
    parsed, routed = parse(line), parse(line, parse_bytes=1)
    assert (routed.kind, routed.method, routed.id_token, routed.id_key) == (
        parsed.kind,
        parsed.method,
        parsed.id_token,
        parsed.id_key,
    )
    assert (routed.answers, routed.possible_answers) == (parsed.answers, parsed.possible_answers)
    assert routed.ambiguous_answer == parsed.ambiguous_answer


def test_node_bound_counts_values() -> None:
    """A line of as many values as the bound is parsed and one of more is not; what strings hold does not count."""
    within = b"[" + b"1," * (strict.NODE_BOUND - 1) + b"1]"
    assert parse(within).parsed
    assert parse(within[:-1] + b",1]").anomalies == (("unparsed", "nodes"),)
    assert parse(b'{"a":"' + b',[{\\"' * strict.NODE_BOUND + b'\\\\"}').parsed


def test_depth_bound_counts_brackets() -> None:
    """Nesting up to the bound is parsed and deeper is not; brackets in strings and closed ones do not count."""
    deepest = b'{"a":' * strict.DEPTH_BOUND + b"1" + b"}" * strict.DEPTH_BOUND
    assert parse(deepest).parsed
    assert ("unparsed", "depth") in parse(b"[" + deepest + b"]").anomalies
    assert parse(b'["' + b"[" * 1000 + b'",' + b"[[]]," * 1000 + b"1]").parsed


@given(json_values(max_leaves=40), st.data())
def test_size_depends_on_bytes_alone(value: Any, data: st.DataObject) -> None:
    """The cheap count that decides whether to parse never lets through more values or depth than there are."""
    line = data.draw(spelled(value))
    outside = strict._outside_strings(line)
    assert outside.count(b"{") + outside.count(b"[") == json.dumps(
        bare(json.loads(line, object_pairs_hook=Pairs))
    ).count("[")


class Pairs(list[Any]):
    """An object as one list, strings and keys left out, so that counting brackets counts containers."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(bare(value) for _, value in pairs)


def bare(value: Any) -> Any:
    """The value without its strings."""
    if isinstance(value, list):
        return [bare(inner) for inner in value]
    return 0 if isinstance(value, str) else value


@given(JSON_TEXT)
@example("sha256:" + "0" * 64)
@example("x" * 256)
@example("x" * 257)
@example("é" * 129)
@example("a\x00b")
@example("\ud800")
def test_identity_is_storable_and_distinct(text: str) -> None:
    """An identity fits every engine, and is the text itself unless that could not be kept."""
    kept = identity(text)
    raw = text.encode("utf-8", "surrogatepass")
    unfit = (
        len(raw) > 256 or "\x00" in text or text.startswith("sha256:") or any("\ud800" <= c <= "\udfff" for c in text)
    )
    assert kept == ("sha256:" + hashlib.sha256(raw).hexdigest() if unfit else text)
    assert len(kept.encode()) <= 256


@given(JSON_TEXT)
@example("a\x00b\ud800")
@example("\U0001f600é")
def test_projection_loses_only_what_no_engine_keeps(text: str) -> None:
    """A projection is the text with NUL and lone surrogates replaced, and says whether it lost any."""
    readable, lossy = projection(text)
    expected = "".join("\ufffd" if c == "\x00" or "\ud800" <= c <= "\udfff" else c for c in text)
    assert (readable, lossy) == (expected, expected != text)


def test_fields_of_wrong_type_read_as_absent() -> None:
    """A field of another JSON type is absent and reported; an absent or null one is absent without a word."""
    value = strict.read(b'{"t":"x","o":{},"a":[],"i":5,"f":5.0,"h":5.5,"b":true,"n":null,"big":9223372036854775808}')[0]
    faults: list[str] = []
    assert (text_of(value, "t", faults), object_of(value, "o", faults), array_of(value, "a", faults)) == ("x", {}, [])
    assert (integer_of(value, "i", faults), integer_of(value, "f", faults)) == (5, 5)
    for key in ("n", "absent"):
        assert text_of(value, key, faults) is None
        assert object_of(value, key, faults) is None
        assert array_of(value, key, faults) is None
        assert integer_of(value, key, faults) is None
    assert text_of([], "t", faults) is None
    assert faults == []
    assert text_of(value, "i", faults) is None
    assert text_of(value, "f", faults) is None
    assert object_of(value, "a", faults) is None
    assert array_of(value, "f", faults) is None
    assert [integer_of(value, key, faults) for key in ("b", "h", "big", "t")] == [None] * 4
    assert faults == ["i", "f", "a", "f", "b", "h", "big", "t"]
