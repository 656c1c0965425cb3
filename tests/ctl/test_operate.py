"""`ledgerctl status`: the daemon in its own words, the ledger in ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger import dialogue
from acp_ledger.ctl import operate
from acp_ledger.ctl.demo import _running_daemon
from acp_ledger.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ctl.conftest import Cli

COMMITTER = {"queued": 3, "commits": 9, "entries": 1234, "commit_p50": 1300, "commit_p99": 5700}
STATUS: dict[str, Any] = {
    "pid": 7,
    "version": "0.1.0",
    "ledger": "sqlite:////x",
    "schema": "0001",
    "durability": "power",
    "uptime_seconds": 11_520,
}
HEALTHY = {"held_seconds": None, "degraded": False, "error": None}


def _status(**committer: Any) -> bytes:
    return dialogue.encode_answer(**STATUS, transports=[], committer={**COMMITTER, **committer})


def test_running_daemon_is_shown(cli: Cli, seeded_file: Path, answering: Any) -> None:
    """A daemon that commits is running; its figures and the ledger's stand together."""
    answering(_status(**HEALTHY))
    result = cli("status", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.OK, result.stderr
    assert result.stdout.splitlines()[0] == "daemon   running   pid 7   up 3 h 12 min   v0.1.0"
    assert "commit p50 1.3 ms, p99 5.7 ms, 3 waiting, 1,234 recorded" in result.stdout
    assert "2 sessions" in result.stdout


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ({"held_seconds": 2.5, "degraded": False, "error": "the disk is full"}, "BUT HOLDING"),
        ({"held_seconds": 60.0, "degraded": True, "error": "the disk is full"}, "BUT DEGRADED"),
    ],
)
def test_daemon_in_trouble_is_no_success(
    cli: Cli, seeded_file: Path, answering: Any, trouble: dict[str, Any], words: str
) -> None:
    """A daemon that cannot commit says so first, with the reason, and scripts see it."""
    answering(_status(**trouble))
    result = cli("status", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.INCOMPLETE
    assert words in result.stdout.splitlines()[0]
    assert "the disk is full" in result.stdout


def test_settings_that_were_not_taken_over_are_told(cli: Cli, seeded_file: Path, answering: Any) -> None:
    """Whoever wrote them sees that the old ones hold."""
    answering(dialogue.encode_answer(**STATUS, trouble="SETTINGS NOT RELOADED: x", transports=[], committer=HEALTHY))
    assert cli("status", "-L", str(seeded_file)).stdout.splitlines()[1].strip() == "SETTINGS NOT RELOADED: x"


def test_refusal_is_passed_on(cli: Cli, seeded_file: Path, answering: Any) -> None:
    """What the daemon refuses is an error in its own words, made harmless."""
    answering(dialogue.encode_refusal("not \x1b[2Jnow", "try later"))
    result = cli("status", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr == "error: not \\u001b[2Jnow\nhint: try later\n"


def test_what_runs_is_shown_and_harmless(cli: Cli, seeded_file: Path, answering: Any) -> None:
    """Each busy session on a line; what an agent calls its question cannot steer the terminal or make a line."""
    asking = {"acp_session_id": "s1", "turns": [3], "questions": 2, "asked": "rm\x1b[2J\n-rf", "asked_at": 1}
    busy = {"transport_id": 17, "agent": "claude", "pid": 4, "sessions": 40, "busy": 40, "running": [asking]}
    ending = {"transport_id": 18, "agent": "codex", "pid": 5, "ending": "operator_stopped"}
    fresh = {"transport_id": 19, "agent": "new", "pid": None, "sessions": 0, "busy": 0, "running": []}
    login = {"transport_id": 20, "agent": "claude", "pid": 6, "mode": "terminal", "ending": None}
    transports = [busy, ending, fresh, login]
    answering(dialogue.encode_answer(**{**STATUS, "transports": transports}, committer=COMMITTER | HEALTHY))
    lines = cli("status", "-L", str(seeded_file)).stdout.splitlines()
    shown = lines[lines.index("") + 1 :]
    assert [line.split()[0] for line in shown] == ["TRANSPORT", "17", "17", "18", "19", "20"]
    assert shown[1].endswith("rm\\u001b[2J\\u000a-rf and 1 more")
    assert "s1       waiting for an answer for " in shown[1]
    assert shown[2].endswith("39 more sessions are busy")
    assert shown[3].endswith("ending (operator_stopped)")
    assert shown[4].endswith("idle, 0 sessions")
    assert "a login at a terminal" in shown[5]


def test_reading_of_an_unattended_agent_is_shown(cli: Cli, seeded_file: Path, answering: Any) -> None:
    """What a client may hold of a line, and held; and that reading has stopped for good."""
    reader = {"limit": 32, "storage": 33, "buffered": 33, "high_water": 32, "rejected": 1, "phase": "steady"}
    client = {"transport_id": 21, "agent": "sh", "pid": 7, "mode": "client", "reader": {**reader, "terminal": True}}
    answering(dialogue.encode_answer(**{**STATUS, "transports": [client]}, committer=COMMITTER | HEALTHY))
    heading, row = cli("status", "-L", str(seeded_file)).stdout.splitlines()[-2:]
    assert heading.split() == ["READS", "LIMIT", "STORAGE", "BUFFERED", "LONGEST", "REJECTED", "PHASE"]
    assert row.split()[:6] == ["21", "32", "33", "33", "32", "1"]
    assert row.endswith("ended: a line was too long")


@pytest.mark.parametrize(("status", "code"), [(2, 2), (11, 11), (0, 1), (1000, 1), ("2", 1), ([2], 1)])
def test_refusal_may_say_what_to_exit_with(
    cli: Cli, seeded_file: Path, answering: Any, status: object, code: int
) -> None:
    """A documented status is taken over; whatever else a daemon says is a plain failure."""
    line = dialogue.encode_refusal("no").replace(b'"status":1', b'"status":' + json.dumps(status).encode())
    answering(line)
    assert cli("status", "-L", str(seeded_file)).exit_code == code


@pytest.mark.parametrize("line", [b"", b"no json\n", b"[]\n"])
def test_nonsense_is_no_status(cli: Cli, seeded_file: Path, answering: Any, line: bytes) -> None:
    """Whatever listens there and speaks otherwise is not taken for a daemon that runs."""
    answering(line)
    result = cli("status", "-L", str(seeded_file))
    assert result.exit_code in {ExitCode.FAILED, ExitCode.UNREACHABLE}
    assert result.stderr.startswith("error: the daemon on ")


def test_missing_ledger_is_shown_beside_the_daemon(cli: Cli, tmp_path: Path, answering: Any) -> None:
    """A ledger that cannot be read does not hide the daemon, and is no success."""
    answering(_status(**HEALTHY))
    result = cli("status", "-L", str(tmp_path / "none.db"))
    assert result.exit_code == ExitCode.NO_LEDGER
    assert result.stdout.startswith("daemon   running")
    assert "cannot be read: there is no ledger" in result.stdout


def test_real_daemon_answers(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's real answer has what the screen shows."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    monkeypatch.setenv("ACP_LEDGER_SOCKET__PATH", str(tmp_path / "ledgerd.sock"))
    with _running_daemon(tmp_path, url) as daemon:
        shown = cli("status", "-L", url)
        told = json.loads(cli("status", "-o", "json", "-L", url).stdout)
    assert shown.exit_code == ExitCode.OK, shown.stderr
    assert shown.stdout.startswith(f"daemon   running   pid {daemon.pid}   up 0 min ")
    assert told["daemon"]["pid"] == daemon.pid
    assert told["daemon"]["ledger"] == told["ledger"]["url"] == url
    assert set(told["daemon"]["committer"]) >= {*COMMITTER, *HEALTHY}


def test_login_is_shown_as_one() -> None:
    """Nobody takes a command at a terminal for an agent that is idle."""
    shown = operate._open({"transport_id": 7, "mode": "terminal", "agent": "claude", "pid": 42})
    assert list(shown) == [("7", "claude", "42", "-", "a login at a terminal; what passes there is not recorded")]
