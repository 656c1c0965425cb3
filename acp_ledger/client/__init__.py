"""The Python API: be an agent's client through the daemon, so that everything is in the ledger before it counts.

It runs under Trio and under asyncio, whichever calls it. What must not be broken here: no task of ours runs in the
background. Callbacks are awaited inside the call that waits, in the order in which the agent's lines came, and nothing
goes on before they return.
"""

from __future__ import annotations

from acp_ledger.client.connection import Client, open_client
from acp_ledger.client.failures import CallFailed, PromptFailed
from acp_ledger.client.values import (
    ClientInfo,
    Limits,
    Observer,
    Offer,
    Overflow,
    PermissionReply,
    PermissionRequest,
    Policy,
    ReaderStatus,
    Record,
    Rule,
    Started,
    Update,
)
from acp_ledger.protocol.client_lines import McpServer
from acp_ledger.protocol.content import Audio, Block, EmbeddedBlob, EmbeddedText, Image, ResourceLink, Text

__all__ = [
    "Audio",
    "Block",
    "CallFailed",
    "Client",
    "ClientInfo",
    "EmbeddedBlob",
    "EmbeddedText",
    "Image",
    "Limits",
    "McpServer",
    "Observer",
    "Offer",
    "Overflow",
    "PermissionReply",
    "PermissionRequest",
    "Policy",
    "PromptFailed",
    "ReaderStatus",
    "Record",
    "ResourceLink",
    "Rule",
    "Started",
    "Text",
    "Update",
    "open_client",
]
