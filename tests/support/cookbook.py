"""A ledger with something to find for every question of the cookbook.

Number N of a transport is read N seconds after it was opened, so that waits and days can be counted by hand; what the
questions must answer stands in tests/golden/cookbook, counted from the lines here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acp_ledger.protocol.observer import Observer
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT, Gap
from acp_ledger.protocol.revisions import MAPPING_VERSION
from acp_ledger.store.ledger import Daemon, Ledger, NewTransport
from tests.support.conversation import call, note, result, say, update

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acp_ledger.protocol.records import Direction, Entry

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
START: Final = 1_796_000_000_000_000
"""2026-11-30T00:53:20Z."""

DAEMON: Final = Daemon("00000000-0000-4000-8000-000000000001", "laptop", 1000)
OPTIONS: Final = [
    {"optionId": "once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


class Script:
    """One transport: lines and events, each a second after the one before."""

    def __init__(self, opened_at: int) -> None:
        self._observer, self._opened_at = Observer(), opened_at
        self.entries: list[Entry] = []
        self.event("opened")

    def _at(self) -> int:
        return self._opened_at + self._observer.next_seq * SECOND

    def event(self, kind: Any, **fields: Any) -> None:
        """Something that is no line."""
        self.entries += self._observer.event(kind, self._at(), **fields)

    def editor(self, *lines: bytes, **fields: Any) -> None:
        """Lines of the editor's, or in its place."""
        self._lines(TO_AGENT, lines, fields)

    def agent(self, *lines: bytes) -> None:
        """Lines of the agent's."""
        self._lines(TO_CLIENT, lines, {})

    def _lines(self, direction: Direction, lines: Iterable[bytes], fields: dict[str, Any]) -> None:
        for line in lines:
            self.entries += self._observer.line(direction, line, self._at(), **fields)


def _begin(opened_at: int, agent: tuple[str, str], editor: tuple[str, str]) -> Script:
    """Numbers 1 to 5: opened, spawned, the question and the answer of `initialize`, negotiated."""
    script = Script(opened_at)
    script.event("spawned", pid=7, start_time=1, boot_id="b", pgid=7)
    client, server = ({"name": name, "version": version} for name, version in (editor, agent))
    script.editor(call(0, "initialize", protocolVersion=1, clientInfo=client))
    script.agent(result(0, protocolVersion=1, agentInfo=server, agentCapabilities={}))
    return script


def _servers(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "command": name, "args": [], "env": []} for name in names]


def _ask(id_: int, session: str, call_id: str, kind: str, title: str) -> bytes:
    tool_call = {"toolCallId": call_id, "kind": kind, "title": title}
    return call(id_, "session/request_permission", sessionId=session, toolCall=tool_call, options=OPTIONS)


def _answer(id_: int, option: str) -> bytes:
    return result(id_, outcome={"outcome": "selected", "optionId": option})


def _tool(session: str, call_id: str, **fields: Any) -> bytes:
    return update("tool_call", session, toolCallId=call_id, status="pending", **fields)


def _step(session: str, call_id: str, status: str) -> bytes:
    return update("tool_call_update", session, toolCallId=call_id, status=status)


