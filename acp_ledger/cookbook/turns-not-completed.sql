-- Which turns did not complete, and why?
--
-- Only `end_turn` is completed. A turn without an end is `running`, as far as the ledger knows.
--
-- param since time = @0: only turns that began then or later

SELECT t.transport_id, t.acp_session_id, t.turn_id, t.started_at, COALESCE(t.outcome, 'running') AS outcome,
       t.error_code, x.detail AS why
  FROM audit_turns t
  LEFT JOIN audit_timeline x
    ON x.transport_id = t.transport_id AND x.turn_id = t.turn_id AND x.step = 'turn_ended'
 WHERE COALESCE(t.outcome, '') <> 'completed' AND t.started_at >= :since
 ORDER BY t.transport_id, t.turn_id
