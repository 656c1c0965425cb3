-- How were questions answered, by whom, and after which wait?
--
-- `decided_by` tells the editor (`client`) from the policy, a person (`operator`) and nobody. An empty
-- `option_kind` beside `selected` is an answer that names an option the agent never offered.
--
-- param since time = @0: only questions asked then or later

SELECT outcome, option_kind, decided_by, MAX(answers) AS count,
       (MIN(waited_ms) + MAX(waited_ms)) / 2 AS median_wait_ms
  FROM (SELECT d.outcome, COALESCE(d.option_kind, '') AS option_kind, COALESCE(d.decided_by, '') AS decided_by,
               d.waited_ms,
               ROW_NUMBER() OVER (PARTITION BY d.outcome, d.option_kind, d.decided_by ORDER BY d.waited_ms) AS place,
               COUNT(*) OVER (PARTITION BY d.outcome, d.option_kind, d.decided_by) AS answers
          FROM audit_decisions d
         WHERE d.asked_at >= :since) ranked
 WHERE place IN ((answers + 1) / 2, (answers + 2) / 2)
 GROUP BY outcome, option_kind, decided_by
 ORDER BY count DESC, outcome, option_kind, decided_by
