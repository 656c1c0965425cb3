"""`ledgerctl prompt`, `pending` and `decide`: a real daemon, agents of shell, and what a script gets to see."""

from __future__ import annotations

import base64
import json
import os
import pty
import shlex
import signal
import subprocess
from typing import TYPE_CHECKING, Any, get_args

import pytest

from acp_ledger import dialogue
from acp_ledger.client import EmbeddedBlob, EmbeddedText, Image, McpServer, ResourceLink
from acp_ledger.ctl import attach
from acp_ledger.ctl.prompting import GRACE_SECONDS, STATUS_OF
from acp_ledger.errors import ExitCode, UsageError
from acp_ledger.protocol.records import TurnOutcome
from tests.support.shell_agents import CALL, SESSION, agent, chunk, end, line, question
from tests.system.installed import PATIENCE, PROGRAMS, InstalledDaemon, daemon_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from click.testing import Result

    from tests.ctl.conftest import Cli


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledDaemon]:
    """A daemon for all of them."""
    with daemon_at(tmp_path_factory.mktemp("prompt")) as found:
        yield found


def run(cli: Cli, daemon: InstalledDaemon, command: Sequence[str], *options: str, stdin: str | None = None) -> Result:
    """Run the command once; the prompt is `go`, or what stands on standard input."""
    chosen = ["--socket", str(daemon.socket), "--command", shlex.join(command), *options]
    return cli("prompt", *chosen, "go" if stdin is None else "-", stdin=stdin)


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ([chunk("hello"), end()], 0, ""),
        ([end("refusal")], 40, "refused"),
        ([end("max_tokens")], 41, "stopped before its work was done"),
        ([end("max_turn_requests")], 41, "max_turn_requests"),
        ([end("cancelled")], 42, "the turn was cancelled"),
        ([line(id=2, error={"code": -32000, "message": "who"})], 43, "environment"),
        ([line(id=2, error={"code": -32603, "message": "boom"})], 44, "boom"),
        ([end("on_holiday")], 45, "on_holiday"),
        (["{"], 45, "not JSON"),
    ],
)
def test_every_outcome_has_a_status_and_a_sentence(
    cli: Cli, daemon: InstalledDaemon, said: Sequence[str], code: int, words: str
) -> None:
    """Only a completed turn is a success; the answer stands on stdout and the sentence on stderr."""
    result = run(cli, daemon, agent(*said))
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr
    assert result.stdout == ("hello\n" if code == 0 else "")


def test_agent_that_closes_its_output_has_a_status(cli: Cli, daemon: InstalledDaemon) -> None:
    """With its last words, and where it says no login before a session, that one."""
    result = run(cli, daemon, ["/bin/sh", "-c", "echo 'no key set' >&2; exit 3"])
    assert (result.exit_code, "closed its output" in result.stderr, "no key set" in result.stderr) == (46, True, True)
    login = line(id=1, error={"code": -32000, "message": "login first"})
    assert run(cli, daemon, agent(answers={"session/new": login})).exit_code == 43


def test_every_outcome_of_a_turn_has_its_own_status() -> None:
    """Outside those that other commands use."""
    assert set(STATUS_OF) == set(get_args(TurnOutcome))
    codes = [int(code) for outcome, code in STATUS_OF.items() if outcome != "completed"]
    assert len(set(codes)) == len(codes)
    assert all(40 <= code < 50 for code in codes)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledDaemon]:
    """A daemon with limits that are soon reached, and with no patience at all for a program that listens."""
    found = InstalledDaemon(tmp_path_factory.mktemp("narrow"))
    limits = {"LIMITS__RESPONSE_SEGMENTS": "1", "LIMITS__UPDATE_BYTES": "400", "CLIENT__CALLBACK_SECONDS": "0.00001"}
    found.environment |= {f"ACP_LEDGER_{name}": value for name, value in limits.items()}
    found.start()
    yield found
    found.end()


def test_whoever_reads_the_answer_may_take_all_day(cli: Cli, narrow: InstalledDaemon) -> None:
    """Updates and decisions are told, and nothing waits for a terminal or a pipe to take them."""
    command = agent(question(), then={"perm-1": [chunk("done"), end()]})
    assert run(cli, narrow, command).stdout == "done\n"


