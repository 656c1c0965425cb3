"""The opening of a transport: what its row says, and which id it gets.

What must not be broken here: the row is under the genesis of the transport's chain and never changes; an id is above
every id this daemon ever gave, whatever the clock says; an epoch somebody chose never feeds the next id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import literal, select

from acp_ledger.protocol.records import UNNEGOTIATED
from acp_ledger.store import tables
from acp_ledger.store.faults import CommitHeld, CommitRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Select

ID_TRIES: Final = 1_000
"""Ids tried in a row before opening a transport is given up; other daemons took them in the same microseconds."""

EPOCH_BOUND: Final = 1 << 53
"""Epochs are below this, so that JSON readers keep them exact."""


@dataclass(frozen=True, slots=True)
class NewTransport:
    """A transport that is about to be opened. `opened_at` is UTC microseconds; `epoch` is the caller's own, or None."""

    opened_at: int
    mode: str
    agent: str
    argv: Sequence[str]
    cwd: str | None
    mapping_version: str
    env_names: Sequence[str] = ()
    label: Mapping[str, str] = field(default_factory=dict)
    peer_uid: int | None = None
    peer_gid: int | None = None
    peer_pid: int | None = None
    os_user: str | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    policy_digest: str | None = None
    failure_mode: str = "closed"
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class OpenedTransport:
    """A transport that is in the ledger; its first number is 1."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Daemon:
    """The installation that writes: its id from the state directory, its host's name, its user."""

    daemon_id: str
    host: str
    uid: int


def free_id(connection: Connection, first: int, epoch: int | None) -> tuple[int, int]:
    """The first free id from `first` on, and the epoch: the caller's, else the id.

    Raises:
        CommitRefused: The epoch is taken.
        CommitHeld: Too many ids in a row are taken.
    """
    c = tables.transports.c
    if epoch is not None and exists(connection, select(literal(1)).where(c.epoch == epoch)):
        raise CommitRefused(f"the epoch {epoch} is taken", hint="choose another, or leave it to the ledger")
    for number in range(first, first + ID_TRIES):
        taken = (c.id == number) if epoch is not None else (c.id == number) | (c.epoch == number)
        if not exists(connection, select(literal(1)).where(taken)):
            return number, epoch or number
    raise CommitHeld(f"no id is free from {first} on", hint="check the clocks of the daemons on this ledger")


def transport_row(new: NewTransport, epoch: int, daemon: Daemon, durability: str) -> dict[str, Any]:
    """The columns of a transport's row without its id and its digests."""
    return {
        "epoch": epoch,
        "protocol_revision": UNNEGOTIATED,
        "daemon_id": daemon.daemon_id,
        "opened_at": new.opened_at,
        "mode": new.mode,
        "agent": _readable(new.agent),
        "argv": _json(list(new.argv)),
        "cwd": None if new.cwd is None else _readable(new.cwd),
        "env_names": _json(sorted(new.env_names)),
        "label": _json(dict(new.label)) if new.label else None,
        "peer_uid": new.peer_uid,
        "peer_gid": new.peer_gid,
        "peer_pid": new.peer_pid,
        "os_user": None if new.os_user is None else _readable(new.os_user),
        "limits": _json(dict(new.limits)),
        "policy_digest": new.policy_digest,
        "failure_mode": new.failure_mode,
        "durability": durability,
        "mapping_version": new.mapping_version,
    }


def exists(connection: Connection, query: Select[Any]) -> bool:
    """Whether a query finds anything."""
    return connection.execute(query.limit(1)).first() is not None


def _readable(text: str) -> str:
    """Text of the system's that may not be UTF-8, or hold NUL, with replacement characters in their place."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\0", "\ufffd")


def _json(value: Any) -> str:
    """Compact JSON; undecodable bytes stay as escaped surrogates, so that a command line can be told exactly."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return (
        written
        if written.isascii() or _is_unicode(written)
        else json.dumps(value, separators=(",", ":"), sort_keys=True)
    )


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
