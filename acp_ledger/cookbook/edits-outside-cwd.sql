-- Which edits were outside the session's working directory?
--
-- Edits, deletions and moves by the paths their calls name, and files the editor was asked to write. A path with
-- `..` in it counts as outside, wherever it leads.

SELECT x.transport_id, s.acp_session_id, x.call, x.path, s.cwd, MIN(x.frame_seq) AS first_frame_seq
  FROM (SELECT l.transport_id, l.session_id, l.frame_seq, l.tool_call_id AS call, l.path
          FROM tool_call_locations l
          JOIN audit_tool_calls c ON c.transport_id = l.transport_id AND c.session_id = l.session_id
           AND c.tool_call_id = l.tool_call_id
         WHERE c.kind IN ('edit', 'delete', 'move')
        UNION ALL
        SELECT k.transport_id, k.session_id, k.frame_seq, k.method, k.target
          FROM client_calls k
         WHERE k.method = 'fs/write_text_file') x
  JOIN audit_sessions s ON s.transport_id = x.transport_id AND s.session_id = x.session_id
 WHERE ('/' || x.path || '/') LIKE '%/../%'
    OR (substr(x.path, 1, 1) = '/' AND x.path <> rtrim(s.cwd, '/')
        AND substr(x.path, 1, length(rtrim(s.cwd, '/')) + 1) <> rtrim(s.cwd, '/') || '/')
 GROUP BY x.transport_id, s.acp_session_id, x.call, x.path, s.cwd
 ORDER BY x.transport_id, first_frame_seq, x.path
