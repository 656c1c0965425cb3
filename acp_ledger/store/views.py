"""The views an auditor reads: one text for both engines, with the few pieces that differ spelled as macros.

What must not be broken here: names, columns and their order are a contract, and so is every word in them. A view
claims no more than its rows: what nobody answered is `open` or `unanswered`, what was only stored is `frame only`.
Subqueries go by primary keys, so that one session is read without reading the ledger. Macros: `utc(x)` is RFC 3339
text of a column of microseconds, `number(x)` a boolean as 0 or 1, `offered_kinds(q)` the kinds on offer in order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, LiteralString

if TYPE_CHECKING:
    from collections.abc import Callable

_TRANSPORTS: Final = """
SELECT t.id AS transport_id, t.epoch, t.agent, t.mode, d.host, t.os_user, t.label,
       COALESCE(n.protocol_revision, t.protocol_revision) AS protocol_revision,
       n.client_name AS client, n.agent_version,
       utc(t.opened_at) AS opened_at, utc(c.at) AS closed_at, c.close_reason,
       (SELECT COALESCE(x.status, 128 + x.signal) FROM transport_events x
         WHERE x.transport_id = t.id AND x.event = 'exited' ORDER BY x.frame_seq LIMIT 1) AS exit_status,
       (SELECT COUNT(*) FROM frames f WHERE f.transport_id = t.id) AS frames
  FROM transports t
  LEFT JOIN daemons d ON d.daemon_id = t.daemon_id
  LEFT JOIN transport_events n ON n.transport_id = t.id AND n.frame_seq =
       (SELECT MIN(e.frame_seq) FROM transport_events e WHERE e.transport_id = t.id AND e.event = 'negotiated')
  LEFT JOIN transport_events c ON c.transport_id = t.id AND c.frame_seq =
       (SELECT MIN(e.frame_seq) FROM transport_events e
         WHERE e.transport_id = t.id AND e.event IN ('closed', 'interrupted'))
"""

_SESSIONS: Final = """
SELECT s.transport_id, s.session_id, s.acp_session_id, t.agent, o.origin, o.cwd, s.protocol_revision,
       utc(b.received_at) AS first_at,
       utc((SELECT f.received_at FROM frames f WHERE f.transport_id = s.transport_id AND f.session_id = s.session_id
             ORDER BY f.frame_seq DESC LIMIT 1)) AS last_at,
       (SELECT COUNT(*) FROM turns x WHERE x.transport_id = s.transport_id AND x.session_id = s.session_id) AS turns,
       (SELECT COUNT(DISTINCT x.tool_call_id) FROM tool_call_steps x
         WHERE x.transport_id = s.transport_id AND x.session_id = s.session_id) AS tool_calls,
       (SELECT COUNT(*) FROM permission_requests x
         WHERE x.transport_id = s.transport_id AND x.session_id = s.session_id) AS questions,
       (SELECT COUNT(*) FROM decisions x WHERE x.transport_id = s.transport_id AND x.session_id = s.session_id
           AND x.effect = 'allow') AS allowed,
       (SELECT COUNT(*) FROM decisions x WHERE x.transport_id = s.transport_id AND x.session_id = s.session_id
           AND x.effect = 'reject') AS rejected,
       (SELECT x.outcome FROM turn_ends x WHERE x.transport_id = s.transport_id AND x.session_id = s.session_id
         ORDER BY x.frame_seq DESC, x.ordinal DESC LIMIT 1) AS last_outcome,
       CASE WHEN o.origin IN ('load', 'resume') THEN
         (SELECT MAX(p.transport_id) FROM sessions p JOIN transports u ON u.id = p.transport_id
           WHERE p.acp_session_id = s.acp_session_id AND p.transport_id < s.transport_id AND u.agent = t.agent)
       END AS continues
  FROM sessions s
  JOIN transports t ON t.id = s.transport_id
  LEFT JOIN frames b ON b.transport_id = s.transport_id AND b.frame_seq = s.frame_seq
  LEFT JOIN session_openings o ON o.transport_id = s.transport_id AND o.session_id = s.session_id AND o.frame_seq =
       (SELECT MIN(x.frame_seq) FROM session_openings x
         WHERE x.transport_id = s.transport_id AND x.session_id = s.session_id)
