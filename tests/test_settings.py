"""Settings: what counts, what comes first, and that nothing is passed over or given away."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from acp_ledger import paths, settings, sources
from acp_ledger.errors import ConfigError, ExitCode
from acp_ledger.ledger_url import LedgerUrl
from acp_ledger.settings import Settings, load

if TYPE_CHECKING:
    from collections.abc import Callable

CANARY = "canary-4711"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of the test's own, and no variable that a setting could come from."""
    for name in list(os.environ):
        if name.startswith(sources.PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(paths, "SYSTEM_CONFIG", str(tmp_path / "etc.toml"))
    return tmp_path


@pytest.fixture
def user_file(home: Path) -> Callable[[str], Path]:
    """Write the user's settings file."""

    def write(text: str) -> Path:
        path = home / ".config/acp-ledger/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def _problems(config: Path | None = None, overrides: dict[str, object] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(config, overrides)
    assert CANARY not in f"{caught.value!s}{caught.value!r}"
    assert caught.value.exit_code == ExitCode.CONFIG
    return caught.value.message.splitlines()


def test_defaults_need_no_file(home: Path) -> None:
    """Whoever never wrote a setting has a ledger in their home, and everything closed and durable."""
    found = load()
    assert found.database.url.text == f"sqlite:///{home}/.local/share/acp-ledger/ledger.db"
    assert found.database.url.text == paths.default_ledger_url(os.environ, os.getuid())
    assert found.database.synchronous == "full"
    assert (found.limits.line_bytes, found.limits.parse_bytes) == (64 * 2**20, 4 * 2**20)
    assert (found.policy.mode, found.failure.mode, found.failure.hold_seconds) == ("observe", "closed", 10)
    assert found.origin("database.url") == "the default"
    assert found == Settings()


def test_flag_beats_variable_beats_user_beats_system(
    home: Path, user_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearer a value was given, the more it counts; each value alone, not its whole table."""
    (home / "etc.toml").write_text('[relay]\nstop_seconds = 1\n[limits]\nline_bytes = 1\n[log]\nlevel = "debug"\n')
    file = user_file("[relay]\nstop_seconds = 2\n[limits]\nline_bytes = 2\nparse_bytes = 2\n")
    monkeypatch.setenv("ACP_LEDGER_RELAY__STOP_SECONDS", "3")
    monkeypatch.setenv("ACP_LEDGER_LIMITS__LINE_BYTES", "3")
    found = load(None, {"relay.stop_seconds": 4, "log": {"level": None}})
    assert found.relay.stop_seconds == 4
    assert found.limits.line_bytes == 3
    assert found.limits.parse_bytes == 2
    assert found.log.level == "debug"
    assert found.origin("relay.stop_seconds") == "a flag"
    assert found.origin("limits.line_bytes") == "ACP_LEDGER_LIMITS__LINE_BYTES"
    assert found.origin("limits.parse_bytes") == str(file)
    assert found.origin("log.level") == str(home / "etc.toml")


def test_named_file_takes_the_place_of_the_others(home: Path, user_file: Callable[[str], Path]) -> None:
    """With `--config` nothing is read from the places nobody named."""
    user_file("[relay]\nstop_seconds = 2\n")
    other = home / "other.toml"
    other.write_text('[log]\nlevel = "error"\n')
    found = load(other)
    assert (found.relay.stop_seconds, found.log.level) == (Settings().relay.stop_seconds, "error")


def test_named_file_must_exist(home: Path) -> None:
    """A misspelled `--config` is told, not read as no settings at all."""
    assert _problems(home / "missing.toml") == [f"there is no settings file {home}/missing.toml"]


def test_all_problems_are_told_at_once(user_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """One start tells everything that is wrong, each with its place and what was probably meant."""
    file = user_file(
        f"""
        record = 1
        [databse]
        url = "{CANARY}"
        [limits]
        hold_seconds = 3
        line_bytes = true
        parse_bytes = 0
        [agents.claude]
        command = "claude-agent-acp"
        arg = ["{CANARY}"]
        [policy]
        mode = "{CANARY}"
        """
    )
    monkeypatch.setenv("ACP_LEDGER_LIMIT__LINE_BYTES", CANARY)
    monkeypatch.setenv("ACP_LEDGER_AGENTS__CLAUDE__ARGS", f'["{CANARY}"')
    monkeypatch.setenv("ACP_LEDGER_RELAY", CANARY)
    monkeypatch.setenv("ACP_LEDGER_FAILURE__HOLD_SECONDS", CANARY)
    assert _problems() == [
        'ACP_LEDGER_AGENTS__CLAUDE__ARGS: is not JSON; write it like ["--flag", "value"] or {"NAME": "value"}',
        "ACP_LEDGER_LIMIT__LINE_BYTES: there is no such setting; did you mean ACP_LEDGER_LIMITS__LINE_BYTES?",
        f"{file}: record: there is no such setting",
        f"{file}: databse.url: there is no such setting; did you mean database.url?",
        f"{file}: limits.hold_seconds: there is no such setting; did you mean failure.hold_seconds?",
        f"{file}: agents.claude.arg: there is no such setting; did you mean agents.NAME.args?",
        "ACP_LEDGER_RELAY: is a table; write its keys under [relay]",
        f"{file}: limits.line_bytes: must be a number",
        f"{file}: limits.parse_bytes: input should be greater than 0",
        f"{file}: policy.mode: input should be 'observe', 'enforce' or 'unattended'",
        "ACP_LEDGER_FAILURE__HOLD_SECONDS: input should be a valid number, unable to parse string as a number",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[relay\n", "is not TOML: "),
        ("a = 1\na = 2\n", "is not TOML: "),
        ("[log]\nlevel = 'loud'\n", "log.level: input should be 'debug', 'info', 'warning' or 'error'"),
        ("[relay]\nstop_seconds = nan\n", "relay.stop_seconds: input should be greater than 0"),
        ("[relay]\nstop_seconds = -1\n", "relay.stop_seconds: input should be greater than 0"),
        ("[failure]\nmode = 'open'\n", "failure.mode: input should be 'closed'"),
        ("[agents.x]\nargs = ['y']\n", "agents.x: args and env go with a command, and there is none"),
        ("[agents.x.policy]\nmod = 'enforce'\n", "agents.x.policy.mod: there is no such setting; did you mean "),
        ("[agents.x]\ncommand = ''\n", "agents.x.command: must not be empty"),
        ("[agents]\nx = 'y'\n", "agents.x: is a table; write its keys under [agents.x]"),
        ("[relay]\nstrict = 'much'\n", "relay.strict: input should be a valid boolean"),
        ("[policy]\nallow_title_prefixes = ['']\n", "policy.allow_title_prefixes.0: must not be empty"),
        ('[policy]\nallow_tool_kinds = ["a\\u0000"]\n', "policy.allow_tool_kinds.0: must not hold NUL"),
        ("[policy]\nrules = [{name='a', answer='ask'}]\n", "policy.rules.0: the rule 'a' needs a "),
        ("[policy]\nrules = [{name='a=b', tool_kind='k', answer='ask'}]\n", "policy.rules.0.name: must not hold ="),
        ("[policy]\nrules = [{name='a', tool_kind='k', answer='yes'}]\n", "policy.rules.0.answer: input should be "),
        ("[policy]\nrules = [{name='a', kind='k', answer='ask'}]\n", "policy.rules.0.kind: extra inputs are not "),
        (
            "[policy]\nrules = [{name='a', tool_kind='k', answer='ask'}, {name='a', tool_kind='j', answer='ask'}]\n",
            "policy: two rules are named 'a'",
        ),
        ("[retention]\nframes = '180d'\n", "retention.frames: there is no such setting"),
    ],
)
def test_file_that_cannot_be_used_is_named(user_file: Callable[[str], Path], text: str, problem: str) -> None:
    """A bad value, a bad file and a setting that does nothing yet are all errors of that file."""
    file = user_file(text)
    assert [line.startswith(f"{file}: {problem}") for line in _problems()] == [True]


def test_file_that_is_not_utf8_is_named(user_file: Callable[[str], Path]) -> None:
    """Bytes that are no text are an error of the file, not a stack."""
    file = user_file("")
    file.write_bytes(b"\xff")
    assert _problems() == [f"{file}: is not UTF-8"]


def test_variables_that_are_no_settings_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that starts one of our programs hands on its transport's name; that is no mistake."""
    for name in settings.IGNORED_VARIABLES:
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("ACP_LEDGERX", "7")
    assert load() == Settings()
    assert "ACP_LEDGER_TRANSPORT" in settings.IGNORED_VARIABLES


def test_agents_are_read_from_file_and_environment(
    home: Path, user_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named agent is a command with arguments and variables, from wherever each was given."""
    user_file('[agents.claude]\ncommand = "~/bin/agent"\nargs = ["--acp"]\n')
    monkeypatch.setenv("ACP_LEDGER_AGENTS__CLAUDE__ENV", f'{{"KEY": "{CANARY}"}}')
    agent = load().agents["claude"]
    assert (agent.command, agent.args, agent.env) == (f"{home}/bin/agent", ("--acp",), {"KEY": CANARY})


def test_secrets_are_masked_in_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database's password and an agent's variables show in no way a program may print settings."""
    monkeypatch.setenv("ACP_LEDGER_DATABASE__URL", f"postgresql://ann:{CANARY}@db/acp?password={CANARY}")
    found = load(None, {"agents": {"x": {"command": "x", "env": {"KEY": CANARY}}}})
    assert CANARY in found.database.url.text
    assert CANARY not in f"{found!r}{found!s}{found.database!r}{found.database.url!r}{found.database.url}{found.agents}"
    assert str(found.database.url) == "postgresql+psycopg://ann:***@db/acp?password=***"


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("sqlite:////var/lib/l.db", "sqlite:////var/lib/l.db"),
        ("sqlite:///~/l.db", "sqlite:///HOME/l.db"),
        ("sqlite:///l.db", "sqlite:///CWD/l.db"),
        ("sqlite+pysqlite:////l.db", "sqlite:////l.db"),
        ("postgres://db/acp", "postgresql+psycopg://db/acp"),
        ("postgresql://db/acp", "postgresql+psycopg://db/acp"),
        ("postgresql+psycopg:///acp?host=/run/pg", "postgresql+psycopg:///acp?host=/run/pg"),
    ],
)
def test_ledger_address_is_read_as_people_write_it(home: Path, given: str, means: str) -> None:
    """Every usual spelling of an address becomes the one SQLAlchemy reads."""
    means = means.replace("HOME", str(home)).replace("CWD", str(Path.cwd()))
    assert LedgerUrl.parse(given).text == means
    assert LedgerUrl.parse(given).is_postgres == means.startswith("postgres")


@pytest.mark.parametrize(
    "given",
    [
        "",
        f"/var/lib/{CANARY}.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://relative.db",
        f"mysql://ann:{CANARY}@db/acp",
        f"postgresql+asyncpg://ann:{CANARY}@db/acp",
    ],
)
def test_ledger_address_that_is_none_of_ours_is_refused(given: str) -> None:
    """Memory, other databases and other drivers are refused, with what to write and without the password."""
    (problem,) = _problems(None, {"database.url": given})
    assert problem.startswith("a flag: database.url: ")


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        ("CANARY@CANARY", "write @ in a password as %40"),
        ("CANARY@CAN/ARY", "write @ in a password as %40"),
        ("CAN/ARY", "%2F"),
        ("CAN?ARY", "%3F"),
        ("CAN#ARY", "%23"),
        ("CAN ARY", "%20"),
        ("CAN\x00ARY", "control characters"),
    ],
)
def test_password_with_a_reserved_character_is_refused_unseen(secret: str, told: str) -> None:
    """What would be cut in two, and its rest be shown as a host or a port, is refused with the way to write it."""
    with pytest.raises(ValueError, match=told) as caught:
        LedgerUrl.parse(f"postgresql://ann:{secret}@db/acp")
    assert "CAN" not in str(caught.value)


