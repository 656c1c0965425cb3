-- Which sessions were opened, per day, agent and editor?
--
-- A session that was loaded or resumed counts on the day of that, once for each time.
--
-- param since time = @0: only sessions that began then or later

SELECT substr(s.first_at, 1, 10) AS day, s.agent, COALESCE(t.client, '') AS editor,
       COUNT(*) AS sessions, CAST(SUM(s.turns) AS BIGINT) AS turns
  FROM audit_sessions s
  JOIN audit_transports t ON t.transport_id = s.transport_id
 WHERE s.first_at >= :since
 GROUP BY substr(s.first_at, 1, 10), s.agent, COALESCE(t.client, '')
 ORDER BY day, s.agent, editor
