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
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import trio

from acp_ledger import logs, paths
from acp_ledger.daemon import processes
from acp_ledger.daemon.activation import passed_socket, path_of
from acp_ledger.daemon.daemon import Daemon, open_daemon
from acp_ledger.daemon.notify import Manager
from acp_ledger.daemon.reloading import Source
from acp_ledger.errors import ConfigError, LedgerError, NoLedger
from acp_ledger.settings import EXPOSED, Settings, load
from acp_ledger.store import schema

if TYPE_CHECKING:
    import socket as sockets
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

PRIVATE_UMASK: Final = 0o077
"""Nothing we make is anybody else's to read."""

SWITCH_SECONDS: Final = 0.0005
"""How long the reading thread may keep the writer's from running. Python's own 5 ms would be added to a commit for
each of its statements; a tenth of that costs nothing that can be measured."""

COLLECTIONS: Final = (20_000, 20, 100)
"""How rarely Python looks for reference cycles. Lines make none, and thousands of them wait in a burst: looking through
them again and again would cost a tenth of the processor."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The first two stop the daemon, and hurry it when they come again. HUP reads the settings again; where the daemon was
started at a terminal it says that the terminal is gone, and stops it too."""


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
    read = partial(load, config, {**flags, "log.format": log["log_format"], "log.level": log["log_level"]})
    files = paths.config_files(os.environ, os.getuid()) if config is None else [str(config.absolute())]
    source = Source(read, map(Path, files))
    manager = Manager.of(os.environ, os.getpid())
    try:
        settings = _settings(source)
        if check:
            _check(settings)
            return
        serve(settings, umask, manager, source)
    except LedgerError as fault:
        manager.tell(STATUS=f"not running: {fault.message}")
        click.echo(f"acp-ledgerd: {fault}", err=True)
        sys.exit(int(fault.exit_code))


def serve(settings: Settings, umask: int, manager: Manager, source: Source) -> None:
    """Run the daemon until it is told to stop. `source` is where its settings came from.

    Raises:
        LedgerError: It cannot start.
    """
    listen = _listener(settings)
    on_terminal = sys.stderr.isatty()
    processes.adopt_orphans()
    sys.setswitchinterval(SWITCH_SECONDS)
    for number in SIGNALS:  # outside of `_run` they come too early or too late to mean anything
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    logs.get_logger().info(logs.DAEMON_STARTED, pid=os.getpid(), version=metadata.version("acp-ledger"))
    trio.run(_run, partial(open_daemon, settings, listen, umask, manager, source), on_terminal)
    logs.get_logger().info(logs.DAEMON_STOPPED, pid=os.getpid())


def _listener(settings: Settings) -> Path | sockets.socket:
    """The socket that was passed to us, else where to make one."""
    passed, path = passed_socket(os.environ, os.getpid()), settings.listen_path()
    if passed is None:
        if path is not None:
            return path
        raise ConfigError(
            "a ledger named by a flag or by the environment needs a socket of its own", hint="add --socket PATH"
        )
    at = path_of(passed)
    if path is not None and (at is None or at.resolve() != path.resolve()):
        hint = "runners look at the path: let ListenStream= of the socket unit and socket.path name the same"
        logs.get_logger().warning(logs.SOCKET_DIFFERED, socket=at, path=path, hint=hint)
    return passed


async def _run(opened: Callable[[], AbstractAsyncContextManager[Daemon]], on_terminal: bool) -> None:  # noqa: FBT001  # trio passes arguments by place
    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with opened() as daemon, trio.open_nursery() as nursery:
            nursery.start_soon(_obey, signals, daemon, on_terminal)
            await daemon.stopped.wait()
            await daemon.drained()  # a second signal is heard meanwhile
            nursery.cancel_scope.cancel()


async def _obey(signals: Any, daemon: Daemon, on_terminal: bool) -> None:  # noqa: FBT001  # likewise
    """The first signal stops the daemon, the next one hurries it; HUP has it read its settings again.

    Of a daemon that was started at a terminal HUP says that the terminal is gone.
    """
    async for number in signals:
        if number == signal.SIGHUP and not on_terminal:
            daemon.reload()
            continue
        logs.get_logger().info(logs.DAEMON_STOPPING, signal=signal.Signals(number).name)
        daemon.stop()


def _settings(source: Source) -> Settings:
    settings = source.read()
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
