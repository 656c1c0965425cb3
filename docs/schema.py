"""Makes docs/schema.md: every table, view and column, and the layout of the hashes with vectors.

What must not be broken here: the words on tables come from their own comments, the vectors from the code that seals
rows, and a column of a view that has no words stops the making of the page.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine

from acp_ledger.protocol.observer import ANOMALY_CLASSES
from acp_ledger.protocol.records import ERASABLE, TABLE_OF
from acp_ledger.store import chain, vectors, views
from acp_ledger.store.tables import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Column, Table

    from acp_ledger.protocol.records import Entry

VIEWS: Final = {
    "audit_transports": "An agent process and its connection.",
    "audit_sessions": "A conversation on one transport.",
    "audit_turns": "A prompt turn: what was asked of the agent, and how that ended.",
    "audit_tool_calls": "A tool call, as its last step says, with what was asked about it.",
    "audit_decisions": "A permission question with its answer, or with what stands in its place.",
    "audit_coverage": "What was recorded as a step and what was not, counted by the wire's own words.",
    "audit_timeline": "Every step in order; what is no step is there as `not_recorded`.",
    "audit_anomalies": "What an auditor must know about lines and their senders.",
}

COMMON: Final = {
    "transport_id": "The transport's key in this database.",
    "session_id": "The session's number within its transport; NULL where there is none.",
    "turn_id": "The turn's number within its transport; NULL outside one, or where two were open.",
    "acp_session_id": "The agent's own id of the session.",
    "frame_seq": "The number of the line or event that says so; order is by it, never by time.",
    "protocol_revision": "The revision the rows were read under.",
    "agent": "The agent's name in the settings, else that of its command.",
    "tool_call_id": "The call's id, as the agent sent it.",
    "stop_reason": "The agent's own word for the end.",
    "tool_calls": "Calls with at least one step.",
    "questions": "Permission questions asked.",
    "detail": "The text that goes with it, for reading.",
    "decided_by": "`client`, `policy`, `operator` or `nobody`.",
    "at": "When, RFC 3339 in UTC.",
}

OWN: Final = {
    "audit_transports.epoch": "The transport's identity outside this database.",
    "audit_transports.mode": "`relay`, `client` or `terminal`.",
    "audit_transports.host": "The machine of its daemon.",
    "audit_transports.os_user": "The user who asked for the agent.",
    "audit_transports.label": "Labels given to the runner.",
    "audit_transports.protocol_revision": "The negotiated revision; `acp/unnegotiated` where none was.",
    "audit_transports.client": "The client's name in `initialize`.",
    "audit_transports.agent_version": "The agent's version in its answer to `initialize`.",
    "audit_transports.opened_at": "Before its process was started.",
    "audit_transports.closed_at": "When it was closed, or found interrupted; NULL while open.",
    "audit_transports.close_reason": "Why it was closed.",
    "audit_transports.exit_status": "The agent's exit status, 128 + N after signal N; NULL where unknown.",
    "audit_transports.frames": "Lines kept, both directions.",
    "audit_sessions.origin": "`new`, `load`, `resume` or `fork`; NULL when its opening was not seen.",
    "audit_sessions.cwd": "The working directory given when it was opened.",
    "audit_sessions.first_at": "When it was first seen.",
    "audit_sessions.last_at": "When its last line was read.",
    "audit_sessions.turns": "Prompt turns.",
    "audit_sessions.allowed": "Questions whose answer allows.",
    "audit_sessions.rejected": "Questions whose answer rejects.",
    "audit_sessions.last_outcome": "How its last ended turn ended.",
    "audit_sessions.continues": "The earlier transport of the same agent and session id, inferred; NULL where none.",
    "audit_turns.started_at": "When its first line was read.",
    "audit_turns.ended_at": "When it ended; NULL while open.",
    "audit_turns.outcome": "How it ended: only `completed` is a completed turn.",
    "audit_turns.error_code": "The JSON-RPC error's code.",
    "audit_turns.text_bytes": "Bytes of the agent's answer.",
    "audit_tool_calls.kind": "The last kind the agent gave it.",
    "audit_tool_calls.title": "The last title the agent gave it.",
    "audit_tool_calls.status": "The status of its last step that has one, else `pending`: the agent's claim.",
    "audit_tool_calls.status_raw": "The same in the agent's own word.",
    "audit_tool_calls.first_at": "When its first step was read.",
    "audit_tool_calls.last_at": "When its last step was read.",
    "audit_tool_calls.asked": "Whether a permission question was asked about it.",
    "audit_tool_calls.decision_outcome": "The outcome of the last question about it; `open` until there is an answer.",
    "audit_tool_calls.decision_effect": "What that answer means: `allow`, `reject`, `none` or `unknown`.",
    "audit_decisions.frame_seq": "The number of the question's line.",
    "audit_decisions.tool_call_id": "The call it is about, joined where that is sure.",
    "audit_decisions.tool_kind": "The tool kind the question gives.",
    "audit_decisions.detail": "The question's title.",
    "audit_decisions.offered_kinds": "The kinds of the answers on offer, in order.",
    "audit_decisions.outcome": "`selected`, `cancelled`, `error`, `malformed`, `unanswered`; `open` until known.",
    "audit_decisions.option_id": "The answer chosen.",
    "audit_decisions.option_kind": "The kind of the offer it names; empty when it was never offered.",
    "audit_decisions.offered": "Whether the answer was on offer.",
    "audit_decisions.effect": "`allow`, `reject`, `none` or `unknown`.",
    "audit_decisions.rule": "The policy's rule that answered.",
    "audit_decisions.asked_at": "When the question was read.",
    "audit_decisions.decided_at": "When the answer was read.",
    "audit_decisions.waited_ms": "Milliseconds between the two.",
    "audit_coverage.direction": "`agent_to_client` or `client_to_agent`.",
    "audit_coverage.word": "The update's kind or the method, as spelled on the wire.",
    "audit_coverage.recorded_as": "`step`, `text kept` (joined into a message) or `frame only` (the line itself).",
    "audit_coverage.count": "Lines.",
    "audit_coverage.first_frame_seq": "The first of them.",
    "audit_coverage.last_frame_seq": "The last of them.",
    "audit_coverage.replayed": "How many of them were a replay of an earlier conversation.",
    "audit_timeline.step": "`prompted`, `tool_call`, `question`, `decision`, `turn_ended` or `not_recorded`.",
    "audit_timeline.call": "The tool call it is about.",
    "audit_timeline.word": "What happened in one word: a status, an effect, an outcome, an update's kind.",
    "audit_anomalies.class": "What kind of thing it is.",
}


def page(made: str) -> str:
    """The whole page."""
    return "\n".join([*_introduction(made), *_views(), *_tables(), *_anomalies(), *_hashes()]) + "\n"


def _introduction(made: str) -> list[str]:
    return [
        "# Schema",
        "",
        made,
        "After this page you can ask a ledger anything in SQL, and prove without our code that nobody changed it.",
        "",
        "The views are the audit contract: the same columns and RFC 3339 times on SQLite and Postgres. The tables below",
        "them may grow new tables; their columns never change. No row is ever updated: what becomes known later is a row",
        "of its own. Only an erasure blanks erasable columns, and leaves their digests.",
        "",
        "* On Postgres, `SET jit = off` before you ask: compiling a view over all partitions takes longer than running it.",
        "* Times in tables are microseconds since 1970 in UTC, of the daemon's clock at reading.",
        "* `NULL` means not applicable, or not said.",
        "* Words and ids that an agent owns are kept as sent; one over 256 bytes, with NUL or a lone surrogate, or that",
        "  begins with `sha256:` is kept as `sha256:` and the digest of its token.",
        "* `lossy`: a text column had to replace NUL or a lone surrogate; the exact line is in `frames.body`.",
        "* `kind`, `status`, `title` and the like are the agent's claims. `direction`, `received_at`, `phase`, `outcome`",
        "  and everything about order are observed. `continues` and `join_kind = 'inferred'` are inferred.",
    ]


def _views() -> Iterator[str]:
    yield from ("", "## Views")
    for name, columns in view_columns().items():
        yield from ("", f"### `{name}`", "", VIEWS[name], "", "| column | meaning |", "|---|---|")
        for column in columns:
            yield f"| `{column}` | {OWN.get(f'{name}.{column}') or COMMON[column]} |"


MANUAL: Final = (
    "The views are the audit contract: the same columns and RFC 3339 times on SQLite and Postgres. The tables below them"
    " may grow new tables; their columns never change, and no row is ever updated. Times in tables are microseconds"
    " since 1970 in UTC. NULL means not applicable, or not said. The layout of the hashes is in docs/schema.md."
)
"""What the manual says before its chapters."""


def chapters() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Every view, then every table: its name, what its row is, and each column's meaning."""
    for name, columns in view_columns().items():
        yield name, VIEWS[name], {column: OWN.get(f"{name}.{column}") or COMMON[column] for column in columns}
    for table in metadata.tables.values():
        yield table.name, table.comment or "", {column.name: column.comment or "" for column in table.columns}


