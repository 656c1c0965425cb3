r"""The words that runner, daemon and admin command use on the Unix socket.

A connection opens with one *greeting*: ``acp-ledger/1\n``, a big-endian length of four bytes, then that many bytes of
fields, each a key and a value with a length of four bytes before it. Keys may repeat, and unknown ones are skipped, so
that a field can be added without a new version. The purpose of a greeting decides what follows it:

* ``run``: the runner sends its stdin raw, and half-closes at its end. The daemon answers in *packets*: one byte of
  kind, a length of four bytes, the payload. Before it closes of its own will it always sends ``EXIT``, 0 where the
  agent's status is not known yet; a runner takes an end without one for a daemon that died.
* ``terminal``: the runner stands at a terminal and is to become the agent's command itself. Once the launch is
  recorded the daemon answers in ``LAUNCH`` packets and an ``EXIT``, or with ``FATAL`` and an ``EXIT``. The runner then
  closes its end by becoming the command, or sends one UTF-8 sentence why it could not, and ends.
* ``client``: the daemon is to be the agent's client itself, for whoever asks. Lines of JSON follow, as ``dialogue`` has
  them; likewise for
* ``control``: a question of ``ledgerctl`` to the daemon.

The rule that must not be broken here: every reader is bounded, takes its bytes in any pieces, and refuses with a
sentence; and argv, cwd and environment are bytes from end to end, for no encoding holds what a Unix process may be
given. Nothing but the standard library, and little of that: the runner imports this module before its first byte.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself would cost the runner more than everything else here
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

VERSION = 1
MAGIC = b"acp-ledger/1\n"
_NAME = b"acp-ledger/"
_MAGIC_BYTES = 32
"""A first line longer than this is no greeting of any version."""

GREETING_BYTES = 16 << 20
"""Bound of a greeting's fields. Linux hands a process at most 6 MiB of arguments and environment."""

PACKET_BYTES = 64 << 10
"""Bound of one packet's payload; a longer line travels in several. It bounds what a runner ever holds."""

PURPOSE_RUN = b"run"
PURPOSE_TERMINAL = b"terminal"
PURPOSE_CLIENT = b"client"
PURPOSE_CONTROL = b"control"
_PURPOSES = (PURPOSE_RUN, PURPOSE_TERMINAL, PURPOSE_CLIENT, PURPOSE_CONTROL)

OUTPUT = b"o"
"""Packet: bytes of the agent's stdout, and of lines made for the editor."""
ERROR = b"e"
"""Packet: bytes of the agent's stderr. The runner drops them where its own stderr takes no more."""
EXIT = b"x"
"""Packet: the exit status, decimal ASCII, 0 to 255; 128+N after a signal. The last packet."""
FATAL = b"f"
"""Packet: one UTF-8 sentence why this run cannot be, or cannot go on. The runner puts it on stderr and, where no
``OUTPUT`` came before it, also answers the editor's first request with it as a JSON-RPC error. ``EXIT`` follows."""
LAUNCH = b"l"
"""Packet: a piece of what a runner at a terminal is to become, as ``launch.encode`` writes it."""
_KINDS = (OUTPUT, ERROR, EXIT, FATAL, LAUNCH)
_HEADER = 5

EXIT_USAGE = 2
EXIT_UNAVAILABLE = 69
"""No daemon could be reached, or it went away (EX_UNAVAILABLE)."""
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_SIGNAL = 128
"""Added to the number of the signal that ended the agent."""


class HandshakeError(Exception):
    """The other end sent what these words do not allow; the text is a whole sentence for people."""


