"""A durable, verifiable record of Agent Client Protocol sessions."""

TYPE_CHECKING = False  # the runner imports this package too, and waits for nothing else
if TYPE_CHECKING:
    from acp_ledger.client import open_client

    __all__ = ["open_client"]
else:

    def __getattr__(name: str) -> object:
        if name != "open_client":
            raise AttributeError(name)
        from acp_ledger.client import open_client  # noqa: PLC0415  # when it is asked for, for the runner's sake

        return open_client
