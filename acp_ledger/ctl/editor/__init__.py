"""Editors behind the ledger: `ledgerctl editor`, and what `ledgerctl doctor` asks about editors.

    bypasses(home: Path, environ: Mapping[str, str]) -> list[Bypass]
    survey(home: Path, environ: Mapping[str, str]) -> list[Found]

`bypasses` gives every agent in the settings of Zed, JetBrains IDEs and the VS Code ACP Client that does not run through
`acp-ledger-run`, with a reason and the command that mends it; `survey` gives every settings file that was found, with
all its agents, recorded ones too. Both only read, and a file that cannot be read is in the answer rather than raised.

What must not be broken here: a settings file belongs to its user. Each change is shown, asked for, backed up, made in
one step, and taken back by `undo`; code is never edited, only printed.
"""

from __future__ import annotations

from acp_ledger.ctl.editor.survey import Bypass, Found, bypasses, survey

__all__ = ["Bypass", "Found", "bypasses", "survey"]
