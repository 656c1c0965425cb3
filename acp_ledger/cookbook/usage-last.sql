-- What did each session use: context and cost?
--
-- `usage_update` counts from the beginning of the session: the last one holds, and adding them up would count
-- twice. The figures are the agent's own, as text. Read from the stored lines. A line with an anomaly, or with
-- an escape that Postgres cannot read (`\u0000`, surrogates), shows no figures.

-- on sqlite
WITH told AS (
  SELECT f.transport_id, f.session_id, f.frame_seq, f.method,
     CASE WHEN NOT EXISTS (SELECT 1 FROM anomalies a
                            WHERE a.transport_id = f.transport_id AND a.frame_seq = f.frame_seq)
           AND instr(CAST(f.body AS TEXT), '\u0000') = 0 AND instr(CAST(f.body AS TEXT), '\ud') = 0
           AND instr(CAST(f.body AS TEXT), '\uD') = 0 AND json_valid(CAST(f.body AS TEXT))
          THEN CAST(f.body AS TEXT) END AS line
    FROM frames f
   WHERE f.session_update = 'usage_update'
     AND f.frame_seq = (SELECT MAX(g.frame_seq) FROM frames g
                         WHERE g.transport_id = f.transport_id AND g.session_id = f.session_id
                           AND g.session_update = 'usage_update')
)
SELECT j.transport_id, s.acp_session_id, j.frame_seq,
       CAST(j.line ->> '$.params.update.used' AS TEXT) AS context_used,
       CAST(j.line ->> '$.params.update.size' AS TEXT) AS context_size,
       CAST(j.line ->> '$.params.update.cost.amount' AS TEXT) AS cost,
       CAST(j.line ->> '$.params.update.cost.currency' AS TEXT) AS currency
  FROM told j
  JOIN sessions s ON s.transport_id = j.transport_id AND s.session_id = j.session_id
 ORDER BY j.transport_id, j.session_id

-- on postgresql
WITH told AS (
  SELECT f.transport_id, f.session_id, f.frame_seq, f.method,
     CASE WHEN NOT EXISTS (SELECT 1 FROM anomalies a
                            WHERE a.transport_id = f.transport_id AND a.frame_seq = f.frame_seq)
           AND position('\x5c7530303030'::bytea IN f.body) = 0 AND position('\x5c7564'::bytea IN f.body) = 0
           AND position('\x5c7544'::bytea IN f.body) = 0
          THEN convert_from(f.body, 'UTF8')::json END AS line
    FROM frames f
   WHERE f.session_update = 'usage_update'
     AND f.frame_seq = (SELECT MAX(g.frame_seq) FROM frames g
                         WHERE g.transport_id = f.transport_id AND g.session_id = f.session_id
                           AND g.session_update = 'usage_update')
)
SELECT j.transport_id, s.acp_session_id, j.frame_seq,
       j.line #>> '{params,update,used}' AS context_used, j.line #>> '{params,update,size}' AS context_size,
       j.line #>> '{params,update,cost,amount}' AS cost,
       j.line #>> '{params,update,cost,currency}' AS currency
  FROM told j
  JOIN sessions s ON s.transport_id = j.transport_id AND s.session_id = j.session_id
 ORDER BY j.transport_id, j.session_id
