-- Which answers were `allow_always`, and what did they cover afterwards?
--
-- Covered is inferred: a later call of the same kind in the same session about which nobody was asked. An answer
-- that covered nothing stands alone.

SELECT d.transport_id, d.acp_session_id, d.frame_seq, d.decided_at, COALESCE(d.tool_kind, a.kind) AS tool_kind,
       d.detail AS question, d.decided_by, c.tool_call_id AS covered_call, c.title AS covered_title
  FROM audit_decisions d
  LEFT JOIN audit_tool_calls a
    ON a.transport_id = d.transport_id AND a.session_id = d.session_id AND a.tool_call_id = d.tool_call_id
  LEFT JOIN audit_tool_calls c
    ON c.transport_id = d.transport_id AND c.session_id = d.session_id AND c.asked = 0
   AND c.kind = COALESCE(d.tool_kind, a.kind) AND c.first_at > d.decided_at
 WHERE d.outcome = 'selected' AND d.option_kind = 'allow_always'
 ORDER BY d.transport_id, d.frame_seq, c.first_at, c.tool_call_id
