-- How long did agents wait for a person's answer?
--
-- The median and the longest, of the questions that the editor answered.
--
-- param since time = @0: only questions asked then or later

SELECT agent, MAX(answers) AS answers, (MIN(waited_ms) + MAX(waited_ms)) / 2 AS median_wait_ms,
       MAX(longest) AS longest_wait_ms
  FROM (SELECT t.agent, d.waited_ms,
               ROW_NUMBER() OVER (PARTITION BY t.agent ORDER BY d.waited_ms) AS place,
               COUNT(*) OVER (PARTITION BY t.agent) AS answers,
               MAX(d.waited_ms) OVER (PARTITION BY t.agent) AS longest
          FROM audit_decisions d
          JOIN audit_transports t ON t.transport_id = d.transport_id
         WHERE d.decided_by = 'client' AND d.asked_at >= :since) ranked
 WHERE place IN ((answers + 1) / 2, (answers + 2) / 2)
 GROUP BY agent
 ORDER BY agent
