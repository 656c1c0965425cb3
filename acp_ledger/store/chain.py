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
from json.encoder import encode_basestring as quoted
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
    """A shape as templates over a record's fields, made once: what `seal` works with."""

    name: str
    facts_of: Callable[[Any], tuple[Any, ...]]
    facts_text: str
    erasable: tuple[int, ...]
    erasable_text: str


def _template(name: str, columns: Sequence[str]) -> str:
    """A row's canonical text with a `%s` for each value; table and column names need no escape."""
    return f'["{name}",{{' + ",".join(f'"{column}":%s' for column in columns) + "}]"


def _cut(record_type: type, name: str) -> _Cut:
    fields = [field.rstrip("_") for field in record_type._fields]  # type: ignore[attr-defined]  # a NamedTuple
    shape = SHAPES[name]
    return _Cut(
        name,
        itemgetter(*(fields.index(column) for column in shape.facts)),
        _template(name, shape.facts),
        tuple(fields.index(column) for column in shape.erasable),
        _template(name, shape.erasable),
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


def _spelled(values: Iterable[Any]) -> tuple[Any, ...]:
    """Each value as canonical text; a whole number may stand for itself, for `%s` spells it the same."""
    return tuple(
        [
            quoted(value)
            if (kind := value.__class__) is str
            else "null"
            if value is None
            else value
            if kind is int
            else _number(value)
            for value in values
        ],
    )


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"a {type(value).__name__} has no canonical spelling")
    return int(value)


def _private_text(cut: _Cut, record: Any) -> str | None:
    """A row's erasable columns, None when all are NULL."""
    values = [record[position] for position in cut.erasable]
    if values.count(None) == len(values):
        return None
    return cut.erasable_text % _spelled(values)


def _by_table_and_ordinal(row: Any) -> tuple[str, int]:
    return TABLE_OF[row.__class__], row.ordinal if row[1].__class__ is int else 0


def seal(entry: Entry, previous: bytes, salts: Callable[[int], bytes] = os.urandom) -> Sealed:
    """Digests and link of an entry behind `previous`. `salts` makes random bytes.

    Raises:
        UnicodeEncodeError: a text holds a lone surrogate, which no digest and no database can hold.
    """
    record, rows, body = entry
    ordered: Sequence[Any] = sorted((record, *rows), key=_by_table_and_ordinal) if rows else (record,)
    facts_texts, private_texts = [], []
    for row in ordered:
        cut = _CUTS[row.__class__]
        facts_texts.append(cut.facts_text % _spelled(cut.facts_of(row)))
        if cut.erasable and (text := _private_text(cut, row)) is not None:
            private_texts.append(text)
    facts = sha256(_FACTS + b"[" + ",".join(facts_texts).encode() + b"]").digest()
    private, private_salt = ZERO, None
    if private_texts:
        private_salt = salts(SALT_BYTES)
        private = private_digest(private_salt, b"[" + ",".join(private_texts).encode() + b"]")
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
