-- Which files did each session touch?
--
-- Paths that tool calls name as their `location`, that stand in a `diff` inside a call, and that the agent asked
-- the editor to read or write. Diffs are read from the stored lines. A line with an anomaly, or with an escape
-- that Postgres cannot read (`\u0000`, surrogates), is not read.

-- on sqlite
WITH told AS (
  SELECT f.transport_id, f.session_id, f.frame_seq, f.method,
     CASE WHEN NOT EXISTS (SELECT 1 FROM anomalies a
                            WHERE a.transport_id = f.transport_id AND a.frame_seq = f.frame_seq)
           AND instr(CAST(f.body AS TEXT), '\u0000') = 0 AND instr(CAST(f.body AS TEXT), '\ud') = 0
           AND instr(CAST(f.body AS TEXT), '\uD') = 0 AND json_valid(CAST(f.body AS TEXT))
          THEN CAST(f.body AS TEXT) END AS line
    FROM frames f
   WHERE f.session_update IN ('tool_call', 'tool_call_update')
)
SELECT x.transport_id, s.acp_session_id, x.path, x.how, COUNT(*) AS times, MIN(x.frame_seq) AS first_frame_seq
  FROM (SELECT l.transport_id, l.session_id, l.frame_seq, l.path, 'location' AS how FROM tool_call_locations l
        UNION ALL
        SELECT k.transport_id, k.session_id, k.frame_seq, k.target, k.method FROM client_calls k
         WHERE k.method IN ('fs/read_text_file', 'fs/write_text_file')
        UNION ALL
        SELECT j.transport_id, j.session_id, j.frame_seq, item.value ->> 'path', 'diff'
          FROM told j, json_each(j.line, '$.params.update.content') item
         WHERE item.type = 'object' AND item.value ->> 'type' = 'diff') x
  JOIN sessions s ON s.transport_id = x.transport_id AND s.session_id = x.session_id
 WHERE x.path IS NOT NULL
 GROUP BY x.transport_id, s.acp_session_id, x.path, x.how
 ORDER BY x.transport_id, s.acp_session_id, x.path, x.how

-- on postgresql
WITH told AS (
  SELECT f.transport_id, f.session_id, f.frame_seq, f.method,
     CASE WHEN NOT EXISTS (SELECT 1 FROM anomalies a
                            WHERE a.transport_id = f.transport_id AND a.frame_seq = f.frame_seq)
           AND position('\x5c7530303030'::bytea IN f.body) = 0 AND position('\x5c7564'::bytea IN f.body) = 0
           AND position('\x5c7544'::bytea IN f.body) = 0
          THEN convert_from(f.body, 'UTF8')::json END AS line
    FROM frames f
   WHERE f.session_update IN ('tool_call', 'tool_call_update')
)
SELECT x.transport_id, s.acp_session_id, x.path, x.how, COUNT(*) AS times, MIN(x.frame_seq) AS first_frame_seq
  FROM (SELECT l.transport_id, l.session_id, l.frame_seq, l.path, 'location' AS how FROM tool_call_locations l
        UNION ALL
        SELECT k.transport_id, k.session_id, k.frame_seq, k.target, k.method FROM client_calls k
         WHERE k.method IN ('fs/read_text_file', 'fs/write_text_file')
        UNION ALL
        SELECT j.transport_id, j.session_id, j.frame_seq, item ->> 'path', 'diff'
          FROM told j
         CROSS JOIN LATERAL json_array_elements(
               CASE WHEN json_typeof(j.line #> '{params,update,content}') = 'array'
                    THEN j.line #> '{params,update,content}' ELSE '[]' END) item
         WHERE json_typeof(item) = 'object' AND item ->> 'type' = 'diff') x
  JOIN sessions s ON s.transport_id = x.transport_id AND s.session_id = x.session_id
 WHERE x.path IS NOT NULL
 GROUP BY x.transport_id, s.acp_session_id, x.path, x.how
 ORDER BY x.transport_id, s.acp_session_id, x.path, x.how