def test_limits_of_the_settings_have_statuses(cli: Cli, narrow: InstalledDaemon) -> None:
    """One that a reply passed leaves a completed turn incomplete; one that ended the call has its own."""
    cut = run(cli, narrow, agent(chunk("in"), chunk("out"), then={"session/cancel": [end()]}), "-o", "json")
    too_large = run(cli, narrow, agent(chunk("x" * 400)))
    record = json.loads(cut.stdout)
    assert (cut.exit_code, record["text"], record["outcome"]) == (ExitCode.INCOMPLETE, "in", "completed")
    assert record["overflow"] == {
        "kind": "response_segments",
        "admitted_bytes": 2,
        "admitted_segments": 1,
        "withheld_update_sequence": 2,
    }
    assert cut.stderr == "the reply stopped at response_segments\n"
    assert (too_large.exit_code, "400" in too_large.stderr, "[limits]" in too_large.stderr) == (49, True, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--command", "/no/such/agent", "go"), 127, "not found"),
        (("--command", "'", "go"), 2, "cannot be read"),
        (("--command", "", "go"), 2, "empty"),
        (("go",), 2, "name an agent"),
        (("--agent", "nobody", "go"), 2, "ledgerctl prompt --agent nobody --command"),
        (("--command", "cat", ""), 2, "the prompt is empty"),
        (("--command", "cat", "--epoch", "0", "go"), 2, "epoch"),
        (("--command", "cat", "--label", "x", "go"), 2, "KEY=VALUE"),
        (("--command", "cat", "--image", "/no/such.png", "go"), 1, "/no/such.png"),
        (("--command", "cat", "--cwd", "/no/such", "go"), 2, "does not exist"),
    ],
)
def test_what_cannot_be_run_says_why(
    cli: Cli, daemon: InstalledDaemon, arguments: tuple[str, ...], code: int, words: str
) -> None:
    """What happened, on what, and what mends it."""
    result = cli("prompt", "--socket", str(daemon.socket), *arguments)
    assert (result.exit_code, words in result.stderr) == (code, True), result.stderr


def test_json_is_one_record_with_everything(cli: Cli, daemon: InstalledDaemon) -> None:
    """Also of a turn that was not completed, whose sentence stands on stderr too."""
    command = agent(chunk("a"), question(), then={'"id":"perm-1"': [chunk("b"), end("refusal")]})
    result = run(cli, daemon, command, "-o", "json", "--label", "why=test")
    record = json.loads(result.stdout)
    assert result.exit_code == 40
    assert list(record) == [
        "schema",
        "text",
        "final_message",
        "outcome",
        "stop_reason",
        "acp_session_id",
        "transport_id",
        "epoch",
        "turn_id",
        "overflow",
        "error",
        "error_code",
        "steps",
        "decisions",
        "not_recorded",
    ]
    assert (record["text"], record["outcome"], record["decisions"]) == ("ab", "refused", 1)
    assert record["error"] in result.stderr
    assert daemon.query("SELECT label FROM transports WHERE id = :id", id=record["transport_id"]) == [
        ('{"why":"test"}',)
    ]


def test_failed_call_has_a_record_too(cli: Cli, daemon: InstalledDaemon) -> None:
    """A script reads one shape, whatever went wrong."""
    record = json.loads(run(cli, daemon, agent(chunk("half"), "{"), "-o", "json").stdout)
    assert (record["text"], record["outcome"]) == ("half", "protocol_error")
    early = json.loads(run(cli, daemon, ["/bin/true"], "-o", "json").stdout)
    assert (early["text"], early["outcome"], early["transport_id"] > 0) == ("", "stream_ended", True)


def test_policy_of_the_command_line_grants_and_tells_so(cli: Cli, daemon: InstalledDaemon) -> None:
    """By kind, by the beginning of a title; each decision is a line on stderr."""
    command = agent(question(), then={'"optionId":"allow"': [end()], '"optionId":"reject"': [end("refusal")]})
    assert run(cli, daemon, command).exit_code == 40
    granted = run(cli, daemon, command, "--allow-kind", "execute")
    assert granted.exit_code == 0
    assert granted.stderr == f"asked: {CALL['title']}: allow_once (allow), by policy, allow_tool_kinds=execute\n"
    assert run(cli, daemon, command, "--allow-title", "run ", "-q").stderr == ""


def test_text_for_another_session_is_not_passed_over_in_silence(cli: Cli, daemon: InstalledDaemon) -> None:
    """The reply is empty, which is honest; that the agent said something is told beside it."""
    elsewhere = chunk("lost").replace(SESSION, "another")
    result = run(cli, daemon, agent(elsewhere, end()))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "1 chunks of text joined no reply: empty, or for another session\n"