class Greeting:
    """What opens a connection: who asks, and for a run the process to start exactly as the editor would have.

    Attributes:
        purpose: ``PURPOSE_RUN``, ``PURPOSE_TERMINAL``, ``PURPOSE_CLIENT`` or ``PURPOSE_CONTROL``.
        argv: The agent's command; empty where ``agent`` alone names it.
        added: Words to append to the command that ``agent`` alone names: a login's own arguments.
        cwd: Working directory; empty for ``control``.
        env: The runner's whole environment. Its values must never be stored.
        agent: The name given with ``--agent``, or None.
        labels: ``--label`` pairs in the order given; a key may come twice.
        pid: Process id of the sender as it sees itself; 0 where not said. The kernel's word (SO_PEERCRED) counts more.
        ppid: Its parent, usually the editor; 0 where not said.
        parent_exe: Path of the parent's executable, or None where it cannot be read.
        umask: The mode bits new files of the agent lose, or None where not said.
    """

    def __init__(
        self,
        purpose: bytes,
        *,
        argv: Iterable[bytes] = (),
        cwd: bytes = b"",
        env: Mapping[bytes, bytes] | None = None,
        agent: bytes | None = None,
        labels: Iterable[tuple[bytes, bytes]] = (),
        pid: int = 0,
        ppid: int = 0,
        parent_exe: bytes | None = None,
        umask: int | None = None,
        added: Iterable[bytes] = (),
    ) -> None:
        self.purpose = purpose
        self.argv = tuple(argv)
        self.cwd = cwd
        self.env = dict(env or {})
        self.agent = agent
        self.labels = tuple(labels)
        self.pid = pid
        self.ppid = ppid
        self.parent_exe = parent_exe
        self.umask = umask
        self.added = tuple(added)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Greeting) and _fields(self) == _fields(other)

    def __hash__(self) -> int:
        return hash(tuple(_fields(self)))

    def __repr__(self) -> str:
        """Name the process; never its environment, which holds keys."""
        return f"<Greeting {self.purpose!r} argv={self.argv!r} agent={self.agent!r} cwd={self.cwd!r} pid={self.pid}>"


def encode_greeting(greeting: Greeting) -> bytes:
    """Write a greeting as it travels.

    Raises:
        HandshakeError: It is over ``GREETING_BYTES``.
    """
    body = encode_fields(_fields(greeting))
    if len(body) > GREETING_BYTES:
        raise HandshakeError(f"arguments and environment have {len(body)} bytes; {GREETING_BYTES} are allowed")
    return MAGIC + _lp(body)


