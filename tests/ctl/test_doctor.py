"""`ledgerctl doctor`: what is not in order is found, with what mends it, and nothing is touched."""

from __future__ import annotations

import importlib
import json
import os
import socket as sockets
import subprocess
import sys
import threading
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger import dialogue
from acp_ledger.ctl import doctor
from acp_ledger.ctl.demo import _running_daemon
from acp_ledger.ctl.doctor import _shareable, house
from acp_ledger.ctl.doctor.finding import Case, Finding
from acp_ledger.ctl.doctor.house import socket
from acp_ledger.ctl.doctor.installation import programs
from acp_ledger.ctl.doctor.ledger import partition_finding, vacuum_findings
from acp_ledger.ctl.options import Options
from acp_ledger.errors import ExitCode
from acp_ledger.store import engine, queries
from acp_ledger.store.condition import Partitions, Unvacuumed, Vacuum
from tests.support.team import Team, made_by_owner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ctl.conftest import Cli
    from tests.support.postgres import Cluster

LEDGER_CHECKS = {"ledger", "schema", "durability", "size", "partitions", "vacuum", "survivors"}
NOTHING = Case(Options(), None, None, None, None, None)


@pytest.fixture
def team(cluster: Cluster, cli: Cli) -> Iterator[Team]:
    """A team's ledger, in a home without settings."""
    del cli
    yield from made_by_owner(cluster)


def found(cli: Cli, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    """What the doctor found, by check; whatever is not in order says what mends it."""
    findings = json.loads(cli("doctor", "-o", "json", *arguments).stdout)["findings"]
    assert all(finding["mend"] for finding in findings if finding["level"] != "ok"), findings
    by_check: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        by_check.setdefault(finding["check"], []).append(finding)
    return by_check


def levels(findings: list[dict[str, Any]]) -> set[str]:
    """How bad it is."""
    return {finding["level"] for finding in findings}


def test_bare_home_is_examined_and_left_as_it_was(cli: Cli, tmp_path: Path) -> None:
    """With no daemon, no ledger and no settings every check is made, and not a file is written."""
    result = cli("doctor")
    assert result.exit_code == ExitCode.INCOMPLETE, result.output
    assert "no daemon listens on " in result.stdout
    assert "warn  there is no ledger at ~/.local/share/acp-ledger/ledger.db\n      fix: " in result.stdout
    assert "could not be made" not in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_ledger_without_a_daemon_is_examined_and_left_as_it_was(cli: Cli, seeded_file: Path) -> None:
    """Not a byte of it changes, and what a dead daemon left open is told.

    What SQLite shares between readers lies beside it in files of its own, an empty log with it.
    """
    before = {file.name: file.read_bytes() for file in seeded_file.parent.iterdir()}
    findings = found(cli, "-L", str(seeded_file))
    after = {file.name: file.read_bytes() for file in seeded_file.parent.iterdir() if file.suffix != ".db-shm"}
    assert after == before | {"ledger.db-wal": b""}
    assert levels(findings["durability"]) == {"ok"}
    assert [each["level"] for each in findings["ledger"]] == ["ok", "warn"]
    assert "with no daemon: 1 transports" in findings["ledger"][1]["sentence"]


def test_quiet_leaves_out_what_is_in_order(cli: Cli) -> None:
    """What is left is what to see to; the status is the same."""
    result = cli("doctor", "-q")
    assert result.exit_code == ExitCode.INCOMPLETE
    assert "ok    " not in result.stdout
    assert "warn  " in result.stdout


def test_running_daemon_is_in_order(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger_url: str) -> None:
    """A daemon of this version on this ledger, and a ledger that keeps what is committed, on each engine."""
    monkeypatch.setenv("ACP_LEDGER_SOCKET__PATH", str(tmp_path / "ledgerd.sock"))
    with _running_daemon(tmp_path, ledger_url) as daemon:
        good = found(cli, "-L", ledger_url)
        other = found(cli, "-L", str(tmp_path / "other.db"))
    assert levels(good["daemon"]) == levels(good["ledger"]) == levels(good["durability"]) == {"ok"}
    assert f"pid {daemon.pid}" in good["daemon"][0]["sentence"]
    assert levels(good["socket"]) == {"ok"}
    if ledger_url.startswith("postgres"):
        assert levels(good["partitions"]) == levels(good["vacuum"]) == {"ok"}
    assert [finding["level"] for finding in other["daemon"]] == ["ok", "warn"], "it writes to another ledger"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"version": "0.0.9"}, "the daemon is version 0.0.9"),
        ({"committer": {"degraded": True, "error": "the disk is full"}}, "the disk is full"),
        ({"durability": "process"}, "a power cut may lose"),
        ({"trouble": "SETTINGS NOT RELOADED: x"}, "the daemon says: SETTINGS NOT RELOADED: x"),
    ],
)
def test_daemon_that_is_not_in_order_is_told(
    cli: Cli, seeded_file: Path, answering: Any, told: dict[str, Any], words: str
) -> None:
    """Another version, a ledger it cannot write, a setting that risks the last moments."""
    usual = {"pid": 7, "version": metadata.version("acp-ledger"), "ledger": f"sqlite:///{seeded_file}"}
    answering(dialogue.encode_answer(**{**usual, "uptime_seconds": 1, "transports": [], "committer": {}, **told}))
    bad = [finding for each in found(cli, "-L", str(seeded_file)).values() for finding in each]
    assert [finding["level"] for finding in bad if words in finding["sentence"]] in (["warn"], ["fail"])


