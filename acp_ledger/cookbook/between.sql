-- What happened between two numbers of a transport, for a ticket?
--
-- Every line and every event; `ledgerctl show TRANSPORT:NUMBER` opens one.
--
-- param transport integer: the transport
-- param first integer = 1: its first number
-- param last integer = 9223372036854775807: its last number

-- on sqlite
SELECT e.frame_seq, strftime('%Y-%m-%dT%H:%M:%S', e.at / 1000000, 'unixepoch') || 'Z' AS at, e.direction,
       e.what, e.rpc_id, e.byte_count
  FROM (SELECT f.frame_seq, f.received_at AS at, f.direction, COALESCE(f.session_update, f.method, f.kind) AS what,
               f.rpc_id, f.byte_count
          FROM frames f
         WHERE f.transport_id = :transport AND f.frame_seq BETWEEN :first AND :last
        UNION ALL
        SELECT v.frame_seq, v.at, v.direction, v.event, NULL, NULL
          FROM transport_events v
         WHERE v.transport_id = :transport AND v.frame_seq BETWEEN :first AND :last) e
 ORDER BY e.frame_seq

-- on postgresql
SELECT e.frame_seq,
       to_char(to_timestamp(e.at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS at,
       e.direction, e.what, e.rpc_id, e.byte_count
  FROM (SELECT f.frame_seq, f.received_at AS at, f.direction, COALESCE(f.session_update, f.method, f.kind) AS what,
               f.rpc_id, f.byte_count
          FROM frames f
         WHERE f.transport_id = :transport AND f.frame_seq BETWEEN :first AND :last
        UNION ALL
        SELECT v.frame_seq, v.at, v.direction, v.event, NULL, NULL
          FROM transport_events v
         WHERE v.transport_id = :transport AND v.frame_seq BETWEEN :first AND :last) e
 ORDER BY e.frame_seq
