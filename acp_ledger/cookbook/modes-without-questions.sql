-- Which sessions ran in a mode that asks less?
--
-- Modes and command lines with a word such as `bypass`, `danger`, `yolo`, `auto`, `accept` or `full` in them;
-- agents name their modes freely, so read what was found. Changes of the mode are read from the stored lines. A
-- line with an anomaly, or with an escape that Postgres cannot read (`\u0000`, surrogates), is not read.

-- on sqlite
WITH told AS (
  SELECT f.transport_id, f.session_id, f.frame_seq, f.method,
     CASE WHEN NOT EXISTS (SELECT 1 FROM anomalies a
                            WHERE a.transport_id = f.transport_id AND a.frame_seq = f.frame_seq)
           AND instr(CAST(f.body AS TEXT), '\u0000') = 0 AND instr(CAST(f.body AS TEXT), '\ud') = 0
           AND instr(CAST(f.body AS TEXT), '\uD') = 0 AND json_valid(CAST(f.body AS TEXT))
          THEN CAST(f.body AS TEXT) END AS line
    FROM frames f
   WHERE f.session_update = 'current_mode_update' OR (f.method = 'session/set_mode' AND f.kind = 'request')
)
SELECT m.transport_id, s.acp_session_id, m.frame_seq, m.said_by, m.mode
  FROM (SELECT t.id AS transport_id, CAST(NULL AS BIGINT) AS session_id, 0 AS frame_seq, 'command line' AS said_by,
               t.argv AS mode
          FROM transports t
        UNION ALL
        SELECT o.transport_id, o.session_id, o.frame_seq, 'opening', o.current_mode FROM session_openings o
        UNION ALL
        SELECT j.transport_id, j.session_id, j.frame_seq,
               CASE WHEN j.method = 'session/set_mode' THEN 'editor' ELSE 'agent' END,
               COALESCE(j.line ->> '$.params.update.currentModeId', j.line ->> '$.params.modeId')
          FROM told j) m
  LEFT JOIN sessions s ON s.transport_id = m.transport_id AND s.session_id = m.session_id
 WHERE lower(m.mode) LIKE '%bypass%' OR lower(m.mode) LIKE '%danger%' OR lower(m.mode) LIKE '%yolo%'
    OR lower(m.mode) LIKE '%auto%' OR lower(m.mode) LIKE '%accept%' OR lower(m.mode) LIKE '%full%'
 ORDER BY m.transport_id, m.frame_seq

-- on postgresql
WITH told AS (
  SELECT f.transport_id, f.session_id, f.frame_seq, f.method,
     CASE WHEN NOT EXISTS (SELECT 1 FROM anomalies a
                            WHERE a.transport_id = f.transport_id AND a.frame_seq = f.frame_seq)
           AND position('\x5c7530303030'::bytea IN f.body) = 0 AND position('\x5c7564'::bytea IN f.body) = 0
           AND position('\x5c7544'::bytea IN f.body) = 0
          THEN convert_from(f.body, 'UTF8')::json END AS line
    FROM frames f
   WHERE f.session_update = 'current_mode_update' OR (f.method = 'session/set_mode' AND f.kind = 'request')
)
SELECT m.transport_id, s.acp_session_id, m.frame_seq, m.said_by, m.mode
  FROM (SELECT t.id AS transport_id, CAST(NULL AS BIGINT) AS session_id, 0 AS frame_seq, 'command line' AS said_by,
               t.argv AS mode
          FROM transports t
        UNION ALL
        SELECT o.transport_id, o.session_id, o.frame_seq, 'opening', o.current_mode FROM session_openings o
        UNION ALL
        SELECT j.transport_id, j.session_id, j.frame_seq,
               CASE WHEN j.method = 'session/set_mode' THEN 'editor' ELSE 'agent' END,
               COALESCE(j.line #>> '{params,update,currentModeId}', j.line #>> '{params,modeId}')
          FROM told j) m
  LEFT JOIN sessions s ON s.transport_id = m.transport_id AND s.session_id = m.session_id
 WHERE lower(m.mode) LIKE '%bypass%' OR lower(m.mode) LIKE '%danger%' OR lower(m.mode) LIKE '%yolo%'
    OR lower(m.mode) LIKE '%auto%' OR lower(m.mode) LIKE '%accept%' OR lower(m.mode) LIKE '%full%'
 ORDER BY m.transport_id, m.frame_seq
