"""`ledgerctl prompt`: what it takes on its command line; `prompting` does it.

What must not be broken here: a Tab costs click alone, so nothing that runs an agent is imported before one is run; and
attachments keep the order in which they were typed.
"""

from __future__ import annotations

from typing import Any, Final

import click

from acp_ledger.ctl.options import Command, current_options
from acp_ledger.errors import UsageError

_ATTACHMENTS: Final = ("images", "audios", "files", "embeds", "links")
_ORDER: Final = "acp_ledger.ctl.prompt"


class Attaching(Command):
    """A command that remembers in which order its attachments stand on the command line; click keeps it per option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, once to see the order and once as always."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            ctx.meta[_ORDER] = [option.name for option in order if option.name in _ATTACHMENTS]
        return super().parse_args(ctx, args)


def _attached(given: dict[str, Any]) -> list[tuple[str, str]]:
    """What is attached, in order: an option's name and one of its values."""
    values = {name: iter(given[name]) for name in _ATTACHMENTS}
    return [(name, next(values[name])) for name in click.get_current_context().meta.get(_ORDER, ())]


@click.command(
    cls=Attaching,
    formats=("text", "json", "jsonl"),
    examples=(
        "ledgerctl prompt --agent claude 'Summarize the failing tests'",
        "ledgerctl prompt --command 'npx some-agent' --allow-kind read - < task.md",
        "ledgerctl prompt --agent claude --ask --timeout 600 -o json 'Release it' | jq .outcome",
        "ledgerctl prompt --agent claude --load sess_9f2c --embed notes.md 'Go on'",
    ),
)
@click.option("--agent", metavar="NAME", help="The agent by its name in the settings, or as the ledger shall call it.")
@click.option("--command", metavar="'CMD ARGS'", help="The agent's command line, in a shell's quoting.")
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), help="Its directory, and its session's.")
@click.option("--load", metavar="SESSION", help="Go on with this session, told again from its beginning.")
@click.option("--resume", metavar="SESSION", help="Go on with this session, without hearing it again.")
@click.option("--epoch", type=int, metavar="N", help="A number of your own for this connection, unused so far.")
@click.option("--allow-kind", "kinds", multiple=True, metavar="KIND", help="Grant tool calls of this kind.")
@click.option("--allow-title", "titles", multiple=True, metavar="PREFIX", help="Grant those whose title begins so.")
@click.option("--ask", is_flag=True, help="Hold every question for a person: ledgerctl pending, ledgerctl decide.")
@click.option(
    "--mcp-server",
    "servers",
    multiple=True,
    type=click.Path(),
    metavar="FILE.json",
    help="Tool servers for the session.",
)
@click.option("--image", "images", multiple=True, type=click.Path(), metavar="FILE", help="Send a picture.")
@click.option("--audio", "audios", multiple=True, type=click.Path(), metavar="FILE", help="Send a recording.")
@click.option("--file", "files", multiple=True, type=click.Path(), metavar="FILE", help="Send a link to a file.")
@click.option("--embed", "embeds", multiple=True, type=click.Path(), metavar="FILE", help="Send a file whole.")
@click.option("--link", "links", multiple=True, metavar="URI", help="Send a link.")
@click.option("--label", "labels", multiple=True, metavar="K=V", help="A label for the record.")
@click.option("--socket", metavar="PATH", help="The daemon's socket, where it is not the usual one.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Cancel after so many seconds."
)
@click.argument("text")
def prompt(text: str, **given: Any) -> int:
    """Run an agent with the prompt TEXT (`-`: standard input), through the daemon, and print its answer.

    Nobody sits beside it: a permission question is granted by --allow-kind, --allow-title and the policy of the
    settings, and rejected otherwise; --ask holds it for a person. What is decided is told on stderr. TEXT is sent
    first, then what --image, --audio, --file, --embed and --link name, in the order of the command line.

    The answer is printed as it is committed; -o json prints one record at the end. Ctrl-C cancels the turn and waits
    for its end, a second one ends the agent. Exits with 0 for a completed turn, with 3 where its reply stopped at a
    limit, with a status of its own (40 to 49) for every other end of the turn, and with 130 where you ended the agent.
    """
    from acp_ledger.ctl.prompting import run

    options = current_options()
    if options.output == "csv":  # it stood before the command, where every form may
        raise UsageError("`prompt` has no rows: -o csv cannot hold it", hint="use -o text or -o json")
    return run(options, text, {**given, "attached": _attached(given)})
