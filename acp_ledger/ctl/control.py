"""One question to the daemon over its socket, and its answer.

What must not be broken here: nothing is sent to a socket whose listener is not our own user, and every wait is bounded.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, Final

from acp_ledger import dialogue, handshake, paths
from acp_ledger.dial import NoDaemon, dial
from acp_ledger.errors import DaemonUnreachable, ExitCode, LedgerError, PeerFault

if TYPE_CHECKING:
    from acp_ledger.ctl.options import Options

ANSWER_SECONDS: Final = 10.0
_CHUNK: Final = 65_536
_STATUSES: Final = frozenset(ExitCode) - {ExitCode.OK}
_START: Final = "the next acp-ledger-run starts one by itself; to start it by hand: acp-ledgerd &"


def socket_path(options: Options) -> str:
    """Give the socket of the daemon that the options mean: the settings' one, else the default."""
    from acp_ledger.ctl.reading import settings_of

    named = settings_of(options).socket.path
    return str(named) if named else paths.socket_path(os.environ, os.getuid())


def ask(path: str, request: str, *, patience: float = ANSWER_SECONDS, **fields: Any) -> dict[str, Any]:
    """Ask the daemon at `path`, and give what it granted; it has `patience` seconds for that.

    Raises:
        DaemonUnreachable: Nobody answers there.
        LedgerError: The daemon refused, with its own hint and exit code.
    """
    try:
        dialled = dial(path)
    except NoDaemon as missing:
        raise DaemonUnreachable(str(missing), hint=_START) from missing
    with socket.socket(fileno=dialled.detach()) as connection:
        connection.settimeout(patience)
        try:
            greeting = handshake.Greeting(handshake.PURPOSE_CONTROL, pid=os.getpid())
            connection.sendall(handshake.encode_greeting(greeting) + dialogue.encode_request(request, **fields))
            answer = _read(connection.recv)
        except OSError as failure:
            raise DaemonUnreachable(f"the daemon on {path} does not answer: {failure}", hint=_START) from failure
        except handshake.HandshakeError as failure:
            raise PeerFault(f"the daemon on {path} answered with {failure}") from failure
    return _granted(answer)


def _read(receive: Any) -> dict[str, Any]:
    reader = dialogue.ControlReader()
    while data := receive(_CHUNK):
        answer = reader.feed(data)
        if answer is not None:
            return answer
    raise ConnectionError("it closed the connection")


def _granted(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("ok") is True:
        return {name: value for name, value in answer.items() if name != "ok"}
    hint, status = answer.get("hint"), answer.get("status")
    refused = LedgerError(str(answer.get("error", "the daemon refused")), hint=hint if isinstance(hint, str) else None)
    if isinstance(status, int) and status in _STATUSES:
        refused.exit_code = ExitCode(status)
    raise refused
