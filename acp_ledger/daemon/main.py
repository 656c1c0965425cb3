"""`acp-ledgerd`: the command line of the daemon, its signals and its exit statuses.

What must not be broken here: nothing is opened, created or read before the umask is ours and the process is hidden
from others; every error ends as a sentence on stderr and the status that belongs to it.
"""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import trio

from acp_ledger import logs
from acp_ledger.daemon import processes
from acp_ledger.daemon.daemon import Daemon, open_daemon
from acp_ledger.errors import ConfigError, LedgerError, NoLedger
from acp_ledger.settings import EXPOSED, Settings, load
from acp_ledger.store import schema

if TYPE_CHECKING:
    from collections.abc import Mapping

PRIVATE_UMASK: Final = 0o077
"""Nothing we make is anybody else's to read."""

SWITCH_SECONDS: Final = 0.0005
"""How long the reading thread may keep the writer's from running. Python's own 5 ms would be added to a commit for
each of its statements; a tenth of that costs nothing that can be measured."""

COLLECTIONS: Final = (20_000, 20, 100)
"""How rarely Python looks for reference cycles. Lines make none, and thousands of them wait in a burst: looking through
them again and again would cost a tenth of the processor."""

STOPS: Final = (signal.SIGTERM, signal.SIGINT)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", type=click.Path(path_type=Path), help="Settings file, in place of the user's and the system's."
)
@click.option("--ledger", metavar="URL", help="The ledger: sqlite:////path or postgresql+psycopg://user@host/database.")
@click.option("--socket", type=click.Path(path_type=Path), help="The Unix socket to listen on.")
@click.option("--check", is_flag=True, help="Check settings and ledger, say what was found, and exit.")
@click.option(
    "--log-format", type=click.Choice(["auto", "console", "json", "journal"]), help="How to log, on standard error."
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What to log.")
@click.version_option(metadata.version("acp-ledger"), prog_name="acp-ledgerd", message="%(prog)s %(version)s")
def main(config: Path | None, ledger: str | None, socket: Path | None, check: bool, **log: str | None) -> None:  # noqa: FBT001  # click passes flags by name
    """Keep the record: supervise coding agents, and commit every line before it is passed on."""
    umask = os.umask(PRIVATE_UMASK)
    processes.hide()
    flags = {"database.url": ledger, "socket.path": None if socket is None else socket.absolute()}
    try:
        settings = _settings(config, flags, log)
        if check:
            _check(settings)
            return
        serve(settings, umask)
    except LedgerError as fault:
        click.echo(f"acp-ledgerd: {fault}", err=True)
        sys.exit(int(fault.exit_code))


def serve(settings: Settings, umask: int) -> None:
    """Run the daemon until it is told to stop.

    Raises:
        LedgerError: It cannot start.
    """
    listen = settings.listen_path()
    if listen is None:
        raise ConfigError(
            "a ledger named by a flag or by the environment needs a socket of its own", hint="add --socket PATH"
        )
    processes.adopt_orphans()
    sys.setswitchinterval(SWITCH_SECONDS)
    for number in STOPS:  # outside of `_run` they come too early or too late to mean anything
        signal.signal(number, signal.SIG_IGN)
    logs.get_logger().info(logs.DAEMON_STARTED, pid=os.getpid(), version=metadata.version("acp-ledger"))
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    trio.run(_run, settings, listen, umask)
    logs.get_logger().info(logs.DAEMON_STOPPED, pid=os.getpid())


async def _run(settings: Settings, listen: Path, umask: int) -> None:
    with trio.open_signal_receiver(*STOPS) as signals:
        async with open_daemon(settings, listen, umask) as daemon, trio.open_nursery() as nursery:
            nursery.start_soon(_obey, signals, daemon)
            await daemon.stopped.wait()
            await daemon.drained()  # a second signal is heard meanwhile
            nursery.cancel_scope.cancel()


async def _obey(signals: Any, daemon: Daemon) -> None:
    """The first signal stops the daemon, the next one hurries it."""
    async for number in signals:
        logs.get_logger().info(logs.DAEMON_STOPPING, signal=signal.Signals(number).name)
        daemon.stop()


def _settings(config: Path | None, flags: Mapping[str, Any], log: Mapping[str, str | None]) -> Settings:
    settings = load(config, {**flags, "log.format": log["log_format"], "log.level": log["log_level"]})
    logs.configure(form=settings.log.format, level=settings.log.level)
    if (file := settings.exposed_file()) is not None:
        mend = f"chmod 600 {shlex.quote(os.fspath(file))}"
        logs.get_logger().warning(logs.CONFIG_EXPOSED, file=file, reason=EXPOSED, hint=mend)
    return settings


def _check(settings: Settings) -> None:
    try:
        findings = schema.check(settings.database.url.text)
    except NoLedger:
        click.echo(f"settings: fine\nledger: {settings.database.url} does not exist yet; the daemon creates it")
        return
    click.echo(f"settings: fine\nledger: {settings.database.url}, schema {schema.HEAD}")
    for finding in findings:
        click.echo(f"ledger: {finding}")
    if findings:
        sys.exit(3)


if __name__ == "__main__":
    main()
