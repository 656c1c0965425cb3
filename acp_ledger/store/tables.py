"""The tables of the ledger, one definition for SQLite and Postgres.

What must not be broken here: a table that holds a record has the record's fields, in their order, behind
`transport_id`; every table has `protocol_revision`, NOT NULL and without a default; only columns an erasure blanks,
and facts that may be missing, are nullable. There are no foreign keys and few indexes: the primary keys say which rows
belong together, and each index is time taken from the agent's line. Tables of small rows are kept in the order of
their key on SQLite (WITHOUT ROWID), so that a row is one write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from acp_ledger.protocol.records import ERASABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=NAMING)


def _int(name: str, comment: str, *, null: bool = True) -> Column[Any]:
    return Column(name, BigInteger, nullable=null, comment=comment, autoincrement=False)


def _text(name: str, comment: str, *, null: bool = True) -> Column[Any]:
    return Column(name, Text, nullable=null, comment=comment)


def _bool(name: str, comment: str, *, null: bool = True) -> Column[Any]:
    return Column(name, Boolean(create_constraint=False), nullable=null, comment=comment)


def _blob(name: str, comment: str, *, null: bool = True) -> Column[Any]:
    return Column(name, LargeBinary, nullable=null, comment=comment)


def _revision() -> Column[Any]:
    return _text("protocol_revision", "The protocol revision this row was read under.", null=False)


def _key() -> list[Column[Any]]:
    return [
        _int("transport_id", "The transport: one agent process and its connection.", null=False),
        _int("frame_seq", "The frame or event this row comes from; from 1, dense, one sequence for both.", null=False),
    ]


def _session(*, null: bool = True) -> Column[Any]:
    return _int("session_id", "The session, a small number of its transport; NULL when none is named.", null=null)


def _turn(*, null: bool = True) -> Column[Any]:
    return _int("turn_id", "The turn, a small number of its transport; NULL outside a turn.", null=null)


def _lossy() -> Column[Any]:
    return _bool("lossy", "Lone surrogates or NUL were replaced in this row's text; the frame has them.", null=False)


def _private() -> list[Column[Any]]:
    return [
        _blob("private", "SHA-256 of the erasable columns under this number; 32 zero bytes for none.", null=False),
        _blob("private_salt", "Salt of `private`; NULL when there is nothing private, and once erased."),
    ]


def _derived(
    name: str,
    comment: str,
    *columns: Column[Any],
    unique: Sequence[str] = (),
    index: Sequence[tuple[str, ...]] = (),
) -> Table:
    """A table of rows under the number of a frame or an event; each of `unique` occurs once per transport."""
    ordinal = _int("ordinal", "Position among the rows of this table under the same number, from 0.", null=False)
    key = PrimaryKeyConstraint("transport_id", "frame_seq", "ordinal")
    return Table(
        name,
        metadata,
        *_key(),
        ordinal,
        _revision(),
        *columns,
        key,
        *(UniqueConstraint("transport_id", column) for column in unique),
        *(Index(None, *names) for names in index),
        comment=comment,
        sqlite_with_rowid=False,
    )


ledger = Table(
    "ledger",
    metadata,
    _int("ordinal", "0 for the creation, then one for each migration.", null=False),
    _revision(),
    _blob("ledger_id", "16 random bytes, the same in every row: which ledger this is.", null=False),
    _int("created_at", "When this row was written.", null=False),
    _text("schema_revision", "The schema's revision from here on.", null=False),
    _text(
        "compat", "The oldest schema revision a program may know and still write; the newest row counts.", null=False
    ),
    _text("software", "The program that created or migrated the ledger, with its version.", null=False),
    PrimaryKeyConstraint("ordinal"),
    comment="The ledger itself: its creation, then one row per migration.",
)

daemons = Table(
    "daemons",
    metadata,
    _text("daemon_id", "Identity of an installation, kept in its state directory.", null=False),
    _revision(),
    _text("host", "Name of the machine when it was first seen.", null=False),
    _int("uid", "User the daemon ran as.", null=False),
    _int("created_at", "When the daemon was first seen.", null=False),
    PrimaryKeyConstraint("daemon_id"),
    comment="An installation that writes to this ledger.",
)

transports = Table(
    "transports",
    metadata,
    _int("id", "max(own last + 1, UTC microseconds at opening): the transport's key in this database.", null=False),
    _int("epoch", "The transport's identity outside this database; the chain begins with it.", null=False),
    _revision(),
    _text("daemon_id", "The daemon that owns this transport.", null=False),
    _int("opened_at", "When it was opened, before its process was started.", null=False),
    _text("mode", "`relay`, `client` or `terminal`.", null=False),
    _text("agent", "The agent's name in the settings, else that of its command.", null=False),
    _text("argv", "The command line as a JSON array; erasable."),
    _text("cwd", "The working directory; erasable."),
    _text("env_names", "Names of the agent's environment variables as a JSON array; values are never stored."),
    _text("label", "Labels given to the runner, as a JSON object; erasable."),
    _int("peer_uid", "User id of the process that asked for the agent."),
    _int("peer_gid", "Group id of that process."),
    _int("peer_pid", "Process id of that process."),
    _text("os_user", "Name of that user."),
    _text("limits", "Limits in force, as a JSON object."),
    _text("policy_digest", "SHA-256 of the policy in force, as hex."),
    _text("failure_mode", "What happens when the ledger cannot commit: `closed` or `open`.", null=False),
    _text("durability", "What a commit outlives: `power`, or `process` with `synchronous = normal`.", null=False),
    _text("mapping_version", "The set of mappers that read its lines.", null=False),
    _blob("facts", "SHA-256 of this row's other columns.", null=False),
    *_private(),
    _blob("chain", "Genesis: where this transport's chain begins.", null=False),
    PrimaryKeyConstraint("id"),
    UniqueConstraint("epoch"),
    Index(None, "daemon_id"),
    comment="An agent process and its connection, inserted before the process starts and never changed.",
)

frames = Table(
    "frames",
    metadata,
    *_key(),
    _revision(),
    _session(),
    _turn(),
    _text("direction", "`agent_to_client` or `client_to_agent`.", null=False),
    _text("origin", "Who made the line: `peer`, `daemon`, `policy` or `operator`.", null=False),
    _text("delivery", "`forward`, or `withhold` for a line that is kept from the other side.", null=False),
    _text("kind", "`request`, `notification`, `response` or `opaque`.", null=False),
    _text("method", "The method; of a response, that of its request."),
    _text("rpc_id", 'The id as its raw JSON token (`"1"` is not `1`); NULL when absent.'),
    _text("phase", "`setup`, `turn`, `between` or `replay`.", null=False),
    _int("update_sequence", "Number of the session update within its transport."),
    _text("session_update", "The update's kind, in the wire's spelling."),
    _text("disposition", "`observed` when it became a step or an exchange, else `not_recorded`.", null=False),
    _int("received_at", "When the line was read.", null=False),
    _int("byte_count", "Length of the line as it was read, without its newline.", null=False),
    _bool("terminated", "False for a last line without a newline.", null=False),
    _text("body_state", "`exact`, `redacted`, `absent` or `erased`.", null=False),
    _blob("commitment", "SHA-256 of the stored body; 32 zero bytes for an absent one.", null=False),
    _blob("facts", "SHA-256 of all other columns under this number.", null=False),
    *_private(),
    _blob("chain", "Link: SHA-256 of the previous link, the number and the three digests.", null=False),
    _blob("salt", "Salt of `commitment`; NULL for an absent body, and once erased."),
    _blob("body", "The line as stored, without its newline; NULL for an absent body, and once erased."),
    PrimaryKeyConstraint("transport_id", "frame_seq"),
    comment="A line, as it was read. Partitioned by transport, which is time, on Postgres.",
    postgresql_partition_by="RANGE (transport_id)",
)

transport_events = Table(
    "transport_events",
    metadata,
    *_key(),
    _revision(),
    _text("event", "`opened`, `spawned`, `negotiated`, `eof`, `read_error`, `exited`, … `closed`.", null=False),
    _int("at", "When it happened.", null=False),
    _text("direction", "Whose stream, where the event is about one."),
    _int("pid", "Process id of the agent."),
    _int("start_time", "The agent's start time, in clock ticks since boot, as in /proc/PID/stat."),
    _text("boot_id", "The boot this process belongs to."),
    _int("pgid", "The agent's process group."),
    _text("cgroup", "The agent's control group."),
    _text("requested_version", "Protocol version the client asked for, as spelled."),
    _text("version", "Protocol version the agent answered, as spelled."),
    _text("client_name", "Name the client gave itself."),
    _text("client_version", "Version the client gave itself."),
    _text("agent_name", "Name the agent gave itself."),
    _text("agent_version", "Version the agent gave itself."),
    _int("status", "Exit status of the agent."),
    _int("signal", "Signal that ended the agent."),
    _text("stderr_tail", "The last the agent wrote to its standard error; erasable."),
    _text("close_reason", "Why the transport ended."),
    _text("detail", "Words that explain the event; erasable."),
    _blob("facts", "SHA-256 of all other columns under this number.", null=False),
    *_private(),
    _blob("chain", "Link: SHA-256 of the previous link, the number and the three digests.", null=False),
    PrimaryKeyConstraint("transport_id", "frame_seq"),
    comment="A fact of a transport that is not a line. Its number and link come from the same sequence as frames.",
)

sessions = _derived(
    "sessions",
    "A conversation, at first sight on its transport.",
    _session(null=False),
    _text("acp_session_id", "The agent's id of the conversation.", null=False),
    unique=["acp_session_id", "session_id"],
    index=[("acp_session_id",)],
)

session_openings = _derived(
    "session_openings",
    "An answered `session/new`, `session/load`, `session/resume` or `session/fork`.",
    _session(null=False),
    _text("origin", "`new`, `load`, `resume` or `fork`.", null=False),
    _int("request_frame", "The frame that asked.", null=False),
    _text("parent_acp_session_id", "The forked session, as sent."),
    _text("cwd", "The session's working directory; erasable."),
    _text("current_mode", "The mode the session opened in."),
    _text("modes", "Modes on offer, as a JSON array of ids."),
    _lossy(),
)

turns = _derived(
    "turns",
    "A prompt turn.",
    _session(null=False),
    _turn(null=False),
    _int("session_turn", "Number of the turn within its session, from 1.", null=False),
    _int("first_frame", "First frame of the turn.", null=False),
    _int("prompt_frame", "Frame of the prompt, where one opened the turn."),
)

prompts = _derived(
    "prompts",
    "What the user asked.",
    _session(),
    _turn(),
    _text("source", "`request`, or `chunk` for a live `user_message_chunk`.", null=False),
    _text("detail", "The update's title, where it has one; erasable."),
    _text("block_kinds", "Types of the content blocks, in order, as a JSON array."),
    _lossy(),
)

tool_call_steps = _derived(
    "tool_call_steps",
    "An observed step of a tool call.",
    _session(null=False),
    _turn(),
    _text("tool_call_id", "The agent's id of the call.", null=False),
    _text("source", "`update`, or `permission` when a question's call carries a status.", null=False),
    _text("status", "Status, reading `pending` where the agent's word is unknown or missing.", null=False),
    _text("status_raw", "The agent's word; NULL when it sent none."),
    _text("kind", "The agent's kind of the call."),
    _text("tool_name", "Name of the tool, where the agent tells it."),
    _text("title", "Title of the call; erasable."),
    _lossy(),
)

tool_call_locations = _derived(
    "tool_call_locations",
    "A path a tool call names.",
    _session(null=False),
    _turn(),
    _text("tool_call_id", "The agent's id of the call.", null=False),
    _text("path", "The path; erasable."),
    _int("line", "The line, where one is named."),
    _lossy(),
)

permission_requests = _derived(
    "permission_requests",
    "A question, whatever became of it.",
    _session(),
    _turn(),
    _text("tool_call_id", "The call's id, as sent with the question."),
    _text("joined_call_id", "The call this question is about."),
    _text("join_kind", "How that is known: `exact`, `inferred` or `none`.", null=False),
    _text("title", "The question's title; erasable."),
    _text("tool_kind", "The call's kind, as sent with the question."),
    _text("tool_status", "The call's status, as sent with the question."),
    _int("option_count", "Answers on offer; NULL when they are no list."),
    _lossy(),
    index=[("transport_id", "joined_call_id")],
)

permission_options = _derived(
    "permission_options",
    "An answer on offer, in the order of the offer.",
    _session(),
    _turn(),
    _text("option_id", "The option's id; NULL when it has none."),
    _text("name", "The option's label; erasable."),
    _text("kind", "The option's kind; NULL when it has none."),
    _lossy(),
)

decisions = _derived(
    "decisions",
    "A question's first answer, or that none came before its transport ended.",
    _session(),
    _turn(),
    _int("request_frame", "Frame of the question.", null=False),
    _text("outcome", "`selected`, `cancelled`, `error`, `malformed` or `unanswered`.", null=False),
    _text("outcome_raw", "The outcome's word on the wire; of an unanswered question, why it stayed so."),
    _text("option_id", "The chosen option."),
    _text("option_kind", "Kind of the first offer with that id; empty when it was never offered."),
    _text("option_kind_claimed", "Kind the answering program claimed."),
    _bool("offered", "Whether the chosen option was on offer; NULL when none was chosen."),
    _text("effect", "`allow`, `reject`, `none` or `unknown`.", null=False),
    _text("decided_by", "`client`, `policy`, `operator` or `nobody`.", null=False),
    _text("rule", "The policy's rule that matched."),
    _text("identity", "The operator."),
    _text("detail", "The question's title; erasable."),
    _int("asked_at", "When the question was read.", null=False),
    _int("decided_at", "When the answer was read; NULL for none."),
    _lossy(),
    unique=["request_frame"],
)

turn_ends = _derived(
    "turn_ends",
    "How a turn ended.",
    _session(null=False),
    _turn(null=False),
    _text("stop_reason", "The agent's own word."),
    _text("outcome", "Our reading of it.", null=False),
    _int("error_code", "Code of the error, where the turn ended with one."),
    _text("error_message", "Message of the error, or the reason of an end without answer; erasable."),
    _int("text_bytes", "Length of the agent's answer in UTF-8.", null=False),
    _lossy(),
    unique=["turn_id"],
)

messages = _derived(
    "messages",
    "A version of a message, its chunks joined with nothing between.",
    _session(null=False),
    _turn(),
    _text("stream", "`agent`, `thought` or `user`.", null=False),
    _text("message_id", "The agent's id of the message; NULL for none."),
    _int("version", "Number of the version, from 1.", null=False),
    _bool("cleared", "The message was replaced by nothing.", null=False),
    _bool("truncated", "The text is not whole: assembling stopped at its limit.", null=False),
    _text("text", "The text; erasable."),
    _int("text_bytes", "Length of the whole text in UTF-8.", null=False),
    _int("first_frame", "Frame of the first chunk.", null=False),
    _int("last_frame", "Frame of the last chunk.", null=False),
    _lossy(),
)

client_calls = _derived(
    "client_calls",
    "A request of the agent to the editor other than a permission question.",
    _session(),
    _turn(),
    _text("method", "The method.", null=False),
    _text("target", "Its path or command; erasable."),
    _lossy(),
)

client_call_ends = _derived(
    "client_call_ends",
    "How the editor answered such a request.",
    _session(),
    _turn(),
    _int("request_frame", "Frame of the request.", null=False),
    _text("answer", "`result`, `error` or `malformed`.", null=False),
    _int("error_code", "Code of the error."),
)

overflows = _derived(
    "overflows",
    "A reply stopped at a limit.",
    _session(),
    _turn(),
    _text("kind", "The limit.", null=False),
    _int("admitted_bytes", "Bytes of the reply before it.", null=False),
    _int("admitted_segments", "Segments of the reply before it.", null=False),
    _int("withheld_update_sequence", "The update that would have passed the limit."),
)

anomalies = _derived(
    "anomalies",
    "A thing an auditor must know.",
    _session(),
    _turn(),
    _text("class", "What kind of thing.", null=False),
    _text("detail", "Words that explain it; erasable."),
    _int("related_frame", "Another frame that shows it."),
)

gaps = _derived(
    "gaps",
    "A time, or a number of lines, without a commit; written under its event when it ends.",
    _text("cause", "`closed`, `open`, `refused`, `terminal` or `restart`.", null=False),
    _int("from_at", "When it began.", null=False),
    _int("to_at", "When it ended.", null=False),
    _int("count", "Lines that are not in the ledger; NULL when nobody can know."),
    _text("digest", "SHA-256 of those lines, as hex."),
)

deliveries = _derived(
    "deliveries",
    "How far lines were written to a peer; delivery is first in, first out.",
    _text("direction", "`agent_to_client` or `client_to_agent`.", null=False),
    _int("through_frame_seq", "Every line of this direction up to this one was written.", null=False),
)

SALTS: Final[dict[str, tuple[str, ...]]] = {
    "frames": ("private_salt", "salt"),
    "transport_events": ("private_salt",),
    "transports": ("private_salt",),
}
"""Columns an erasure blanks so that the digests they salt can no longer be tried out."""

RECORD_TABLES: Final[tuple[Table, ...]] = tuple(
    table for table in metadata.sorted_tables if table.name not in {"ledger", "daemons", "transports"}
)
"""Tables whose rows have a number of a transport's sequence."""


def blankable(table: Table) -> tuple[str, ...]:
    """Columns of a table an erasure may set to NULL, in the order of the table."""
    names = {*ERASABLE.get(table.name, ()), *SALTS.get(table.name, ()), *(("body",) if table.name == "frames" else ())}
    return tuple(column.name for column in table.columns if column.name in names)
