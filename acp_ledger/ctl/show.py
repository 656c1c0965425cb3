"""`ledgerctl show`: one session, transport, tool call, frame or event, whichever the id means.

What must not be broken here: the exact body of a frame leaves only into a pipe or by `--force`; a screen always ends
with what the record does not hold.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from acp_ledger.ctl.browse import counted_words
from acp_ledger.ctl.options import Command, Options, current_options
from acp_ledger.ctl.reading import NothingFoundError, SessionKey, find, last_session, open_ledger
from acp_ledger.ctl.render import cell, document, page
from acp_ledger.ctl.text import escape, shorten
from acp_ledger.ctl.times import as_text
from acp_ledger.ctl.words import answer_words, outcome_words, prompt_words, status_words
from acp_ledger.errors import LedgerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from sqlalchemy import Connection

    from acp_ledger.store import answers
    from acp_ledger.store.queries import Filter

TEXT_SHOWN: Final = 4_000
"""Characters of one text that a screen shows; the rest is counted."""

_FRAME: Final = re.compile(r"(\d+):(\d+)")


@click.command(
    cls=Command,
    examples=(
        "ledgerctl show --last",
        "ledgerctl show call_019 --session 01k5",
        "ledgerctl show 1764518403000000:12",
        "ledgerctl show 1764518403000000:12 --raw | jq .",
    ),
)
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--last", is_flag=True, help="Show the session that was opened last.")
@click.option("--session", metavar="ID", help="The session a tool call belongs to.")
@click.option("--agent", metavar="NAME", help="With --last: of this agent.")
@click.option("--raw", is_flag=True, help="Write the exact bytes of a frame, for a pipe.")
@click.option("--force", is_flag=True, help="Write raw bytes even to a terminal.")
def show(id_: str | None, session: str | None, agent: str | None, *, last: bool, raw: bool, force: bool) -> None:
    """Show one session, transport, tool call, frame (TRANSPORT:SEQ) or event.

    The id is a transport's number, the agent's own session or tool call id, or a beginning of it that is unique and
    has at least four characters; TRANSPORT/ID names one of several that are equal.
    """
    if (id_ is None) != last:
        raise UsageError("name one thing to show", hint="ledgerctl show ID, or ledgerctl show --last")
    options = current_options()
    with open_ledger(options) as connection:
        place = _FRAME.fullmatch(id_ or "")
        if place is not None:
            _show_place(connection, int(place[1]), int(place[2]), options, raw=raw, force=force)
        elif raw:
            raise UsageError("--raw needs a frame", hint="ledgerctl show TRANSPORT:SEQ --raw")
        elif id_ is None:
            _show_session(connection, last_session(connection, _queries().Filter(agent=agent)), options)
        else:
            _show_found(connection, id_, session, options)


def _queries() -> ModuleType:
    from acp_ledger.store import queries

    return queries


def _show_found(connection: Connection, id_: str, session: str | None, options: Options) -> None:
    found = find(connection, id_, ("session", "transport", "tool call"))
    if session is not None:
        within = find(connection, session, ("session",))
        places = {(match.transport_id, match.session_id) for match in within}
        found = [match for match in found if (match.transport_id, match.session_id) in places]
    if not found:
        raise NothingFoundError(f"no {id_!r} in session {session!r}", hint=f"ledgerctl show {session}")
    if len(found) > 1:
        listed = ", ".join(f"{match.transport_id}/{match.id}" for match in found[:10])
        raise UsageError(f"{id_!r} occurs {len(found)} times: {listed}", hint=f"ledgerctl show {listed.split(',')[0]}")
    match = found[0]
    if match.kind == "transport":
        _show_transport(connection, match.transport_id, options)
    elif match.kind == "session":
        _show_session(connection, SessionKey(match.transport_id, match.session_id or 0), options)
    else:
        _show_call(connection, SessionKey(match.transport_id, match.session_id or 0), match.id, options)


def _write(lines: Iterable[str], options: Options) -> None:
    """Write a screen; every line was escaped where foreign text went in, and is escaped again as a whole."""
    text = "".join(escape(line) + "\n" for line in lines)
    page(text, options)


def _records(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [_record({name.rstrip("_"): value for name, value in row._asdict().items()}) for row in rows]


def _record(row: dict[str, Any]) -> dict[str, Any]:
    """Write booleans as 0 and 1, as the views have them, whatever the engine says."""
    return {name: int(value) if isinstance(value, bool) else value for name, value in row.items()}


def _clock(at: str) -> str:
    """Give the time of day of an RFC 3339 text, to the millisecond; the date stands in the heading."""
    return at[11:23]


# --- a session


def _filter(key: SessionKey) -> Filter:
    from acp_ledger.store.queries import Filter

    return Filter(transport_id=key.transport_id, session_id=key.session_id)


def _show_session(connection: Connection, key: SessionKey, options: Options) -> None:
    queries, wanted = _queries(), _filter(key)
    names = ("sessions", "turns", "messages", "tool_calls", "decisions", "coverage")
    content: dict[str, list[Any]] = {name: list(getattr(queries, name)(connection, wanted)) for name in names}
    # A line nobody could read names no session, and a gap never does: both may concern this one.
    whole = _of_transport(key.transport_id)
    content["anomalies"] = [
        row for row in queries.anomalies(connection, whole) if row.session_id in {None, key.session_id}
    ]
    content["gaps"] = list(queries.gaps(connection, whole))
    if options.output != "table":
        document("show", {name: _records(rows) for name, rows in content.items()}, options)
        return
    content["timeline"] = [_with_words(connection, moment) for moment in queries.timeline(connection, wanted)]
    _write(_session_screen(content), options)


def _with_words(connection: Connection, moment: answers.Moment) -> answers.Moment:
    """Put what the user asked, which only the line holds, beside its moment."""
    if (moment.step, moment.word, moment.detail) != ("prompted", "request", None):
        return moment
    frame = _queries().frame(connection, moment.transport_id, moment.frame_seq)
    words = prompt_words(None if frame is None or frame.body is None else _bytes(frame.body))
    return moment if words is None else moment._replace(word=None, detail=shorten(words, TEXT_SHOWN))


def _of_transport(transport_id: int) -> Filter:
    from acp_ledger.store.queries import Filter

    return Filter(transport_id=transport_id)


def _session_screen(content: dict[str, list[Any]]) -> Iterator[str]:
    session: answers.Session = content["sessions"][0]
    yield f"session {session.acp_session_id}   agent {session.agent or '(unnamed)'}   {session.protocol_revision}"
    origin = session.origin or "(not answered)"
    yield f"  transport {session.transport_id}   opened by {origin}   cwd {session.cwd or '-'}"
    yield f"  {session.first_at} to {session.last_at}"
    decided = {decision.frame_seq: decision for decision in content["decisions"]}
    for turn in [*content["turns"], None]:
        lines = list(_moments(content, decided, turn.turn_id if turn else None))
        if turn is not None:
            yield _turn_heading(turn)
        elif lines:
            yield "outside any turn"
        yield from lines
    yield from _holdings(content)


def _turn_heading(turn: answers.Turn) -> str:
    counts = f"{turn.tool_calls} tool calls, {turn.questions} questions, {turn.text_bytes or 0} bytes of text"
    return f"turn {turn.turn_id}   {outcome_words(turn)}   {_clock(turn.started_at)}   {counts}"


def _moments(content: dict[str, list[Any]], decided: dict[int, Any], turn_id: int | None) -> Iterator[str]:
    """Give what happened in a turn, in the order of the frames: steps and questions, and messages where they began."""
    steps = [
        (moment.frame_seq, _moment(moment, decided))
        for moment in content["timeline"]
        if moment.turn_id == turn_id and moment.step != "not_recorded"
    ]
    texts = [(message.first_frame, _message(message)) for message in content["messages"] if message.turn_id == turn_id]
    found = sorted([*steps, *texts], key=lambda item: item[0])
    return (f"  {line}" for _, line in found)


def _moment(moment: answers.Moment, decided: dict[int, Any]) -> str:
    what = " ".join(escape(part) for part in (moment.call, moment.word, moment.detail) if part)
    decision = decided.get(moment.frame_seq)
    # A decision stands at its answer's frame, or at the question's while nothing answered it.
    if moment.step in {"question", "decision"} and decision is not None:
        what = f"{what}   offered {decision.offered_kinds or 'nothing'} -> {answer_words(decision)}"
    return f"{_clock(moment.at)}  {moment.frame_seq:>6}  {moment.step:<10}  {what}"


def _message(message: answers.Message) -> str:
    text = shorten(message.text, TEXT_SHOWN) if message.text is not None else "(erased)"
    cut = "  (truncated when recorded)" if message.truncated else ""
    kept = "  (cleared)" if message.cleared else ""
    return f"{'':12}  {message.first_frame:>6}  {message.stream:<10}  {escape(text)}{cut}{kept}"


def _holdings(content: dict[str, list[Any]]) -> Iterator[str]:
    """Say what is not in the record, as loudly as what is."""
    counts: dict[str, int] = {}
    for row in content["coverage"]:
        if row.recorded_as != "step":
            counts[row.word] = counts.get(row.word, 0) + row.count
    yield f"not recorded as steps: {counted_words(counts) or 'nothing'}"
    yield f"anomalies of this session, or of no session: {len(content['anomalies']) or 'none'}"
    for row in content["anomalies"]:
        yield f"  {row.transport_id}:{row.frame_seq}  {row.class_}  {row.detail or ''}"
    yield f"gaps on this transport: {len(content['gaps']) or 'none'}"
    for row in content["gaps"]:
        yield f"  {row.transport_id}:{row.frame_seq}  {row.cause}  {row.count if row.count is not None else '?'} lines"
    yield "tool results are the agent's own claim: the ledger saw the messages, not the commands"


# --- a transport


def _show_transport(connection: Connection, transport_id: int, options: Options) -> None:
    queries, wanted = _queries(), _of_transport(transport_id)
    names = ("transports", "sessions", "coverage", "anomalies", "gaps")
    content: dict[str, list[Any]] = {name: list(getattr(queries, name)(connection, wanted)) for name in names}
    if options.output != "table":
        document("show", {name: _records(rows) for name, rows in content.items()}, options)
        return
    _write(_transport_screen(content), options)


def _transport_screen(content: dict[str, list[Any]]) -> Iterator[str]:
    yield from _fields(content["transports"][0]._asdict())
    for session in content["sessions"]:
        yield f"session {session.acp_session_id}   {session.turns} turns   last {session.last_outcome or 'running'}"
    yield from _holdings(content)


def _fields(row: dict[str, Any], indent: str = "") -> Iterator[str]:
    width = max(map(len, row), default=0)
    for name, value in row.items():
        shown = shorten(cell(name, value), TEXT_SHOWN)
        yield f"{indent}{name:<{width}}  {shown or '-'}"


# --- a tool call


def _show_call(connection: Connection, key: SessionKey, call_id: str, options: Options) -> None:
    queries, wanted = _queries(), _filter(key)
    calls = [row for row in queries.tool_calls(connection, wanted) if row.tool_call_id == call_id]
    moments = [row for row in queries.timeline(connection, wanted) if row.call == call_id]
    asked = [row for row in queries.decisions(connection, wanted) if row.tool_call_id == call_id]
    if options.output != "table":
        content = {"tool_calls": _records(calls), "timeline": _records(moments), "decisions": _records(asked)}
        document("show", content, options)
        return
    _write(_call_screen(calls, moments, {row.frame_seq: row for row in asked}), options)


def _call_screen(calls: list[Any], moments: list[Any], decided: dict[int, Any]) -> Iterator[str]:
    for call in calls:
        what = f'{call.kind or "(no kind)"}   "{call.title or ""}"'
        yield f"tool call {call.tool_call_id}   {what}   {status_words(call)}"
        yield f"  transport {call.transport_id}   session {call.session_id}   turn {call.turn_id or '(none)'}"
    for moment in moments:
        yield f"  {_moment(moment, decided)}"
    yield "the agent's own claim: the ledger saw the messages, not the command"


# --- a frame, or an event


def _show_place(
    connection: Connection, transport_id: int, frame_seq: int, options: Options, *, raw: bool, force: bool
) -> None:
    frame = _queries().frame(connection, transport_id, frame_seq)
    if raw:
        _write_raw(frame, f"{transport_id}:{frame_seq}", force=force)
    elif frame is None:
        _show_event(connection, transport_id, frame_seq, options)
    elif options.output != "table":
        rows = [{"table": name, **_record(row)} for name, row in frame.derived]
        document("show", {"frame": {**_record(frame.row), "body": frame.body}, "rows": rows}, options)
    else:
        _write(_frame_screen(frame), options)


def _write_raw(frame: answers.FrameBody | None, place: str, *, force: bool) -> None:
    """Write the exact bytes of a body, and nothing else."""
    if frame is None:
        raise NothingFoundError(f"no frame {place} in this ledger", hint="ledgerctl events")
    if frame.body is None:
        raise LedgerError(f"the body of {place} is {frame.row['body_state']}: there are no bytes to write")
    if sys.stdout.isatty() and not force:
        raise UsageError(
            "raw bytes of an agent may steer a terminal; they are written to a pipe or a file alone",
            hint=f"ledgerctl show {place} --raw | less, or add --force",
        )
    sys.stdout.flush()
    sys.stdout.buffer.write(_bytes(frame.body))
    sys.stdout.buffer.flush()


def _frame_screen(frame: answers.FrameBody) -> Iterator[str]:
    row = dict(frame.row)
    row["received_at"] = as_text(row["received_at"])
    yield from _fields(row)
    for name, derived in frame.derived:
        yield f"{name}"
        yield from _fields({key: value for key, value in derived.items() if key != "transport_id"}, "  ")
    if frame.body is None:
        yield f"no body: it is {frame.row['body_state']}"
        return
    body = _bytes(frame.body)
    yield f"body as stored, {len(body):,} bytes ({frame.row['body_state']})"
    yield f"  {shorten(escape(body.decode('utf-8', 'backslashreplace')), TEXT_SHOWN)}"


def _bytes(stored: object) -> bytes:
    """Take a stored body; a column of bytes takes text on SQLite, from whoever tampers with it."""
    return stored if isinstance(stored, bytes) else str(stored).encode("utf-8", "surrogateescape")


def _show_event(connection: Connection, transport_id: int, frame_seq: int, options: Options) -> None:
    after = (transport_id, frame_seq - 1)
    wanted = _of_transport(transport_id)
    event = next(iter(_queries().events(connection, wanted, after=after)), None)
    if event is None or event.frame_seq != frame_seq:
        raise NothingFoundError(f"no frame or event {transport_id}:{frame_seq}", hint="ledgerctl events")
    row = {**event._asdict(), "at": as_text(event.at)}
    if options.output != "table":
        document("show", {"event": row}, options)
        return
    _write(_fields(row), options)
