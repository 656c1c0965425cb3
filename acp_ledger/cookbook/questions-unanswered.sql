-- Which questions were never answered?
--
-- `open` may still be answered; `unanswered` cannot, for its connection has ended.

SELECT d.transport_id, d.acp_session_id, d.turn_id, d.asked_at, d.tool_kind, d.detail AS question, d.outcome
  FROM audit_decisions d
 WHERE d.outcome IN ('open', 'unanswered')
 ORDER BY d.transport_id, d.frame_seq
