-- Which agents went on with tool calls after their turn was cancelled?
--
-- Steps between `session/cancel` and the end of the turn are allowed, for work has to be wound up; steps after
-- the end belong to no turn.

SELECT x.transport_id, s.acp_session_id, x.turn_id, x.cancel_frame, x.end_frame,
       COUNT(CASE WHEN p.frame_seq < x.end_frame THEN 1 END) AS steps_before_end,
       COUNT(CASE WHEN p.frame_seq > x.end_frame THEN 1 END) AS steps_after_end
  FROM (SELECT t.transport_id, t.session_id, t.turn_id, e.frame_seq AS end_frame,
               (SELECT MIN(c.frame_seq) FROM frames c
                 WHERE c.transport_id = t.transport_id AND c.session_id = t.session_id
                   AND c.method = 'session/cancel' AND c.frame_seq > t.first_frame
                   AND c.frame_seq < e.frame_seq) AS cancel_frame,
               (SELECT MIN(n.first_frame) FROM turns n
                 WHERE n.transport_id = t.transport_id AND n.session_id = t.session_id
                   AND n.first_frame > e.frame_seq) AS next_frame
          FROM turns t
          JOIN turn_ends e ON e.transport_id = t.transport_id AND e.turn_id = t.turn_id
         WHERE e.outcome = 'cancelled') x
  JOIN sessions s ON s.transport_id = x.transport_id AND s.session_id = x.session_id
  JOIN tool_call_steps p ON p.transport_id = x.transport_id AND p.session_id = x.session_id
   AND p.source = 'update' AND p.frame_seq > COALESCE(x.cancel_frame, x.end_frame)
   AND p.frame_seq < COALESCE(x.next_frame, 9223372036854775807)
 GROUP BY x.transport_id, s.acp_session_id, x.turn_id, x.cancel_frame, x.end_frame
 ORDER BY x.transport_id, x.turn_id
