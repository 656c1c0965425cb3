"""Lines of JSON on the daemon's socket: whole, bounded, and cut anywhere."""

from __future__ import annotations

import pytest

from acp_ledger import dialogue
from acp_ledger.handshake import HandshakeError


def test_objects_come_whole_however_they_are_cut() -> None:
    """Many lines may come in one read, and one line in many."""
    sent = [{"call": "open"}, {"text": "a\nb \ud800 é"}, {}]
    data = b"".join(dialogue.encode(**each) for each in sent)
    for size in (1, 7, len(data)):
        reader = dialogue.ObjectReader()
        assert [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])] == sent


def test_object_over_the_limit_is_refused_before_its_end() -> None:
    """Nobody makes us hold what has no end."""
    reader = dialogue.ObjectReader(limit=8)
    assert reader.feed(b'{"a":1}\n') == [{"a": 1}]
    with pytest.raises(HandshakeError):
        reader.feed(b"123456789")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (dialogue.encode_request("status", verbose=True), {"request": "status", "verbose": True}),
        (dialogue.encode_answer(pid=7), {"ok": True, "pid": 7}),
        (dialogue.encode_refusal("no", "do this"), {"ok": False, "error": "no", "hint": "do this", "status": 1}),
    ],
)
def test_control_line_survives_any_cut(line: bytes, value: dict[str, object]) -> None:
    """Requests and answers are one JSON object on one line."""
    reader = dialogue.ControlReader()
    found = [reader.feed(line[at : at + 1]) for at in range(len(line))]
    assert found[-1] == value
    assert not any(found[:-1])


@pytest.mark.parametrize("data", [b"[]\n", b"{\n", b"\xff\n", b"[" * 100_000 + b"\n", b"x" * (1 << 20) + b"x"])
def test_control_line_refused(data: bytes) -> None:
    """What is no JSON object, or has no end, is refused and not waited for."""
    with pytest.raises(HandshakeError):
        dialogue.ControlReader().feed(data)
