"""Where the sequences of transports stand, read from the database.

What must not be broken here: frames and events share one sequence, so both tables are asked, always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from acp_ledger.store import tables
from acp_ledger.store.batch import Head

if TYPE_CHECKING:
    from sqlalchemy import Connection


def head_of(connection: Connection, transport_id: int) -> Head | None:
    """The last number of a transport and its link, its genesis under number 0; None when there is no such transport."""
    numbered = [_last(connection, table, transport_id) for table in (tables.frames, tables.transport_events)]
    found = [head for head in numbered if head is not None]
    if found:
        return max(found)
    genesis = select(tables.transports.c.chain).where(tables.transports.c.id == transport_id)
    link = connection.execute(genesis).scalar()
    return None if link is None else Head(0, bytes(link))


def link_at(connection: Connection, transport_id: int, frame_seq: int) -> bytes | None:
    """The link under a number; None when nothing stands there."""
    for table in (tables.frames, tables.transport_events):
        c = table.c
        query = select(c.chain).where(c.transport_id == transport_id, c.frame_seq == frame_seq)
        if (link := connection.execute(query).scalar()) is not None:
            return bytes(link)
    return None


def _last(connection: Connection, table: Any, transport_id: int) -> Head | None:
    c = table.c
    query = select(c.frame_seq, c.chain).where(c.transport_id == transport_id).order_by(c.frame_seq.desc()).limit(1)
    row = connection.execute(query).first()
    return None if row is None else Head(row[0], bytes(row[1]))
