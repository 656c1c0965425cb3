"""`relay.strict`: what does not parse, or can be read in two ways, reaches nobody, and nobody waits for it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio

from tests.daemon.house import PROMPT, QUESTION, open_house, request
from tests.daemon.plays import DONE, Play, Told, play
from tests.support.ledgers import shared_url

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["shared_url"]

STRICT = {"relay.strict": True, "limits.parse_bytes": 2000}

PARSE, INVALID, PARAMS, INTERNAL = -32700, -32600, -32602, -32603
ASKED = QUESTION.replace('"options":[]', '"options":[{"optionId":"a","name":"n","kind":"allow_once"}]')
CHOSEN = b'{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"selected","optionId":"a"}}}'
BY_NOBODY = ("error", None, "none", "nobody", None)
BY_CLIENT = ("selected", "a", "allow", "client", None)
UNANSWERED = ("unanswered", None, "none", "nobody", None)
READ = '{"jsonrpc":"2.0","id":5,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/x"}}'
ENDED = '{"jsonrpc":"2.0","id":7,"result":{"stopReason":"end_turn"}}'


class Row(NamedTuple):
    """A promise. What passes is given as it is, an error as its id and its code."""

    says: Sequence[str]
    shown: Sequence[str | tuple[Any, int]] = ()
    heard: Sequence[str | tuple[Any, int]] = ()
    decisions: Sequence[tuple[str | None, ...]] = ()
    editor: bytes = b""


def passing(line: str) -> Row:
    """A line of the agent that passes."""
    return Row([line], [line])


def refused(line: str, code: int = INVALID, id_: Any = None) -> Row:
    """A line of the agent that is withheld, and the error it gets for it."""
    return Row([line], heard=[(id_, code)])


PROMISES = {
    "words": refused("npm WARN deprecated", PARSE),
    "a byte order mark": refused("\ufeff{}", PARSE),
    "NaN": refused('{"jsonrpc":"2.0","method":"x","params":{"a":NaN}}', PARSE),
    "two values": refused('{"jsonrpc":"2.0","method":"x"} {}', PARSE),
    "a list": refused("[]"),
    "a number": refused("7"),
    "a method beside a result": refused('{"jsonrpc":"2.0","id":1,"method":"x","result":1}'),
    "a method that is no string": refused('{"jsonrpc":"2.0","method":7}'),
    "neither nor": refused('{"jsonrpc":"2.0"}'),
    "a method twice": refused('{"jsonrpc":"2.0","method":"x","method":"y"}'),
    "an id twice": refused('{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}'),
    "any key twice, in a notification": refused('{"jsonrpc":"2.0","method":"x","params":{"a":{"b":1,"b":2}}}'),
    "any key twice, in a request": refused('{"jsonrpc":"2.0","id":"q","method":"x","params":{"b":1,"b":2}}', id_="q"),
    "an id that is true": refused('{"jsonrpc":"2.0","id":true,"method":"x"}', id_=True),
    "an id that is an object": refused('{"jsonrpc":"2.0","id":{"a":1},"method":"x"}', id_={"a": 1}),
    "a request under null": refused('{"jsonrpc":"2.0","id":null,"method":"x"}'),
    "too big to parse": refused('{"jsonrpc":"2.0","id":3,"method":"x","params":{"a":"%s"}}' % ("a" * 3000), id_=3),
    "an answer to nothing": refused('{"jsonrpc":"2.0","id":99,"result":{}}'),
    "a blank line is withheld without a word": Row(["", " "]),
    "a question that offers an id twice": Row(
        [QUESTION.replace("[]", '[{"optionId":"a","kind":"allow_once"},{"optionId":"a","kind":"reject_once"}]')],
        heard=[(1, PARAMS)],
        decisions=[("error", None, "none", "nobody", None)],
    ),
    "a question with a word said twice": Row(
        [ASKED.replace('"toolCallId":"c"', '"toolCallId":"c","title":"a","title":"b"')],
        heard=[(1, INVALID)],
        decisions=[BY_NOBODY],
    ),
    "an id that is in use": Row([READ, ASKED.replace('"id":1', '"id":5')], [READ], [(None, INVALID)]),
    "an answer in two ways: who waits is told": Row(
        ['{"jsonrpc":"2.0","id":7,"result":{"stopReason":"refusal","stopReason":"end_turn"}}'],
        [(7, INTERNAL)],
        [(None, INVALID)],
    ),
    "an answer without content: who waits is told": Row(
        ['{"jsonrpc":"2.0","id":7}'], [(7, INTERNAL)], [(None, INVALID)]
    ),
    "an answer with both: who waits is told": Row(
        ['{"jsonrpc":"2.0","id":7,"result":{"stopReason":"end_turn"},"error":{"code":1,"message":"x"}}'],
        [(7, INTERNAL)],
        [(None, INVALID)],
    ),
    "a second answer": Row([ENDED, ENDED], [ENDED], [(None, INVALID)]),
    "a choice in two ways": Row(
        [ASKED],
        [ASKED, (None, INVALID)],
        [(1, INTERNAL)],
        [BY_NOBODY],
        editor=CHOSEN.replace(b'"optionId":"a"', b'"optionId":"b","optionId":"a"'),
    ),
    "a choice under an id in two ways": Row(
        [ASKED], [ASKED, (None, INVALID)], [], [UNANSWERED], editor=CHOSEN.replace(b'"id":1', b'"id":2,"id":1')
    ),
    "a second choice": Row(
        [ASKED], [ASKED, (None, INVALID)], [CHOSEN.decode()], [BY_CLIENT], editor=CHOSEN + b"\n" + CHOSEN
    ),
    "an editor's line that is not UTF-8": Row([], [(None, PARSE)], editor=b'{"a":"\xff"}'),
    "an editor's request in two ways": Row(
        [], [(8, INVALID)], editor=request("8", "x").replace(b"{}", b'{"a":1,"a":2}').strip()
    ),
    "a choice that is clear": Row([ASKED], [ASKED], [CHOSEN.decode()], [BY_CLIENT], editor=CHOSEN),
    "no version": passing('{"method":"x"}'),
    "a fraction as id": passing('{"jsonrpc":"2.0","id":1.5,"method":"x"}'),
    "an unknown method": passing('{"jsonrpc":"2.0","id":"z","method":"_vendor/x","params":[]}'),
    "half a character": passing('{"jsonrpc":"2.0","method":"x","params":{"a":"\\ud800"}}'),
    "an error that answers nothing": passing('{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}'),
    "null beside a result": Row([ENDED[:-1] + ',"error":null}'], [ENDED[:-1] + ',"error":null}']),
}


@pytest.fixture(scope="module")
def told(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Every row, played in connections of one daemon, once on each engine."""
    folder = tmp_path_factory.mktemp("strict")
    plays = {name: Play(PROMPT, row.says, row.editor) for name, row in PROMISES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        return trio.run(partial(play, shared_url, folder, plays, **STRICT))


def told_as(line: str | bytes) -> Any:
    """A line as a row writes it: an error of ours as its id and code, after a look at its words."""
    text = line.decode() if isinstance(line, bytes) else line
    if '"reason":"withheld"' not in text:
        return text
    value = json.loads(text)
    assert value["error"]["message"].startswith("acp-ledger: ")
    assert "not passed on (relay.strict)" in value["error"]["message"]
    return value["id"], value["error"]["code"]


@pytest.mark.parametrize("name", PROMISES)
def test_strict_relay_keeps_its_promises(told: dict[str, Told], name: str) -> None:
    """What is clear passes byte for byte; all else is stored, its sender is told, and so is whoever waits for it."""
    row = PROMISES[name]
    ours = [line for line in told[name].shown if line != DONE and "agent_ended" not in line]
    assert list(map(told_as, ours)) == list(row.shown)
    assert list(map(told_as, told[name].heard)) == list(row.heard)
    assert told[name].stored == [*row.says, DONE]
    assert told[name].decisions == list(row.decisions)


async def test_nothing_is_withheld_unless_asked_for(tmp_path: Path) -> None:
    """Without `relay.strict` each of these lines passes, whatever it is."""
    lines = [line for row in PROMISES.values() for line in row.says]
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path) as house:
        assert (await house.session(["send", *lines])).output.decode().split("\n")[:-1] == lines
        assert house.rows("SELECT count(*) FROM frames WHERE delivery = 'withhold'")[0][0] == 0


async def test_delivery_is_told_in_between(tmp_path: Path) -> None:
    """How far delivery came is in the record before the end, also where every line is judged."""
    async with open_house(f"sqlite:///{tmp_path}/ledger.db", tmp_path, **STRICT) as house:
        heard = await house.session(["flood", 5000, 10])
        assert heard.output.count(b"\n") == 5000
        await house.quiet()
        assert house.rows("SELECT count(*) FROM deliveries")[0][0] > 1