def test_prompt_comes_from_standard_input(cli: Cli, daemon: InstalledDaemon) -> None:
    """As UTF-8, whole."""
    result = run(cli, daemon, agent(then={"zwei Zeilen\\nmit ß": [end()]}), stdin="zwei Zeilen\nmit ß")
    assert result.exit_code == 0


def test_directory_and_environment_are_the_callers(
    cli: Cli, daemon: InstalledDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the process, and in `session/new`."""
    monkeypatch.setenv("ONLY_HERE", "yes")
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    for more, where in (((), tmp_path), (("--cwd", "own"), own)):
        told = tmp_path / f"told-{len(more)}"
        command = agent(end(), before=f'echo "$PWD $ONLY_HERE" > {told}')
        record = json.loads(run(cli, daemon, command, *more, "-o", "json").stdout)
        assert told.read_text() == f"{where} yes\n"
        opening = daemon.query("SELECT cwd FROM session_openings WHERE transport_id = :id", id=record["transport_id"])
        assert opening == [(str(where),)]


def test_load_and_resume_need_an_agent_that_offers_them(cli: Cli, daemon: InstalledDaemon) -> None:
    """The request names the session; what is told again joins nothing."""
    assert "loadSession" in run(cli, daemon, agent(end()), "--load", "old").stderr
    assert run(cli, daemon, agent(end()), "--resume", "old").exit_code == 2
    hello = {"agentCapabilities": {"loadSession": True}}
    again = chunk("told again").replace(SESSION, "old")
    load = {'"method":"session/load"': [again, line(id=1, result={})]}
    new = chunk("new").replace(SESSION, "old")
    result = run(cli, daemon, agent(new, end(), initialize=hello, then=load), "--load", "old")
    assert (result.exit_code, result.stdout) == (0, "new\n")


# ---- signals, terminals and people


def start(daemon: InstalledDaemon, command: Sequence[str], *more: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Start the command as a shell does."""
    program = [str(PROGRAMS / "ledgerctl"), "prompt", "--socket", str(daemon.socket), "--command", shlex.join(command)]
    chosen = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen([*program, *more, "go"], env=daemon.environment, **chosen)


SLOW = {"session/cancel": [chunk(" and no more"), end("cancelled")]}


def test_interrupt_cancels_and_waits_for_the_end(daemon: InstalledDaemon) -> None:
    """What the agent still says is printed, once, as it comes."""
    process = start(daemon, agent(chunk("half"), then=SLOW))
    assert process.stdout is not None
    assert process.stdout.read(4) == b"half"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (42, b" and no more\n")
    assert errors == b"error: the turn was cancelled (stopReason: cancelled)\n"  # the text is not told twice


def test_second_interrupt_ends_the_agent(daemon: InstalledDaemon, tmp_path: Path) -> None:
    """It does not listen to the first one; nothing of it is left."""
    told = tmp_path / "told"
    process = start(daemon, agent(chunk("half"), then={"session/cancel": [chunk("!")]}, before=f"echo $$ > {told}"))
    assert process.stdout is not None
    assert process.stdout.read(4) == b"half"
    process.send_signal(signal.SIGINT)
    assert process.stdout.read(1) == b"!"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, b"stopped" in errors) == (130, True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def test_interrupt_before_the_prompt_ends_it_all(daemon: InstalledDaemon, tmp_path: Path) -> None:
    """The agent never answers, so there is no turn to be cancelled; nobody reads a traceback."""
    os.mkfifo(tmp_path / "told")
    process = start(daemon, ["/bin/sh", "-c", f"echo here > {tmp_path}/told; exec cat > /dev/null"])
    assert (tmp_path / "told").read_text() == "here\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output, b"Traceback" in errors) == (130, b"", False), errors


def test_time_that_is_up_cancels(daemon: InstalledDaemon) -> None:
    """As an interrupt does, and says so."""
    process = start(daemon, agent(chunk("half"), then=SLOW), "--timeout", "0.5")
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (42, b"half and no more\n")
    assert b"cancelled after 0.5 seconds" in errors


def test_time_that_is_up_ends_an_agent_that_does_not_listen(daemon: InstalledDaemon, tmp_path: Path) -> None:
    """Ten seconds after the cancel it heard and ignored, as the page says; nothing of it is left."""
    told = tmp_path / "told"
    deaf = agent(chunk("half"), then={"session/cancel": []}, before=f"echo $$ > {told}")
    process = start(daemon, deaf, "--timeout", "0.5")
    output, errors = process.communicate(timeout=GRACE_SECONDS + PATIENCE)
    assert (process.returncode, output) == (130, b"half\n"), errors
    assert b"cancelled after 0.5 seconds" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def test_agents_text_steers_no_terminal(daemon: InstalledDaemon) -> None:
    """On a terminal every control character is made visible; elsewhere the text is the agent's own, byte for byte."""
    hostile = "a\x1b[2J\u202eb\r\nc"
    master, terminal = pty.openpty()
    process = start(daemon, agent(chunk(hostile), end()), stdout=terminal)
    os.close(terminal)
    process.wait(PATIENCE)
    shown = os.read(master, 4096)
    os.close(master)
    assert b"\x1b" not in shown
    assert shown.replace(b"\r\n", b"\n") == b"a\\u001b[2J\\u202eb\\u000d\nc\n"
    if process.stderr is not None:
        process.stderr.close()
    piped, _ = start(daemon, agent(chunk(hostile), end())).communicate(timeout=PATIENCE)
    assert piped == hostile.encode() + b"\n"


def test_reader_that_leaves_ends_the_agent(daemon: InstalledDaemon, tmp_path: Path) -> None:
    """As `head` does: nothing is wrong, nothing is said, and nothing of the agent is left."""
    told = tmp_path / "told"
    command = agent(chunk("half"), then={"session/cancel": [chunk(" more")]}, before=f"echo $$ > {told}")
    process = start(daemon, command)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(4) == b"half"
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait(PATIENCE) == ExitCode.PIPE_CLOSED
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def test_person_answers_what_was_held(cli: Cli, daemon: InstalledDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pending` lists it with how to answer, and `decide` answers; a wrong option or name says what there is."""
    monkeypatch.setenv("ACP_LEDGER_SOCKET__PATH", str(daemon.socket))
    command = agent(question(), then={'"optionId":"allow"': [end()]})
    process = start(daemon, command, "--ask")
    listed: list[dict[str, Any]] = []
    while not listed:
        listed = json.loads(cli("pending", "-o", "json").stdout)["questions"]
    shown = cli("pending")
    assert CALL["title"] in shown.stdout
    assert f"ledgerctl decide {listed[0]['request']} --option allow" in shown.stderr
    assert cli("decide", listed[0]["request"]).exit_code == 2
    wrong = cli("decide", listed[0]["request"], "--option", "maybe")
    assert (wrong.exit_code, "'allow', 'reject'" in wrong.stderr) == (2, True)
    done = cli("decide", listed[0]["request"], "--option", "allow")
    assert (done.exit_code, "answered `allow`" in done.stdout) == (0, True), done.stderr
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, b"by operator" in errors) == (0, True)
    late = cli("decide", listed[0]["request"], "--cancel")
    assert (late.exit_code, "ledgerctl pending" in late.stderr) == (1, True)
    assert "no question waits" in cli("pending").stderr


def test_agent_that_an_operator_stops_has_a_status(
    cli: Cli, daemon: InstalledDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With who did it; what had come by then is there."""
    monkeypatch.setenv("ACP_LEDGER_SOCKET__PATH", str(daemon.socket))
    process = start(daemon, agent(chunk("half")))
    assert process.stdout is not None
    assert process.stdout.read(4) == b"half"
    assert cli("stop", str(daemon.transports()[-1]), "-L", daemon.url).exit_code == 0
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output, b"ledgerctl stop" in errors) == (48, b"\n", True)


def test_daemon_that_dies_has_a_status(tmp_path: Path) -> None:
    """What had come stays printed, and the hint leads on."""
    with daemon_at(tmp_path) as own:
        process = start(own, agent(chunk("half")))
        assert process.stdout is not None
        assert process.stdout.read(4) == b"half"
        own.kill()
        output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (48, b"\n")
    assert errors == b"error: the daemon closed the connection\nhint: ledgerctl status\n"


def test_hint_of_pending_can_be_pasted_whatever_an_option_is_called(cli: Cli, answering: Any) -> None:
    """The id is the agent's own word, and a shell reads the hint."""
    offered = [{"option_id": "a; rm -r $HOME", "kind": "allow_once"}]
    answering(dialogue.encode_answer(questions=[{"request": "17/9", "options": offered}]))
    assert "decide 17/9 --option 'a; rm -r $HOME', or --cancel" in cli("pending").stderr


# ---- attachments


def test_files_become_blocks_in_order(cli: Cli, daemon: InstalledDaemon, tmp_path: Path) -> None:
    """The text first, then what is attached, as it stands on the command line, whatever its kind."""
    (tmp_path / "p.png").write_bytes(b"\x89PNG")
    (tmp_path / "s.wav").write_bytes(b"RIFF")
    (tmp_path / "n.md").write_text("# Notes")
    capabilities = {"promptCapabilities": {"image": True, "audio": True, "embeddedContext": True}}
    paths = [str(tmp_path / name) for name in ("p.png", "s.wav", "n.md")]
    options = ["--link", "https://example.org/a", "--embed", paths[2], "--file", paths[2]]
    options += ["--image", paths[0], "--audio", paths[1], f"--link={paths[1]}"]
    command = agent(end(), initialize={"agentCapabilities": capabilities})
    record = json.loads(run(cli, daemon, command, *options, "-o", "json").stdout)
    sent = json.loads(daemon.lines(record["transport_id"], "client_to_agent").splitlines()[2])["params"]["prompt"]
    kinds = ["text", "resource_link", "resource", "resource_link", "image", "audio", "resource_link"]
    assert [block["type"] for block in sent] == kinds
    assert [sent[place].get("uri") for place in (1, 3, 6)] == [
        "https://example.org/a",
        (tmp_path / "n.md").as_uri(),
        paths[1],
    ]
    refused = run(cli, daemon, agent(end()), "--image", paths[0])
    assert (refused.exit_code, "image" in refused.stderr) == (2, True)


def test_file_is_sent_as_what_it_is(tmp_path: Path) -> None:
    """Text where it is UTF-8, else bytes; a picture by its type; a link with its size."""
    text, data, picture = tmp_path / "a.md", tmp_path / "b.bin", tmp_path / "c.png"
    text.write_text("é")
    data.write_bytes(b"\xff\x00")
    picture.write_bytes(b"x")
    assert attach.embedded(str(text)) == EmbeddedText(text.as_uri(), "é", "text/markdown")
    assert attach.embedded(str(data)) == EmbeddedBlob(
        data.as_uri(), base64.b64encode(b"\xff\x00").decode(), "application/octet-stream"
    )
    assert attach.image(str(picture)) == Image("eA==", "image/png")
    assert attach.link_to(str(text)) == ResourceLink(text.as_uri(), "a.md", "text/markdown", size=2)
    assert attach.link("https://example.org/x/") == ResourceLink("https://example.org/x/", "x")
    with pytest.raises(UsageError, match="does not look like an image"):
        attach.image(str(text))


@pytest.mark.parametrize(
    "told",
    [
        {"name": "s", "command": "/bin/s", "args": ["a"], "env": [{"name": "K", "value": "v"}]},
        [{"name": "s", "command": "/bin/s", "args": ["a"], "env": {"K": "v"}}],
        {"mcpServers": {"s": {"command": "/bin/s", "args": ["a"], "env": {"K": "v"}}}},
    ],
)
def test_tool_servers_are_read_in_each_of_their_forms(told: Any, tmp_path: Path) -> None:
    """One, a list, or as an editor keeps them."""
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(told))
    assert list(attach.mcp_servers(str(path))) == [McpServer("s", "/bin/s", ("a",), (("K", "v"),))]


@pytest.mark.parametrize("text", ["{", "7", '{"name":"s"}', '[{"name":"s","command":"c","type":"http"}]'])
def test_file_that_holds_no_tool_servers_is_named(text: str, tmp_path: Path) -> None:
    """With what is wrong in it."""
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="mcp"):
        list(attach.mcp_servers(str(path)))


def test_form_before_the_command_has_to_be_one_of_its_own(cli: Cli) -> None:
    """A record has no rows."""
    result = cli("-o", "csv", "prompt", "--command", "cat", "go")
    assert (result.exit_code, "has no rows" in result.stderr) == (2, True)


def test_no_daemon_is_69(cli: Cli, tmp_path: Path) -> None:
    """A daemon that was named has to listen; the status of what cannot be reached."""
    result = cli("prompt", "--socket", str(tmp_path / "none"), "--command", "cat", "go")
    assert result.exit_code == ExitCode.UNREACHABLE
