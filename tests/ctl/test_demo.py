"""The demo: it records for real, and it fails as soon as one row or one byte is not the script's."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from acp_ledger.ctl import demo_agent
from acp_ledger.ctl.demo import record
from acp_ledger.ctl.demo_check import examine
from acp_ledger.ctl.demo_client import DemoError, Recording
from acp_ledger.ctl.demo_witness import Witness
from acp_ledger.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ctl.conftest import Cli


SECOND_MESSAGE = (
    "INSERT INTO messages SELECT transport_id, frame_seq, 9, protocol_revision, session_id, turn_id, stream, "
    "message_id, version, cleared, truncated, text, text_bytes, first_frame, last_frame, lossy FROM messages LIMIT 1"
)
FORGED_ANOMALY = (
    "INSERT INTO anomalies SELECT id, 1, 0, protocol_revision, NULL, NULL, 'forged', NULL, NULL FROM transports"
)
OTHER_ANSWER = (
    "UPDATE frames SET body = CAST(replace(body, 'reject-once', 'allow-once') AS BLOB) "
    "WHERE direction = 'client_to_agent' AND rpc_id = '0' AND phase = 'turn'"
)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The script, played once through a daemon and a runner of its own."""
    return record(tmp_path_factory.mktemp("demo"))


def test_demo_succeeds_and_leaves_nothing(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command records, reads back, compares, verifies and cleans up; the home is not touched."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    result = cli("demo")
    assert result.exit_code == ExitCode.OK, result.stderr
    assert result.stderr == ""
    assert "verify    ok: 24 frames" in result.stdout
    assert 'execute "rm -rf build" -> reject_once (reject), by client' in result.stdout
    assert "demo_weather" in result.stdout
    assert [path.name for path in tmp_path.rglob("*")] == ["tmp"]


def test_kept_demo_can_be_looked_at(cli: Cli, tmp_path: Path) -> None:
    """With `--keep` the ledger stays, and every command reads it."""
    directory = tmp_path / "kept"
    assert cli("demo", "--keep", str(directory), "-o", "json").exit_code == ExitCode.OK
    shown = cli("show", "--last", "-L", str(directory / "ledger.db"))
    assert "stopped" not in shown.stdout
    assert "I will leave it alone." in shown.stdout
    assert "prompted    What is in the build directory?" in shown.stdout
    assert cli("demo", "--keep", str(directory)).exit_code == ExitCode.USAGE


def test_demo_records_into_any_ledger(cli: Cli, ledger_url: str) -> None:
    """The rows equal the script on either engine, beside whatever the ledger already holds."""
    for _ in range(2):
        result = cli("demo", "--url", ledger_url, "-o", "json")
        assert result.exit_code == ExitCode.OK, result.stderr
        assert json.loads(result.stdout)["differences"] == []


def test_untouched_recording_has_no_difference(recording: Recording) -> None:
    """The rows are those of the script, so that the tests below fail for their own reason."""
    assert examine(recording).differences == ()


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE transports SET agent = 'another'", "audit_transports"),
        ("UPDATE sessions SET acp_session_id = 'another'", "audit_sessions"),
        ("UPDATE session_openings SET cwd = '/elsewhere'", "audit_sessions"),
        ("UPDATE frames SET phase = 'between' WHERE method = 'session/cancel'", "frames"),
        ("UPDATE frames SET session_update = 'usage_update' WHERE session_update = 'demo_weather'", "audit_coverage"),
        ("UPDATE frames SET disposition = 'observed' WHERE session_update = 'plan'", "audit_timeline"),
        ("UPDATE turn_ends SET outcome = 'completed' WHERE outcome = 'cancelled'", "audit_turns"),
        ("UPDATE turn_ends SET text_bytes = text_bytes + 1", "audit_turns"),
        ("UPDATE tool_call_steps SET status_raw = 'completed' WHERE status_raw = 'failed'", "audit_tool_calls"),
        ("DELETE FROM tool_call_steps WHERE status = 'failed'", "audit_timeline"),
        ("UPDATE decisions SET effect = 'allow'", "audit_decisions"),
        ("UPDATE decisions SET option_kind = ''", "audit_decisions"),
        ("DELETE FROM decisions", "audit_decisions"),
        ("UPDATE permission_options SET name = 'Nothing' WHERE ordinal = 3", "permission_options"),
        ("DELETE FROM permission_options WHERE ordinal = 0", "permission_options"),
        ("UPDATE messages SET text = text || ' '", "messages"),
        (SECOND_MESSAGE, "messages"),
        ("UPDATE deliveries SET through_frame_seq = through_frame_seq - 1", "deliveries"),
        (FORGED_ANOMALY, "audit_anomalies"),
        ("INSERT INTO gaps SELECT id, 1, 0, protocol_revision, 'open', 1, 2, 3, NULL FROM transports", "gaps"),
        ("UPDATE frames SET body = CAST(body || ' ' AS BLOB) WHERE session_update = 'plan'", "agent_to_client"),
        (OTHER_ANSWER, "client_to_agent"),
    ],
)
def test_one_changed_row_fails_the_demo(recording: Recording, tmp_path: Path, statement: str, named: str) -> None:
    """Whichever row is changed, removed or added, the comparison names its table, and `verify` fails beside it."""
    changed = _tampered(recording, tmp_path, statement)
    finding = examine(changed)
    rows = [difference for difference in finding.differences if not difference.startswith("verify")]
    assert any(difference.startswith(named) for difference in rows), finding.differences
    assert finding.exit_code == ExitCode.INTEGRITY


