-- How many sessions were new, and how many brought their history with them?
--
-- What an agent tells again while it loads a session is counted as `replayed` and in no other list.

SELECT s.agent, COALESCE(s.origin, '(not answered)') AS origin, COUNT(*) AS sessions,
       CAST(COALESCE(SUM(r.replayed), 0) AS BIGINT) AS replayed
  FROM audit_sessions s
  LEFT JOIN (SELECT c.transport_id, c.session_id, SUM(c.replayed) AS replayed
               FROM audit_coverage c
              GROUP BY c.transport_id, c.session_id) r
    ON r.transport_id = s.transport_id AND r.session_id = s.session_id
 GROUP BY s.agent, COALESCE(s.origin, '(not answered)')
 ORDER BY s.agent, origin
