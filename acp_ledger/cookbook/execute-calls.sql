-- What did agents execute, and who allowed it?
--
-- `status` is the agent's own claim. A call that was never asked about says so.
--
-- param since time = @0: only calls first seen then or later

SELECT c.transport_id, s.acp_session_id, c.tool_call_id, c.title, c.status,
       CASE WHEN c.asked = 0 THEN 'not asked' ELSE c.decision_outcome END AS decision,
       c.decision_effect AS effect, c.decided_by
  FROM audit_tool_calls c
  JOIN audit_sessions s ON s.transport_id = c.transport_id AND s.session_id = c.session_id
 WHERE c.kind = 'execute' AND c.first_at >= :since
 ORDER BY c.transport_id, c.first_at, c.tool_call_id