"""

_TURNS: Final = """
SELECT t.transport_id, t.session_id, t.turn_id, s.acp_session_id, utc(b.received_at) AS started_at,
       utc(COALESCE(f.received_at, v.at)) AS ended_at, e.stop_reason, e.outcome, e.error_code,
       (SELECT COUNT(DISTINCT x.tool_call_id) FROM tool_call_steps x
         WHERE x.transport_id = t.transport_id AND x.turn_id = t.turn_id AND x.frame_seq >= t.first_frame
           AND x.frame_seq <= COALESCE(e.frame_seq, 9223372036854775807)) AS tool_calls,
       (SELECT COUNT(*) FROM permission_requests x
         WHERE x.transport_id = t.transport_id AND x.turn_id = t.turn_id AND x.frame_seq >= t.first_frame
           AND x.frame_seq <= COALESCE(e.frame_seq, 9223372036854775807)) AS questions,
       e.text_bytes, t.protocol_revision
  FROM turns t
  LEFT JOIN sessions s ON s.transport_id = t.transport_id AND s.session_id = t.session_id
  LEFT JOIN turn_ends e ON e.transport_id = t.transport_id AND e.turn_id = t.turn_id
  LEFT JOIN frames b ON b.transport_id = t.transport_id AND b.frame_seq = t.first_frame
  LEFT JOIN frames f ON f.transport_id = e.transport_id AND f.frame_seq = e.frame_seq
  LEFT JOIN transport_events v ON v.transport_id = e.transport_id AND v.frame_seq = e.frame_seq
"""

_TOOL_CALLS: Final = """
SELECT c.transport_id, c.session_id,
       (SELECT x.turn_id FROM tool_call_steps x WHERE x.transport_id = c.transport_id
           AND x.frame_seq = c.first_frame AND x.tool_call_id = c.tool_call_id AND x.session_id = c.session_id
         ORDER BY x.ordinal LIMIT 1) AS turn_id,
       c.tool_call_id, latest(kind) AS kind, latest(title) AS title,
       COALESCE(said.status, 'pending') AS status, said.status_raw,
       utc(b.received_at) AS first_at, utc(f.received_at) AS last_at,
       CASE WHEN q.frame_seq IS NULL THEN 0 ELSE 1 END AS asked,
       CASE WHEN q.frame_seq IS NULL THEN NULL ELSE COALESCE(d.outcome, 'open') END AS decision_outcome,
       d.effect AS decision_effect, d.decided_by, c.protocol_revision
  FROM (SELECT x.transport_id, x.session_id, x.tool_call_id, MIN(x.frame_seq) AS first_frame,
               MAX(x.frame_seq) AS last_frame, MAX(x.protocol_revision) AS protocol_revision
          FROM tool_call_steps x GROUP BY x.transport_id, x.session_id, x.tool_call_id) c
  LEFT JOIN frames b ON b.transport_id = c.transport_id AND b.frame_seq = c.first_frame
  LEFT JOIN frames f ON f.transport_id = c.transport_id AND f.frame_seq = c.last_frame
  LEFT JOIN tool_call_steps said ON said.transport_id = c.transport_id
        AND said.session_id = c.session_id AND said.tool_call_id = c.tool_call_id
        AND said.frame_seq = (SELECT MAX(x.frame_seq) FROM tool_call_steps x
              WHERE x.transport_id = c.transport_id AND x.frame_seq BETWEEN c.first_frame AND c.last_frame
                AND x.session_id = c.session_id AND x.tool_call_id = c.tool_call_id AND x.status_raw IS NOT NULL)
        AND said.ordinal = (SELECT MAX(x.ordinal) FROM tool_call_steps x
              WHERE x.transport_id = c.transport_id AND x.frame_seq = said.frame_seq
                AND x.session_id = c.session_id AND x.tool_call_id = c.tool_call_id AND x.status_raw IS NOT NULL)
  LEFT JOIN permission_requests q ON q.transport_id = c.transport_id AND q.joined_call_id = c.tool_call_id
        AND q.session_id = c.session_id AND q.frame_seq =
       (SELECT MAX(x.frame_seq) FROM permission_requests x
         WHERE x.transport_id = c.transport_id AND x.joined_call_id = c.tool_call_id AND x.session_id = c.session_id)
  LEFT JOIN decisions d ON d.transport_id = q.transport_id AND d.request_frame = q.frame_seq
