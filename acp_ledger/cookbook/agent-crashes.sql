-- Which versions of which agents ended badly?
--
-- A crash is an end of the agent's own making with a status other than 0, or by a signal. What we ended
-- ourselves, because the editor had gone or the daemon stopped, is none.
--
-- param since time = @0: only processes started then or later

SELECT t.agent, COALESCE(t.agent_version, '') AS agent_version, COUNT(*) AS runs,
       COUNT(CASE WHEN t.close_reason = 'agent_ended' AND t.exit_status <> 0 THEN 1 END) AS crashes,
       COUNT(CASE WHEN t.close_reason = 'agent_not_started' THEN 1 END) AS not_started,
       MAX(CASE WHEN t.close_reason = 'agent_ended' AND t.exit_status <> 0 THEN t.closed_at END) AS last_crash_at
  FROM audit_transports t
 WHERE t.opened_at >= :since
 GROUP BY t.agent, COALESCE(t.agent_version, '')
 ORDER BY crashes DESC, t.agent, agent_version
