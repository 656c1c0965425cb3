"""Every byte that is hashed, held fast."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.records import TABLE_OF, TO_CLIENT, Derived, Entry
from acp_ledger.store import chain, vectors
from tests.support import seed

LEDGER_ID = bytes(range(16))


def _row(record: Any) -> tuple[str, dict[str, Any]]:
    return TABLE_OF[type(record)], {name.rstrip("_"): value for name, value in record._asdict().items()}


def _rows(entry: Entry) -> list[tuple[str, dict[str, Any]]]:
    return [_row(record) for record in (entry.record, *entry.rows)]


def test_vectors_hold() -> None:
    """A digest that was published once is computed the same for ever."""
    computed = [vector for vector in vectors.compute() if "canonical" not in vector.name]
    assert computed == list(vectors.VECTORS)


def test_vectors_follow_from_the_layout() -> None:
    """The page's formulas, written out with nothing but the standard library, give the same digests."""
    found = {vector.name: vector.value for vector in vectors.compute()}
    facts = _sha(b"facts", found["transport: canonical facts"].encode())
    private = _sha(b"private", _lp(vectors.PRIVATE_SALT), found["transport: canonical private"].encode())
    link = _sha(b"genesis", vectors.LEDGER_ID, vectors.EPOCH.to_bytes(8, "big"), private, facts)
    assert found["transport: genesis"] == link.hex()
    link = _sha(b"link", link, (1).to_bytes(8, "big"), bytes(64), bytes.fromhex(found["1, an event: facts"]))
    assert found["1, an event: chain"] == link.hex()
    body = _sha(b"body", _lp(vectors.SALT), b"{}")
    facts = _sha(b"facts", found["2, a frame with a row: canonical facts"].encode())
    private = _sha(b"private", _lp(vectors.PRIVATE_SALT), found["2, a frame with a row: canonical private"].encode())
    assert (
        found["2, a frame with a row: chain"] == _sha(b"link", link, (2).to_bytes(8, "big"), body, private, facts).hex()
    )


def _lp(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _sha(tag: bytes, *parts: bytes) -> bytes:
    return hashlib.sha256(b"acp-ledger/" + tag + b"/1\0" + b"".join(parts)).digest()


def test_canonical_text_is_as_documented() -> None:
    """Keys by code point, NULL written, booleans as numbers, blobs as hex, non-ASCII as it is."""
    row = {"b": None, "a": True, "Z": b"\x00\xff", "é": 'ä"\\\n\x01\x7f/', "n": -(2**70)}
    expected = '[["t",{"Z":"00ff","a":1,"b":null,"n":-1180591620717411303424,"é":"ä\\"\\\\\\n\\u0001\x7f/"}]]'
    assert chain.canonical([("t", row)]).decode() == expected


def test_texts_under_digests_are_json() -> None:
    """Who has no program of ours reads the canonical text with any JSON reader."""
    facts, private = chain.divide(_rows(vectors.STEP))
    assert json.loads(facts)[0][0] == "frames"
    assert private is not None
    assert json.loads(private) == [["tool_call_steps", {"title": "Ä/\\\u2028"}]]


def test_fast_and_slow_way_agree_on_a_conversation() -> None:
    """What the writer seals is what a verifier divides, for every kind of row."""
    for entry in seed.conversation():
        _agree(entry)


TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1)


@given(st.data(), TEXTS, TEXTS, NUMBERS)
def test_fast_and_slow_way_agree(data: st.DataObject, title: str | None, raw: str | None, number: int | None) -> None:
    """Whatever the values, writer and verifier hash the same bytes, in whichever order rows are given."""
    script = seed.Seed()
    rows: list[Derived] = [
        seed.step("c", raw, title=title, tool_name=raw),
        seed.question("c")._replace(title=title, option_count=number),
        seed.decision(1)._replace(offered=data.draw(st.none() | st.booleans()), detail=raw),
        seed.option("a", raw)._replace(name=title),
        seed.option("b", None),
    ]
    entry = script.frame(TO_CLIENT, *rows, rpc_id=raw, update_sequence=number)
    _agree(entry._replace(rows=tuple(data.draw(st.permutations(entry.rows)))))


def _agree(entry: Entry) -> None:
    sealed = chain.seal(entry, chain.ZERO)
    facts, private = chain.divide(_rows(entry))
    assert sealed.facts == chain.facts_digest(facts)
    if private is None:
        assert (sealed.private, sealed.private_salt) == (chain.ZERO, None)
    else:
        assert sealed.private_salt is not None
        assert sealed.private == chain.private_digest(sealed.private_salt, private)
    if entry.body is None:
        assert (sealed.commitment, sealed.salt) == (chain.ZERO, None)
    else:
        assert sealed.salt is not None
        assert sealed.commitment == chain.commitment(sealed.salt, entry.body)
    expected = chain.link(chain.ZERO, entry.record.frame_seq, sealed.commitment, sealed.private, sealed.facts)
    assert sealed.chain == expected


def test_equal_entries_get_different_salts() -> None:
    """Equal lines cannot be recognised by their commitments, nor short texts be guessed from them."""
    entry = vectors.STEP
    first, second = chain.seal(entry, chain.ZERO), chain.seal(entry, chain.ZERO)
    assert first.facts == second.facts
    assert first.commitment != second.commitment
    assert first.private != second.private


def test_erasable_columns_are_in_no_open_digest() -> None:
    """A title can be erased without changing the facts, so the facts must not tell it."""
    (row,) = vectors.STEP.rows
    changed = vectors.STEP._replace(rows=(row._replace(title="other"),))  # type: ignore[call-arg]  # a step
    assert chain.seal(vectors.STEP, chain.ZERO).facts == chain.seal(changed, chain.ZERO).facts


def test_lone_surrogate_has_no_digest() -> None:
    """A text that is no Unicode is refused, never hashed as something else."""
    entry = seed.Seed().update("x", seed.step("\ud800", None))
    with pytest.raises(UnicodeEncodeError):
        chain.seal(entry, chain.ZERO)


@pytest.mark.parametrize("record", TABLE_OF, ids=lambda record: record.__name__)
def test_records_hold_words_and_whole_numbers(record: type) -> None:
    """No row holds a float or bytes under a digest, for two readers may write those differently."""
    kinds = {kind for hint in get_type_hints(record).values() for kind in _kinds(hint)}
    assert kinds <= {str, int, bool, type(None)}


def _kinds(hint: Any) -> set[type]:
    if get_origin(hint) is Literal:
        return {type(word) for word in get_args(hint)}
    return {kind for part in get_args(hint) for kind in _kinds(part)} or {hint}


def test_local_key_of_a_transport_is_not_under_its_genesis() -> None:
    """A transport keeps its chain in a database where its id is another."""
    row = {**vectors.TRANSPORT, "id": 5}
    assert chain.seal_transport(LEDGER_ID, row, bytes(16)) == chain.seal_transport(
        LEDGER_ID, vectors.TRANSPORT, bytes(16)
    )