def test_settings_that_cannot_be_used_are_a_failure(cli: Cli, tmp_path: Path) -> None:
    """Every problem is told, the other checks are made all the same, and the status is 1."""
    file = tmp_path / "c.toml"
    file.write_text("[limits]\nline_byte = 1\nparse_bytes = 0\n")
    result = cli("doctor", "--config", str(file))
    assert result.exit_code == ExitCode.FAILED
    assert result.stdout.count("fail  ~/c.toml") == 2
    assert "did you mean limits.line_bytes?" in result.stdout
    assert "TERM is" in result.stdout


def test_report_shows_no_secret(cli: Cli) -> None:
    """A report is made to be pasted."""
    result = cli("doctor", "-L", "postgresql://mia:hunter2@127.0.0.1:1/acp")
    assert "mia:***@127.0.0.1:1/acp" in result.stdout
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("mode", "folder", "level", "words"),
    [
        (0o600, 0o700, "ok", "mode 0600"),
        (0o666, 0o700, "warn", "others may connect"),
        (0o600, 0o777, "fail", "others may put another socket"),
    ],
)
def test_socket_of_a_wrong_mode_is_told(tmp_path: Path, mode: int, folder: int, level: str, words: str) -> None:
    """Only this user may connect, or put another socket in its place."""
    path = tmp_path / "s" / "ledgerd.sock"
    path.parent.mkdir()
    with sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(mode)
        path.parent.chmod(folder)
        [finding] = socket(Case(Options(), None, None, str(path), None, None))
    assert (finding.level, words in finding.sentence) == (level, True)


def test_something_else_at_the_socket_is_told(tmp_path: Path) -> None:
    """A file there keeps the daemon from starting."""
    path = tmp_path / "ledgerd.sock"
    path.touch()
    [finding] = socket(Case(Options(), None, None, str(path), None, None))
    assert (finding.level, finding.sentence) == ("fail", f"{path} is no socket")


@pytest.mark.parametrize(
    ("script", "level", "words"),
    [
        ("#!/bin/sh\necho ledgerwallet", "warn", "another program is called ledgerctl and comes first on PATH"),
        (
            "#!/bin/sh\n# acp_ledger\necho ledgerctl, version 0.0.9",
            "fail",
            "ledgerctl on PATH is another version (0.0.9)",
        ),
        ("#!/bin/sh\n# acp_ledger\nexit 1", "fail", "it does not say which"),
    ],
)
def test_other_program_of_the_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, level: str, words: str
) -> None:
    """Another program, or another version of ours, that comes first on PATH; a stranger is not run."""
    other = tmp_path / "ledgerctl"
    other.write_text(script)
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    [finding] = [each for each in programs(NOTHING) if str(other) in each.sentence]
    assert (finding.level, words in finding.sentence) == (level, True)


@pytest.mark.parametrize(
    ("end", "used", "level"),
    [("2030-01-01", False, "ok"), ("2027-01-01", False, "warn"), (None, False, "warn"), ("2030-01-01", True, "warn")],
)
def test_partitions_that_end_soon_are_told(end: str | None, used: bool, level: str) -> None:  # noqa: FBT001  # a case
    """Sixty days before; and when lines fell outside of them."""
    parts = Partitions(None if end is None else datetime.fromisoformat(end).replace(tzinfo=UTC), used)
    assert partition_finding(parts, datetime(2026, 11, 15, tzinfo=UTC)).level == level


@pytest.mark.parametrize(
    ("vacuum", "words"),
    [
        (Vacuum(on=True, late=[]), "keeps up"),
        (Vacuum(on=False, late=[]), "autovacuum is off"),
        (Vacuum(on=True, late=[Unvacuumed("gaps", 60_000)]), "gaps has 60,000 rows"),
    ],
)
def test_server_that_does_not_vacuum_is_told(vacuum: Vacuum, words: str) -> None:
    """Nobody else tells an operator before queries get slow."""
    [finding] = vacuum_findings(vacuum)
    assert words in finding.sentence
    assert (finding.level == "ok") == (finding.mend is None) == (words == "keeps up")


