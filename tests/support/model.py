"""A model on this machine for real coding agents, scripted by a mark in the prompt: what an agent does is known.

`[[say]]` is answered with a text, `[[shell]]` with one call of the agent's own shell tool and, behind its result, a
text; `[[hold]]` with the beginning of a text, and then nothing until the agent hangs up. It speaks OpenAI's responses
and chat completions and Anthropic's messages, as far as the agents need them. What must not be broken here: an answer
depends on what was asked and on nothing else, and nothing ends by the clock.
"""

from __future__ import annotations

import json
import re
import select
import sys
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MADE: Final = "made-by-the-agent"
"""What the command makes in the agent's directory, where it is allowed to run."""

COMMAND: Final = f"touch {MADE}"
SAID: Final = "Good morning from the model."
SAID_BEHIND_THE_TOOL: Final = "The tool has answered."
BEGUN: Final = "I begin\n"

SHELLS: Final = ("bash", "shell", "shell_command", "exec_command")
"""What agents call their shell tool, in lower case."""

MARK: Final = re.compile(r"\[\[(say|shell|hold)\]\]")
Event = tuple[str, dict[str, Any]]
"""Its name, which chat completions do without, and what it says."""
HOLD: Final[Event] = ("hold", {})
"""One that is not sent: from here on the answer is left open."""


class Tool(NamedTuple):
    """A tool that an agent offers to the model."""

    name: str
    schema: dict[str, Any]

    def arguments(self) -> dict[str, Any]:
        """What calls it with the command; codex asks before a command leaves its sandbox, and for nothing else."""
        known = {
            "sandbox_permissions": "require_escalated",
            "description": "Makes a file",
            "justification": "It is asked",
        }
        properties = self.schema.get("properties", {})
        given: dict[str, Any] = {name: value for name, value in known.items() if name in properties}
        for name in {"command", "cmd"} & properties.keys():
            given[name] = ["bash", "-c", COMMAND] if properties[name].get("type") == "array" else COMMAND
        return given


class Answer(NamedTuple):
    """What the model says to a request."""

    text: str = ""
    tool: Tool | None = None
    held: bool = False


def answer_to(body: Mapping[str, Any]) -> Answer:
    """The answer that the newest mark asks for; without one, or without tools (a title), a text."""
    mark, behind = "say", False
    for said in _conversation(body):
        if said is None:
            behind = True
        elif found := MARK.findall(said):
            mark, behind = found[-1], False
    tools = [tool for tool in _tools(body) if tool.name.lower() in SHELLS]
    if behind:
        return Answer(SAID_BEHIND_THE_TOOL)
    if mark == "shell" and tools:
        return Answer(tool=tools[0])
    return Answer(BEGUN, held=True) if mark == "hold" and body.get("tools") else Answer(SAID)


def _conversation(body: Mapping[str, Any]) -> Iterator[str | None]:
    """What the user said, and None for each result of a tool, in order and in any of the three tongues."""
    for item in body.get("input") or body.get("messages") or ():
        if item.get("role") == "tool" or str(item.get("type")).endswith("_output"):
            yield None
        elif item.get("role") == "user":
            content = item["content"]
            blocks = [{"text": content}] if isinstance(content, str) else content
            yield from (None if block.get("type") == "tool_result" else block.get("text", "") for block in blocks)


def _tools(body: Mapping[str, Any]) -> Iterator[Tool]:
    for tool in body.get("tools") or ():
        told = tool.get("function", tool)
        schema = told.get("parameters") or told.get("input_schema")
        if "name" in told and schema:
            yield Tool(told["name"], schema)


def responses(answer: Answer, number: int) -> Iterator[Event]:
    """OpenAI's responses, as codex reads them."""
    whole = {"id": f"resp_{number}", "object": "response", "output": []}
    yield "response.created", {"response": {**whole, "status": "in_progress"}}
    if answer.tool is None:
        item: dict[str, Any] = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
        yield "response.output_item.added", {"output_index": 0, "item": {**item, "content": []}}
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        yield "response.output_text.delta", {**place, "delta": answer.text}
        item["content"] = [{"type": "output_text", "text": answer.text, "annotations": []}]
    else:
        item = {"id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number}", "name": answer.tool.name}
        item["arguments"] = json.dumps(answer.tool.arguments())
        yield "response.output_item.added", {"output_index": 0, "item": {**item, "arguments": ""}}
    if answer.held:
        yield HOLD
    yield "response.output_item.done", {"output_index": 0, "item": item}
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    yield "response.completed", {"response": {**whole, "status": "completed", "output": [item], "usage": usage}}


