-- Which kinds of update did agents send that the protocol does not know?
--
-- They are kept as lines and become no step. ACP v1's own words are left out.

SELECT f.session_update AS word, COUNT(*) AS count, COUNT(DISTINCT f.transport_id) AS transports,
       MIN(f.transport_id) AS first_transport_id
  FROM frames f
 WHERE f.session_update IS NOT NULL
   AND f.session_update NOT IN ('user_message_chunk', 'agent_message_chunk', 'agent_thought_chunk', 'tool_call',
       'tool_call_update', 'plan', 'available_commands_update', 'current_mode_update', 'config_option_update',
       'session_info_update', 'usage_update')
 GROUP BY f.session_update
 ORDER BY count DESC, word
