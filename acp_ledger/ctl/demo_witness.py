"""Sees the promise kept: for each line the demo's editor hears, looks whether the ledger already holds it.

What must not be broken here: the look happens after the line arrived and before anything else does, through a
connection of its own that sees committed rows alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from sqlalchemy import LargeBinary, column, select, table

from acp_ledger.ctl.demo_client import DemoError
from acp_ledger.store import engine, queries

if TYPE_CHECKING:
    from types import TracebackType

    from sqlalchemy import Connection

_NEWEST: Final = 100
"""How many transports, newest first, are searched for the demo's own: others may write to the same ledger."""

_FRAMES: Final = table(
    "frames", column("transport_id"), column("frame_seq"), column("direction"), column("body", LargeBinary)
)


def transport_of(connection: Connection, label: str) -> int:
    """Find the transport that was opened under a label.

    Raises:
        DemoError: There is none.
    """
    wanted = queries.Filter(limit=_NEWEST, reverse=True)
    for row in queries.transports(connection, wanted):
        if row.label is not None and label in row.label:
            return row.transport_id
    raise DemoError("the ledger holds no transport of this demo")


class Witness:
    """Reads the ledger beside the daemon; `seen` counts the lines found there when they were heard."""

    def __init__(self, url: str, label: str) -> None:
        self.seen = 0
        self._label = label
        self._reader = engine.open_reader(url)
        self._transport: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.dispose()

    def see(self, number: int, line: bytes) -> None:
        """Look for the line that was just heard, the `number`-th of the agent's.

        Raises:
            DemoError: It was heard before it was committed.
        """
        with self._reader.connect() as connection:
            if self._transport is None:
                self._transport = transport_of(connection, self._label)
            query = (
                select(_FRAMES.c.body)
                .where(_FRAMES.c.transport_id == self._transport, _FRAMES.c.direction == "agent_to_client")
                .order_by(_FRAMES.c.frame_seq)
                .offset(number - 1)
                .limit(1)
            )
            if connection.execute(query).scalar() != line:
                raise DemoError(f"line {number} of the agent was heard before the ledger held it")
        self.seen += 1
