"""`ledgerctl`: the root command, and the one place where an error becomes words and an exit code.

What must not be broken here: data goes to stdout and everything else to stderr; every failure ends with a documented
exit code and, where there is one, the command that mends it; no subcommand is imported before it is called.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click
from click.exceptions import NoArgsIsHelpError

from acp_ledger.ctl.options import Entry, LazyGroup, options_of, with_ledger
from acp_ledger.errors import ConfigError, ExitCode, LedgerError, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

_BROWSE: Final = "acp_ledger.ctl.browse"
SECTIONS: Final = {
    "Start": {
        "demo": Entry(
            "acp_ledger.ctl.demo:demo", "Record a scripted session on a throw-away ledger and check every row"
        ),
        "editor": Entry(
            "acp_ledger.ctl.editor.command:editor", "Put an editor's agents behind the ledger: list, setup, undo, print"
        ),
        "doctor": Entry("acp_ledger.ctl.doctor:doctor", "Check programs, daemon, ledger and editors; what mends them"),
        "config": Entry("acp_ledger.ctl.config:config", "The settings: show, check, path"),
        "completion": Entry("acp_ledger.ctl.completion:completion", "A script that completes words in bash, zsh, fish"),
    },
    "Look": {
        "status": Entry("acp_ledger.ctl.operate:status", "Daemon, ledger and open transports in one screen"),
        "metrics": Entry("acp_ledger.ctl.metrics:metrics", "The daemon's figures as Prometheus text"),
        "sessions": Entry(f"{_BROWSE}:sessions", "List sessions"),
        "show": Entry("acp_ledger.ctl.show:show", "One session, tool call or frame; the id decides"),
        "events": Entry(f"{_BROWSE}:events", "Every line and event, in order"),
        "decisions": Entry(f"{_BROWSE}:decisions", "Permission questions and their answers"),
        "agents": Entry(f"{_BROWSE}:agents", "Agent processes, live and past"),
        "coverage": Entry(f"{_BROWSE}:coverage", "What was recorded as a step, and what was not"),
        "sql": Entry("acp_ledger.ctl.database:sql", "A read-only SQL statement, or a named question"),
    },
    "Act": {
        "prompt": Entry("acp_ledger.ctl.prompt:prompt", "Run an agent with a prompt where no editor is"),
        "pending": Entry("acp_ledger.ctl.asked:pending", "Questions that wait for a person"),
        "decide": Entry("acp_ledger.ctl.asked:decide", "Answer such a question"),
        "cancel": Entry("acp_ledger.ctl.act:cancel", "End what runs in a session, as its editor would"),
        "stop": Entry("acp_ledger.ctl.act:stop", "End an agent for good, with everything it started"),
    },
    "Keep": {
        "verify": Entry("acp_ledger.ctl.verify:verify", "Prove that the ledger is intact"),
        "db": Entry("acp_ledger.ctl.database:db", "The schema: current, check, upgrade"),
    },
}


class PipeClosedError(Exception):
    """Whoever read our output stopped reading; nothing is wrong, and nothing is said."""


class Root(LazyGroup):
    """The root group; its `main` is where every run ends."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe is told apart here, before click makes a plain failure of it.

        Whatever command an error advises is for the ledger that this run was about.
        """
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except LedgerError as error:
            if error.hint is not None:
                error.hint = without_secrets(with_ledger(error.hint, options_of(ctx)))
            raise
        except BrokenPipeError as closed:
            raise PipeClosedError from closed
        return result

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line and exit the process."""
        kwargs["standalone_mode"] = False
        sys.exit(_exit_code(lambda: super(Root, self).main(*args, **kwargs)))


def _exit_code(run: Callable[[], object]) -> int:
    try:
        result = run()
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except PipeClosedError:
        return ExitCode.PIPE_CLOSED
    except NoArgsIsHelpError as bare:
        # A group without a command: click's own custom, its help on stderr and the status of wrong usage.
        sys.stderr.write(f"{bare.format_message()}\n")
        return ExitCode.USAGE
    except Exception as error:  # noqa: BLE001  # the one place where whatever went wrong becomes words and a status
        return _report(*_words(error), error)
    return result if isinstance(result, int) else ExitCode.OK


def _words(error: Exception) -> tuple[str, str | None, int]:
    """Give an error's message, its hint and its exit code."""
    if isinstance(error, LedgerError):
        # The daemon has a status of its own for settings it cannot use; for a command they are wrong usage.
        code = ExitCode.USAGE if isinstance(error, ConfigError) else error.exit_code
        return error.message, error.hint, code
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "ledgerctl"
        return error.format_message(), f"{where} --help", ExitCode.USAGE
    if isinstance(error, click.ClickException):
        return error.format_message(), None, error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", None, ExitCode.FAILED
    kind = type(error).__name__
    return (
        f"unexpected {kind}: {error}",
        "this is an error in ledgerctl; report it with the output of -v",
        ExitCode.FAILED,
    )


def _report(message: str, hint: str | None, code: int, error: BaseException) -> int:
    from acp_ledger.ctl.text import escape  # only a failure needs it

    if {"-v", "--verbose"} & set(sys.argv[1:]):
        import traceback  # likewise

        sys.stderr.write(escape("".join(traceback.format_exception(error)), keep="\n"))
    sys.stderr.write(f"error: {escape(message, keep=chr(10))}\n")
    if hint:
        sys.stderr.write(f"hint: {escape(hint, keep=chr(10))}\n")
    return code


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush neither fails aloud nor waits for a reader."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


def _print_version(context: click.Context, parameter: click.Parameter, value: object) -> None:
    del parameter
    if not value or context.resilient_parsing:
        return
    from importlib.metadata import version  # costs more than the rest of the start

    click.echo(f"ledgerctl {version('acp-ledger')}")
    context.exit()


def _shape_output(context: click.Context) -> None:
    """Settle colour once, for click's own output too."""
    from acp_ledger.ctl.text import wants_color  # after --version and --help

    context.color = wants_color(options_of(context).color, sys.stdout)


@click.command(
    cls=Root,
    entries=SECTIONS,
    examples=(
        "ledgerctl demo",
        "ledgerctl sessions -n 5",
        "ledgerctl decisions -o jsonl | head -1",
        "ledgerctl verify --full",
    ),
    help="Read, check and look after a ledger of Agent Client Protocol sessions.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def root(context: click.Context) -> None:
    """Take the options that hold for every command."""
    _shape_output(context)


def main() -> None:
    """Run `ledgerctl`; the entry point of the installed script."""
    try:
        root.main(prog_name="ledgerctl")
    except SystemExit as ended:
        if ended.code in {ExitCode.INTERRUPTED, ExitCode.PIPE_CLOSED}:
            _silence_stdout()
        raise


if __name__ == "__main__":
    main()
