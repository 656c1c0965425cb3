"""`python -m acp_ledger` is `ledgerctl`. Nothing is decided here."""

from acp_ledger.ctl.main import main

if __name__ == "__main__":
    main()
