# ruff: noqa: E501  # one line per column, so that a difference shows columns
"""The first schema: every table of the ledger, as it was when ledgers began.

What must not be broken here: nothing here is ever edited once released; later revisions add to it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

COMPAT = "0001"

TYPES = {"int": sa.BigInteger, "text": sa.Text, "bool": sa.Boolean, "blob": sa.LargeBinary}


class Made(NamedTuple):
    """A table: its columns as (name, type, nullable, comment), its key, what is unique in it, its indexes."""

    comment: str
    columns: tuple[tuple[str, str, bool, str], ...]
    key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012  # never changed


# fmt: off
TABLES = {
    "anomalies": Made("A thing an auditor must know.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", True, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("class", "text", False, "What kind of thing."),
        ("detail", "text", True, "Words that explain it; erasable."),
        ("related_frame", "int", True, "Another frame that shows it."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "client_call_ends": Made("How the editor answered such a request.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", True, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("request_frame", "int", False, "Frame of the request."),
        ("answer", "text", False, "`result`, `error` or `malformed`."),
        ("error_code", "int", True, "Code of the error."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "client_calls": Made("A request of the agent to the editor other than a permission question.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", True, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("method", "text", False, "The method."),
        ("target", "text", True, "Its path or command; erasable."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "daemons": Made("An installation that writes to this ledger.", (
        ("daemon_id", "text", False, "Identity of an installation, kept in its state directory."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("host", "text", False, "Name of the machine when it was first seen."),
        ("uid", "int", False, "User the daemon ran as."),
        ("created_at", "int", False, "When the daemon was first seen."),
    ), ("daemon_id",), (), (), {}),
    "decisions": Made("A question's first answer, or that none came before its transport ended.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", True, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("request_frame", "int", False, "Frame of the question."),
        ("outcome", "text", False, "`selected`, `cancelled`, `error`, `malformed` or `unanswered`."),
        ("outcome_raw", "text", True, "The outcome's word on the wire; of an unanswered question, why it stayed so."),
        ("option_id", "text", True, "The chosen option."),
        ("option_kind", "text", True, "Kind of the first offer with that id; empty when it was never offered."),
        ("option_kind_claimed", "text", True, "Kind the answering program claimed."),
        ("offered", "bool", True, "Whether the chosen option was on offer; NULL when none was chosen."),
        ("effect", "text", False, "`allow`, `reject`, `none` or `unknown`."),
        ("decided_by", "text", False, "`client`, `policy`, `operator` or `nobody`."),
        ("rule", "text", True, "The policy's rule that matched."),
        ("identity", "text", True, "The operator."),
        ("detail", "text", True, "The question's title; erasable."),
        ("asked_at", "int", False, "When the question was read."),
        ("decided_at", "int", True, "When the answer was read; NULL for none."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (("transport_id", "request_frame"),), (), {"sqlite_with_rowid": False}),
    "deliveries": Made("How far lines were written to a peer; delivery is first in, first out.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("direction", "text", False, "`agent_to_client` or `client_to_agent`."),
        ("through_frame_seq", "int", False, "Every line of this direction up to this one was written."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "frames": Made("A line, as it was read. Partitioned by transport, which is time, on Postgres.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", True, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("direction", "text", False, "`agent_to_client` or `client_to_agent`."),
        ("origin", "text", False, "Who made the line: `peer`, `daemon`, `policy` or `operator`."),
        ("delivery", "text", False, "`forward`, or `withhold` for a line that is kept from the other side."),
        ("kind", "text", False, "`request`, `notification`, `response` or `opaque`."),
        ("method", "text", True, "The method; of a response, that of its request."),
        ("rpc_id", "text", True, 'The id as its raw JSON token (`"1"` is not `1`); NULL when absent.'),
        ("phase", "text", False, "`setup`, `turn`, `between` or `replay`."),
        ("update_sequence", "int", True, "Number of the session update within its transport."),
        ("session_update", "text", True, "The update's kind, in the wire's spelling."),
        ("disposition", "text", False, "`observed` when it became a step or an exchange, else `not_recorded`."),
        ("received_at", "int", False, "When the line was read."),
        ("byte_count", "int", False, "Length of the line as it was read, without its newline."),
        ("terminated", "bool", False, "False for a last line without a newline."),
        ("body_state", "text", False, "`exact`, `redacted`, `absent` or `erased`."),
        ("commitment", "blob", False, "SHA-256 of the stored body; 32 zero bytes for an absent one."),
        ("facts", "blob", False, "SHA-256 of all other columns under this number."),
        ("private", "blob", False, "SHA-256 of the erasable columns under this number; 32 zero bytes for none."),
        ("private_salt", "blob", True, "Salt of `private`; NULL when there is nothing private, and once erased."),
        ("chain", "blob", False, "Link: SHA-256 of the previous link, the number and the three digests."),
        ("salt", "blob", True, "Salt of `commitment`; NULL for an absent body, and once erased."),
        ("body", "blob", True, "The line as stored, without its newline; NULL for an absent body, and once erased."),
    ), ("transport_id", "frame_seq"), (), (), {"postgresql_partition_by": "RANGE (transport_id)"}),
    "gaps": Made("A time, or a number of lines, without a commit; written under its event when it ends.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("cause", "text", False, "`closed`, `open`, `refused`, `terminal` or `restart`."),
        ("from_at", "int", False, "When it began."),
        ("to_at", "int", False, "When it ended."),
        ("count", "int", True, "Lines that are not in the ledger; NULL when nobody can know."),
        ("digest", "text", True, "SHA-256 of those lines, as hex."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "ledger": Made("The ledger itself: its creation, then one row per migration.", (
        ("ordinal", "int", False, "0 for the creation, then one for each migration."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("ledger_id", "blob", False, "16 random bytes, the same in every row: which ledger this is."),
        ("created_at", "int", False, "When this row was written."),
        ("schema_revision", "text", False, "The schema's revision from here on."),
        ("compat", "text", False, "The oldest schema revision a program may know and still write; the newest row counts."),
        ("software", "text", False, "The program that created or migrated the ledger, with its version."),
    ), ("ordinal",), (), (), {}),
    "messages": Made("A version of a message, its chunks joined with nothing between.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", False, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("stream", "text", False, "`agent`, `thought` or `user`."),
        ("message_id", "text", True, "The agent's id of the message; NULL for none."),
        ("version", "int", False, "Number of the version, from 1."),
        ("cleared", "bool", False, "The message was replaced by nothing."),
        ("truncated", "bool", False, "The text is not whole: assembling stopped at its limit."),
        ("text", "text", True, "The text; erasable."),
        ("text_bytes", "int", False, "Length of the whole text in UTF-8."),
        ("first_frame", "int", False, "Frame of the first chunk."),
        ("last_frame", "int", False, "Frame of the last chunk."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "overflows": Made("A reply stopped at a limit.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", True, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("kind", "text", False, "The limit."),
        ("admitted_bytes", "int", False, "Bytes of the reply before it."),
        ("admitted_segments", "int", False, "Segments of the reply before it."),
        ("withheld_update_sequence", "int", True, "The update that would have passed the limit."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "permission_options": Made("An answer on offer, in the order of the offer.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", True, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("option_id", "text", True, "The option's id; NULL when it has none."),
        ("name", "text", True, "The option's label; erasable."),
        ("kind", "text", True, "The option's kind; NULL when it has none."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "permission_requests": Made("A question, whatever became of it.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", True, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("tool_call_id", "text", True, "The call's id, as sent with the question."),
        ("joined_call_id", "text", True, "The call this question is about."),
        ("join_kind", "text", False, "How that is known: `exact`, `inferred` or `none`."),
        ("title", "text", True, "The question's title; erasable."),
        ("tool_kind", "text", True, "The call's kind, as sent with the question."),
        ("tool_status", "text", True, "The call's status, as sent with the question."),
        ("option_count", "int", True, "Answers on offer; NULL when they are no list."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (("transport_id", "joined_call_id"),), {"sqlite_with_rowid": False}),
    "prompts": Made("What the user asked.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", True, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("source", "text", False, "`request`, or `chunk` for a live `user_message_chunk`."),
        ("detail", "text", True, "The update's title, where it has one; erasable."),
        ("block_kinds", "text", True, "Types of the content blocks, in order, as a JSON array."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "session_openings": Made("An answered `session/new`, `session/load`, `session/resume` or `session/fork`.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", False, "The session, a small number of its transport; NULL when none is named."),
        ("origin", "text", False, "`new`, `load`, `resume` or `fork`."),
        ("request_frame", "int", False, "The frame that asked."),
        ("parent_acp_session_id", "text", True, "The forked session, as sent."),
        ("cwd", "text", True, "The session's working directory; erasable."),
        ("current_mode", "text", True, "The mode the session opened in."),
        ("modes", "text", True, "Modes on offer, as a JSON array of ids."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "sessions": Made("A conversation, at first sight on its transport.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", False, "The session, a small number of its transport; NULL when none is named."),
        ("acp_session_id", "text", False, "The agent's id of the conversation."),
    ), ("transport_id", "frame_seq", "ordinal"), (("transport_id", "acp_session_id"), ("transport_id", "session_id")), (("acp_session_id",),), {"sqlite_with_rowid": False}),
    "tool_call_locations": Made("A path a tool call names.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", False, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("tool_call_id", "text", False, "The agent's id of the call."),
        ("path", "text", True, "The path; erasable."),
        ("line", "int", True, "The line, where one is named."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "tool_call_steps": Made("An observed step of a tool call.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", False, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", True, "The turn, a small number of its transport; NULL outside a turn."),
        ("tool_call_id", "text", False, "The agent's id of the call."),
        ("source", "text", False, "`update`, or `permission` when a question's call carries a status."),
        ("status", "text", False, "Status, reading `pending` where the agent's word is unknown or missing."),
        ("status_raw", "text", True, "The agent's word; NULL when it sent none."),
        ("kind", "text", True, "The agent's kind of the call."),
        ("tool_name", "text", True, "Name of the tool, where the agent tells it."),
        ("title", "text", True, "Title of the call; erasable."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
    "transport_events": Made("A fact of a transport that is not a line. Its number and link come from the same sequence as frames.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("event", "text", False, "`opened`, `spawned`, `negotiated`, `eof`, `read_error`, `exited`, … `closed`."),
        ("at", "int", False, "When it happened."),
        ("direction", "text", True, "Whose stream, where the event is about one."),
        ("pid", "int", True, "Process id of the agent."),
        ("start_time", "int", True, "The agent's start time, in clock ticks since boot, as in /proc/PID/stat."),
        ("boot_id", "text", True, "The boot this process belongs to."),
        ("pgid", "int", True, "The agent's process group."),
        ("cgroup", "text", True, "The agent's control group."),
        ("requested_version", "text", True, "Protocol version the client asked for, as spelled."),
        ("version", "text", True, "Protocol version the agent answered, as spelled."),
        ("client_name", "text", True, "Name the client gave itself."),
        ("client_version", "text", True, "Version the client gave itself."),
        ("agent_name", "text", True, "Name the agent gave itself."),
        ("agent_version", "text", True, "Version the agent gave itself."),
        ("status", "int", True, "Exit status of the agent."),
        ("signal", "int", True, "Signal that ended the agent."),
        ("stderr_tail", "text", True, "The last the agent wrote to its standard error; erasable."),
        ("close_reason", "text", True, "Why the transport ended."),
        ("detail", "text", True, "Words that explain the event; erasable."),
        ("facts", "blob", False, "SHA-256 of all other columns under this number."),
        ("private", "blob", False, "SHA-256 of the erasable columns under this number; 32 zero bytes for none."),
        ("private_salt", "blob", True, "Salt of `private`; NULL when there is nothing private, and once erased."),
        ("chain", "blob", False, "Link: SHA-256 of the previous link, the number and the three digests."),
    ), ("transport_id", "frame_seq"), (), (), {}),
    "transports": Made("An agent process and its connection, inserted before the process starts and never changed.", (
        ("id", "int", False, "max(own last + 1, UTC microseconds at opening): the transport's key in this database."),
        ("epoch", "int", False, "The transport's identity outside this database; the chain begins with it."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("daemon_id", "text", False, "The daemon that owns this transport."),
        ("opened_at", "int", False, "When it was opened, before its process was started."),
        ("mode", "text", False, "`relay`, `client` or `terminal`."),
        ("agent", "text", False, "The agent's name in the settings, else that of its command."),
        ("argv", "text", True, "The command line as a JSON array; erasable."),
        ("cwd", "text", True, "The working directory; erasable."),
        ("env_names", "text", True, "Names of the agent's environment variables as a JSON array; values are never stored."),
        ("label", "text", True, "Labels given to the runner, as a JSON object; erasable."),
        ("peer_uid", "int", True, "User id of the process that asked for the agent."),
        ("peer_gid", "int", True, "Group id of that process."),
        ("peer_pid", "int", True, "Process id of that process."),
        ("os_user", "text", True, "Name of that user."),
        ("limits", "text", True, "Limits in force, as a JSON object."),
        ("policy_digest", "text", True, "SHA-256 of the policy in force, as hex."),
        ("failure_mode", "text", False, "What happens when the ledger cannot commit: `closed` or `open`."),
        ("durability", "text", False, "What a commit outlives: `power`, or `process` with `synchronous = normal`."),
        ("mapping_version", "text", False, "The set of mappers that read its lines."),
        ("facts", "blob", False, "SHA-256 of this row's other columns."),
        ("private", "blob", False, "SHA-256 of the erasable columns under this number; 32 zero bytes for none."),
        ("private_salt", "blob", True, "Salt of `private`; NULL when there is nothing private, and once erased."),
        ("chain", "blob", False, "Genesis: where this transport's chain begins."),
    ), ("id",), (("epoch",),), (("daemon_id",),), {}),
    "turn_ends": Made("How a turn ended.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", False, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", False, "The turn, a small number of its transport; NULL outside a turn."),
        ("stop_reason", "text", True, "The agent's own word."),
        ("outcome", "text", False, "Our reading of it."),
        ("error_code", "int", True, "Code of the error, where the turn ended with one."),
        ("error_message", "text", True, "Message of the error, or the reason of an end without answer; erasable."),
        ("text_bytes", "int", False, "Length of the agent's answer in UTF-8."),
        ("lossy", "bool", False, "Lone surrogates or NUL were replaced in this row's text; the frame has them."),
    ), ("transport_id", "frame_seq", "ordinal"), (("transport_id", "turn_id"),), (), {"sqlite_with_rowid": False}),
    "turns": Made("A prompt turn.", (
        ("transport_id", "int", False, "The transport: one agent process and its connection."),
        ("frame_seq", "int", False, "The frame or event this row comes from; from 1, dense, one sequence for both."),
        ("ordinal", "int", False, "Position among the rows of this table under the same number, from 0."),
        ("protocol_revision", "text", False, "The protocol revision this row was read under."),
        ("session_id", "int", False, "The session, a small number of its transport; NULL when none is named."),
        ("turn_id", "int", False, "The turn, a small number of its transport; NULL outside a turn."),
        ("session_turn", "int", False, "Number of the turn within its session, from 1."),
        ("first_frame", "int", False, "First frame of the turn."),
        ("prompt_frame", "int", True, "Frame of the prompt, where one opened the turn."),
    ), ("transport_id", "frame_seq", "ordinal"), (), (), {"sqlite_with_rowid": False}),
}
# fmt: on


def upgrade() -> None:
    """Make every table."""
    for name, made in TABLES.items():
        op.create_table(
            name,
            *(
                sa.Column(column, TYPES[kind](), nullable=nullable, comment=comment, autoincrement=False)
                for column, kind, nullable, comment in made.columns
            ),
            sa.PrimaryKeyConstraint(*made.key, name=f"pk_{name}"),
            *(sa.UniqueConstraint(*columns, name=f"uq_{name}_{'_'.join(columns)}") for columns in made.unique),
            comment=made.comment,
            **made.options,
        )
        for columns in made.indexes:
            op.create_index(f"ix_{name}_{'_'.join(columns)}", name, list(columns))


def downgrade() -> None:
    """Refuse: records are never taken back."""
    raise NotImplementedError("a ledger is never downgraded; restore a backup beside it instead")
