-- When did the ledger hold less than what passed?
--
-- Declared by the daemon; `lines` is empty where nobody can know how many.

-- on sqlite
SELECT g.transport_id, g.frame_seq, g.cause,
       strftime('%Y-%m-%dT%H:%M:%S', g.from_at / 1000000, 'unixepoch') || 'Z' AS from_at,
       strftime('%Y-%m-%dT%H:%M:%S', g.to_at / 1000000, 'unixepoch') || 'Z' AS to_at,
       (g.to_at - g.from_at) / 1000 AS took_ms,
       g.count AS lines
  FROM gaps g
 ORDER BY g.transport_id, g.frame_seq

-- on postgresql
SELECT g.transport_id, g.frame_seq, g.cause,
       to_char(to_timestamp(g.from_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS from_at,
       to_char(to_timestamp(g.to_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS to_at,
       (g.to_at - g.from_at) / 1000 AS took_ms,
       g.count AS lines
  FROM gaps g
 ORDER BY g.transport_id, g.frame_seq
