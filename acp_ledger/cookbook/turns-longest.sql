-- Which turns took longest?
--
-- From the line of the prompt to the line, or the event, that ended the turn.
--
-- param rows integer = 20: how many

SELECT t.transport_id, s.acp_session_id, t.turn_id, e.outcome,
       (COALESCE(f.received_at, v.at) - b.received_at) / 1000 AS took_ms
  FROM turns t
  JOIN turn_ends e ON e.transport_id = t.transport_id AND e.turn_id = t.turn_id
  JOIN sessions s ON s.transport_id = t.transport_id AND s.session_id = t.session_id
  JOIN frames b ON b.transport_id = t.transport_id AND b.frame_seq = t.first_frame
  LEFT JOIN frames f ON f.transport_id = e.transport_id AND f.frame_seq = e.frame_seq
  LEFT JOIN transport_events v ON v.transport_id = e.transport_id AND v.frame_seq = e.frame_seq
 ORDER BY took_ms DESC, t.transport_id, t.turn_id
 LIMIT :rows
