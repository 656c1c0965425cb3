"""Carries bytes between the three streams of an editor and the socket of the daemon.

The rules that must not be broken here:

1. Byte for byte, in both directions, and neither ever waits for the other's reader.
2. The editor's descriptors are never made non-blocking, for the editor shares them: they are written only when the
   kernel says that they take bytes, and then no more than it is bound to take.
3. Every buffer is bounded: what cannot be passed on is not read. The agent's stderr alone is dropped instead.
4. Gone 100 ms after TERM, INT or HUP, whatever the other ends do.
"""

from __future__ import annotations

import os
import select

from acp_ledger import handshake

TYPE_CHECKING = False  # typing itself would cost the runner more than everything else here
if TYPE_CHECKING:
    import _socket
    import signal as _signal
else:
    import _signal  # the module ``signal`` brings ``enum`` along

STDIN, STDOUT, STDERR = 0, 1, 2

PIECE_BYTES = 4096
"""What POLLOUT promises of a pipe (PIPE_BUF); sockets and files take as much."""

BUFFER_BYTES = 64 << 10
"""Per direction: with so much waiting, the source is read no more. Past it the agent's stderr is dropped."""

HEARD_BYTES = 256 << 10
"""How much of the first input is kept until the daemon's first output, to answer its request if there is none."""

_READ_BYTES = 64 << 10
_LEAVE_SECONDS = 0.08
_LEAVE_ROUNDS = 64

_DEAF_MILLISECONDS = 5_000
"""How long output waits for an editor that has ended its input and takes nothing."""


