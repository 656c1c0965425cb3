-- Which versions of which agents and editors met?
--
-- As each named itself in `initialize`.

SELECT COALESCE(n.agent_name, '') AS agent, COALESCE(n.agent_version, '') AS agent_version,
       COALESCE(n.client_name, '') AS editor, COALESCE(n.client_version, '') AS editor_version,
       COUNT(*) AS transports, MIN(t.opened_at) AS first_at, MAX(t.opened_at) AS last_at
  FROM transport_events n
  JOIN audit_transports t ON t.transport_id = n.transport_id
 WHERE n.event = 'negotiated'
 GROUP BY n.agent_name, n.agent_version, n.client_name, n.client_version
 ORDER BY agent, agent_version, editor, editor_version