def view_columns() -> dict[str, list[str]]:
    """The columns of each view, in order, as the database names them."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        for statement in views.create_statements("sqlite"):
            connection.exec_driver_sql(statement)
        found = {
            name: [row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({name})")]
            for name in views.view_names()
        }
    engine.dispose()
    return found


def _tables() -> Iterator[str]:
    yield from ("", "## Tables")
    for table in metadata.tables.values():
        keys = ", ".join(f"`{column.name}`" for column in table.primary_key.columns)
        yield from ("", f"### `{table.name}`", "", f"{table.comment} Key: {keys}.", "")
        yield from ("| column | type | null | digest | meaning |", "|---|---|---|---|---|")
        for column in table.columns:
            null = "yes" if column.nullable else "no"
            meaning = column.comment
            yield f"| `{column.name}` | {_type(column)} | {null} | {_digest(table, column)} | {meaning} |"


def _type(column: Column[Any]) -> str:
    return {"BIGINT": "integer", "TEXT": "text", "BOOLEAN": "boolean", "BLOB": "bytes"}[str(column.type)]


def _digest(table: Table, column: Column[Any]) -> str:
    """Which digest covers a column."""
    shape = chain.SHAPES.get(table.name)
    if shape is None:
        return ""
    if column.name in shape.erasable:
        return "`private`"
    if column.name in shape.facts:
        return "`facts`"
    return {"body": "`commitment`"}.get(column.name, "")


def _anomalies() -> Iterator[str]:
    yield from ("", "## Classes of anomalies", "", "| class | meaning |", "|---|---|")
    for name, meaning in ANOMALY_CLASSES.items():
        yield f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |"


def _hashes() -> list[str]:
    erasable = ", ".join(f"`{table}.{name}`" for table, names in sorted(ERASABLE.items()) for name in sorted(names))
    return [
        "",
        "## Hash layout",
        "",
        "`‖` joins bytes; every digest is SHA-256; `\\0` is one zero byte.",
        "",
        "```text",
        "lp(x)        = u32be length of x ‖ x",
        "canonical(x) = UTF-8 JSON without spaces; non-ASCII as it is; strings escape only what JSON demands;",
        "               keys by code point; NULL written; booleans 0 and 1; integers only; blobs as hex;",
        "               rows as [table, {column: value}] by table, then ordinal; transport_id and id never",
        'commitment   = SHA256("acp-ledger/body/1\\0"    ‖ lp(salt) ‖ body)            32 zero bytes without a body',
        'private      = SHA256("acp-ledger/private/1\\0" ‖ lp(private_salt) ‖ canonical(erasable columns))',
        "               of the rows that have one that is not NULL;                 32 zero bytes when there are none",
        'facts        = SHA256("acp-ledger/facts/1\\0"   ‖ canonical(all other mapped columns))',
        'genesis      = SHA256("acp-ledger/genesis/1\\0" ‖ ledger_id ‖ u64be epoch ‖ private ‖ facts)',
        'chain        = SHA256("acp-ledger/link/1\\0"    ‖ previous ‖ u64be frame_seq ‖ commitment ‖ private ‖ facts)',
        "```",
        "",
        "The first number's `previous` is the genesis, which is the `chain` of the `transports` row. `private` and `facts`",
        "cover the frame or event and every row under its number, in whatever table. An erasure blanks erasable columns,",
        "bodies and salts; the digests stay, and an `erased` event says who and why.",
        "",
        f"Erasable, so under `private`: `frames.body` (by its commitment), {erasable}.",
        "",
        "### Vectors",
        "",
        "A transport, its first event, and a line with one step. Whoever gets these digests from these bytes can verify",
        "every ledger there is.",
        "",
        "```json",
        json.dumps(worked(), indent=2),
        "```",
    ]


def worked() -> list[dict[str, Any]]:
    """What is hashed, and what comes out, for three rows whose values never change."""
    facts, private = chain.divide([("transports", vectors.TRANSPORT)])
    sealed = chain.seal_transport(vectors.LEDGER_ID, vectors.TRANSPORT, vectors.PRIVATE_SALT)
    first = {
        "of": "transport",
        "ledger_id": vectors.LEDGER_ID.hex(),
        "epoch": vectors.EPOCH,
        **_covered(facts, private, sealed.private_salt),
        "facts": sealed.facts.hex(),
        "private": sealed.private.hex(),
        "genesis": sealed.chain.hex(),
    }
    event = _sealed("event", vectors.OPENED, sealed.chain)
    return [first, event, _sealed("frame", vectors.STEP, bytes.fromhex(event["chain"]))]


def _sealed(of: str, entry: Entry, previous: bytes) -> dict[str, Any]:
    salts = iter((vectors.PRIVATE_SALT, vectors.SALT))
    sealed = chain.seal(entry, previous, lambda _size: next(salts))
    rows = [(TABLE_OF[type(row)], row._asdict()) for row in (entry.record, *entry.rows)]
    facts, private = chain.divide(rows)
    body = {} if entry.body is None or sealed.salt is None else {"salt": sealed.salt.hex(), "body": entry.body.decode()}
    return {
        "of": of,
        "previous": previous.hex(),
        "frame_seq": entry.record.frame_seq,
        **body,
        **_covered(facts, private, sealed.private_salt),
        "commitment": sealed.commitment.hex(),
        "facts": sealed.facts.hex(),
        "private": sealed.private.hex(),
        "chain": sealed.chain.hex(),
    }


def _covered(facts: bytes, private: bytes | None, salt: bytes | None) -> dict[str, Any]:
    covered = {"canonical_facts": facts.decode()}
    if private is not None and salt is not None:
        covered |= {"canonical_private": private.decode(), "private_salt": salt.hex()}
    return covered
