"""The ledger: synchronous SQL on SQLite and Postgres, for one thread at a time. Logs nothing, waits for no event."""
