-- Who was recording at a certain time?
--
-- A process whose end is not in the ledger counts as running.
--
-- param at time: the time asked about

SELECT t.transport_id, t.agent, t.agent_version, t.client, t.host, t.os_user, t.opened_at, t.closed_at
  FROM audit_transports t
 WHERE t.opened_at <= :at AND (t.closed_at IS NULL OR t.closed_at > :at)
 ORDER BY t.transport_id