def chat(answer: Answer, number: int) -> Iterator[Event]:
    """OpenAI's chat completions, as opencode reads them."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "", {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 1, "choices": [choice]}

    yield chunk({"role": "assistant", "content": answer.text})
    if answer.held:
        yield HOLD
    if answer.tool is not None:
        function = {"name": answer.tool.name, "arguments": json.dumps(answer.tool.arguments())}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        yield chunk({"tool_calls": [call]})
    yield chunk({}, "stop" if answer.tool is None else "tool_calls")


def messages(answer: Answer, number: int) -> Iterator[Event]:
    """Anthropic's messages, as Claude Code reads them."""
    usage = {"input_tokens": 9, "output_tokens": 9}
    whole = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "mock", "content": []}
    yield "message_start", {"message": {**whole, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    if answer.tool is None:
        yield "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
        yield "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": answer.text}}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": answer.tool.name, "input": {}}
        yield "content_block_start", {"index": 0, "content_block": block}
        part = {"type": "input_json_delta", "partial_json": json.dumps(answer.tool.arguments())}
        yield "content_block_delta", {"index": 0, "delta": part}
    if answer.held:
        yield HOLD
    yield "content_block_stop", {"index": 0}
    stop = "end_turn" if answer.tool is None else "tool_use"
    yield "message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 9}}
    yield "message_stop", {}


TONGUES: Final = {"/responses": responses, "/chat/completions": chat, "/messages": messages}
"""Who answers, by the end of the path."""


class Model(ThreadingHTTPServer):
    """The server; it counts the calls of a tool that it asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests = 0
        self.calls: list[dict[str, Any]] = []
        """Arguments of each tool call that was asked for."""
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def note(self, answer: Answer) -> int:
        """Count a request, and the call it is answered with; its number."""
        with self._lock:
            self.requests += 1
            if answer.tool is not None:
                self.calls.append(answer.tool.arguments())
            return self.requests

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of an agent that hangs up."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Any  # a Model; the base class says less

    def log_message(self, *_words: Any) -> None:
        """Keep quiet."""

    def do_HEAD(self) -> None:
        """Be there."""
        self._whole({})

    def do_GET(self) -> None:
        """Name no models: the agents bring theirs."""
        self._whole({"object": "list", "data": [], "models": []})

    def do_POST(self) -> None:
        """Answer a request in its own tongue, all at once or as a stream."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.partition("?")[0]
        tongue = next((speak for end, speak in TONGUES.items() if path.endswith(end)), None)
        if tongue is None:
            self._whole({"input_tokens": 9})
            return
        answer = answer_to(body)
        events = tongue(answer, self.server.note(answer))
        if not body.get("stream"):
            self._whole(_at_once(answer))
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        with suppress(ConnectionError):
            self._stream(events)

    def _stream(self, events: Iterator[Event]) -> None:
        for name, told in events:
            if (name, told) == HOLD:
                select.select([self.connection], [], [])  # the agent hangs up
                return
            data = json.dumps({"type": name, **told} if name else told)
            self.wfile.write((f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n" if not name else b"")

    def _whole(self, told: dict[str, Any]) -> None:
        data = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _at_once(answer: Answer) -> dict[str, Any]:
    """A message that is not streamed: side calls of Claude Code (a title) alone ask for one."""
    block = {"type": "text", "text": answer.text or SAID}
    whole = {"id": "msg_0", "type": "message", "role": "assistant", "model": "mock", "content": [block]}
    return {**whole, "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 9}}


@contextmanager
def running_model() -> Iterator[Model]:
    """A model that listens as long as the block runs."""
    with Model() as model:
        thread = threading.Thread(target=model.serve_forever, daemon=True)
        thread.start()
        yield model
        model.shutdown()
        thread.join()