def encode_fields(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write keys and values as the fields of a greeting are written."""
    return b"".join(_lp(key) + _lp(value) for key, value in fields)


class GreetingReader:
    """Reads one greeting from bytes in any pieces; what follows it is left in ``rest``."""

    def __init__(self, limit: int = GREETING_BYTES) -> None:
        self.rest = b""
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Greeting | None:
        """Take some bytes; give the greeting once it is whole, else None.

        Raises:
            HandshakeError: This is no greeting, one of another version, one over the limit, or a malformed one.
        """
        self._buffer += data
        start = len(MAGIC) + 4
        if not self._is_greeting() or len(self._buffer) < start:
            return None
        length = int.from_bytes(self._buffer[len(MAGIC) : start], "big")
        if length > self._limit:
            raise HandshakeError(f"a greeting of {length} bytes; {self._limit} are allowed")
        if len(self._buffer) < start + length:
            return None
        self.rest = bytes(self._buffer[start + length :])
        return _greeting(bytes(self._buffer[start : start + length]))

    def _is_greeting(self) -> bool:
        head = bytes(self._buffer[:_MAGIC_BYTES])
        if head[: len(MAGIC)] == MAGIC[: len(head)]:
            return len(head) >= len(MAGIC)
        line, newline, _ = head.partition(b"\n")
        known = line.startswith(_NAME) if newline else _NAME.startswith(line[: len(_NAME)])
        if not known or (len(head) == _MAGIC_BYTES and not newline):
            raise HandshakeError(
                "this is no acp-ledger greeting; only acp-ledger-run and ledgerctl speak on this socket"
            )
        if newline:
            raise HandshakeError(_other_version(line))
        return False


def encode_packets(kind: bytes, payload: bytes) -> Iterator[bytes]:
    """Write ``payload`` as packets of ``kind``, each of at most ``PACKET_BYTES``; none for an empty payload."""
    for start in range(0, len(payload), PACKET_BYTES):
        piece = payload[start : start + PACKET_BYTES]
        yield kind + len(piece).to_bytes(4, "big") + piece


def encode_exit(status: int) -> bytes:
    """Write the last packet: an exit status from 0 to 255."""
    return b"".join(encode_packets(EXIT, b"%d" % status))


def encode_fatal(sentence: str, status: int) -> bytes:
    """Write a refusal whole: the sentence for people, at most one packet of it, and the exit status."""
    text = sentence.encode("utf-8", "replace")[:PACKET_BYTES]
    return b"".join(encode_packets(FATAL, text)) + encode_exit(status)


class PacketReader:
    """Reads packets from bytes in any pieces; it never holds more than one packet and the piece just fed."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Take some bytes; give the packets that are whole now, as (kind, payload).

        Raises:
            HandshakeError: An unknown kind, or a payload over ``PACKET_BYTES``; raised after the packets before it.
        """
        self._buffer += data
        return self._whole()

    def _whole(self) -> Iterator[tuple[bytes, bytes]]:
        while (end := self._end()) is not None:
            kind, payload = bytes(self._buffer[:1]), bytes(self._buffer[_HEADER:end])
            del self._buffer[:end]
            yield kind, payload

    def _end(self) -> int | None:
        """Give where the first packet ends, or None while it is not whole."""
        header = bytes(self._buffer[:_HEADER])
        if header and header[:1] not in _KINDS:
            raise HandshakeError(f"a packet of unknown kind {header[:1]!r}; are runner and daemon the same version?")
        if len(header) < _HEADER:
            return None
        end = _HEADER + int.from_bytes(header[1:], "big")
        if end > _HEADER + PACKET_BYTES:
            raise HandshakeError(f"a packet of {end - _HEADER} bytes; {PACKET_BYTES} are allowed")
        return end if end <= len(self._buffer) else None


def decode_exit(payload: bytes) -> int:
    """Read the payload of an ``EXIT`` packet.

    Raises:
        HandshakeError: It is no number from 0 to 255.
    """
    status = int(payload) if payload.isdigit() and len(payload) <= len("255") else -1
    if not 0 <= status <= 255:  # noqa: PLR2004  # what a process can exit with
        raise HandshakeError(f"an exit status that is none: {payload[:20]!r}")
    return status


def _other_version(line: bytes) -> str:
    other = line[len(_NAME) :].decode("ascii", "replace")
    return (
        f"the other program speaks version {other} of the socket's words and this one version {VERSION}: "
        "install the same acp-ledger for both, then restart the daemon"
    )


def _lp(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _fields(greeting: Greeting) -> list[tuple[bytes, bytes]]:
    fields = [(b"purpose", greeting.purpose)]
    fields += [(b"arg", arg) for arg in greeting.argv]
    fields += [(b"added", arg) for arg in greeting.added]
    fields += [(b"env", name + b"=" + value) for name, value in greeting.env.items()]
    fields += [(b"label", key + b"=" + value) for key, value in greeting.labels]
    fields += [(b"cwd", greeting.cwd), (b"pid", b"%d" % greeting.pid), (b"ppid", b"%d" % greeting.ppid)]
    umask = None if greeting.umask is None else b"%d" % greeting.umask
    optional = ((b"agent", greeting.agent), (b"parent", greeting.parent_exe), (b"umask", umask))
    return fields + [(key, value) for key, value in optional if value is not None]


def _greeting(body: bytes) -> Greeting:
    found = decode_fields(body)
    one = {key: values[-1] for key, values in found.items()}
    if one.get(b"purpose") not in _PURPOSES:
        raise HandshakeError(f"a greeting of unknown purpose {one.get(b'purpose', b'')[:40]!r}")
    return Greeting(
        one[b"purpose"],
        argv=found.get(b"arg", ()),
        cwd=one.get(b"cwd", b""),
        env=dict(pairs(found.get(b"env", ()))),
        agent=one.get(b"agent"),
        labels=pairs(found.get(b"label", ())),
        pid=_number(one.get(b"pid", b"0")),
        ppid=_number(one.get(b"ppid", b"0")),
        parent_exe=one.get(b"parent"),
        umask=_number(one[b"umask"]) if b"umask" in one else None,
        added=found.get(b"added", ()),
    )


def decode_fields(body: bytes) -> dict[bytes, list[bytes]]:
    """Read fields: the values of each key, in their order.

    Raises:
        HandshakeError: They are cut off.
    """
    found: dict[bytes, list[bytes]] = {}
    values = _read_lps(body)
    for key, value in zip(values[::2], values[1::2], strict=True):
        found.setdefault(key, []).append(value)
    return found


def _read_lps(body: bytes) -> list[bytes]:
    values = []
    at = 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        if at + 4 > len(body) or end > len(body):
            raise HandshakeError("a greeting whose last field is cut off")
        values.append(body[at + 4 : end])
        at = end
    if len(values) % 2:
        raise HandshakeError("a greeting with a key and no value")
    return values


def pairs(values: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Read values that are KEY=VALUE.

    Raises:
        HandshakeError: One is not.
    """
    found = []
    for entry in values:
        key, equals, value = entry.partition(b"=")
        if not equals or not key:
            raise HandshakeError("a greeting with a pair that is no KEY=VALUE")  # never shows it: it may be a secret
        found.append((key, value))
    return found


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > len("4294967295"):
        raise HandshakeError(f"a greeting with a process id that is no number: {digits[:20]!r}")
    return int(digits)
