"""What an editor is told when its agent cannot be recorded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from acp_ledger import refusal

REFUSE = (
    "import sys; from acp_ledger.refusal import refuse; "
    "sys.exit(refuse('no room: run ledgerctl status', details='why', heard=sys.argv[1].encode()))"
)


def _refuse(stdin: bytes, *, heard: str = "") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", REFUSE, heard], input=stdin, capture_output=True, check=False, timeout=20
    )


def test_first_request_is_answered_with_the_remedy() -> None:
    """An editor shows the answer to its request, and hides stderr."""
    done = _refuse(b'\nnoise\n{"method":"session/cancel"}\n{"id":0,"method":"initialize"}\n{"id":1,"method":"x"}\n')
    assert json.loads(done.stdout) == {
        "jsonrpc": "2.0",
        "id": 0,
        "error": {"code": -32603, "message": "acp-ledger: no room: run ledgerctl status", "data": {"details": "why"}},
    }
    assert done.stdout.endswith(b"}\n")
    assert done.stderr == b"acp-ledger-run: no room: run ledgerctl status\n"
    assert done.returncode == 69


def test_request_heard_before_is_answered() -> None:
    """The relay may have read it, in part or whole, before it was refused."""
    assert json.loads(_refuse(b'ethod":"m"}\n', heard='{"id":5,"m').stdout)["id"] == 5


def test_last_request_needs_no_newline() -> None:
    """An editor that closed at once is answered all the same."""
    assert json.loads(_refuse(b'{"id":"a","method":"m"}').stdout)["id"] == "a"


def test_no_request_is_no_answer() -> None:
    """Nothing is made up for an editor that asked nothing."""
    done = _refuse(b'{"id":1,"result":{}}\n{"method":"note"}\n[]\n')
    assert done.stdout == b""
    assert done.returncode == 69


def test_request_after_an_endless_line_is_answered() -> None:
    """A line over the bound is skipped to its end, whatever stands in it."""
    line = b'{"id":1,"method":"m"}' + b" " * (refusal.LINE_BYTES + 100_000)
    assert json.loads(_refuse(line + b'{"id":3,"method":"m"}\n{"id":2,"method":"m"}\n').stdout)["id"] == 2


@pytest.mark.parametrize(
    ("line", "token"),
    [
        (b'{"id":1.0,"method":"m"}', b"1.0"),
        (b'{"id":1e0,"method":"m"}', b"1e0"),
        (b'{"id":18446744073709551616,"method":"m"}', b"18446744073709551616"),
        (b'{"id":"\\u0041\xff","method":"m"}', b'"\\u0041\xff"'),
        (b'{"id":null,"method":"m"}', b"null"),
        (b'{ "method" : "m" , "params" : {"id":9} , "id" : "a b" }\r', b'"a b"'),
        (b'{"method":"m"}', None),
        (b'{"id":1}', None),
        (b'{"id":1,"method":7}', None),
        (b'{"id":1,"method":"m"} {}', None),
        (b'{"id":1,"method":"m"', None),
        (b'[{"id":1,"method":"m"}]', None),
        (b"[" * 100_000, None),
        (b'{"a":' * 100_000, None),
        (b"{}", None),
        (b"", None),
        (b"null", None),
    ],
)
def test_request_keeps_the_very_token_of_its_id(line: bytes, token: bytes | None) -> None:
    """Editors compare ids as they wrote them, and only a request has one to answer."""
    assert refusal.request_token(line) == token


def test_complaint_is_one_line() -> None:
    """An editor shows the last line of stderr."""
    program = "from acp_ledger.refusal import complain; complain('a\\nb\\udcff')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=20)
    assert done.stderr == b"acp-ledger-run: a. b\\udcff\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("not found: nosuch\nGive its full path.", "not found: nosuch. Give its full path."),
        ("(there are: none)\nadd [agents.x]", "(there are: none). add [agents.x]"),
        ("one.\n\n two  words!\nthree:\nfour", "one. two words! three: four"),
        ("alone", "alone"),
        ("", ""),
    ],
)
def test_message_and_hint_read_as_sentences(text: str, line: str) -> None:
    """A full stop stands between what was a line each; the first letter stays, for it may be a command's."""
    assert refusal.in_one_line(text) == line


def test_answer_to_the_editor_is_one_line_of_sentences() -> None:
    """What the editor shows reads like what stands on stderr."""
    program = "from acp_ledger.refusal import refuse; refuse('acp-ledger: it failed\\nmend it')"
    done = subprocess.run(
        [sys.executable, "-c", program], input=b'{"id":1,"method":"m"}', capture_output=True, check=True, timeout=20
    )
    assert json.loads(done.stdout)["error"]["message"] == "acp-ledger: it failed. mend it"
    assert done.stderr == b"acp-ledger-run: it failed. mend it\n"
