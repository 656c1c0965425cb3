"""`ledgerctl`: reads the ledger directly and read-only, and asks the daemon for everything else."""
