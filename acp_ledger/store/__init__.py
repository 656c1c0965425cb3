"""The ledger: synchronous SQL on SQLite and Postgres, used by one thread at a time. Logs nothing, waits for no event."""