def _prompt(id_: int, session: str) -> bytes:
    return call(id_, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Please"}])


def _usage(session: str, used: int, amount: float, **more: Any) -> bytes:
    cost = {"amount": amount, "currency": "USD"}
    return update("usage_update", session, used=used, size=200_000, cost=cost, **more)


def everyday() -> Script:
    """Claude in Zed: an answer for always and what it covered, a rejected edit, a cancelled turn, and odd lines."""
    script = _begin(START, ("claude-code", "2.0"), ("zed", "1.4"))
    script.editor(call(1, "session/new", cwd="/src", mcpServers=_servers("files", "search")))  # 6
    modes = {"currentModeId": "default", "availableModes": [{"id": "default", "name": "Default"}]}
    script.agent(result(1, sessionId="s-one", modes=modes))  # 7
    script.editor(_prompt(2, "s-one"))  # 8
    script.agent(_tool("s-one", "c1", kind="execute", title="npm test"))  # 9
    script.agent(_ask(0, "s-one", "c1", "execute", "npm test"))  # 10
    script.editor(_answer(0, "always"))  # 11
    script.agent(_step("s-one", "c1", "completed"))  # 12
    script.agent(_tool("s-one", "c2", kind="execute", title="git push"))  # 13
    script.agent(_step("s-one", "c2", "completed"))  # 14
    diffs = [{"type": "diff", "path": path, "oldText": "", "newText": "x"} for path in ("/src/a.py", "/src/b.py")]
    at = [{"path": "/src/a.py"}]
    script.agent(_tool("s-one", "c3", kind="edit", title="Edit a.py", locations=at, content=diffs))  # 15
    script.agent(_ask(1, "s-one", "c3", "edit", "Edit a.py"))  # 16
    script.agent(say("May I?").replace("sess-é".encode(), b"s-one"))  # 17
    script.editor(_answer(1, "no"))  # 18
    script.agent(_step("s-one", "c3", "failed"))  # 19
    script.agent(_usage("s-one", 1000, 0.05))  # 20
    script.agent(_usage("s-one", 2500, 0.12))  # 21
    script.agent(update("current_mode_update", "s-one", currentModeId="bypassPermissions"))  # 22
    script.agent(result(2, stopReason="end_turn"))  # 23
    script.editor(_prompt(3, "s-one"))  # 24
    script.agent(_tool("s-one", "c4", kind="edit", title="Edit hosts", locations=[{"path": "/etc/hosts"}]))  # 25
    script.agent(_ask(2, "s-one", "c4", "edit", "Edit hosts"))  # 26
    script.editor(_answer(2, "never-offered"))  # 27
    script.editor(note("session/cancel", sessionId="s-one"))  # 28
    script.agent(_step("s-one", "c4", "in_progress"))  # 29
    script.agent(result(3, stopReason="cancelled"))  # 30
    script.agent(_step("s-one", "c4", "completed"))  # 31
    script.agent(update("sparkle_update", "s-one"))  # 32
    script.agent(call(3, "fs/write_text_file", sessionId="s-one", path="/home/mia/notes.txt", content="x"))  # 33
    script.editor(result(3))  # 34
    script.agent(b"no json")  # 35
    script.event("exited", status=143)  # 36
    script.event("closed", close_reason="editor_ended")  # 37
    return script


def loaded() -> Script:
    """Codex in Neovim: a session that tells its history again, a turn that stopped short, a crash with a question."""
    script = _begin(START + 100 * SECOND, ("codex", "0.9"), ("neovim", "0.10"))
    script.editor(call(1, "session/load", sessionId="s-two", cwd="/work", mcpServers=_servers("files")))  # 6
    script.agent(_tool("s-two", "old", kind="execute", title="long ago"))  # 7
    script.agent(say("Long ago").replace("sess-é".encode(), b"s-two"))  # 8
    script.agent(result(1))  # 9
    script.editor(_prompt(2, "s-two"))  # 10
    script.agent(_tool("s-two", "r1", kind="read", title="Read b.py", locations=[{"path": "/work/../b.py"}]))  # 11
    script.agent(_step("s-two", "r1", "completed"))  # 12
    script.agent(call(7, "fs/read_text_file", sessionId="s-two", path="/work/b.py"))  # 13
    script.editor(result(7, content="text"))  # 14
    script.agent(_usage("s-two", 800, 0.5, _meta={"note": "a NUL: \0"}))  # 15
    script.agent(result(2, stopReason="max_tokens"))  # 16
    script.editor(_prompt(3, "s-two"))  # 17
    script.agent(_tool("s-two", "m1", kind="move", title="Move b.py", locations=[{"path": "../b.py"}]))  # 18
    script.agent(_ask(0, "s-two", "m1", "move", "Move b.py"))  # 19
    script.event("eof", direction=TO_CLIENT)  # 20
    script.event("exited", signal=9)  # 21
    script.event("closed", close_reason="agent_ended")  # 22
    return script


def guarded() -> Script:
    """Claude the day after, still open: the policy answers, the editor rejects, one question waits; and a gap."""
    script = _begin(START + DAY, ("claude-code", "2.1"), ("zed", "1.5"))
    script.editor(call(1, "session/new", cwd="/src/", mcpServers=_servers("files", "browser")))  # 6
    script.agent(result(1, sessionId="s-three", modes={"currentModeId": "acceptEdits", "availableModes": []}))  # 7
    script.editor(_prompt(2, "s-three"))  # 8
    script.agent(_tool("s-three", "w1", kind="execute", title="git push --force"))  # 9
    script.agent(_ask(0, "s-three", "w1", "execute", "git push --force"))  # 10
    script.editor(_answer(0, "no"), origin="policy", rule="no-force-push")  # 11
    script.agent(_ask(1, "s-three", "w2", "fetch", "example.org"))  # 12
    gap = Gap(0, 0, "", "closed", START + DAY + 12 * SECOND, START + DAY + 14 * SECOND, 3, None)
    script.event("gap", marks=(gap,))  # 13
    script.agent(say("Waiting").replace("sess-é".encode(), b"s-three"))  # 14
    script.editor(_answer(1, "no"))  # 15
    script.editor(call(3, "session/set_mode", sessionId="s-three", modeId="full-auto"))  # 16
    script.agent(_ask(2, "s-three", "w1", "execute", "git push"))  # 17
    return script


def missing() -> Script:
    """An agent that could not be started."""
    script = Script(START + DAY + 100 * SECOND)
    script.event("closed", close_reason="agent_not_started", detail="no such program")
    return script


TRANSPORTS: Final = (
    ("claude", ["claude", "--acp"], everyday),
    ("codex", ["codex", "--dangerously-bypass-approvals"], loaded),
    ("claude", ["claude", "--acp"], guarded),
    ("ghost", ["ghost"], missing),
)


def fill(url: str) -> None:
    """Record them; their ids are the microseconds at which they were opened."""
    ledger = Ledger.open(url, DAEMON, at=START)
    try:
        for agent, argv, script in TRANSPORTS:
            made = script()
            opened_at = made.entries[0].record.at - SECOND  # type: ignore[union-attr]  # it begins with an event
            new = NewTransport(
                opened_at=opened_at,
                mode="relay",
                agent=agent,
                argv=argv,
                cwd="/src",
                mapping_version=MAPPING_VERSION,
                os_user="mia",
            )
            transport = ledger.open_transport(new)
            ledger.commit([(transport.id, made.entries)])
    finally:
        ledger.close()
