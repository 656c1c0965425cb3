"""Compares what the demo's ledger holds with the script and with what both peers heard, and tells the figures.

What must not be broken here: rows are read back from the ledger that was written, and equal means equal: as many rows,
each with the same values. A difference in one row, one byte or one digest fails the demo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import column, func, select, table

from acp_ledger.ctl import demo_agent
from acp_ledger.ctl.demo_truth import Truth, truth
from acp_ledger.ctl.demo_witness import transport_of
from acp_ledger.ctl.words import answer_words, outcome_words
from acp_ledger.errors import ExitCode, without_secrets
from acp_ledger.store import engine, queries
from acp_ledger.store.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from acp_ledger.ctl.demo_client import Recording
    from acp_ledger.store.verify import Report

ROWS_SHOWN: Final = 3
"""How many missing and additional rows of a table a difference names."""

_NUMBERS: Final = frozenset({"frame_seq", "first_frame_seq", "last_frame_seq", "first_frame", "last_frame"})


@dataclass(frozen=True)
class Finding:
    """What the comparison found: differences in words, and the figures of the screen."""

    ledger: str
    differences: tuple[str, ...]
    verified: int
    lines: tuple[str, ...]
    table: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """5 when the ledger itself does not verify, 1 when it holds other rows, else 0."""
        if self.verified == ExitCode.INTEGRITY:
            return ExitCode.INTEGRITY
        return ExitCode.FAILED if self.differences else ExitCode.OK

    def as_document(self) -> dict[str, Any]:
        """Give the finding for a machine."""
        return {"ledger": self.ledger, "ok": not self.differences, "differences": list(self.differences)}


def examine(recording: Recording) -> Finding:
    """Read the recording back and compare all of it.

    Raises:
        DemoError: The ledger holds no transport of this demo.
    """
    reader = engine.open_reader(recording.url)
    try:
        with reader.connect() as connection:
            report = verify(connection, full=True)
            transport = transport_of(connection, recording.label)
            found = [*_rows_differ(connection, transport, recording), *_bytes_differ(connection, transport, recording)]
            found += _peers_differ(recording)
            found += [
                f"verify: {finding.kind} at {finding.transport_id}:{finding.frame_seq}" for finding in report.findings
            ]
            lines = tuple(_figures(connection, transport, recording, report))
            summary = tuple(_summary(connection, transport))
    finally:
        reader.dispose()
    return Finding(without_secrets(recording.url), tuple(found), int(report.exit_code), lines, summary)


# --- rows


def _rows_differ(connection: Connection, transport: int, recording: Recording) -> Iterator[str]:
    numbers = _frame_numbers(connection, transport)
    for expected in truth(str(recording.directory)):
        found = _stored(connection, transport, expected, numbers)
        if found != list(expected.rows):
            yield _difference(expected, found)
    yield from _deliveries_differ(connection, transport, numbers)


def _frame_numbers(connection: Connection, transport: int) -> dict[int, int]:
    """Number the frames from 1, leaving out events: when an agent starts and ends is no part of the script."""
    frames = table("frames", column("transport_id"), column("frame_seq"))
    query = select(frames.c.frame_seq).where(frames.c.transport_id == transport).order_by(frames.c.frame_seq)
    return {seq: number for number, seq in enumerate(connection.execute(query).scalars(), start=1)}


def _stored(connection: Connection, transport: int, expected: Truth, numbers: dict[int, int]) -> list[tuple[Any, ...]]:
    """Read the columns of the truth, ordered by the first of them and by what makes a key with it."""
    source = table(expected.name, column("transport_id"), *(column(name) for name in expected.columns))
    query = select(*(source.c[name] for name in expected.columns)).where(source.c.transport_id == transport)
    rows = [_numbered(tuple(row), expected.columns, numbers) for row in connection.execute(query)]
    return sorted(rows, key=lambda row: (row[0], str(row[1])))


def _numbered(row: tuple[Any, ...], names: tuple[str, ...], numbers: dict[int, int]) -> tuple[Any, ...]:
    return tuple(numbers.get(value, -1) if name in _NUMBERS else value for name, value in zip(names, row, strict=True))


def _difference(expected: Truth, found: list[tuple[Any, ...]]) -> str:
    missing = [row for row in expected.rows if row not in found]
    extra = [row for row in found if row not in expected.rows]
    words = [f"{expected.name} holds {len(found)} rows where the script left {len(expected.rows)}"]
    words += [f"missing {dict(zip(expected.columns, row, strict=True))}" for row in missing[:ROWS_SHOWN]]
    words += [f"not in the script {dict(zip(expected.columns, row, strict=True))}" for row in extra[:ROWS_SHOWN]]
    return "; ".join(words)


def _deliveries_differ(connection: Connection, transport: int, numbers: dict[int, int]) -> Iterator[str]:
    """The last mark of each direction names its last line: what was recorded was also delivered."""
    marks = table("deliveries", column("transport_id"), column("direction"), column("through_frame_seq"))
    last = func.max(marks.c.through_frame_seq)
    query = select(marks.c.direction, last).where(marks.c.transport_id == transport).group_by(marks.c.direction)
    found = {direction: numbers.get(seq, -1) for direction, seq in connection.execute(query)}
    expected = {"agent_to_client": 24, "client_to_agent": 23}
    if found != expected:
        yield f"deliveries reach {found} where the script ended with {expected}"


# --- bytes


def _bytes_differ(connection: Connection, transport: int, recording: Recording) -> Iterator[str]:
    """Every line of either peer equals a stored body, in the same order, and no body is left over."""
    said = recording.conversation
    for direction, editor, agent in (
        ("agent_to_client", said.received, recording.agent_log(demo_agent.SENT)),
        ("client_to_agent", said.sent, recording.agent_log(demo_agent.RECEIVED)),
    ):
        stored = _bodies(connection, transport, direction)
        if stored != editor:
            yield f"{direction}: the stored bytes are not those of the editor"
        if stored != agent:
            yield f"{direction}: the stored bytes are not those of the agent"


def _bodies(connection: Connection, transport: int, direction: str) -> list[object]:
    frames = table("frames", *map(column, ("transport_id", "frame_seq", "direction", "body")))
    query = select(frames.c.body).where(frames.c.transport_id == transport, frames.c.direction == direction)
    return list(connection.execute(query.order_by(frames.c.frame_seq)).scalars())


def _peers_differ(recording: Recording) -> Iterator[str]:
    heard = len(recording.conversation.received)
    if recording.witnessed != heard:
        yield f"{heard - recording.witnessed} of {heard} lines were not seen in the ledger when they were heard"
    if recording.conversation.exit_status != 0:
        yield f"the runner ended with {recording.conversation.exit_status} where the agent ended with 0"


# --- the screen


def _figures(connection: Connection, transport: int, recording: Recording, report: Report) -> Iterator[str]:
    wanted = queries.Filter(transport_id=transport)
    for turn in queries.turns(connection, wanted):
        what = f"{turn.tool_calls} tool calls, {turn.questions} questions, {turn.text_bytes} bytes of text"
        yield f"turn {turn.turn_id}    {outcome_words(turn):<12} {turn.stop_reason or '-':<10} {what}"
    for decision in queries.decisions(connection, wanted):
        what = f'{decision.tool_kind} "{decision.detail}"'
        yield f"asked     {what} -> {answer_words(decision)}, after {decision.waited_ms} ms"
    coverage = list(queries.coverage(connection, wanted))
    frames = sum(row.count for row in coverage)
    left = sorted({row.word for row in coverage if row.recorded_as == "frame only"})
    yield f"recorded  {frames} frames; kept as frames alone, not as steps: {', '.join(left)}"
    heard = len(recording.conversation.received)
    yield f"promise   {recording.witnessed} of {heard} lines were in the ledger when the editor heard them"
    head = _head(connection, transport)
    gaps = sum(1 for _ in queries.gaps(connection, wanted))
    counts = f"{report.frames} frames mapped again, {gaps or 'no'} gaps"
    yield f"verify    {_verdict(report)}: {counts}, head sha256:{head[:4]}…{head[-4:]}"


def _verdict(report: Report) -> str:
    return {ExitCode.OK: "ok", ExitCode.INCOMPLETE: "ok, but not all was checked"}.get(report.exit_code, "FAILED")


def _head(connection: Connection, transport: int) -> str:
    """Give the last link of the transport's chain."""
    events = table("transport_events", *map(column, ("transport_id", "frame_seq", "chain")))
    query = (
        select(events.c.chain).where(events.c.transport_id == transport).order_by(events.c.frame_seq.desc()).limit(1)
    )
    chain = connection.execute(query).scalar()
    return bytes(chain).hex() if chain is not None else ""


def _summary(connection: Connection, transport: int) -> Iterator[str]:
    wanted = queries.Filter(transport_id=transport)
    texts = {message.turn_id: message.text for message in queries.messages(connection, wanted)}
    yield f"{'AGENT':<12}{'TURN':<6}{'STARTED':<10}{'OUTCOME':<12}{'TOOLS':<7}{'ASKED':<7}TEXT"
    for turn in queries.turns(connection, wanted):
        text = texts.get(turn.turn_id) or ""
        partial = "" if turn.outcome == "completed" else "  (partial)"
        start = f"{'demo-agent':<12}{turn.turn_id:<6}{turn.started_at[11:19]:<10}{outcome_words(turn):<12}"
        yield f'{start}{turn.tool_calls:<7}{turn.questions:<7}"{text}"{partial}'
