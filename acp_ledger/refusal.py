"""Tells an editor, in its own protocol, that its agent cannot be recorded and so was not started.

Editors show a JSON-RPC error and hide stderr, and several wait for ever on a bare end of file. The rule that must not
be broken here: a request is answered with the very token of its id, and nothing but a request is answered.
"""

from __future__ import annotations

import json
import os
import select

from acp_ledger import handshake

INTERNAL_ERROR = -32603
LINE_BYTES = 1 << 20
"""A longer line is skipped: no editor opens a connection with one."""
_READ_BYTES = 64 << 10
_PIECE_BYTES = 4096
_STDERR_MILLISECONDS = 100


def refuse(sentence: str, *, details: str | None = None, heard: bytes = b"", status: int | None = None) -> int:
    """Put ``sentence`` on stderr, answer the first request on stdin with it, and give the status to exit with.

    A person at a terminal is told on stderr alone: nobody types the request that would be answered.

    Args:
        sentence: What happened and the command that mends it.
        details: More of the same, for editors that show ``error.data.details``; ``sentence`` where there is no more.
        heard: What was read of stdin before.
        status: The exit status, where the daemon gave one; else 69.
    """
    sentence = in_one_line(sentence.removeprefix("acp-ledger: "))  # a daemon's sentence may say already who speaks
    complain(sentence)
    if not os.isatty(0):
        request_id = _first_request(heard)
        if request_id is not None:
            _write_all(1, answer(request_id, sentence, details or sentence))
    return handshake.EXIT_UNAVAILABLE if status is None else status


def complain(sentence: str) -> None:
    """Put one line on stderr, or lose it where nobody reads there: it must never hold up the end."""
    line = f"acp-ledger-run: {in_one_line(sentence)}\n".encode("utf-8", "backslashreplace")
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if poll.poll(_STDERR_MILLISECONDS):
        try:
            os.write(2, line[:_PIECE_BYTES])
        except OSError:
            return  # stderr is closed, so nobody can be told


def in_one_line(text: str) -> str:
    """Join what stands on lines of its own, such as a message and its hint, into sentences on one line."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    closed = [line if line.endswith((".", "!", "?", ":")) else f"{line}." for line in lines[:-1]]
    return " ".join([*closed, *lines[-1:]])


def answer(request_id: bytes, sentence: str, details: str) -> bytes:
    """Write the JSON-RPC error that answers the request with this raw id token."""
    error = {"code": INTERNAL_ERROR, "message": f"acp-ledger: {sentence}", "data": {"details": details}}
    return b'{"jsonrpc":"2.0","id":' + request_id + b',"error":' + json.dumps(error).encode() + b"}\n"


def request_token(line: bytes) -> bytes | None:
    """Give the raw token of the id where ``line`` is a request, else None."""
    text = line.decode("utf-8", "surrogateescape")
    try:
        members = _members(text)
    except (ValueError, IndexError, RecursionError):
        return None
    if not members.get("method", "").startswith('"') or "id" not in members:
        return None
    return members["id"].encode("utf-8", "surrogateescape")


def _first_request(heard: bytes) -> bytes | None:
    """Read stdin up to the first request; give its id token, or None at the end of input."""
    buffer = bytearray(heard)
    skipping = False
    while True:
        line, newline, rest = bytes(buffer).partition(b"\n")
        if newline:
            found = None if skipping else request_token(line)
            if found is not None:
                return found
            buffer, skipping = bytearray(rest), False
            continue
        if len(buffer) > LINE_BYTES:
            buffer.clear()
            skipping = True
        data = _read_stdin()
        if not data:
            return None if skipping else request_token(bytes(buffer))
        buffer += data


def _read_stdin() -> bytes:
    try:
        return os.read(0, _READ_BYTES)
    except OSError:
        return b""  # closed, or the editor is gone: nobody is left to ask


def _members(text: str) -> dict[str, str]:
    """Give the members of a JSON object with the raw token of each value; ValueError where it is none."""
    decoder = json.JSONDecoder()
    members: dict[str, str] = {}
    at = _expect(text, 0, "{")
    while True:
        key, at = decoder.raw_decode(text, at)
        start = _expect(text, at, ":")
        _, at = decoder.raw_decode(text, start)
        members[key] = text[start:at]
        at = _blank(text, at)
        if text[at] == "}":
            break
        at = _expect(text, at, ",")
    if _blank(text, at + 1) != len(text):
        raise ValueError("something follows the object")
    return members


def _expect(text: str, at: int, character: str) -> int:
    at = _blank(text, at)
    if text[at] != character:
        raise ValueError(f"no {character} at {at}")
    return _blank(text, at + 1)


def _blank(text: str, at: int) -> int:
    while text[at : at + 1] in {" ", "\t", "\r", "\n"}:
        at += 1
    return at


def _write_all(descriptor: int, data: bytes) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    while data:
        poll.poll()
        try:
            data = data[os.write(descriptor, data[:_PIECE_BYTES]) :]
        except OSError:
            return  # the editor is gone