"""

_DECISIONS: Final = """
SELECT q.transport_id, q.session_id, q.turn_id, COALESCE(d.frame_seq, q.frame_seq) AS frame_seq, s.acp_session_id,
       COALESCE(q.joined_call_id, q.tool_call_id) AS tool_call_id, q.tool_kind, COALESCE(d.detail, q.title) AS detail,
       offered_kinds(q) AS offered_kinds,
       COALESCE(d.outcome, 'open') AS outcome, d.option_id, d.option_kind, number(d.offered) AS offered, d.effect,
       d.decided_by, d.rule, utc(f.received_at) AS asked_at, utc(d.decided_at) AS decided_at,
       (d.decided_at - d.asked_at) / 1000 AS waited_ms, COALESCE(d.protocol_revision, q.protocol_revision)
         AS protocol_revision
  FROM permission_requests q
  LEFT JOIN decisions d ON d.transport_id = q.transport_id AND d.request_frame = q.frame_seq
  LEFT JOIN sessions s ON s.transport_id = q.transport_id AND s.session_id = q.session_id
  LEFT JOIN frames f ON f.transport_id = q.transport_id AND f.frame_seq = q.frame_seq
"""

_COVERAGE: Final = """
SELECT c.transport_id, c.session_id, c.direction, c.word, c.recorded_as, COUNT(*) AS count,
       MIN(c.frame_seq) AS first_frame_seq, MAX(c.frame_seq) AS last_frame_seq, SUM(c.replayed) AS replayed,
       c.protocol_revision
  FROM (SELECT f.transport_id, f.session_id, f.direction, COALESCE(f.session_update, f.method, f.kind) AS word,
               CASE WHEN f.disposition = 'observed' THEN 'step'
                    WHEN f.session_update IN ('agent_message_chunk', 'agent_thought_chunk', 'user_message_chunk')
                     AND f.phase <> 'replay' AND f.session_id IS NOT NULL
                     AND f.protocol_revision IN ('acp/unnegotiated', 'acp/v1') THEN 'text kept'
                    ELSE 'frame only' END AS recorded_as,
               CASE WHEN f.phase = 'replay' THEN 1 ELSE 0 END AS replayed,
               f.protocol_revision, f.frame_seq
          FROM frames f) c
 GROUP BY c.transport_id, c.session_id, c.direction, c.word, c.recorded_as, c.protocol_revision
"""

_TIMELINE: Final = """
SELECT x.transport_id, s.acp_session_id, x.turn_id, x.frame_seq, utc(COALESCE(f.received_at, v.at)) AS at, x.step,
       x.call, x.word, x.detail, x.protocol_revision
  FROM (
    SELECT p.transport_id, p.session_id, p.turn_id, p.frame_seq, 'prompted' AS step,
           CAST(NULL AS TEXT) AS call, p.source AS word, p.detail, p.protocol_revision FROM prompts p
    UNION ALL
    SELECT p.transport_id, p.session_id, p.turn_id, p.frame_seq, 'tool_call',
           p.tool_call_id, p.status, p.title, p.protocol_revision FROM tool_call_steps p
    UNION ALL
    SELECT p.transport_id, p.session_id, p.turn_id, p.frame_seq, 'question',
           COALESCE(p.joined_call_id, p.tool_call_id), p.tool_kind, p.title, p.protocol_revision
      FROM permission_requests p
    UNION ALL
    SELECT p.transport_id, p.session_id, p.turn_id, p.frame_seq, 'decision',
           (SELECT COALESCE(q.joined_call_id, q.tool_call_id) FROM permission_requests q
             WHERE q.transport_id = p.transport_id AND q.frame_seq = p.request_frame),
           CASE WHEN p.outcome = 'selected' THEN p.effect ELSE p.outcome END, p.detail, p.protocol_revision
      FROM decisions p
    UNION ALL
    SELECT p.transport_id, p.session_id, p.turn_id, p.frame_seq, 'turn_ended',
           CAST(NULL AS TEXT), p.outcome, COALESCE(p.error_message, p.stop_reason), p.protocol_revision
      FROM turn_ends p
    UNION ALL
    SELECT p.transport_id, p.session_id, p.turn_id, p.frame_seq, 'not_recorded',
           CAST(NULL AS TEXT), COALESCE(p.session_update, p.method, p.kind), CAST(NULL AS TEXT), p.protocol_revision
      FROM frames p WHERE p.disposition = 'not_recorded'
  ) x
  LEFT JOIN sessions s ON s.transport_id = x.transport_id AND s.session_id = x.session_id
  LEFT JOIN frames f ON f.transport_id = x.transport_id AND f.frame_seq = x.frame_seq
  LEFT JOIN transport_events v ON v.transport_id = x.transport_id AND v.frame_seq = x.frame_seq
