"""The root command: grammar, help, exit codes, start-up."""

from __future__ import annotations

import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from acp_ledger.ctl.main import SECTIONS, root
from acp_ledger.ctl.options import Command, LazyGroup
from acp_ledger.ctl.text import escape
from acp_ledger.errors import ExitCode
from acp_ledger.store.ledger import Ledger
from tests.ctl.seeding import DAEMON, START

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ctl.conftest import Cli

LEDGERCTL = (sys.executable, "-m", "acp_ledger.ctl.main")
HEAVY = ("sqlalchemy", "alembic", "pydantic", "pydantic_settings", "rich", "trio", "structlog", "psycopg")
COUNTING = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 'row' || i AS word FROM n"


def commands(group: LazyGroup = root, *before: str) -> Iterator[tuple[str, ...]]:
    """Name every command, groups included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        yield (*before, name)
        if isinstance(found, LazyGroup):
            yield from commands(found, *before, name)


EVERY = tuple(commands())


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_help_leads_with_two_examples(path: tuple[str, ...], cli: Cli) -> None:
    """Every command's help says what it is for and shows at least two ways to use it."""
    result = cli(*path, "--help")
    assert result.exit_code == 0
    examples = result.stdout.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    assert len([line for line in examples if line.startswith(f"  ledgerctl {path[0]}")]) >= 2


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_command_knows_its_own_name(path: tuple[str, ...]) -> None:
    """Each entry of the table leads to a command of our own kind, under the same name."""
    found: click.Command = root
    for name in path:
        assert isinstance(found, LazyGroup)
        child = found.get_command(click.Context(found), name)
        assert isinstance(child, Command | LazyGroup)
        found = child
    assert found.name == path[-1]


def test_help_lists_every_command(cli: Cli) -> None:
    """The root's help names all commands by section, without importing one."""
    text = cli("--help").stdout
    assert all(f"\n  {name} " in text for section in SECTIONS.values() for name in section)


@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), *((*path, "--help") for path in EVERY)], ids=" ".join
)
def test_start_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Help, the version and completion load click and the standard library alone."""
    program = (
        "import sys\nfrom acp_ledger.ctl.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"


def test_mistyped_command_names_the_nearest(cli: Cli) -> None:
    """A typing error is wrong usage, and the answer names what was meant."""
    result = cli("sesions")
    assert result.exit_code == ExitCode.USAGE
    assert "'sessions'" in result.stderr
    assert result.stderr.endswith("hint: ledgerctl --help\n")


@pytest.mark.parametrize("path", [(), ("db",)])
def test_group_without_a_command_shows_its_help(cli: Cli, path: tuple[str, ...]) -> None:
    """It is no error to look around: the help comes as help, on stderr, with click's own status."""
    result = cli(*path)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr == cli(*path, "--help").stdout


@pytest.mark.parametrize("before", [True, False])
def test_global_options_stand_anywhere(cli: Cli, seeded_file: Path, *, before: bool) -> None:
    """A global option means the same in front of the command and behind it."""
    options = ("-L", str(seeded_file), "-o", "csv", "--columns", "agent")
    result = cli(*options, "sessions") if before else cli("sessions", *options)
    assert result.stdout_bytes == b"agent\r\ncalm\r\nwild\r\n"


def test_nearest_global_option_counts(cli: Cli, seeded_file: Path) -> None:
    """An option behind the command wins over the same one in front of it."""
    result = cli("-o", "json", "-L", "/nowhere", "sessions", "-L", str(seeded_file), "-o", "csv", "--columns", "agent")
    assert result.stdout_bytes == b"agent\r\ncalm\r\nwild\r\n"


def test_ledger_comes_from_settings(cli: Cli, seeded_file: Path, tmp_path: Path) -> None:
    """Without a flag the ledger is the one of the settings file; one that is unreadable is wrong usage."""
    config = tmp_path / "config.toml"
    config.write_text(f'[database]\nurl = "sqlite:///{seeded_file}"\n')
    assert "calm" in cli("sessions", "--config", str(config)).stdout
    config.write_text("[databse]\n")
    result = cli("sessions", "--config", str(config))
    assert result.exit_code == ExitCode.USAGE
    assert "database" in result.stderr


