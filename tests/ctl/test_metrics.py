"""`ledgerctl metrics`: figures for Prometheus, of a daemon that answers and of none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from acp_ledger import dialogue
from acp_ledger.errors import ExitCode

if TYPE_CHECKING:
    from tests.ctl.conftest import Cli

READER = {"limit": 32, "storage": 33, "buffered": 33, "high_water": 32, "rejected": 1, "terminal": True}
STATUS: dict[str, Any] = {
    "version": "0.1.0",
    "uptime_seconds": 60,
    "committer": {"queued": 3, "commits": 9, "entries": 1_234_567, "commit_p50": 1300, "commit_p99": 5700},
    "transports": [
        {"transport_id": 1, "agent": "claude", "busy": 2},
        {"transport_id": 2, "agent": 'a"b\\c\nd', "mode": "client", "busy": 1, "asked": 1, "reader": READER},
    ],
}


def test_figures_of_the_status_are_given_by_name_and_unit(cli: Cli, answering: Any) -> None:
    """Every sample has a name, its help and its type before it, and a value that Prometheus reads."""
    answering(dialogue.encode_answer(**STATUS))
    result = cli("metrics")
    assert result.exit_code == ExitCode.OK
    samples = dict(re.findall(r"(?m)^(acp_ledger_\w+(?:\{.*\})?) (\S+)$", result.stdout))
    own = r'{transport="2",agent="a\"b\\c\nd"}'
    for name, value in {
        "acp_ledger_up": "1",
        'acp_ledger_build_info{version="0.1.0"}': "1",
        'acp_ledger_transports_open{mode="relay"}': "1",
        'acp_ledger_transports_open{mode="client"}': "1",
        "acp_ledger_sessions_active": "3",
        "acp_ledger_questions_held": "1",
        "acp_ledger_entries_total": "1234567",
        'acp_ledger_commit_seconds{quantile="0.99"}': "0.0057",
        f"acp_ledger_reader_limit_bytes{own}": "32",
        f"acp_ledger_reader_storage_bytes{own}": "33",
        f"acp_ledger_reader_buffered_bytes{own}": "33",
        f"acp_ledger_reader_high_water_bytes{own}": "32",
        f"acp_ledger_reader_rejected_total{own}": "1",
        f"acp_ledger_reader_terminal{own}": "1",
    }.items():
        assert samples[name] == value
    for name in {each.partition("{")[0] for each in samples}:
        assert f"# HELP {name} " in result.stdout
        assert f"# TYPE {name} " in result.stdout


def test_daemon_that_cannot_commit_is_not_up(cli: Cli, answering: Any) -> None:
    """An alert needs one figure."""
    answering(dialogue.encode_answer(**{**STATUS, "committer": {"degraded": True}}))
    assert "acp_ledger_up 0" in cli("metrics").stdout


def test_no_daemon_is_not_up(cli: Cli) -> None:
    """The figure is there all the same, and the status says why."""
    result = cli("metrics")
    assert (result.exit_code, "acp_ledger_up 0" in result.stdout) == (ExitCode.UNREACHABLE, True)
