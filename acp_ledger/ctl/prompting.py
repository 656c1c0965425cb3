"""One run of `ledgerctl prompt`: an agent, one prompt, what is printed meanwhile, and how it ends.

What must not be broken here: what is printed of the answer is in the ledger already; it is printed once, and nothing an
agent wrote steers a terminal. Only a completed turn is a success, and every other end has a status of its own.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  # the daemon is Trio's; a command needs a loop with signals, and this one is at hand
import shlex
import signal
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Final

from acp_ledger.client import (
    CallFailed,
    Client,
    Observer,
    PermissionRequest,
    Policy,
    Record,
    Update,
    open_client,
)
from acp_ledger.ctl import attach
from acp_ledger.ctl.reading import settings_of
from acp_ledger.ctl.render import document, note
from acp_ledger.ctl.text import escape
from acp_ledger.errors import ExitCode, LedgerError, UsageError
from acp_ledger.protocol.client_side import REPLY_KIND

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from acp_ledger.client import Block
    from acp_ledger.ctl.options import Options

GRACE_SECONDS: Final = 10.0
"""How long an agent has to end its turn once the time is up; then it is stopped."""

STATUS_OF: Final = {
    "completed": ExitCode.OK,
    "refused": ExitCode.TURN_REFUSED,
    "truncated": ExitCode.TURN_TRUNCATED,
    "cancelled": ExitCode.TURN_CANCELLED,
    "auth_required": ExitCode.TURN_AUTH_REQUIRED,
    "failed": ExitCode.TURN_FAILED,
    "protocol_error": ExitCode.TURN_PROTOCOL_ERROR,
    "stream_ended": ExitCode.TURN_STREAM_ENDED,
    "transport_failed": ExitCode.TURN_TRANSPORT_FAILED,
    "interrupted": ExitCode.TURN_INTERRUPTED,
}
"""What each outcome of a turn exits with."""

_STATUS_OF_FAILURE: Final = {
    "usage": ExitCode.USAGE,
    "limit": ExitCode.TURN_PAST_A_LIMIT,
    "auth_required": ExitCode.TURN_AUTH_REQUIRED,
    "agent_error": ExitCode.TURN_FAILED,
    "protocol_error": ExitCode.TURN_PROTOCOL_ERROR,
    "stream_ended": ExitCode.TURN_STREAM_ENDED,
    "transport_failed": ExitCode.TURN_TRANSPORT_FAILED,
    "stopped": ExitCode.TURN_INTERRUPTED,
}
"""What a call that failed exits with, by its kind; any other is a plain failure."""

_OUTCOME_OF_FAILURE: Final = {
    "limit": "protocol_error",
    "auth_required": "auth_required",
    "agent_error": "failed",
    "protocol_error": "protocol_error",
    "stream_ended": "stream_ended",
    "transport_failed": "transport_failed",
    "stopped": "interrupted",
}
"""The outcome of a run whose turn never began, or is not known to have ended."""


_RAISE_IT: Final = "where that is too little, write more under [limits] in the settings; see: ledgerctl config show"


class Unfinished(LedgerError):
    """The turn was not completed; the status says how it ended."""

    def __init__(self, message: str, code: ExitCode, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = code


def run(options: Options, text: str, given: dict[str, Any]) -> int:
    """Run an agent with one prompt; gives the status to exit with.

    `given` are the command's arguments by name, and under `attached` what it attaches: an option's name and a value.
    """
    return asyncio.run(_Run(options, text, given).go())


class _Printer(Observer):
    """Prints the answer as it comes, and tells what was decided; whoever reads that may take all day."""

    told_only: ClassVar[Collection[str]] = ("update", "commit")

    def __init__(self, options: Options, *, streams: bool) -> None:
        self._options = options
        self.streams = streams
        self._terminal = sys.stdout.isatty()
        self._half = ""  # of a character that was split over two chunks
        self._last = ""

    def update(self, update: Update) -> None:
        """Print what joined the reply."""
        if self.streams and update.joined:
            text = self._half + update.text
            self._half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
            self._write(text.removesuffix(self._half) if self._half else text)

    def commit(self, request: PermissionRequest) -> None:
        """Tell a decision."""
        self.make_room()
        rule = f", {request.rule}" if request.rule else ""
        chosen = f"{request.option_kind or 'an option not offered'} ({request.option_id})"
        what = request.title or request.tool_kind or "a tool call"
        answer = chosen if request.outcome == "selected" else request.outcome
        note(f"asked: {what}: {answer}, by {request.decided_by}{rule}", self._options)

    def finish(self) -> None:
        """The answer is complete."""
        self._write(self._half)
        self._end_line()

    def make_room(self) -> None:
        """Let a note begin a line of its own, where a person sees both. Elsewhere the answer stays as it is."""
        if self._terminal:
            self._end_line()

    def _end_line(self) -> None:
        if self.streams and self._last not in ("", "\n"):
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            sys.stdout.write(escape(whole, keep="\n\t") if self._terminal else whole)
            sys.stdout.flush()
            self._last = text[-1]


class _Run:
    """One run of the command."""

    def __init__(self, options: Options, text: str, given: dict[str, Any]) -> None:
        self._options = options
        self._given = given
        self._command = _command(given["agent"], given["command"])
        self._blocks = _blocks(text, given)
        self._servers = [server for path in given["servers"] for server in attach.mcp_servers(path)]
        self._printer = _Printer(options, streams=options.output not in {"json", "jsonl"})
        self._client: Client | None = None
        self._prompting = False
        self._presses = 0
        self._pressing: set[asyncio.Task[None]] = set()

    async def go(self) -> int:
        """Run it; gives the status to exit with."""
        given = self._given
        # Settings that were named may have a socket of their own; otherwise it is found as the runner finds it.
        named = settings_of(self._options).socket.path if self._options.config else None
        try:
            async with open_client(
                self._command,
                agent=given["agent"],
                cwd=given["cwd"],
                epoch=given["epoch"],
                policy=_policy(given),
                mcp_servers=self._servers,
                labels=_labels(given["labels"]),
                observer=self._printer,
                socket=given["socket"] or named,
            ) as self._client:
                if given["ask"]:
                    note("questions wait for a person: ledgerctl pending", self._options)
                with _Signals(self._press, self._stop):
                    record = await self._converse(self._client)
        except CallFailed as failure:
            return self._failed(failure)
        return self._ended(record)

    async def _converse(self, client: Client) -> Record:
        late = None
        if self._given["timeout"] is not None:
            late = asyncio.get_running_loop().call_later(self._given["timeout"], self._time_is_up)
        try:
            await client.start(load=self._given["load"], resume=self._given["resume"])
            self._prompting = True
            return await client.prompt_detailed(*self._blocks)
        finally:
            self._prompting = False
            if late is not None:
                late.cancel()

    # ---- interruptions

    def _time_is_up(self) -> None:
        self._printer.make_room()
        note(f"cancelled after {self._given['timeout']:g} seconds", self._options)
        self._press()
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._stop)

    def _press(self) -> None:
        """Cancel what runs; where nothing does yet, or again, end the agent."""
        self._presses += 1
        if self._client is not None:
            first = self._presses == 1 and self._prompting
            self._do(self._client.cancel() if first else self._client.stop())

    def _stop(self) -> None:
        if self._client is not None:
            self._presses += 1
            self._do(self._client.stop())

    def _do(self, doing: Any) -> None:
        task = asyncio.get_running_loop().create_task(doing)
        self._pressing.add(task)
        task.add_done_callback(self._pressing.discard)

    # ---- the end

    def _ended(self, record: Record) -> int:
        self._printer.finish()
        code = STATUS_OF.get(record.outcome or "", ExitCode.FAILED)
        if record.overflow is not None and code is ExitCode.OK:
            code = ExitCode.INCOMPLETE
        self._tell(record)
        if record.overflow is not None:
            note(f"the reply stopped at {record.overflow.kind}", self._options)
        elif not record.text and (pieces := record.not_recorded.get(REPLY_KIND)):
            note(f"{pieces} chunks of text joined no reply: empty, or for another session", self._options)
        if record.error is not None:
            raise Unfinished(self._sentence(record.error), code)
        return code

    def _failed(self, failure: CallFailed) -> int:
        self._printer.finish()
        record = failure.record or Record(error=failure.message, **self._named())
        outcome = record.outcome or _OUTCOME_OF_FAILURE.get(failure.kind)
        self._tell(Record(**{**vars(record), "outcome": outcome}))
        code = _STATUS_OF_FAILURE.get(failure.kind, ExitCode.FAILED)
        if failure.kind == "stopped" and self._presses:
            code = ExitCode.INTERRUPTED
        hint = failure.hint or (_RAISE_IT if failure.kind == "limit" else None)
        raise Unfinished(failure.message, code, hint=hint) from failure

    def _sentence(self, error: str) -> str:
        """What is told of an end; without the text, where that was printed already."""
        return error.partition("; partial output: ")[0] if self._printer.streams else error

    def _named(self) -> dict[str, Any]:
        client = self._client
        if client is None:
            return {}
        return {"acp_session_id": client.acp_session_id, "transport_id": client.transport_id, "epoch": client.epoch}

    def _tell(self, record: Record) -> None:
        if self._options.output in {"json", "jsonl"}:
            document("prompt", asdict(record), self._options)


class _Signals:
    """While it lasts INT cancels and TERM stops."""

    def __init__(self, press: Any, stop: Any) -> None:
        self._handlers = {signal.SIGINT: press, signal.SIGTERM: stop, signal.SIGHUP: stop}

    def __enter__(self) -> None:
        for number, handler in self._handlers.items():
            asyncio.get_running_loop().add_signal_handler(number, handler)

    def __exit__(self, *_: object) -> None:
        for number in self._handlers:
            asyncio.get_running_loop().remove_signal_handler(number)


def _command(agent: str | None, command: str | None) -> list[str] | None:
    if command is None:
        if agent is None:
            raise UsageError("name an agent", hint="ledgerctl prompt --agent NAME, or --command 'CMD ARGS'")
        return None
    try:
        words = shlex.split(command)
    except ValueError as fault:
        raise UsageError(f"--command cannot be read: {str(fault).lower()}", hint="quote it as for a shell") from None
    if not words:
        raise UsageError("--command is empty", hint="ledgerctl prompt --command 'CMD ARGS' TEXT")
    return words


def _blocks(text: str, given: dict[str, Any]) -> Sequence[str | Block]:
    blocks = attach.blocks(given["attached"])
    said = _stdin() if text == "-" else text
    if not said and not blocks:
        raise UsageError("the prompt is empty", hint="ledgerctl prompt … TEXT, or `-` to read it from standard input")
    return [said, *blocks] if said else blocks


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as fault:
        raise UsageError(f"the prompt on standard input is not UTF-8 (byte {fault.start})") from None


def _policy(given: dict[str, Any]) -> Policy:
    return Policy(
        allow_tool_kinds=given["kinds"] or None,
        allow_title_prefixes=given["titles"] or None,
        ask="operator" if given["ask"] else None,
    )


def _labels(given: Sequence[str]) -> dict[str, str]:
    labels = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise UsageError(f"--label needs KEY=VALUE, not {each!r}")
        labels[key] = value
    return labels
