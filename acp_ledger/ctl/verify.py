"""`ledgerctl verify`: proves that the ledger is intact, and says what that does not prove.

What must not be broken here: it writes nothing, a finding is never softened, and what was not checked is printed as
loudly as what was found.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from acp_ledger.ctl.options import Command, current_options
from acp_ledger.ctl.reading import ledger_url, open_ledger
from acp_ledger.ctl.render import document
from acp_ledger.ctl.text import escape
from acp_ledger.errors import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acp_ledger.store.verify import Report

_QUIET_SECONDS: Final = 10.0
"""Between two lines of progress where stderr is no terminal; a terminal is told ten times a second."""

_HINT: Final = "compare with a backup, and keep this ledger as it is: nothing here repairs a chain"


@click.command(cls=Command, examples=("ledgerctl verify", "ledgerctl verify --full -o json > report.json"))
@click.option("--full", is_flag=True, help="Also map every stored line again and compare every derived row.")
def verify(*, full: bool) -> int:
    """Check every link, digest and body of the ledger; works with the daemon up or down and writes nothing.

    Exits with 0 when the ledger is intact, 3 when something could not be checked, 5 when something is wrong.
    """
    from acp_ledger.store.verify import verify as run

    options = current_options()
    progress = _Progress()
    try:
        with open_ledger(options) as connection:
            report = run(connection, full=full, progress=None if options.quiet else progress)
    finally:
        progress.clear()
    if options.output == "table":
        for line in _lines(report, without_secrets(ledger_url(options))):
            sys.stdout.write(escape(line) + "\n")
    else:
        document("verify", _as_document(report), options)
    if report.found:
        sys.stderr.write(f"hint: {_HINT}\n")
    return int(report.exit_code)


class _Progress:
    """Tells how far the verification is: in place on a terminal, a line now and then elsewhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._terminal = sys.stderr.isatty()
        self._started = self._last = clock()
        self._width = 0

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        if now - self._last < (0.1 if self._terminal else _QUIET_SECONDS):
            return
        self._last = now
        rate = done / max(now - self._started, 1e-6)
        left = f"{(total - done) / rate:.0f} s left" if rate else "no end in sight"
        text = f"verifying {done:,} of {total:,} numbers, {rate:,.0f}/s, {left}"
        if not self._terminal:
            sys.stderr.write(f"{text}\n")
            return
        sys.stderr.write("\r" + text.ljust(self._width))
        self._width = len(text)

    def clear(self) -> None:
        """Take the line away; by spaces, for not every terminal knows more."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")


def _lines(report: Report, url: str) -> Iterator[str]:
    kind = "full" if report.full else "links and digests; --full maps every line again"
    yield f"ledger {report.ledger_id}   {url}   ({kind})"
    counts = {"transports": report.transports, "frames": report.frames, "events": report.events, "rows": report.rows}
    yield "  " + ", ".join(f"{count:,} {name}" for name, count in counts.items())
    yield "  bodies: " + (", ".join(f"{count:,} {state}" for state, count in sorted(report.bodies.items())) or "none")
    for finding in report.findings:
        seq = "" if finding.frame_seq is None else f":{finding.frame_seq}"
        yield f"FAILED  {finding.transport_id}{seq}  {finding.kind}  {finding.detail}"
    if report.found > len(report.findings):
        yield f"FAILED  … and {report.found - len(report.findings):,} more"
    yield f"not checked: {len(report.not_checked) or 'nothing'}"
    for skipped in report.not_checked:
        start = "" if skipped.from_frame_seq is None else f" from {skipped.from_frame_seq} on"
        yield f"  {skipped.transport_id}{start}: {skipped.reason}"
    yield "notes" if report.notes else "no notes"
    for note in report.notes:
        place = "" if note.transport_id is None else f"{note.transport_id}:{note.frame_seq}  "
        yield f"  {place}{note.text}"
    yield f"result: {_result(report)}"


def _result(report: Report) -> str:
    if report.found:
        return f"NOT INTACT, {report.found:,} findings"
    return "INTACT, BUT NOT ALL WAS CHECKED" if report.not_checked else "INTACT"


def _as_document(report: Report) -> dict[str, Any]:
    return {
        "result": _result(report),
        "exit_code": int(report.exit_code),
        "ledger_id": report.ledger_id,
        "full": report.full,
        "transports": report.transports,
        "frames": report.frames,
        "events": report.events,
        "rows": report.rows,
        "bodies": report.bodies,
        "found": report.found,
        "findings": [finding._asdict() for finding in report.findings],
        "not_checked": [skipped._asdict() for skipped in report.not_checked],
        "notes": [note._asdict() for note in report.notes],
    }
