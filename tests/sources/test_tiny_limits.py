"""Behaviours of a small ACP client, each on ours: what it takes, holds and writes at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acp_ledger.client import CallFailed, Limits
from acp_ledger.errors import UsageError
from acp_ledger.sections import LimitSettings
from tests.sources.callers import Journal, failed, opened, started
from tests.support.shell_agents import agent, chunk, end, line, question

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sources.conftest import House

CANCELLED = {"session/cancel": [end("cancelled")]}


async def test_ty9_reply_limit_keeps_what_came_before_cancels_once_and_waits_for_the_end(house: House) -> None:
    """Three chunks too many are one overflow; the turn ends as the agent says, and all of it was heard."""
    journal = Journal()
    command = agent(chunk("ab"), *[chunk("toolong")] * 3, then={"session/cancel": [chunk("late"), end("max_tokens")]})
    async with started(house, command, limits=Limits(response_bytes=4), observer=journal) as client:
        record = await client.prompt_detailed("go")
    assert (record.text, record.stop_reason, len(journal.updates)) == ("ab", "max_tokens", 5)
    assert sum(b"session/cancel" in said for said in house.said(client)) == 1
    assert house.rows(client, "SELECT kind, withheld_update_sequence FROM overflows") == [("response_bytes", 2)]


@pytest.mark.parametrize("name", sorted(LimitSettings.model_fields.keys() - {"parse_bytes"}))
async def test_ty13_every_limit_is_over_zero(house: House, name: str) -> None:
    """Checked before anything starts."""
    with pytest.raises(UsageError, match=name):
        async with opened(house, ["/no/such/agent"], limits=Limits(**{name: 0})):
            raise AssertionError


async def test_ty14_request_limit_counts_the_newline(house: House) -> None:
    """Equal to the limit is written, one over is not."""
    text = "x" * 300
    async with started(house, agent(end())) as probe:
        await probe.prompt(text)
    length = len(house.said(probe)[-1]) + 1
    for limit, prompts in ((length, 1), (length - 1, 0)):
        async with started(house, agent(end()), limits=Limits(request_bytes=limit)) as client:
            if prompts:
                await client.prompt(text)
            else:
                assert (await failed(client, text)).kind == "limit"
        assert len(house.said(client)) == 2 + prompts


async def test_ty15_bytes_of_a_reply_count_anew_for_each_prompt(house: House) -> None:
    """Two replies of three bytes each pass a limit of three."""
    second = {'"again"': [chunk("def"), end(id_=3)]}
    async with started(house, agent(chunk("abc"), end(), then=second), limits=Limits(response_bytes=3)) as client:
        assert [await client.prompt("go"), await client.prompt("again")] == ["abc", "def"]


@pytest.mark.parametrize("over", [0, 1])
async def test_ty16_update_limit_judges_the_trimmed_line_before_the_observer(house: House, over: int) -> None:
    """Space around it does not count."""
    journal = Journal()
    said = chunk("é")
    limits = Limits(update_bytes=len(said.encode()) - over)
    async with started(house, agent(f"   {said}  \r", end()), limits=limits, observer=journal) as client:
        if over:
            assert "update_bytes" in (await failed(client)).message
        else:
            assert await client.prompt("go") == "é"
    assert len(journal.updates) == 1 - over


async def test_ty17_count_of_updates_holds_for_life(house: House) -> None:
    """The first one past it fails its call, and every later call fails, too."""
    journal = Journal()
    second = {'"again"': [chunk("c"), chunk("d"), end(id_=3)]}
    limits = Limits(update_count=3)
    async with started(
        house, agent(chunk("a"), chunk("b"), end(), then=second), limits=limits, observer=journal
    ) as client:
        assert await client.prompt("go") == "ab"
        assert "update_count" in (await failed(client, "again")).message
        assert "update_count" in (await failed(client, "more")).message
    assert [each.text for each in journal.updates] == ["a", "b", "c"]


async def test_ty18_chunks_of_a_reply_are_limited(house: House) -> None:
    """An empty one counts."""
    command = agent(chunk("a"), chunk(""), chunk("c"), then=CANCELLED)
    async with started(house, command, limits=Limits(response_segments=2)) as client:
        record = await client.prompt_detailed("go")
    assert record.overflow is not None
    assert (record.text, record.overflow.kind) == ("a", "response_segments")


async def test_ty19_line_may_have_exactly_its_limit(house: House) -> None:
    """Room is for one byte more, and the default is documented."""
    said = chunk("x" * 200)
    async with started(house, agent(said, end()), limits=Limits(line_bytes=len(said))) as client:
        assert await client.prompt("go") == "x" * 200
        status = await client.reader_status()
    assert (status.limit, status.storage, status.high_water) == (len(said), len(said) + 1, len(said))
    async with started(house, agent(said, end()), limits=Limits(line_bytes=len(said) - 1)) as client:
        assert (await failed(client)).kind == "limit"
        assert (await failed(client)).kind == "limit"
    assert LimitSettings().line_bytes == 64 << 20


async def test_ty41_status_of_the_reader(house: House) -> None:
    """Nothing is held between calls, and nothing was rejected."""
    async with started(house, agent(chunk("a" * 500), end())) as client:
        await client.prompt("go")
        status = await client.reader_status()
    assert status.limit == LimitSettings().line_bytes == status.storage - 1
    assert (status.buffered, status.rejected, status.phase, status.terminal) == (0, 0, "steady", False)
    assert status.high_water == len(chunk("a" * 500))


async def test_ty52_nothing_is_written_past_the_request_limit_whatever_the_message(house: House) -> None:
    """The first one is measured like any other, and so are answers; one to a question is in the ledger, withheld."""
    async with opened(house, agent(), limits=Limits(request_bytes=20)) as client:
        with pytest.raises(CallFailed, match="request_bytes"):
            await client.start()
    assert house.said(client) == []
    id_ = "n" * 500
    for asking in (line(id=id_, method="fs/read_text_file", params={}), question(id_=id_)):
        async with started(house, agent(asking, end()), limits=Limits(request_bytes=400)) as client:
            failure = await failed(client)
            assert (failure.kind, "request_bytes" in failure.message) == ("limit", True)
        assert len(house.said(client)) == 3
    assert house.rows(client, "SELECT outcome FROM decisions") == [("selected",)]
    delivery = "SELECT delivery FROM frames JOIN decisions USING (transport_id, frame_seq) WHERE transport_id = :id"
    assert house.query(delivery, id=client.transport_id) == [("withhold",)]


async def test_ty55_count_comes_before_size_and_only_what_fits_takes_a_number(house: House) -> None:
    """An oversize update takes none, a malformed one takes one, and past the count the size is not looked at."""
    journal = Journal()
    then = {
        '"two"': ['{"jsonrpc":"2.0","method":"session/update","params":{}}'],
        '"three"': [chunk("c"), end(id_=4)],
        '"four"': [chunk("x" * 900)],
    }
    limits = Limits(update_count=2, update_bytes=500)
    async with started(house, agent(chunk("x" * 900), then=then), limits=limits, observer=journal) as client:
        assert "update_bytes" in (await failed(client, "one")).message
        assert "malformed" in (await failed(client, "two")).message
        assert await client.prompt("three") == "c"
        assert "update_count" in (await failed(client, "four")).message
    assert [each.update_sequence for each in journal.updates] == [2]


async def test_ty58_chunks_come_before_bytes_and_after_an_overflow_nothing_joins(house: House) -> None:
    """Equal to a limit is admitted; a chunk that would fit does not join any more."""
    both = agent(chunk("ab"), chunk("toolong"), then=CANCELLED)
    async with started(house, both, limits=Limits(response_bytes=2, response_segments=1)) as client:
        record = await client.prompt_detailed("go")
        assert (record.text, record.overflow and record.overflow.kind) == ("ab", "response_segments")
    fits = agent(chunk("ab"), chunk("toolong"), chunk("c"), then=CANCELLED)
    async with started(house, fits, limits=Limits(response_bytes=3)) as client:
        record = await client.prompt_detailed("go")
        assert (record.text, record.overflow and record.overflow.kind) == ("ab", "response_bytes")


async def test_ty59_overflow_names_its_limit_what_is_in_and_the_first_that_is_not(house: House) -> None:
    """Bytes are those of UTF-8, and the update's number is the client's, not the prompt's."""
    second = {'"again"': [chunk("é"), chunk("ü"), chunk("x")], "session/cancel": [end("cancelled", id_=3)]}
    limits = Limits(response_segments=2)
    async with started(house, agent(chunk("a"), end(), then=second), limits=limits) as client:
        await client.prompt("go")
        record = await client.prompt_detailed("again")
    assert record.overflow is not None
    assert vars(record.overflow) == {
        "kind": "response_segments",
        "admitted_bytes": 4,
        "admitted_segments": 2,
        "withheld_update_sequence": 4,
    }


