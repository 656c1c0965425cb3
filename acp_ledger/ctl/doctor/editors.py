"""The editors: which of their agents run behind the ledger.

What must not be broken here: an editor's settings are read and never touched.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from acp_ledger.ctl.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_ledger.ctl.doctor.finding import Case, Level


def editors(_case: Case) -> Iterator[Finding]:
    """Every agent in an editor's settings runs behind the ledger."""
    from acp_ledger.ctl import editor

    folder = Path(os.environ.get("HOME") or Path.home())
    around = editor.bypasses(folder, os.environ)
    for each in around:
        level: Level = "fail" if each.state in {"runner gone", "unreadable"} else "warn"
        name = f'"{each.agent}" ' if each.agent else ""
        yield Finding(level, "editors", f"{each.title}: {name}{each.reason} ({each.file})", each.fix)
    if not around:
        words = ", ".join(sorted({each.editor.title for each in editor.survey(folder, os.environ)}))
        sentence = f"no agent bypasses the ledger in {words}" if words else "no editor's agent settings were found"
        yield Finding("ok", "editors", sentence)
