"""The table of what goes wrong between clients and agents: each with both sides' script and what the record must say.

Each was seen with a real client or a real agent. What must not be broken here: what is expected of the record is what
was said on the wire and nothing else: an answer that nobody gave is `unanswered`, a turn that nobody ended is
`stream_ended`.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from tests.support.conversation import call, note, question, result, update

SESSION: Final = "s"


class Wrong(NamedTuple):
    """One thing that goes wrong.

    `agent` is a script of `scripted_agent.py`. `client` holds lines to say (bytes), words to be heard before the next
    (str), and "" for the end of what the client says; after the last it listens to the end.
    """

    name: str
    agent: tuple[Any, ...]
    client: tuple[bytes | str, ...]
    status: int = 0
    unanswered: tuple[int, ...] = ()
    """Ids of the client's requests that the daemon has to answer, for nobody else can."""
    turns: tuple[tuple[str | None, str | None], ...] = ()
    """Outcome and stop reason of each turn."""
    decisions: tuple[tuple[str, str, str], ...] = ()
    """Outcome, effect and decider of each question."""
    anomalies: tuple[str, ...] = ()
    reason: str = "editor_ended"


def _failed(id_: object, code: int, message: str, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message, **more}}).encode()


def _says(*lines: bytes) -> list[str]:
    return ["send", *[line.decode() for line in lines]]


def _chunk(text: str) -> bytes:
    return update("agent_message_chunk", SESSION, content={"type": "text", "text": text})


INIT: Final = call(0, "initialize", protocolVersion=1, clientInfo={"name": "a client", "version": "1"})
NEW: Final = call(1, "session/new", cwd="/", mcpServers=[])
PROMPT: Final = call(2, "session/prompt", sessionId=SESSION, prompt=[{"type": "text", "text": "Go on"}])
SECOND_PROMPT: Final = call(3, "session/prompt", sessionId=SESSION, prompt=[{"type": "text", "text": "And on"}])
CANCEL: Final = note("session/cancel", sessionId=SESSION, _meta={})
CANCEL_WITH_REASON: Final = note("session/cancel", sessionId=SESSION, reason="User cancelled")
GO: Final = note("x/go")
DONE: Final = result(2, stopReason="end_turn")
STOPPED: Final = result(2, stopReason="cancelled")
ASK: Final = question(0, "c", SESSION)
"""The agent counts its ids from 0, as the client does."""

_JUNK: Final = b"npm warn deprecated: this is no JSON"
_NO_ID: Final = b'{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"}}'
_SPACED: Final = b'{ "method" : "session/prompt", "params":{"prompt":[],"sessionId":"s"} ,"id":2,"jsonrpc":"2.0"}\r'
_OTHER_STOP: Final = result(2, stopReason="guardian_said_no")
_HUGE_PROMPT: Final = call(2, "session/prompt", sessionId="s", prompt=[{"type": "text", "text": "y" * (3 << 20)}])

_OPEN: Final = (["wait", "initialize"], _says(result(0, protocolVersion=1)), ["wait", "session/new"])
_PROMPTED: Final = (*_OPEN, _says(result(1, sessionId=SESSION)), ["wait", "session/prompt"])
_WORKING: Final = (*_PROMPTED, _says(_chunk("Working")))
_ASKING: Final = (*_PROMPTED, _says(ASK))
_STAY: Final = ["wait", "never"]

_BEGIN: Final[tuple[bytes | str, ...]] = (INIT, "protocolVersion", NEW, "sessionId", PROMPT)
_ASKED: Final[tuple[bytes | str, ...]] = (*_BEGIN, "request_permission")

_STREAM_ENDED: Final = (("stream_ended", None),)
_COMPLETED: Final = (("completed", "end_turn"),)
_CANCELLED: Final = (("cancelled", "cancelled"),)
_NOBODY: Final = (("unanswered", "none", "nobody"),)
_NONE: Final = (("cancelled", "none", "client"),)
_LEFT_OPEN: Final = ("question_open_at_turn_end",)
_AGENT: Final = "agent_ended"


def _ends(name: str, *steps: Any, status: int, asked: bool = False) -> Wrong:
    """An agent that ends in the middle of a turn."""
    begin, decisions, anomalies = (_ASKING, _NOBODY, _LEFT_OPEN) if asked else (_WORKING, (), ())
    return Wrong(name, (*begin, *steps), _BEGIN, status, (2,), _STREAM_ENDED, decisions, anomalies, _AGENT)


def _answers(name: str, answer: bytes, turns: tuple[tuple[str, str | None], ...], *more: str) -> Wrong:
    """An agent that answers a prompt."""
    return Wrong(name, (*_WORKING, _says(answer), _STAY), (*_BEGIN, '"id": 2', ""), turns=turns, anomalies=more)


def _settles(name: str, *said: bytes, end: bytes, turns: Any, decisions: Any, anomalies: Any = ()) -> Wrong:
    """A client that is asked, and says these; the agent waits for the last and then ends its turn."""
    last = ["wait", "session/cancel" if b"session/cancel" in said[-1] else '"id": 0']
    agent, client = (*_ASKING, last, _says(end), _STAY), (*_ASKED, *said, '"id": 2', "")
    return Wrong(name, agent, client, 0, (), turns, decisions, anomalies)


def _long(name: str, prompt: bytes, *steps: Any) -> Wrong:
    """A turn with a long line in it."""
    return Wrong(name, (*_WORKING, *steps, _says(DONE), _STAY), (*_BEGIN[:-1], prompt, '"id": 2', ""), turns=_COMPLETED)


