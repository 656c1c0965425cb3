-- How much does the ledger grow in a day?
--
-- Lines and their bytes as they were read; what the database needs for them is more.

-- on sqlite
SELECT strftime('%Y-%m-%d', f.received_at / 1000000, 'unixepoch') AS day, COUNT(*) AS lines,
       CAST(SUM(f.byte_count) AS BIGINT) AS bytes,
       COUNT(DISTINCT f.transport_id) AS transports
  FROM frames f
 GROUP BY strftime('%Y-%m-%d', f.received_at / 1000000, 'unixepoch')
 ORDER BY day

-- on postgresql
SELECT to_char(to_timestamp(f.received_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day,
       COUNT(*) AS lines, CAST(SUM(f.byte_count) AS BIGINT) AS bytes,
       COUNT(DISTINCT f.transport_id) AS transports
  FROM frames f
 GROUP BY to_char(to_timestamp(f.received_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')
 ORDER BY day