def test_ledger_comes_from_environment(cli: Cli, seeded_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the ledger as it does for the daemon."""
    monkeypatch.setenv("ACP_LEDGER_DATABASE__URL", f"sqlite:///{seeded_file}")
    assert "calm" in cli("sessions").stdout


# --- exit codes


def test_success_exits_with_0(cli: Cli, seeded_file: Path) -> None:
    """A list that could be read is a success, an empty one too."""
    assert cli("sessions", "-L", str(seeded_file)).exit_code == ExitCode.OK
    assert cli("sessions", "-L", str(seeded_file), "-g", "no such text").exit_code == ExitCode.OK


def test_failure_exits_with_1(cli: Cli, seeded_file: Path) -> None:
    """What is not there cannot be shown."""
    result = cli("show", "sess-none", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr.splitlines()[-1] == f"hint: ledgerctl -L {seeded_file} sessions"


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("sessions", "--nonsense"),
        ("sessions", "-o", "yaml"),
        ("sessions", "-S", "whenever"),
        ("sessions", "-g", "("),
        ("sessions", "--columns", "nonsense"),
        ("show",),
        ("show", "sess-", "--last"),
        ("show", "sess-"),
        ("show", "sess-plain", "--raw"),
        ("show", "--last", "-o", "csv"),
        ("sql", "DELETE FROM frames"),
        ("sql", "SELECT 1; SELECT 2"),
        ("sql", "ATTACH 'x' AS y"),
        ("sql", "PRAGMA journal_mode = DELETE"),
        ("-L", "mysql://host/x", "sessions"),
        ("demo", "--keep", "."),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(cli: Cli, seeded_file: Path, arguments: tuple[str, ...]) -> None:
    """What cannot be understood is not guessed; the last line says what can be typed."""
    result = cli("-L", str(seeded_file), *arguments)
    assert result.exit_code == ExitCode.USAGE, result.stderr
    assert result.stdout == ""
    assert result.stderr.splitlines()[0].startswith("error: ")
    assert "Traceback" not in result.stderr


def test_cut_answer_exits_with_3(cli: Cli, seeded_file: Path) -> None:
    """An answer that was cut is given as far as it goes, said to be incomplete, and no plain success."""
    result = cli("sql", COUNTING, "--rows", "3", "-o", "csv", "-q", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.INCOMPLETE
    assert result.stdout_bytes == b"i,word\r\n1,row1\r\n2,row2\r\n3,row3\r\n"
    assert result.stderr.startswith("incomplete: ")


def test_no_match_exits_with_4_on_request(cli: Cli, seeded_file: Path) -> None:
    """Scripts may ask that an empty list be a failure."""
    result = cli("sessions", "-g", "no such text", "--require-match", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.NOTHING_MATCHED
    assert cli("sessions", "--require-match", "-L", str(seeded_file)).exit_code == ExitCode.OK


def test_violation_exits_with_5(cli: Cli, seeded_file: Path) -> None:
    """A changed row is found, named, and has a status of its own."""
    tamper(seeded_file, "UPDATE decisions SET effect = 'reject' WHERE effect = 'allow'")
    result = cli("verify", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.INTEGRITY
    assert "FAILED" in result.stdout
    assert "NOT INTACT" in result.stdout


def test_missing_ledger_exits_with_10(cli: Cli, tmp_path: Path) -> None:
    """No file, and a database that holds no ledger, are the same to a script; nothing is created."""
    result = cli("sessions", "-L", str(tmp_path / "none.db"))
    assert (result.exit_code, result.stdout) == (ExitCode.NO_LEDGER, "")
    assert not (tmp_path / "none.db").exists()
    sqlite3.connect(tmp_path / "empty.db").close()
    (tmp_path / "empty.db").touch()
    assert cli("sessions", "-L", str(tmp_path / "empty.db")).exit_code == ExitCode.NO_LEDGER


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
def test_file_that_is_no_ledger_writes_nothing_to_stdout(cli: Cli, tmp_path: Path, form: str) -> None:
    """No header stands before an error, and the command that mends it is for the same file."""
    junk = tmp_path / "junk file.db"
    junk.write_bytes(b"something else entirely" * 100)
    result = cli("sessions", "-L", str(junk), "-o", form)
    assert (result.exit_code, result.stdout) == (ExitCode.REFUSED, "")
    assert result.stderr.endswith(f"hint: ledgerctl -L '{junk}' db check\n")


def test_locked_ledger_exits_with_11(cli: Cli, seeded_file: Path) -> None:
    """While a daemon writes the ledger, its schema is not touched; reading goes on."""
    ledger = Ledger.open(f"sqlite:///{seeded_file}", DAEMON, at=START)
    try:
        assert cli("db", "upgrade", "-L", str(seeded_file)).exit_code == ExitCode.LOCKED
        assert cli("sessions", "-L", str(seeded_file)).exit_code == ExitCode.OK
    finally:
        ledger.close()
    assert cli("db", "upgrade", "-L", str(seeded_file)).exit_code == ExitCode.OK


def test_refusing_database_exits_with_12(cli: Cli, tmp_path: Path) -> None:
    """A file that is no database is refused, and named."""
    (tmp_path / "notes.txt").write_text("not a database\n" * 200)
    result = cli("sessions", "-L", str(tmp_path / "notes.txt"))
    assert result.exit_code == ExitCode.REFUSED
    assert "notes.txt" in result.stderr


def test_other_schema_exits_with_13(cli: Cli, seeded_file: Path) -> None:
    """A schema this program does not write is named with the command that mends it."""
    tamper(seeded_file, "UPDATE alembic_version SET version_num = '0000'")
    result = cli("db", "check", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.SCHEMA
    assert result.stderr.endswith(f"hint: ledgerctl -L {seeded_file} db upgrade\n")


def test_daemon_down_exits_with_69(cli: Cli, seeded_file: Path) -> None:
    """Without a daemon the ledger's facts are shown all the same, and how to start one."""
    result = cli("status", "-L", str(seeded_file))
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "2 sessions" in result.stdout
    assert "not reachable" in result.stdout
    assert "start it by hand: acp-ledgerd" in result.stderr.splitlines()[-1]


@pytest.fixture
def busy(seeded_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A real `ledgerctl` that has written its first row and will write more than a pipe holds."""
    command = [*LEDGERCTL, "sql", COUNTING, "-o", "jsonl", "-L", str(seeded_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b'{"i": 1, "word": "row1"}\n'
        _await_blocked(process)
        yield process
        process.kill()


def _await_blocked(process: subprocess.Popen[bytes]) -> None:
    """Wait until it sleeps: it has filled the pipe, and waits for us to read."""
    deadline = time.monotonic() + 30
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert process.poll() is None
        assert time.monotonic() < deadline


def test_interrupt_exits_with_130(busy: subprocess.Popen[bytes]) -> None:
    """Control-C ends it at once and without a traceback, though nobody reads what it still had to say."""
    busy.send_signal(signal.SIGINT)
    assert busy.wait(30) == ExitCode.INTERRUPTED
    assert busy.stderr is not None
    assert busy.stderr.read().strip() == b""


def test_closed_pipe_exits_with_141(busy: subprocess.Popen[bytes]) -> None:
    """`| head -1` is no error to anybody: no words, and the status a shell expects."""
    assert busy.stdout is not None
    busy.stdout.close()
    assert busy.wait(30) == ExitCode.PIPE_CLOSED
    assert busy.stderr is not None
    assert busy.stderr.read() == b""


def test_error_text_is_escaped(cli: Cli, seeded_file: Path) -> None:
    """What was typed, or comes from a database, cannot steer the terminal through an error either."""
    result = cli("sql", 'SELECT "\x1b[2Jnothing" FROM "\u202e"', "-L", str(seeded_file))
    assert result.exit_code == ExitCode.USAGE
    assert escape(result.stderr, keep="\n") == result.stderr
    assert r"\u202e" in result.stderr


def tamper(path: Path, statement: str) -> None:
    """Change a row behind the ledger's back, its guards removed."""
    with sqlite3.connect(path) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        assert database.execute(statement).rowcount > 0
    database.close()


@pytest.mark.parametrize("secret", ["CANARY@CANARY", "CAN ARY", "CANARY/x"])
def test_password_is_not_shown_by_the_refusal_of_its_url(cli: Cli, secret: str) -> None:
    """A URL that cannot be read is named by its scheme alone, for any part of it may be the password."""
    result = cli("sessions", "-L", f"postgresql://me:{secret}@nohost.invalid/db")
    assert result.exit_code == ExitCode.USAGE
    assert "error: -L postgresql://…: write " in result.stderr
    assert "CAN" not in result.stderr


def test_settings_file_that_gives_a_password_away_is_named(cli: Cli, tmp_path: Path) -> None:
    """The warning stands on stderr once, names the file and what mends it, and the ledger is asked all the same."""
    config = tmp_path / "config.toml"
    config.write_text('[database]\nurl = "postgresql://me:CANARY@127.0.0.1:1/db"\n')
    config.chmod(0o644)
    for command, status in (("sessions", ExitCode.REFUSED), ("status", ExitCode.UNREACHABLE)):
        result = cli(command, "--config", str(config))
        assert result.exit_code == status
        assert result.stderr.count(f"warning: {config}: it holds a database password") == 1
        assert f"hint: chmod 600 {config}\n" in result.stderr
        assert "CANARY" not in result.output
    config.chmod(0o600)
    assert "warning" not in cli("sessions", "--config", str(config)).stderr


@pytest.mark.parametrize("option", ["-L", "--config"])
def test_advice_is_for_the_ledger_that_was_named(cli: Cli, seeded_file: Path, tmp_path: Path, option: str) -> None:
    """A hint that names a command repeats which ledger it is about, wherever it was said; so does a note."""
    given = str(seeded_file)
    if option == "--config":
        given = str(tmp_path / "my settings.toml")
        Path(given).write_text(f'[database]\nurl = "sqlite:///{seeded_file}"\n')
    named = f"ledgerctl {option} {shlex.quote(given)}"
    for words, advised in (
        (("show", "sess-none"), "sessions"),
        (("show", "1796000000000000:999", "--raw"), "events"),
        (("show", "call-one", "--session", "sess-wild"), "show sess-wild"),
        (("db", "check"), "db upgrade"),
    ):
        if words == ("db", "check"):
            tamper(seeded_file, "UPDATE alembic_version SET version_num = '0000'")
        assert cli(*words, option, given).stderr.splitlines()[-1] == f"hint: {named} {advised}"
    assert f"({named} coverage)" in cli(option, given, "sessions").stderr
    assert f"fix: {named} db upgrade".replace(str(tmp_path), "~") in cli("doctor", option, given).stdout


def test_advice_never_repeats_a_password(cli: Cli) -> None:
    """Whoever named a ledger by a URL with a password sees it masked in the hint as well."""
    result = cli("sessions", "-L", "postgresql://me:CANARY@127.0.0.1:1/db")
    assert result.exit_code == ExitCode.REFUSED
    assert "CANARY" not in result.stderr
