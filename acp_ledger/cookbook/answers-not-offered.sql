-- Which answers named an option that the agent never offered?
--
-- What the agent made of such an answer only the agent knows: its effect is `unknown`.

SELECT d.transport_id, d.acp_session_id, d.frame_seq, d.decided_at, d.detail AS question, d.offered_kinds,
       d.option_id, d.effect
  FROM audit_decisions d
 WHERE d.outcome = 'selected' AND d.offered = 0
 ORDER BY d.transport_id, d.frame_seq
