"""`ledgerctl completion`: the script by which a shell completes our words; click makes it and answers the shell.

What must not be broken here: completing imports nothing heavier than click, for a person waits behind every Tab.
"""

from __future__ import annotations

import sys
from typing import Final

import click
from click.shell_completion import get_completion_class

from acp_ledger.ctl.options import Command
from acp_ledger.errors import UsageError

VARIABLE: Final = "_LEDGERCTL_COMPLETE"
"""Set by the script when it asks for words; click makes the name from the program's."""

_SHELLS: Final = ("bash", "zsh", "fish")
_SECOND_NAME: Final = {
    "bash": "complete -o nosort -F _ledgerctl_completion acp-ledgerctl\n",
    "zsh": "(( $+functions[compdef] )) && compdef _ledgerctl_completion acp-ledgerctl\n",
    "fish": 'complete --no-files --command acp-ledgerctl --arguments "(_ledgerctl_completion)"\n',
}
"""How a shell is told that the same function is for the second name of the program."""


@click.command(
    cls=Command,
    examples=(
        'eval "$(ledgerctl completion bash)"    # in ~/.bashrc',
        "ledgerctl completion zsh > ~/.zfunc/_ledgerctl",
        "ledgerctl completion fish > ~/.config/fish/completions/ledgerctl.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Write the script that completes commands, options and names of questions in a shell."""
    from acp_ledger.ctl.main import root

    made = get_completion_class(shell)
    if made is None:
        raise UsageError(f"this version of click completes nothing in {shell}", hint="pip install --upgrade click")
    sys.stdout.write(made(root, {}, "ledgerctl", VARIABLE).source() + _SECOND_NAME[shell])
