r"""The tamper evidence: from rows to canonical bytes, digests and links.

What must not be broken here: every byte that is hashed. A ledger lives longer than this program, and rows written by
one version are verified by all later ones, so the tags, the order of keys and the spelling of values never change;
`VECTORS` holds them fast. Nothing here touches a database, and `seal` is on the way of every line: it takes
microseconds.

    lp(x)        = u32be length, then the bytes
    canonical(x) = UTF-8 JSON without spaces; strings escape only what JSON demands (`"`, `\`, and controls, with
                   \b \f \n \r \t where they exist, else \u00xx); keys by code point; NULL written; booleans as 0
                   and 1; blobs as hex; rows as [table, {column: value}] by table, then ordinal
    commitment   = SHA256("acp-ledger/body/1\0"    lp(salt) body)          32 zero bytes without a body
    private      = SHA256("acp-ledger/private/1\0" lp(private_salt) canonical(rows' erasable columns))
                   of the rows that have at least one that is not NULL;     32 zero bytes when there are none
    facts        = SHA256("acp-ledger/facts/1\0"   canonical(rows' other mapped columns))
    genesis      = SHA256("acp-ledger/genesis/1\0" ledger_id u64be(epoch) private facts)
    chain        = SHA256("acp-ledger/link/1\0"    previous u64be(frame_seq) commitment private facts)
"""

from __future__ import annotations

import os
from hashlib import sha256
from json.encoder import JSONEncoder
from operator import index, itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from sqlalchemy import Boolean

from acp_ledger.protocol.records import ERASABLE, TABLE_OF
from acp_ledger.store.tables import metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from acp_ledger.protocol.records import Entry

ZERO: Final = bytes(32)
"""Stands where there is nothing to digest."""

SALT_BYTES: Final = 16

_BODY: Final = b"acp-ledger/body/1\0"
_PRIVATE: Final = b"acp-ledger/private/1\0"
_FACTS: Final = b"acp-ledger/facts/1\0"
_GENESIS: Final = b"acp-ledger/genesis/1\0"
_LINK: Final = b"acp-ledger/link/1\0"

_u32 = Struct(">I").pack
_u64 = Struct(">Q").pack
_BODY_SALTED: Final = _BODY + _u32(SALT_BYTES)

_UNCOVERED: Final = frozenset(
    {"transport_id", "commitment", "facts", "private", "private_salt", "chain", "salt", "body"},
)
"""Columns under neither digest: the local key, and the digests with what they are made from."""

_spell: Final = msgspec.json.Encoder().encode
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class TableShape(NamedTuple):
    """How a table's rows are divided between the two digests; both lists by code point."""

    name: str
    facts: tuple[str, ...]
    erasable: tuple[str, ...]
    booleans: tuple[str, ...]


def _shape(name: str) -> TableShape:
    columns = metadata.tables[name].columns
    uncovered = _UNCOVERED | ({"id"} if name == "transports" else set())
    erasable = ERASABLE.get(name, frozenset())
    return TableShape(
        name,
        tuple(sorted(c.name for c in columns if c.name not in uncovered | erasable)),
        tuple(sorted(erasable)),
        tuple(sorted(c.name for c in columns if isinstance(c.type, Boolean))),
    )


SHAPES: Final[dict[str, TableShape]] = {name: _shape(name) for name in ("transports", *TABLE_OF.values())}


class _Cut(NamedTuple):
    """A shape over a record's fields, made once: what `seal` works with.

    `facts` and `erasable` make an object of the columns' values, which `_spell` spells as `canonical` would.
    """

    name: str
    facts_of: Callable[[Any], tuple[Any, ...]]
    facts: Callable[..., msgspec.Struct]
    booleans: tuple[int, ...]
    erasable_of: Callable[[Any], tuple[Any, ...]] | None
    erasable: Callable[..., msgspec.Struct]


def _object(columns: Sequence[str]) -> Callable[..., msgspec.Struct]:
    """A JSON object of these columns, in this order; called with their values."""
    # A field's name must be an identifier of Python's, a column's need not be one (`class`).
    names = {f"c{position}": str(column) for position, column in enumerate(columns)}
    return msgspec.defstruct("Columns", [(name, Any) for name in names], rename=names, gc=False, frozen=True)


def _values_of(positions: Sequence[int]) -> Callable[[Any], tuple[Any, ...]] | None:
    if not positions:
        return None
    return itemgetter(*positions) if len(positions) > 1 else itemgetter(slice(positions[0], positions[0] + 1))


def _cut(record_type: type, name: str) -> _Cut:
    fields = [field.rstrip("_") for field in record_type._fields]  # type: ignore[attr-defined]  # a NamedTuple
    shape = SHAPES[name]
    return _Cut(
        name,
        itemgetter(*(fields.index(column) for column in shape.facts)),
        _object(shape.facts),
        tuple(shape.facts.index(column) for column in shape.booleans),
        _values_of([fields.index(column) for column in shape.erasable]),
        _object(shape.erasable),
    )


_CUTS: Final[dict[type, _Cut]] = {record: _cut(record, name) for record, name in TABLE_OF.items()}