def test_password_behind_no_at_sign_is_no_port() -> None:
    """`user:password` without a host would be taken for a host and a port, and the driver would show both."""
    with pytest.raises(ValueError, match="the port must be a number") as caught:
        LedgerUrl.parse("postgresql://ann:CANARY/acp")
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    "given", ["ann:CAN%40A:RY%20@[::1]:5432/acp?host=/run/pg", "/acp?host=/run/pg", "db:5432", "%2Frun%2Fpg/acp"]
)
def test_unmistakable_address_is_taken(given: str) -> None:
    """Escapes, IPv6, a socket's directory and options pass, and the password is masked wherever it is shown."""
    url = LedgerUrl.parse(f"postgresql://{given}")
    assert url.text == f"postgresql+psycopg://{given}"
    assert "CAN" not in f"{url}{url!r}"


@pytest.mark.parametrize(
    ("mode", "url", "is_exposed"),
    [
        (0o640, "postgresql://ann:CANARY@db/acp", True),
        (0o604, "postgresql://db/acp?password=CANARY", True),
        (0o600, "postgresql://ann:CANARY@db/acp", False),
        (0o644, "postgresql://ann@db/acp", False),
    ],
)
def test_file_that_gives_a_password_away_is_known(
    user_file: Callable[[str], Path], mode: int, url: str, *, is_exposed: bool
) -> None:
    """A password that group or others may read is noticed; it is used all the same."""
    path = user_file(f'[database]\nurl = "{url}"\n')
    path.chmod(mode)
    assert load().exposed_file() == (path if is_exposed else None)
    assert load(None, {"database.url": "postgresql://ann:CANARY@db/acp"}).exposed_file() is None


