"""Test vectors of every digest, with the inputs they are made from: for the docs, and for who writes a verifier.

What must not be broken here: the hex. It was computed once; when a test finds another value, the code is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from acp_ledger.protocol.records import Entry, Event, Frame, ToolCallStep
from acp_ledger.store import chain

if TYPE_CHECKING:
    from collections.abc import Mapping

LEDGER_ID: Final = bytes(range(16))
EPOCH: Final = 1_796_000_000_000_000
PRIVATE_SALT: Final = b"\x22" * 16
SALT: Final = b"\x11" * 16

TRANSPORT: Final[Mapping[str, object]] = {
    "epoch": EPOCH,
    "protocol_revision": "acp/unnegotiated",
    "daemon_id": "d",
    "opened_at": EPOCH,
    "mode": "relay",
    "agent": "agent",
    "argv": '["agent"]',
    "cwd": None,
    "env_names": '["PATH"]',
    "label": None,
    "peer_uid": 1000,
    "peer_gid": 1000,
    "peer_pid": None,
    "os_user": "mia",
    "limits": "{}",
    "policy_digest": None,
    "failure_mode": "closed",
    "durability": "power",
    "mapping_version": "1",
}

OPENED: Final = Entry(Event(1, "acp/unnegotiated", "opened", EPOCH), (), None)

STEP: Final = Entry(
    Frame(
        frame_seq=2,
        protocol_revision="acp/v1",
        session_id=1,
        turn_id=None,
        direction="agent_to_client",
        origin="peer",
        delivery="forward",
        kind="notification",
        method="session/update",
        rpc_id=None,
        phase="turn",
        update_sequence=1,
        session_update="tool_call",
        disposition="observed",
        received_at=EPOCH + 1,
        byte_count=2,
        terminated=True,
        body_state="exact",
    ),
    (
        ToolCallStep(
            frame_seq=2,
            ordinal=0,
            protocol_revision="acp/v1",
            session_id=1,
            turn_id=None,
            tool_call_id='"é\n\x1f\x7f',
            source="update",
            status="pending",
            status_raw=None,
            kind=None,
            tool_name=None,
            title="Ä/\\\u2028",
            lossy=False,
        ),
    ),
    b"{}",
)


class Vector(NamedTuple):
    """A value by its name: canonical text as it is hashed, a digest as hex."""

    name: str
    value: str


def compute() -> list[Vector]:
    """Every vector, computed now."""
    made = chain.seal_transport(LEDGER_ID, TRANSPORT, PRIVATE_SALT)
    facts, private = chain.divide([("transports", TRANSPORT)])
    opened = chain.seal(OPENED, made.chain)
    salts = iter((PRIVATE_SALT, SALT))
    step = chain.seal(STEP, opened.chain, lambda _size: next(salts))
    step_facts, step_private = chain.divide(
        (name, {column.rstrip("_"): value for column, value in row._asdict().items()})
        for name, row in (("frames", STEP.record), ("tool_call_steps", STEP.rows[0]))
    )
    return [
        Vector("transport: canonical facts", facts.decode()),
        Vector("transport: canonical private", (private or b"").decode()),
        Vector("transport: facts", made.facts.hex()),
        Vector("transport: private", made.private.hex()),
        Vector("transport: genesis", made.chain.hex()),
        Vector("1, an event: facts", opened.facts.hex()),
        Vector("1, an event: chain", opened.chain.hex()),
        Vector("2, a frame with a row: canonical facts", step_facts.decode()),
        Vector("2, a frame with a row: canonical private", (step_private or b"").decode()),
        Vector("2, a frame with a row: commitment", step.commitment.hex()),
        Vector("2, a frame with a row: facts", step.facts.hex()),
        Vector("2, a frame with a row: private", step.private.hex()),
        Vector("2, a frame with a row: chain", step.chain.hex()),
    ]


VECTORS: Final = (
    Vector("transport: facts", "2b10418e2473b94a702b088a186b78c1c27c35e3bd3d7e944ebf622dac34ac57"),
    Vector("transport: private", "d06a0168d4962e0d6c3923710888ae0e6efe73b62fcd2c32063979b867d81ea5"),
    Vector("transport: genesis", "a220ebd7d6fc79914fecb0eac701cdd07c309268b7b8d3911f07599ea7c7c3ab"),
    Vector("1, an event: facts", "9167088518772648a6c07c61f1856172d136c4a18a213af78d3a32fa5fbb0a9a"),
    Vector("1, an event: chain", "ee037ba572b0512706ed343d8279b3ab4757d45e288180c8af6adbc8bbf51472"),
    Vector("2, a frame with a row: commitment", "57f860732db8d1334d7e30350a88e20560fb9eb11d5748a6001805a2d81f47d9"),
    Vector("2, a frame with a row: facts", "ea2c7b95f2b4a710f9522824f9e3d4825db56286b927492f0c5903444367df58"),
    Vector("2, a frame with a row: private", "e294eec593ce66d91b926d5221e3d395c7823b58cc1c1a5ba625f12dafaba01b"),
    Vector("2, a frame with a row: chain", "003e72147ec5c98aa601703aea1e51d6cbc5167f7c740654dac8b9d3f54d5f4c"),
)
"""The digests; canonical texts are shown by `compute`."""
