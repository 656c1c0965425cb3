-- Which tool calls ran without any question?
--
-- A call that only said `pending` has not begun, as far as its agent told.
--
-- param since time = @0: only calls first seen then or later

SELECT c.transport_id, s.acp_session_id, c.tool_call_id, c.kind, c.title, c.status
  FROM audit_tool_calls c
  JOIN audit_sessions s ON s.transport_id = c.transport_id AND s.session_id = c.session_id
 WHERE c.asked = 0 AND c.status <> 'pending' AND c.first_at >= :since
 ORDER BY c.transport_id, c.first_at, c.tool_call_id
