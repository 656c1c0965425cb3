"""The daemon: the one package that runs on Trio, and the ledger's only writer."""
