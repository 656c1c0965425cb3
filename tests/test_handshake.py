"""The words on the socket: bounded, readable from any pieces, refused with a sentence."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_ledger import handshake
from acp_ledger.handshake import Greeting, GreetingReader, HandshakeError, PacketReader

ANY = st.binary(max_size=40)
NAMES = st.binary(min_size=1, max_size=10).filter(lambda name: b"=" not in name)
GREETINGS = st.builds(
    Greeting,
    st.sampled_from([handshake.PURPOSE_RUN, handshake.PURPOSE_TERMINAL, handshake.PURPOSE_CONTROL]),
    argv=st.lists(ANY, max_size=4),
    cwd=ANY,
    env=st.dictionaries(NAMES, ANY, max_size=4),
    agent=st.none() | ANY,
    labels=st.lists(st.tuples(NAMES, ANY), max_size=3),
    pid=st.integers(0, 2**22),
    ppid=st.integers(0, 2**22),
    parent_exe=st.none() | ANY,
    umask=st.none() | st.integers(0, 0o777),
    added=st.lists(ANY, max_size=3),
)


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


def _lp(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@given(GREETINGS, ANY, st.lists(st.integers(0, 5000), max_size=6))
def test_greeting_survives_any_cut(greeting: Greeting, after: bytes, cuts: list[int]) -> None:
    """Whatever bytes a process may be given, and however they arrive, they are read as they were written."""
    reader = GreetingReader()
    encoded = handshake.encode_greeting(greeting)
    found = [reader.feed(piece) for piece in _pieces(encoded, cuts)]
    assert found[-1] == greeting
    assert not any(found[:-1])
    whole = GreetingReader()
    assert whole.feed(encoded + after) == greeting
    assert whole.rest == after


def test_greeting_differs_in_every_field() -> None:
    """Two greetings are equal only where everything they say is."""
    same = Greeting(b"run", argv=[b"a"], env={b"A": b"1"})
    assert same == Greeting(b"run", argv=[b"a"], env={b"A": b"1"})
    assert hash(same) == hash(Greeting(b"run", argv=[b"a"], env={b"A": b"1"}))
    assert same != Greeting(b"run", argv=[b"a"], env={b"A": b"2"})
    assert same != Greeting(b"run", argv=[b"a"], env={b"A": b"1"}, agent=b"")


def test_greeting_shows_no_environment() -> None:
    """It may end in a log, and the environment holds keys."""
    assert "s3cret" not in repr(Greeting(b"run", env={b"KEY": b"s3cret"}))


def test_greeting_skips_fields_it_does_not_know() -> None:
    """A field can be added without locking out the older program."""
    body = _lp(b"purpose") + _lp(b"run") + _lp(b"novelty") + _lp(b"\xff")
    assert GreetingReader().feed(handshake.MAGIC + _lp(body)) == Greeting(b"run")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"acp-ledger/2\n", "version 2 .* this one version 1: install the same"),
        (b"acp-ledger/10\nrest", "version 10"),
        (b"GET / HTTP/1.1\r\n", "no acp-ledger greeting"),
        (b"acp-led\n", "no acp-ledger greeting"),
        (b"acp-ledger/" + b"9" * 40, "no acp-ledger greeting"),
        (handshake.MAGIC + (handshake.GREETING_BYTES + 1).to_bytes(4, "big"), "are allowed"),
        (handshake.MAGIC + _lp(_lp(b"purpose") + _lp(b"sell")), "unknown purpose b'sell'"),
        (handshake.MAGIC + _lp(b""), "unknown purpose"),
        (handshake.MAGIC + _lp(_lp(b"purpose")), "key and no value"),
        (handshake.MAGIC + _lp(_lp(b"purpose") + b"\0\0\0\x09run"), "cut off"),
        (handshake.MAGIC + _lp(b"\0\0"), "cut off"),
        (handshake.MAGIC + _lp(_lp(b"purpose") + _lp(b"run") + _lp(b"env") + _lp(b"s3cret")), "no KEY=VALUE"),
        (handshake.MAGIC + _lp(_lp(b"purpose") + _lp(b"run") + _lp(b"pid") + _lp(b"-1")), "process id"),
    ],
)
def test_greeting_refused_says_why(data: bytes, sentence: str) -> None:
    """A stranger, another version and a broken sender each read what is wrong, and no secret is shown."""
    with pytest.raises(HandshakeError, match=sentence) as refused:
        GreetingReader().feed(data)
    assert "s3cret" not in str(refused.value)


def test_greeting_of_a_stranger_is_refused_at_its_first_byte() -> None:
    """Nobody who speaks another protocol is waited for."""
    with pytest.raises(HandshakeError, match="no acp-ledger greeting"):
        GreetingReader().feed(b"{")


def test_greeting_too_large_is_not_sent() -> None:
    """The sender hears it, rather than a daemon that hangs up."""
    with pytest.raises(HandshakeError, match="are allowed"):
        handshake.encode_greeting(Greeting(b"run", argv=[b"x" * handshake.GREETING_BYTES]))


@given(
    st.lists(st.tuples(st.sampled_from([b"o", b"e", b"f"]), st.binary(max_size=200)), max_size=6),
    st.lists(st.integers(0, 5000), max_size=6),
)
def test_packets_survive_any_cut(sent: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    """However they arrive, kinds and bytes come out in order."""
    stream = b"".join(packet for kind, payload in sent for packet in handshake.encode_packets(kind, payload))
    reader = PacketReader()
    found = [packet for piece in _pieces(stream, cuts) for packet in reader.feed(piece)]
    assert found == [(kind, payload) for kind, payload in sent if payload]


def test_packets_split_a_long_line() -> None:
    """A line of any length travels in packets a runner can hold."""
    line = bytes(range(256)) * 700
    packets = list(handshake.encode_packets(handshake.OUTPUT, line))
    assert [len(packet) for packet in packets] == [handshake.PACKET_BYTES + 5, handshake.PACKET_BYTES + 5, 48128 + 5]
    assert b"".join(payload for _, payload in PacketReader().feed(b"".join(packets))) == line


@pytest.mark.parametrize("data", [b"z", b"o\0\1\0\1"])
def test_packet_refused_at_its_header(data: bytes) -> None:
    """Neither an unknown kind nor a length over the bound is waited for; what came before it still counts."""
    packets = PacketReader().feed(handshake.encode_exit(7) + data)
    assert next(packets) == (handshake.EXIT, b"7")
    with pytest.raises(HandshakeError):
        next(packets)


@pytest.mark.parametrize("status", [0, 1, 137, 255])
def test_exit_status_survives(status: int) -> None:
    """The editor sees the agent's own status."""
    assert list(PacketReader().feed(handshake.encode_exit(status))) == [(handshake.EXIT, b"%d" % status)]
    assert handshake.decode_exit(b"%d" % status) == status


@pytest.mark.parametrize("payload", [b"", b"256", b"-1", b"0x1", b"\xd9\xa1", b"9" * 5000])
def test_exit_status_that_is_none_is_refused(payload: bytes) -> None:
    """No process can exit with it."""
    with pytest.raises(HandshakeError):
        handshake.decode_exit(payload)


def test_fatal_carries_sentence_and_status() -> None:
    """A refusal is whole in one write, and fits one packet however long the sentence."""
    assert list(PacketReader().feed(handshake.encode_fatal("no — \ud800", 69))) == [
        (handshake.FATAL, "no — ?".encode()),
        (handshake.EXIT, b"69"),
    ]
    (_, text), _ = PacketReader().feed(handshake.encode_fatal("x" * 100_000, 1))
    assert len(text) == handshake.PACKET_BYTES
