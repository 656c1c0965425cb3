-- Which MCP servers were handed to agents, and when was each first seen?
--
-- By the names that editors give them when they open a session; `openings` counts how often. Read from the
-- stored lines. A line with an anomaly, or with an escape that Postgres cannot read (`\u0000`, surrogates), is
-- not read.

-- on sqlite
WITH told AS (
  SELECT f.transport_id, f.session_id, f.frame_seq, f.method,
     CASE WHEN NOT EXISTS (SELECT 1 FROM anomalies a
                            WHERE a.transport_id = f.transport_id AND a.frame_seq = f.frame_seq)
           AND instr(CAST(f.body AS TEXT), '\u0000') = 0 AND instr(CAST(f.body AS TEXT), '\ud') = 0
           AND instr(CAST(f.body AS TEXT), '\uD') = 0 AND json_valid(CAST(f.body AS TEXT))
          THEN CAST(f.body AS TEXT) END AS line
    FROM frames f
   WHERE f.method IN ('session/new', 'session/load', 'session/resume', 'session/fork') AND f.kind = 'request'
)
SELECT m.server, MIN(m.transport_id) AS first_transport_id, MIN(t.opened_at) AS first_opened_at, COUNT(*) AS openings
  FROM (SELECT j.transport_id, item.value ->> 'name' AS server
          FROM told j, json_each(j.line, '$.params.mcpServers') item
         WHERE item.type = 'object') m
  JOIN audit_transports t ON t.transport_id = m.transport_id
 WHERE m.server IS NOT NULL
 GROUP BY m.server
 ORDER BY first_opened_at, m.server

-- on postgresql
WITH told AS (
  SELECT f.transport_id, f.session_id, f.frame_seq, f.method,
     CASE WHEN NOT EXISTS (SELECT 1 FROM anomalies a
                            WHERE a.transport_id = f.transport_id AND a.frame_seq = f.frame_seq)
           AND position('\x5c7530303030'::bytea IN f.body) = 0 AND position('\x5c7564'::bytea IN f.body) = 0
           AND position('\x5c7544'::bytea IN f.body) = 0
          THEN convert_from(f.body, 'UTF8')::json END AS line
    FROM frames f
   WHERE f.method IN ('session/new', 'session/load', 'session/resume', 'session/fork') AND f.kind = 'request'
)
SELECT m.server, MIN(m.transport_id) AS first_transport_id, MIN(t.opened_at) AS first_opened_at, COUNT(*) AS openings
  FROM (SELECT j.transport_id, item ->> 'name' AS server
          FROM told j
         CROSS JOIN LATERAL json_array_elements(
               CASE WHEN json_typeof(j.line #> '{params,mcpServers}') = 'array'
                    THEN j.line #> '{params,mcpServers}' ELSE '[]' END) item
         WHERE json_typeof(item) = 'object') m
  JOIN audit_transports t ON t.transport_id = m.transport_id
 WHERE m.server IS NOT NULL
 GROUP BY m.server
 ORDER BY first_opened_at, m.server