"""

_ANOMALIES: Final = """
SELECT a.transport_id, a.session_id, a.frame_seq, a.class, a.detail, utc(COALESCE(f.received_at, v.at)) AS at,
       a.protocol_revision
  FROM anomalies a
  LEFT JOIN frames f ON f.transport_id = a.transport_id AND f.frame_seq = a.frame_seq
  LEFT JOIN transport_events v ON v.transport_id = a.transport_id AND v.frame_seq = a.frame_seq
"""

_TEXTS: Final[dict[str, LiteralString]] = {
    "audit_transports": _TRANSPORTS,
    "audit_sessions": _SESSIONS,
    "audit_turns": _TURNS,
    "audit_tool_calls": _TOOL_CALLS,
    "audit_decisions": _DECISIONS,
    "audit_coverage": _COVERAGE,
    "audit_timeline": _TIMELINE,
    "audit_anomalies": _ANOMALIES,
}

_LATEST: Final = (
    r"(SELECT x.\1 FROM tool_call_steps x WHERE x.transport_id = c.transport_id"
    r" AND x.frame_seq BETWEEN c.first_frame AND c.last_frame AND x.session_id = c.session_id"
    r" AND x.tool_call_id = c.tool_call_id AND x.\1 IS NOT NULL ORDER BY x.frame_seq DESC, x.ordinal DESC LIMIT 1)"
)
"""The last value of a column any step of a call had."""

_OFFERED: Final = (
    r"(SELECT {join} FROM (SELECT COALESCE(o.kind, '') AS kind, o.ordinal FROM permission_options o"
    r" WHERE o.transport_id = \1.transport_id AND o.frame_seq = \1.frame_seq ORDER BY o.ordinal) k)"
)


def _sqlite_utc(inner: str) -> str:
    return f"strftime('%Y-%m-%dT%H:%M:%S', ({inner}) / 1000000, 'unixepoch') || printf('.%06dZ', ({inner}) % 1000000)"


def _postgres_utc(inner: str) -> str:
    return f"to_char(TIMESTAMP 'epoch' + ({inner}) * INTERVAL '1 microsecond', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"


def view_names() -> tuple[str, ...]:
    """The views, in the order they are documented."""
    return tuple(_TEXTS)


def definition(name: str, dialect: str) -> str:
    """The SELECT of a view on an engine (`sqlite` or `postgresql`)."""
    is_sqlite = dialect == "sqlite"
    join = "group_concat(k.kind, ',')" if is_sqlite else "string_agg(k.kind, ',' ORDER BY k.ordinal)"
    query: str = _TEXTS[name].strip()
    query = re.sub(r"\boffered_kinds\((\w+)\)", _OFFERED.replace("{join}", join), query)
    query = re.sub(r"\blatest\((\w+)\)", _LATEST, query)
    query = re.sub(r"\bnumber\(([\w.]+)\)", r"CAST(\1 AS INTEGER)", query)
    return _expand(query, "utc", _sqlite_utc if is_sqlite else _postgres_utc)


def _expand(query: str, macro: str, make: Callable[[str], str]) -> str:
    """Replace each `macro(…)`, whose argument may hold parentheses of its own."""
    opening = f"{macro}("
    while (start := query.find(opening)) >= 0:
        depth, end = 1, start + len(opening)
        while depth:
            depth += {"(": 1, ")": -1}.get(query[end], 0)
            end += 1
        query = query[:start] + make(query[start + len(opening) : end - 1]) + query[end:]
    return query


def create_statements(dialect: str) -> list[str]:
    """Statements that make every view."""
    return [f"CREATE VIEW {name} AS {definition(name, dialect)}" for name in _TEXTS]


def drop_statements() -> list[str]:
    """Statements that remove every view there is."""
    return [f"DROP VIEW IF EXISTS {name}" for name in _TEXTS]