async def test_ty69_limit_too_large_to_hold_is_refused_and_the_command_never_run(house: House, tmp_path: Path) -> None:
    """No reader could have it."""
    ran = tmp_path / "ran"
    with pytest.raises(UsageError, match="cannot be held"):
        async with opened(house, ["/bin/sh", "-c", f"touch {ran}"], limits=Limits(line_bytes=2**53 - 1)):
            raise AssertionError
    assert not ran.exists()


async def test_ty70_line_over_the_limit_stops_the_reading_for_good(house: House) -> None:
    """No update is told, and the reader says so: 32, 33, 33, 32, 1, terminal."""
    journal = Journal()
    command = ["/bin/sh", "-c", f"while IFS= read -r line; do printf '%s\\n' '{chunk('oversized')}'; done"]
    async with opened(house, command, limits=Limits(line_bytes=32), observer=journal) as client:
        with pytest.raises(CallFailed) as caught:
            await client.start()
        status = await client.reader_status()
    assert (caught.value.kind, journal.heard) == ("limit", [])
    assert vars(status) == {
        "limit": 32,
        "storage": 33,
        "buffered": 33,
        "high_water": 32,
        "rejected": 1,
        "phase": "steady",
        "terminal": True,
    }


async def test_ty71_oversized_request_is_refused_before_it_is_sent(house: House, tmp_path: Path) -> None:
    """1,024 bytes do not pass 512, and the agent hears nothing of them; a shorter prompt goes on."""
    heard = tmp_path / "heard"
    command = agent(end(id_=2), end(id_=3), heard=heard)
    async with started(house, command, limits=Limits(request_bytes=512)) as client:
        assert (await failed(client, "x" * 1024)).kind == "limit"
    assert "session/prompt" not in heard.read_text()
    assert len(house.said(client)) == 2


async def test_ty72_overflow_of_two_bytes_in_one_chunk_at_the_second_update(house: House) -> None:
    """`ok` is in, `no` would be the third and fourth byte of three."""
    journal = Journal()
    command = agent(chunk("ok"), chunk("no"), then=CANCELLED)
    async with started(house, command, limits=Limits(response_bytes=3), observer=journal) as client:
        record = await client.prompt_detailed("overflow")
    assert record.overflow is not None
    assert (record.text, record.stop_reason, len(journal.updates)) == ("ok", "cancelled", 2)
    assert tuple(vars(record.overflow).values()) == ("response_bytes", 2, 1, 2)
