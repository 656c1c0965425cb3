"""What the ledger stands in: the clocks, the terminal.

What must not be broken here: what the system does not tell is no warning.
"""

from __future__ import annotations

import ctypes
import locale
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from acp_ledger.ctl.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.ctl.doctor.finding import Case

STEP_SECONDS: Final = 2.0
"""How far two clocks may be apart: as far as one may step without being an anomaly."""

_TIMEX_BYTES: Final = 512
_TIME_ERROR: Final = 5
"""What adjtimex(2) gives for a clock that nothing keeps in time."""


def clock(case: Case) -> Iterator[Finding]:
    """The clock is kept in time, agrees with the database server's, and did not go back behind the ledger."""
    state = _adjtimex()
    if state is None:
        yield Finding("ok", "clock", "the system does not tell whether its clock is kept in time")
    elif state == _TIME_ERROR:
        yield Finding("warn", "clock", "nothing keeps this machine's clock in time", "timedatectl set-ntp true")
    else:
        yield Finding("ok", "clock", "the clock is kept in time")
    yield from _against_the_ledger(case)


def _adjtimex() -> int | None:
    """Ask the kernel how its clock is kept, and change nothing."""
    try:
        state = int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
    except (OSError, AttributeError):
        return None
    return state if state >= 0 else None


def _against_the_ledger(case: Case) -> Iterator[Finding]:
    from acp_ledger.ctl.doctor.ledger import reading
    from acp_ledger.store import condition

    with reading(case) as connection:
        if connection is None:
            return
        server, newest = condition.server_time(connection), condition.newest_opening(connection)
    now = time.time()
    if server is not None and abs(server - now) > STEP_SECONDS:
        sentence = f"the database server's clock is {server - now:+.0f} s from this machine's"
        yield Finding("warn", "clock", sentence, "keep both in time: timedatectl set-ntp true")
    if newest is not None and newest / 1e6 - now > STEP_SECONDS:
        sentence = "the ledger has transports that were opened in this machine's future: its clock went back"
        yield Finding("warn", "clock", sentence, "timedatectl")


def terminal(_case: Case) -> Iterator[Finding]:
    """Screens can be drawn: a known terminal, and an encoding that holds every language."""
    encoding = locale.getencoding()
    if encoding.lower().replace("-", "") != "utf8":
        sentence = f"the locale's encoding is {encoding}, which cannot show every character"
        yield Finding("warn", "terminal", sentence, "export LC_ALL=C.UTF-8")
    kind = os.environ.get("TERM", "")
    if sys.stdout.isatty() and kind in {"", "unknown"}:
        yield Finding("warn", "terminal", "TERM does not name this terminal", "export TERM=xterm-256color")
    else:
        yield Finding("ok", "terminal", f"TERM is {kind or 'not set'}, the encoding {encoding}")