def _tampered(recording: Recording, tmp_path: Path, statement: str) -> Recording:
    path = tmp_path / "ledger.db"
    shutil.copy(recording.directory / "ledger.db", path)
    with sqlite3.connect(path) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        assert database.execute(statement).rowcount > 0
    database.close()
    return replace(recording, url=f"sqlite:///{path}")


def test_other_bytes_at_the_editor_fail_the_demo(recording: Recording) -> None:
    """A byte the editor heard that is not the ledger's is a difference."""
    said = recording.conversation
    heard = [*said.received[:-1], said.received[-1] + b" "]
    finding = examine(replace(recording, conversation=replace(said, received=heard)))
    assert finding.differences == ("agent_to_client: the stored bytes are not those of the editor",)
    assert finding.exit_code == ExitCode.FAILED


def test_other_bytes_at_the_agent_fail_the_demo(recording: Recording, tmp_path: Path) -> None:
    """A line the agent never heard is a difference, though the ledger and the editor agree on it."""
    for name in (demo_agent.SENT, demo_agent.RECEIVED):
        shutil.copy(recording.directory / name, tmp_path / name)
    log = tmp_path / demo_agent.RECEIVED
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    finding = examine(_elsewhere(recording, tmp_path))
    assert "client_to_agent: the stored bytes are not those of the agent" in finding.differences


def _elsewhere(recording: Recording, directory: Path) -> Recording:
    return replace(recording, directory=directory)


def test_unseen_line_fails_the_demo(recording: Recording) -> None:
    """A line that was not looked for when it was heard proves nothing, and is no success."""
    finding = examine(replace(recording, witnessed=recording.witnessed - 1))
    assert finding.differences == ("1 of 17 lines were not seen in the ledger when they were heard",)


def test_runner_status_fails_the_demo(recording: Recording) -> None:
    """The runner ends as its agent ends."""
    said = replace(recording.conversation, exit_status=1)
    assert examine(replace(recording, conversation=said)).differences != ()


def test_witness_refuses_a_line_that_is_not_there(recording: Recording) -> None:
    """A line that reached the editor before the ledger ends the demo on the spot."""
    with Witness(recording.url, recording.label) as witness:
        witness.see(1, recording.conversation.received[0])
        with pytest.raises(DemoError, match="line 2 of the agent was heard before"):
            witness.see(2, recording.conversation.received[1] + b" ")
        with pytest.raises(DemoError, match="line 18 "):
            witness.see(18, b"{}")
    assert witness.seen == 1


def test_failing_demo_keeps_its_files(cli: Cli, tmp_path: Path) -> None:
    """A demo that cannot record says why, where its files are, and is no success."""
    (tmp_path / "file").touch()
    directory = tmp_path / "kept"
    result = cli("demo", "--keep", str(directory), "--url", f"sqlite:///{tmp_path}/file/ledger.db")
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr.startswith("error: the daemon did not start: ")
    assert str(directory) in result.stdout