def test_ledger_file_is_known_on_sqlite_alone() -> None:
    """The lock beside the file needs its path; Postgres has none."""
    assert str(LedgerUrl.parse("sqlite:////x/l.db?timeout=1").sqlite_file) == "/x/l.db"
    assert LedgerUrl.parse("postgresql://db/acp").sqlite_file is None


def test_postgres_refuses_less_than_full_durability() -> None:
    """`normal` would mean lost commits there, so it is not accepted."""
    url = f"postgresql://ann:{CANARY}@db/acp"
    (problem,) = _problems(None, {"database": {"url": url, "synchronous": "normal"}})
    assert "on Postgres only" in problem
    assert load(None, {"database.synchronous": "normal"}).database.synchronous == "normal"


def test_default_socket_serves_the_settings_ledger_alone(
    home: Path, user_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon on a ledger from a flag or the environment never takes the socket others find by default."""
    default = paths.socket_path(os.environ, os.getuid())
    assert str(load().listen_path()) == default
    assert load(None, {"database.url": "sqlite:////x.db"}).listen_path() is None
    assert str(load(None, {"database.url": "sqlite:////x.db", "socket.path": "~/s"}).listen_path()) == f"{home}/s"
    user_file('[database]\nurl = "sqlite:////x.db"\n')
    assert str(load().listen_path()) == default
    monkeypatch.setenv("ACP_LEDGER_DATABASE__URL", "sqlite:////y.db")
    assert load().listen_path() is None


def test_settings_do_not_change(home: Path) -> None:
    """What was checked at the start stays as it was."""
    found = load()
    with pytest.raises(ValidationError):
        found.limits.line_bytes = 1
    assert str(home) in found.database.url.text


def test_keys_name_their_units_and_are_described() -> None:
    """A number's key says what it counts, and every key has a sentence."""
    for section in (field for field in Settings.model_fields.values() if field.annotation):
        model = sources.section_of(section.annotation)
        assert model is not None
        for name, field in model.model_fields.items():
            assert field.description or sources.section_of(field.annotation), name
            if isinstance(field.default, int | float) and not isinstance(field.default, bool):
                assert name.endswith(("_bytes", "_seconds", "_count", "_segments"))


def test_policy_comes_from_variables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists and rules are JSON there, switches are words, and a wrong rule is told with its place in the list."""
    rule = {"name": "a", "tool_kind": "read", "answer": "ask"}
    monkeypatch.setenv("ACP_LEDGER_POLICY__ALLOW_TOOL_KINDS", '["read"]')
    monkeypatch.setenv("ACP_LEDGER_POLICY__NEVER_ALWAYS", "true")
    monkeypatch.setenv("ACP_LEDGER_AGENTS__X__POLICY__ALLOW_TITLE_PREFIXES", '["npm "]')
    monkeypatch.setenv("ACP_LEDGER_POLICY__RULES", json.dumps([rule]))
    found = load()
    assert (found.policy.allow_tool_kinds, found.policy.never_always) == (("read",), True)
    assert found.policy.rules[0].model_dump(exclude_none=True) == rule
    assert found.agents["x"].policy.model_fields_set == {"allow_title_prefixes"}
    monkeypatch.setenv("ACP_LEDGER_POLICY__RULES", json.dumps([rule | {"answer": CANARY}]))
    assert [problem.partition(": input")[0] for problem in _problems()] == ["ACP_LEDGER_POLICY__RULES: 0.answer"]