def test_agent_that_outlived_its_daemon_is_told(cli: Cli, seeded_file: Path) -> None:
    """Its process carries a transport of this ledger, and no daemon has it; a stranger's agent is nobody's business."""
    reader = engine.open_reader(f"sqlite:///{seeded_file}")
    with reader.connect() as connection:
        transport_id = next(queries.transports(connection)).transport_id
    reader.dispose()
    started = []
    for mark in (transport_id, transport_id + 1_000_000):
        environ = {**os.environ, "ACP_LEDGER_TRANSPORT": str(mark)}
        started.append(subprocess.Popen([sys.executable, "-Ic", "print(1, flush=True); input()"], env=environ,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE))  # fmt: skip
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        [finding] = found(cli, "-L", str(seeded_file))["survivors"]
    finally:
        for process in started:
            process.communicate(b"\n")
    assert finding["level"] == "warn"
    assert f"kill {started[0].pid}" in finding["mend"]


def test_agent_that_bypasses_the_ledger_is_told(cli: Cli, tmp_path: Path) -> None:
    """An editor that starts its agent itself records nothing; the command that mends it is named."""
    settings = tmp_path / ".config/zed/settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '{"agent_servers": {"Goose": {"type": "custom", "command": "goose", "args": ["acp"]},'
        ' "claude-acp": {"type": "registry"}}}'
    )
    direct, registry = found(cli)["editors"]
    assert '"Goose" starts goose and not acp-ledger-run' in direct["sentence"]
    assert '"claude-acp" is started by Zed itself' in registry["sentence"]
    for finding in (direct, registry):
        assert (finding["level"], finding["mend"]) == ("warn", "ledgerctl editor setup zed")


def test_roles_of_a_team_ask_what_they_may(team: Team) -> None:
    """An auditor is told everything; a reader is told what it may not ask, and that is no failure."""
    auditor = json.loads(team.ledgerctl("auditor", "doctor", "-o", "json").stdout)["findings"]
    assert {each["level"] for each in auditor if each["check"] in LEDGER_CHECKS} == {"ok"}, auditor
    reader = team.ledgerctl("reader", "doctor", "-o", "json")
    told = json.loads(reader.stdout)["findings"]
    assert {each["level"] for each in told if each["check"] in LEDGER_CHECKS} == {"warn"}, told
    assert any("permission denied" in each["sentence"] for each in told)


def test_database_that_is_away_is_asked_once(cli: Cli) -> None:
    """Every further check would wait as long; it is told once, and the report goes on."""
    with sockets.create_server(("127.0.0.1", 0)) as listener:
        knocks: list[int] = []

        def turn_away() -> None:
            """Close every connection until the listener is shut."""
            while True:
                try:
                    guest, _ = listener.accept()
                except OSError:
                    return
                knocks.append(1)
                guest.close()

        porter = threading.Thread(target=turn_away)
        porter.start()
        url = f"postgresql://mia@127.0.0.1:{listener.getsockname()[1]}/acp"
        assert cli("sessions", "-L", url).exit_code == ExitCode.REFUSED
        once = len(knocks)
        result = cli("doctor", "-L", url)
        listener.shutdown(sockets.SHUT_RDWR)
        porter.join()
    assert result.exit_code == ExitCode.FAILED
    assert "TERM is" in result.stdout
    assert len(knocks) == 2 * once > 0


def test_user_unit_that_failed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where systemd runs the unit's own state counts, and that it ends with the last login."""
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(
        "#!/bin/sh\necho LoadState=loaded\necho ActiveState=failed\necho Result=exit-code\necho UnitFileState=enabled\n"
    )
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(house, "_BOOTED", tmp_path)
    monkeypatch.setattr(house, "_LINGERING", tmp_path / "linger")
    found = list(house.service(NOTHING))
    assert [each.level for each in found] == ["fail", "fail", "ok", "warn"]
    assert found[0].mend == "journalctl --user -u acp-ledgerd -n 20"
    assert found[-1].mend == "loginctl enable-linger"
    systemctl.write_text("#!/bin/sh\necho LoadState=not-found\n")
    [absent] = house.service(NOTHING)
    assert (absent.level, "is installed" in absent.sentence) == ("ok", True)


def test_check_that_breaks_hides_no_other(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a finding of its own, and the rest is examined."""

    def broken(_case: Case) -> list[Finding]:
        """Break."""
        raise RuntimeError("no idea")

    monkeypatch.setattr("acp_ledger.ctl.doctor.surroundings.clock", broken)
    result = cli("doctor")
    assert result.exit_code == ExitCode.FAILED
    assert "fail  this check could not be made: RuntimeError: no idea" in result.stdout
    assert "TERM is" in result.stdout


def test_every_check_is_there() -> None:
    """The report's order names checks that exist."""
    for entry in doctor._CHECKS:
        module, name = entry.split(":")
        assert callable(getattr(importlib.import_module(f"acp_ledger.ctl.doctor.{module}"), name))


@pytest.mark.parametrize(
    "said",
    [
        'connection failed: "host=db password=hunter2 user=mia" is refused',
        "postgresql+psycopg://mia:hunter2@db/acp does not answer",
        "sslpassword='hunter2 too' is wrong",
    ],
)
def test_words_of_a_driver_are_shared_without_their_passwords(said: str) -> None:
    """Whatever a finding quotes, a report can be pasted into an issue."""
    assert "hunter2" not in _shareable(said)
    assert "***" in _shareable(said)
