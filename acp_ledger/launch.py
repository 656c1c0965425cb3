"""Turns a runner that stands at a terminal into the agent's command: ACP's login, and whoever tries an agent by hand.

The Agent Client Protocol's terminal login runs the editor's own agent command line once more, with arguments of its own
and in a terminal; nobody speaks the protocol there. The rules that must not be broken here:

1. Nothing runs unrecorded: the command is run only once the daemon has said that the launch is in the ledger.
2. The command gets the terminal, the arguments, the environment and the dispositions of signals that we were given, and
   our process: job control, the window's size, signals and the exit status are its own.
"""

from __future__ import annotations

import errno
import os

from acp_ledger import handshake
from acp_ledger.dial import NoDaemon

TYPE_CHECKING = False  # typing itself would cost the runner more than everything else here
if TYPE_CHECKING:
    import _socket
    import signal as _signal
    from collections.abc import Iterable, Mapping
    from typing import NoReturn
else:
    import _signal  # the module ``signal`` brings ``enum`` along

SENTENCE_BYTES = 4096
"""Bound of the sentence why the command could not be run."""

_READ_BYTES = 64 << 10
_ENDED = "the daemon ended before it recorded the launch. Try again, or look with: ledgerctl status"


class NotLaunched(Exception):
    """The command was not run; the text is a sentence for people, the status what to exit with."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


def encode(argv: Iterable[bytes], env: Mapping[bytes, bytes]) -> bytes:
    """Write all that a runner at a terminal is told: the command to become, and its whole environment."""
    fields = [(b"arg", arg) for arg in argv] + [(b"env", name + b"=" + value) for name, value in env.items()]
    return b"".join(handshake.encode_packets(handshake.LAUNCH, handshake.encode_fields(fields))) + (
        handshake.encode_exit(0)
    )


def launch(connection: _socket.socket, greeting: handshake.Greeting) -> NoReturn:
    """Have the launch recorded, then become the command; this returns in no case.

    Raises:
        NotLaunched: It could not be recorded, or not be run.
        NoDaemon: The daemon ended.
        HandshakeError: What it sent is not what was agreed on.
        OSError: It could not be reached.
    """
    connection.sendall(handshake.encode_greeting(greeting))
    argv, env = _recorded(connection)
    try:
        _become(argv, env)
    except OSError as failure:
        sentence, status = _explained(argv[0], failure)
        _tell(connection, sentence)
        raise NotLaunched(sentence, status) from failure


def _tell(connection: _socket.socket, sentence: str) -> None:
    try:
        connection.sendall(sentence.encode("utf-8", "replace")[:SENTENCE_BYTES])
    except OSError:
        return  # the daemon ended meanwhile; the person is told all the same


def _recorded(connection: _socket.socket) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Wait until the daemon has recorded the launch; give the command and its environment."""
    packets = handshake.PacketReader()
    body, fatal = bytearray(), None
    while data := connection.recv(_READ_BYTES):
        for kind, payload in packets.feed(data):
            if kind == handshake.LAUNCH:
                body += payload
            elif kind == handshake.FATAL:
                fatal = payload.decode("utf-8", "replace")
            elif kind == handshake.EXIT and fatal is None:
                return _decoded(bytes(body))
            elif kind == handshake.EXIT:
                raise NotLaunched(fatal or "", handshake.decode_exit(payload))
    raise NoDaemon(_ENDED)


def _decoded(body: bytes) -> tuple[list[bytes], dict[bytes, bytes]]:
    found = handshake.decode_fields(body)
    if not found.get(b"arg"):
        raise handshake.HandshakeError("the daemon sent a launch without a command; are both of the same version?")
    return found[b"arg"], dict(handshake.pairs(found.get(b"env", ())))


def _become(argv: list[bytes], env: dict[bytes, bytes]) -> NoReturn:
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)  # the interpreter ignores them, and an ignored signal is inherited
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606  # no shell is wanted: the command is a list
    finally:
        _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)  # the daemon is told over a socket


def _explained(command: bytes, failure: OSError) -> tuple[str, int]:
    name = command.decode("utf-8", "backslashreplace")
    if failure.errno == errno.ENOENT:
        sentence = f"the agent's command was not found: {name}. Give its full path, or extend PATH"
        return sentence, handshake.EXIT_NOT_FOUND
    return f"the agent's command cannot be executed: {name}: {failure.strerror}", handshake.EXIT_NOT_EXECUTABLE
