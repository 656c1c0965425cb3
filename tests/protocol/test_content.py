"""The blocks of a prompt: how they are written, and which of them an agent takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger.protocol.content import Audio, Block, EmbeddedBlob, EmbeddedText, Image, ResourceLink, Text, unsupported
from tests.support.strategies import json_values

BLOCKS: list[tuple[Block, str]] = [
    (Text("hi"), '{"type":"text","text":"hi"}'),
    (Image("aW1n", "image/png"), '{"type":"image","mimeType":"image/png","data":"aW1n"}'),
    (
        Image("aW1n", "image/png", "file:///a.png"),
        '{"type":"image","mimeType":"image/png","data":"aW1n","uri":"file:///a.png"}',
    ),
    (Audio("d2F2", "audio/wav"), '{"type":"audio","mimeType":"audio/wav","data":"d2F2"}'),
    (
        Audio("d2F2", "audio/wav", "file:///a.wav"),
        '{"type":"audio","mimeType":"audio/wav","data":"d2F2","uri":"file:///a.wav"}',
    ),
    (EmbeddedText("file:///a", "x"), '{"type":"resource","resource":{"uri":"file:///a","text":"x"}}'),
    (
        EmbeddedText("file:///a", "x", "text/x"),
        '{"type":"resource","resource":{"uri":"file:///a","text":"x","mimeType":"text/x"}}',
    ),
    (EmbeddedBlob("file:///a", "Yg=="), '{"type":"resource","resource":{"uri":"file:///a","blob":"Yg=="}}'),
    (
        EmbeddedBlob("file:///a", "Yg==", "x/y"),
        '{"type":"resource","resource":{"uri":"file:///a","blob":"Yg==","mimeType":"x/y"}}',
    ),
    (ResourceLink("file:///a", "a"), '{"type":"resource_link","uri":"file:///a","name":"a"}'),
    (
        ResourceLink("file:///a", "a", "text/x", "A", "about", 0),
        (
            '{"type":"resource_link","uri":"file:///a","name":"a","mimeType":"text/x","title":"A","description":"about",'
            '"size":0}'
        ),
    ),
]

EVERYTHING = {"promptCapabilities": {"image": True, "audio": True, "embeddedContext": True}}


@pytest.mark.parametrize(("block", "written"), BLOCKS)
def test_block_is_written_in_order_without_empty_fields(block: Block, written: str) -> None:
    """Fields come in one order, and an optional one that is empty does not come at all; a size of 0 is a size."""
    assert json.dumps(block.to_json(), separators=(",", ":")) == written


@pytest.mark.parametrize("block", [block for block, _ in BLOCKS])
def test_agent_that_advertises_everything_takes_every_block(block: Block) -> None:
    """What we make ourselves passes our own look at it."""
    assert unsupported([block.to_json()], EVERYTHING) is None


@pytest.mark.parametrize("block", [Text(""), ResourceLink("file:///a", "a")])
@pytest.mark.parametrize("capabilities", [{}, {"promptCapabilities": None}, {"promptCapabilities": []}])
def test_text_and_links_always_pass(block: Block, capabilities: dict[str, Any]) -> None:
    """An agent need not say that it reads text, or that it is told where something is."""
    assert unsupported([block.to_json()], capabilities) is None


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (Image("", ""), "image"),
        (Audio("", ""), "audio"),
        (EmbeddedText("", ""), "embeddedContext"),
        (EmbeddedBlob("", ""), "embeddedContext"),
    ],
)
@pytest.mark.parametrize("said", [None, False, "true", 1, {}])
def test_block_that_is_not_advertised_is_named(block: Block, name: str, said: Any) -> None:
    """Nothing but `true` says that a kind is taken; the sentence names the block and what is lacking."""
    told = unsupported([Text("x").to_json(), block.to_json()], {"promptCapabilities": {name: said}})
    assert told is not None
    assert told.startswith("block 2 ")
    assert f"promptCapabilities.{name}" in told
    assert unsupported([block.to_json()], {"promptCapabilities": {name: True}}) is None


def test_either_name_for_embedded_files_counts() -> None:
    """Some agents say `embeddedContent` where the schema says `embeddedContext`."""
    block = EmbeddedText("file:///a", "x").to_json()
    assert unsupported([block], {"promptCapabilities": {"embeddedContent": True}}) is None
    assert unsupported([block], {"promptCapabilities": {"embeddedContent": False, "embeddedContext": True}}) is None


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("text", "of type string"),
        ({}, "no type"),
        ({"type": 7}, "unknown type 7"),
        ({"type": "video", "data": ""}, 'unknown type "video"'),
        ({"type": "text"}, "`text` of a `text` block must be a string"),
        ({"type": "text", "text": None}, "`text` of"),
        ({"type": "image", "data": "x"}, "`mimeType` of"),
        ({"type": "image", "mimeType": "x", "data": 1}, "`data` of"),
        ({"type": "image", "mimeType": "x", "data": "", "uri": 1}, "`uri` of"),
        ({"type": "resource"}, "`resource` of a `resource` block must be an object"),
        ({"type": "resource", "resource": {"text": "x"}}, "`resource.uri`"),
        ({"type": "resource", "resource": {"uri": "x"}}, "either a `text` or a `blob`"),
        ({"type": "resource", "resource": {"uri": "x", "text": "", "blob": ""}}, "either a `text` or a `blob`"),
        ({"type": "resource", "resource": {"uri": "x", "blob": 1}}, "`resource.blob`"),
        ({"type": "resource_link", "uri": "x"}, "`name` of"),
        ({"type": "resource_link", "uri": "x", "name": "", "title": 1}, "`title` of"),
        ({"type": "resource_link", "uri": "x", "name": "", "size": -1}, "`size` of"),
        ({"type": "resource_link", "uri": "x", "name": "", "size": True}, "`size` of"),
        ({"type": "text", "text": "", "annotations": {"priority": float("nan")}}, "NaN"),
        ({"type": "resource", "resource": {"uri": "", "text": "", "_meta": [float("inf")]}}, "NaN"),
    ],
)
def test_what_is_none_of_the_blocks_is_named(block: Any, words: str) -> None:
    """A shape that the protocol does not have is refused with what is wrong with it."""
    told = unsupported([block], EVERYTHING)
    assert told is not None
    assert words in told


def test_members_that_are_not_known_here_pass() -> None:
    """Annotations and whatever else a caller knows are the agent's to read."""
    block = {"type": "text", "text": "x", "annotations": {"priority": 0.5}, "_meta": {}}
    assert unsupported([block], {}) is None


@given(st.lists(json_values(), max_size=3), st.dictionaries(st.just("promptCapabilities"), json_values()))
def test_anything_can_be_looked_at(blocks: list[Any], capabilities: dict[str, Any]) -> None:
    """No block and no capability makes it raise; an empty prompt has nothing wrong."""
    told = unsupported(blocks, capabilities)
    assert (told is None) == (not blocks) or told is None or told.startswith("block ")
