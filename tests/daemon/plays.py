"""Many short plays between an agent and its editor, all with one daemon, and what came of each.

What must not be broken here: a play is two programs that say their lines whatever they hear, so that what they hear is
the daemon's doing alone; and the whole record of all plays proves itself and maps again to what it says.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from tests.daemon.house import House, assert_verified, greeting, open_house, rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DONE = '{"jsonrpc":"2.0","method":"_done"}'
"""The agent's last line; whatever it said before was judged once the editor has it."""


class Play(NamedTuple):
    """What is said: by the editor before the agent speaks, by the agent, and by the editor when the agent is done."""

    before: bytes
    says: Sequence[str]
    editor: bytes
    agent: str = "any"


class Told(NamedTuple):
    """What came of it: what the editor got, what the agent heard, what is stored of it, and the decisions."""

    shown: list[str]
    heard: list[bytes]
    stored: list[str]
    decisions: list[tuple[str | None, ...]]


_LINES = """
SELECT t.label, f.body FROM frames f JOIN transports t ON t.id = f.transport_id
 WHERE f.direction = 'agent_to_client' AND f.origin = 'peer' ORDER BY f.transport_id, f.frame_seq
"""
_DECISIONS = """
SELECT t.label, d.outcome, d.option_id, d.effect, d.decided_by, d.rule
  FROM decisions d JOIN transports t ON t.id = d.transport_id ORDER BY d.transport_id, d.frame_seq, d.ordinal
"""


async def play(url: str, folder: Path, plays: Mapping[str, Play], **settings: Any) -> dict[str, Told]:
    """Play them all."""
    shown: dict[str, list[str]] = {}
    heard = {name: folder / f"heard-{number}" for number, name in enumerate(plays)}
    turns = trio.CapacityLimiter(4)
    async with open_house(url, folder, **settings) as house, trio.open_nursery() as nursery:
        for name, each in plays.items():
            nursery.start_soon(_play_one, house, turns, name, each, heard[name], shown)
    assert_verified(url)
    told = {name: Told(shown[name], heard[name].read_bytes().splitlines(), [], []) for name in plays}
    for line in rows(url, _LINES):
        told[_name(line)].stored.append(bytes(line.body).decode())
    for row in rows(url, _DECISIONS):
        told[_name(row)].decisions.append((row.outcome, row.option_id, row.effect, row.decided_by, row.rule))
    return told


async def _play_one(
    house: House, turns: trio.CapacityLimiter, name: str, each: Play, heard: Path, shown: dict[str, list[str]]
) -> None:
    """The agent says its lines, tells that it has, and collects what it hears; the editor answers, and ends."""
    first = [["wait", "cancel" if b"cancel" in each.before else "prompt"]] if each.before else []
    steps = [*first, ["send", *each.says, DONE], ["collect", str(heard)]]
    said = greeting(*steps, agent=each.agent.encode(), labels=[(b"play", name.encode())])
    async with turns, house.editor(said + each.before) as editor:
        await editor.hear(DONE.encode())
        if each.editor:
            await editor.say(each.editor + b"\n")
        await editor.end()
        shown[name] = (await editor.rest()).output.decode().splitlines()


def _name(row: Any) -> str:
    return str(json.loads(row.label)["play"])


def transport(url: str, name: str) -> int:
    """The connection in which a play was given."""
    return next(int(row.id) for row in rows(url, "SELECT id, label FROM transports") if _name(row) == name)