class Carrier:
    """Carries until the daemon has said how the agent ended, or nobody hears what it says.

    Attributes:
        status: The exit status, once the daemon gave it.
        fatal: The sentence why this run cannot be or go on, where there is one.
        heard: The first input, kept until the daemon's first output.
        spoken: Whether the daemon's first output came.
        leaving: Whether a signal came or stdout is gone: nothing is read from the daemon any more.
    """

    def __init__(self, connection: _socket.socket, greeting: bytes) -> None:
        self.status: int | None = None
        self.fatal: str | None = None
        self.heard = bytearray()
        self.spoken = False
        self.leaving = False
        self._connection = connection
        self._socket = connection.fileno()
        self._input = bytearray(greeting)
        self._output = bytearray()
        self._errors = bytearray()
        self._packets = handshake.PacketReader()
        self._reads_stdin = True
        self._reads_socket = True
        self._writes_socket = True
        self._editor_ended = False
        self._poll = select.poll()
        self._editor = select.poll()
        self._editor.register(STDOUT, select.POLLOUT)
        self._watched: dict[int, int] = {}
        self._wakeup, signalled = os.pipe()
        os.set_blocking(signalled, False)  # positional only
        self._poll.register(self._wakeup, select.POLLIN)
        self._obey_signals(signalled)
        connection.setblocking(False)  # noqa: FBT003  # positional only

    def carry(self) -> None:
        """Carry until the end."""
        while not self.leaving and (self._reads_socket or self._output):
            # An editor that ended its input and takes no output either is gone, and must leave no runner behind.
            deaf = self._editor_ended and bool(self._output)
            if not self._round(_DEAF_MILLISECONDS if deaf else None):
                self.leaving = True
        if self.leaving:
            self._hand_on_the_rest()
        self._reads_stdin = self._reads_socket = self._writes_socket = False
        self._output.clear()
        self._round(0)  # what is left of the agent's stderr, as far as it can be written now
        self._connection.close()

    def _obey_signals(self, signalled: int) -> None:
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, self._leave)
        _signal.signal(_signal.SIGALRM, self._go)
        _signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)

    def _leave(self, *_: object) -> None:
        """End the loop, and the process too where the loop does not end in time: a write to a terminal may block."""
        self.leaving = True
        _signal.setitimer(_signal.ITIMER_REAL, _LEAVE_SECONDS)

    def _go(self, *_: object) -> None:
        os._exit(self.status or 0)

    def _hand_on_the_rest(self) -> None:
        """Pass on what the editor had sent before it left or told us to, as far as nothing has to be waited for."""
        self._reads_socket = False
        for _ in range(_LEAVE_ROUNDS):
            if not self._round(0):
                break

    def _round(self, timeout: int | None) -> int:
        """Wait until something can be done, and do it once on every descriptor; give how many there were."""
        self._watch()
        ready = self._poll.poll(timeout)
        for descriptor, events in ready:
            if descriptor == self._socket:
                self._serve_socket(events)
            elif descriptor == STDIN:
                self._read_stdin()
            elif descriptor == STDOUT:
                self._write_stdout()
            elif descriptor == STDERR:
                self._write_stderr()
            else:
                os.read(self._wakeup, PIECE_BYTES)  # a signal came; its handler has run
        return len(ready)

    def _watch(self) -> None:
        """Ask the kernel for what can be done now and nothing else: a hang-up not awaited would wake us for ever."""
        reads = self._reads_socket and len(self._output) < BUFFER_BYTES
        writes = self._writes_socket and bool(self._input)
        self._ask(STDIN, select.POLLIN if self._reads_stdin and len(self._input) < BUFFER_BYTES else 0)
        self._ask(STDOUT, select.POLLOUT if self._output else 0)
        self._ask(STDERR, select.POLLOUT if self._errors else 0)
        self._ask(self._socket, reads * select.POLLIN | writes * select.POLLOUT)

    def _ask(self, descriptor: int, events: int) -> None:
        if events == self._watched.get(descriptor, 0):
            return
        if events:
            self._poll.register(descriptor, events)
        else:
            self._poll.unregister(descriptor)
        self._watched[descriptor] = events

    def _read_stdin(self) -> None:
        try:
            data = os.read(STDIN, _READ_BYTES)
        except OSError:
            data = b""  # an editor that died resets its socket; the end is the end
        if not self.spoken:
            self.heard += data[: HEARD_BYTES - len(self.heard)]
        self._input += data
        if not data:
            self._reads_stdin = False
            self._editor_ended = True
        self._write_socket()

    def _half_close(self) -> None:
        """Tell the daemon that the editor's input ended, once all of it is sent."""
        if self._input or self._reads_stdin or not self._writes_socket:
            return
        self._writes_socket = False
        try:
            self._connection.shutdown(1)  # SHUT_WR
        except OSError:
            return  # the daemon closed first; its end is read where it is seen

    def _serve_socket(self, events: int) -> None:
        if events & ~select.POLLIN and self._watched[self._socket] & select.POLLOUT:
            self._write_socket()
        if events & ~select.POLLOUT and self._watched[self._socket] & select.POLLIN:
            self._read_socket()

    def _write_socket(self) -> None:
        try:
            if self._input and self._writes_socket:
                del self._input[: self._connection.send(self._input)]
        except BlockingIOError:
            return
        except OSError:  # the daemon reads no more; what it still has to say is read to its end
            self._input.clear()
            self._reads_stdin = self._writes_socket = False
        self._half_close()

    def _read_socket(self) -> None:
        try:
            data = self._connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # a daemon that was killed with our bytes unread
        if not data:
            self._reads_socket = False
        try:
            for kind, payload in self._packets.feed(data):
                self._take(kind, payload)
            if self._output and self._editor.poll(0):
                self._write_stdout()  # now and not in the next round: this is on the way of every line
        except handshake.HandshakeError as wrong:
            self.fatal = f"the daemon sent {wrong}"
            self._reads_socket = self._reads_stdin = False

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == handshake.OUTPUT:
            self.spoken = True
            self.heard.clear()
            self._output += payload
        elif kind == handshake.ERROR:
            self._errors += payload[: BUFFER_BYTES - len(self._errors)]
        elif kind == handshake.EXIT:
            self.status = handshake.decode_exit(payload)
            self._reads_socket = self._reads_stdin = False
        else:
            self.fatal = payload.decode("utf-8", "replace")

    def _write_stdout(self) -> None:
        try:
            del self._output[: os.write(STDOUT, self._output[:PIECE_BYTES])]
        except OSError:
            self._output.clear()
            self.leaving = True  # the editor reads no more

    def _write_stderr(self) -> None:
        try:
            del self._errors[: os.write(STDERR, self._errors[:PIECE_BYTES])]
        except OSError:
            self._errors.clear()