class Sealed(NamedTuple):
    """The digests and salts of an entry. `salt` and `private_salt` are None where there is nothing to salt."""

    commitment: bytes
    facts: bytes
    private: bytes
    private_salt: bytes | None
    chain: bytes
    salt: bytes | None


def canonical(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> bytes:
    """Rows, in the order given, as canonical bytes; for verifiers. Keys are sorted here; blobs become hex.

    Raises:
        UnicodeEncodeError: a text holds a lone surrogate.
    """
    plain = [[table, {key: _plain(row[key]) for key in sorted(row)}] for table, row in rows]
    return _encode(plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return value.hex() if isinstance(value, bytes) else value


def divide(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[bytes, bytes | None]:
    """Canonical bytes under `facts` and under `private` of stored rows, whatever their order; for verifiers.

    Each row is its table's name and its columns, among them at least those of `SHAPES`. The second is None when no
    row has anything private.
    """
    ordered = sorted(rows, key=lambda row: (row[0], row[1].get("ordinal") or 0))
    facts = [(table, {key: row[key] for key in SHAPES[table].facts}) for table, row in ordered]
    private = [(table, {key: row[key] for key in SHAPES[table].erasable}) for table, row in ordered]
    kept = [(table, columns) for table, columns in private if any(value is not None for value in columns.values())]
    return canonical(facts), canonical(kept) if kept else None


def commitment(salt: bytes, body: bytes) -> bytes:
    """Digest of a stored body."""
    return sha256(_BODY + _u32(len(salt)) + salt + body).digest()


def private_digest(salt: bytes, text: bytes) -> bytes:
    """Digest of canonical erasable columns."""
    return sha256(_PRIVATE + _u32(len(salt)) + salt + text).digest()


def facts_digest(text: bytes) -> bytes:
    """Digest of all other canonical columns."""
    return sha256(_FACTS + text).digest()


def genesis(ledger_id: bytes, epoch: int, private: bytes, facts: bytes) -> bytes:
    """The first link of a transport."""
    return sha256(_GENESIS + ledger_id + _u64(epoch) + private + facts).digest()


def link(previous: bytes, frame_seq: int, commitment: bytes, private: bytes, facts: bytes) -> bytes:
    """The link of a frame or an event."""
    return sha256(_LINK + previous + _u64(frame_seq) + commitment + private + facts).digest()


def _facts(cut: _Cut, row: Any) -> tuple[str, msgspec.Struct]:
    values = cut.facts_of(row)
    if not cut.booleans:
        return cut.name, cut.facts(*values)
    spelled = list(values)
    for position in cut.booleans:
        if spelled[position] is not None:
            spelled[position] = index(spelled[position])
    return cut.name, cut.facts(*spelled)


def _by_table_and_ordinal(row: Any) -> tuple[str, int]:
    return TABLE_OF[row.__class__], row.ordinal if row[1].__class__ is int else 0


def seal(entry: Entry, previous: bytes, salts: Callable[[int], bytes] = os.urandom) -> Sealed:
    """Digests and link of an entry behind `previous`. `salts` makes random bytes.

    Raises:
        UnicodeEncodeError: a text holds a lone surrogate, which no digest and no database can hold.
        TypeError: a truth value is neither True, False nor a whole number.
    """
    record, rows, body = entry
    ordered: Sequence[Any] = sorted((record, *rows), key=_by_table_and_ordinal) if rows else (record,)
    cuts = [(_CUTS[row.__class__], row) for row in ordered]
    facts = sha256(_FACTS + _spell([_facts(cut, row) for cut, row in cuts])).digest()
    private, private_salt = ZERO, None
    kept = [
        (cut.name, cut.erasable(*values))
        for cut, row in cuts
        if cut.erasable_of is not None and (values := cut.erasable_of(row)).count(None) < len(values)
    ]
    if kept:
        private_salt = salts(SALT_BYTES)
        private = private_digest(private_salt, _spell(kept))
    bound, salt = ZERO, None
    if body is not None:
        salt = salts(SALT_BYTES)
        bound = sha256(_BODY_SALTED + salt + body).digest()
    chain = sha256(_LINK + previous + _u64(record.frame_seq) + bound + private + facts).digest()
    return Sealed(bound, facts, private, private_salt, chain, salt)


class SealedTransport(NamedTuple):
    """The digests of a `transports` row; `chain` is its genesis."""

    facts: bytes
    private: bytes
    private_salt: bytes | None
    chain: bytes


def seal_transport(ledger_id: bytes, row: Mapping[str, Any], private_salt: bytes) -> SealedTransport:
    """Digests and genesis of a `transports` row, given as all its columns but the digests and the local key.

    Raises:
        UnicodeEncodeError: a text holds a lone surrogate.
    """
    facts_text, private_text = divide([("transports", row)])
    facts = facts_digest(facts_text)
    private = private_digest(private_salt, private_text) if private_text is not None else ZERO
    salt = private_salt if private_text is not None else None
    return SealedTransport(facts, private, salt, genesis(ledger_id, row["epoch"], private, facts))
