-- Which lines may two programs read differently, or break the protocol's order?
--
-- What each class means: docs/schema.md.
--
-- param since time = @0: only those noted then or later

SELECT a.transport_id, a.frame_seq, a.class, a.detail, a.at
  FROM audit_anomalies a
 WHERE a.at >= :since
 ORDER BY a.transport_id, a.frame_seq, a.class, a.detail