WRONGS: Final = (
    # The agent ends.
    _ends("dies-in-turn", ["leave", 1], status=1),
    _ends("leaves-in-turn", ["leave", 0], status=0),
    _ends("killed-in-turn", ["die", "SIGKILL"], status=137),
    _ends("crashes-in-turn", ["die", "SIGSEGV"], status=139),
    _ends("dies-while-asking", ["leave", 1], status=1, asked=True),
    _ends("closes-its-output", ["shut", 1], _STAY, status=0),
    Wrong("dies-at-once", (["leave", 3],), (INIT,), 3, (0,), reason=_AGENT),
    Wrong("dies-of-initialize", (["wait", "initialize"], ["leave", 3]), (INIT,), 3, (0,), reason=_AGENT),
    Wrong(
        "dies-with-a-banner",
        (["send", "Usage: agent [OPTIONS]"], ["wait", "initialize"], ["leave", 2]),
        (INIT,),
        2,
        (0,),
        anomalies=("not_json",),
        reason=_AGENT,
    ),
    # The agent answers with an error, or with what nobody knows.
    Wrong(
        "error-to-initialize",
        (["wait", "initialize"], _says(_failed(0, -32603, "No key", data={"details": "set KEY"})), _STAY),
        (INIT, "No key", ""),
    ),
    _answers("error-to-prompt", _failed(2, -32603, "Overloaded", data={"details": "529"}), (("failed", None),)),
    _answers("wants-a-login", _failed(2, -32000, "Authentication required"), (("auth_required", None),)),
    _answers("unknown-stop-reason", _OTHER_STOP, (("protocol_error", "guardian_said_no"),)),
    _answers("no-stop-reason", result(2), (("protocol_error", None),)),
    # The agent says what is no message, or a lot.
    Wrong(
        "junk",
        (*_WORKING, _says(_JUNK, b"", b"42", b"null", b"[]"), _says(DONE), _STAY),
        (*_BEGIN, '"id": 2', ""),
        turns=_COMPLETED,
        anomalies=("not_json", "blank", "not_an_object", "not_an_object", "not_an_object"),
    ),
    Wrong(
        "junk-is-answered",
        (*_WORKING, _says(_JUNK), ["wait", "Parse error"], _says(DONE), _STAY),
        (*_BEGIN, "no JSON", _failed(None, -32700, "Parse error"), '"id": 2', ""),
        turns=_COMPLETED,
        anomalies=("not_json", "orphan_response"),
    ),
    Wrong(
        "error-without-id",
        (*_WORKING, _says(_NO_ID, DONE), _STAY),
        (*_BEGIN, '"id": 2', ""),
        turns=_COMPLETED,
        anomalies=("no_id",),
    ),
    _long("line-of-300-kib", PROMPT, ["flood", 1, 300 << 10]),
    _long("line-of-3-mib", PROMPT, ["flood", 1, 3 << 20]),
    _long("prompt-of-3-mib", _HUGE_PROMPT),
    Wrong("late-update", (*_WORKING, _says(DONE, _chunk("Bye")), _STAY), (*_BEGIN, "Bye", ""), turns=_COMPLETED),
    # The agent takes its time, or for ever.
    Wrong(
        "slow-initialize",
        (["wait", "x/go"], _says(result(0, protocolVersion=1)), _STAY),
        (INIT, GO, "protocolVersion", ""),
    ),
    Wrong("never-answers-initialize", (_STAY,), (INIT, "")),
    Wrong("never-answers-a-prompt", (*_WORKING, _STAY), (*_BEGIN, "Working", ""), turns=_STREAM_ENDED),
    # The client does what only some do.
    Wrong("ends-without-cancel", (*_ASKING, _STAY), (*_ASKED, ""), 0, (), _STREAM_ENDED, _NOBODY, _LEFT_OPEN),
    Wrong(
        "says-no-json", (*_WORKING, _STAY), (*_BEGIN, "Working", b"\0{", ""), 0, (), _STREAM_ENDED, (), ("not_json",)
    ),
    _settles("never-answers", CANCEL, end=STOPPED, turns=_CANCELLED, decisions=_NOBODY, anomalies=_LEFT_OPEN),
    _settles(
        "answers-then-cancels",
        result(0, outcome={"outcome": "cancelled"}),
        CANCEL_WITH_REASON,
        end=STOPPED,
        turns=_CANCELLED,
        decisions=_NONE,
    ),
    _settles(
        "cancels-then-answers",
        CANCEL,
        result(0, outcome={"outcome": "cancelled"}),
        end=STOPPED,
        turns=_CANCELLED,
        decisions=_NONE,
    ),
    _settles(
        "answers-with-cancelled-alone",
        result(0, outcome={"outcome": "cancelled"}),
        end=DONE,
        turns=_COMPLETED,
        decisions=_NONE,
    ),
    _settles(
        "answers-with-an-error",
        _failed(0, -32601, "Method not found"),
        end=DONE,
        turns=_COMPLETED,
        decisions=(("error", "none", "client"),),
    ),
    _settles(
        "answers-what-was-not-offered",
        result(0, outcome={"outcome": "selected", "optionId": "always"}),
        end=DONE,
        turns=_COMPLETED,
        decisions=(("selected", "unknown", "client"),),
        anomalies=("option_not_offered",),
    ),
    Wrong(
        "prompts-twice",
        (*_WORKING, ["wait", "And on"], _says(STOPPED, result(3, stopReason="end_turn")), _STAY),
        (*_BEGIN, SECOND_PROMPT, '"id": 3', ""),
        turns=(*_CANCELLED, *_COMPLETED),
    ),
    Wrong(
        "spells-it-otherwise",
        (*_PROMPTED, _says(DONE), _STAY),
        (*_BEGIN[:-1], _SPACED, '"id": 2', ""),
        0,
        (),
        _COMPLETED,
    ),
)
