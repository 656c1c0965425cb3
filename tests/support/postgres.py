"""A Postgres cluster of the tests' own: made once in a run, with a fresh database for every test that wants one.

What must not be broken here: where the server's programs are missing tests are skipped with the command that brings
them, unless `ACP_LEDGER_TEST_REQUIRE_POSTGRES` is set; the cluster keeps what it commits, as the ledger demands.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUIRED: Final = os.environ.get("ACP_LEDGER_TEST_REQUIRE_POSTGRES", "") not in {"", "0"}
PATIENCE: Final = 30.0
ROOM: Final = 2 << 30

ON_SQLITE: Final = pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
ON_POSTGRES: Final = pytest.mark.parametrize("ledger_url", ["postgres"], indirect=True)
"""For a test of what only one of the engines can do."""


def find_programs() -> Path | None:
    """The folder of initdb and postgres."""
    named = os.environ.get("ACP_LEDGER_TEST_POSTGRES_BIN")
    folders = [Path(named)] if named else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@dataclass(slots=True)
class Cluster:
    """A running cluster. `server` is its postmaster, a child of ours, so that it can be killed and started again."""

    programs: Path
    folder: Path
    port: int
    server: subprocess.Popen[bytes] | None = None
    databases: int = field(default=0)

    def url(self, database: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def create(self, template: str = "template0") -> str:
        """Make a database, empty or the copy of one nobody is connected to, and give its URL."""
        self.databases += 1
        name = f"ledger_{self.databases}"
        self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        self._run(f'DROP DATABASE IF EXISTS "{url.rpartition("/")[2]}" WITH (FORCE)')

    def _run(self, statement: str) -> None:
        import psycopg  # noqa: PLC0415  (an extra; without a server nobody needs it)

        where = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"
        with psycopg.connect(where, autocommit=True) as admin:
            admin.execute(statement.encode())

    def start(self) -> None:
        """Start the server and wait until it answers."""
        arguments = ["-D", str(self.folder), "-p", str(self.port), "-h", "127.0.0.1", "-k", str(self.folder)]
        with (self.folder.parent / "postgres.log").open("ab") as log:
            self.server = subprocess.Popen(
                [self.programs / "postgres", *arguments, "-c", "max_connections=40", "-c", "shared_buffers=32MB"],
                stdout=subprocess.DEVNULL,
                stderr=log,
                **_unprivileged(),
            )
        ready = [
            str(self.programs / "pg_isready"),
            "-q",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-t",
            str(int(PATIENCE)),
        ]
        while subprocess.run(ready, check=False).returncode != 0:
            if self.server.poll() is not None:
                pytest.fail("postgres did not start:\n" + (self.folder.parent / "postgres.log").read_text()[-2000:])

    def stop(self) -> None:
        """End it at once; nothing that was committed is lost by that."""
        if self.server is not None:
            self.server.send_signal(3)
            self.server.wait(PATIENCE)
            self.server = None


def _unprivileged() -> dict[str, Any]:
    """Postgres refuses to run as root: then it runs as the user its package made, else as nobody."""
    if os.geteuid() != 0:
        return {}
    owner = _owner()
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _owner() -> pwd.struct_passwd:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return pwd.getpwnam("postgres" if "postgres" in names else "nobody")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _place() -> Path:
    """Memory where there is enough of it: a database for each test is many files, and their flushes are many too.

    Not pytest's own folder: the user who runs the server must be able to walk down to it.
    """
    memory = Path("/dev/shm")  # noqa: S108  # the folder made in it is ours alone
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= ROOM:
        return memory
    return Path("/tmp")  # noqa: S108  # likewise


def _make(programs: Path, folder: Path) -> Cluster:
    data = folder / "data"
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        for path in (folder, data):
            os.chown(path, _owner().pw_uid, -1)
    options = ["-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"]
    made = subprocess.run(
        [programs / "initdb", "-D", data, *options], capture_output=True, check=False, cwd="/", **_unprivileged()
    )
    if made.returncode != 0:
        pytest.fail(f"initdb failed: {made.stderr.decode()}")
    return Cluster(programs, data, _free_port())


@contextmanager
def fresh_cluster(name: str = "") -> Iterator[Cluster]:
    """A cluster that nobody has used; skips the test, or fails it, where the server's programs are missing."""
    programs = find_programs()
    if programs is None:
        reason = "no Postgres server programs; on Debian and Ubuntu: sudo apt install postgresql"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    folder = _place() / f"acp-ledger-postgres-{os.getpid()}{name}"
    folder.mkdir(mode=0o755)
    found = _make(programs, folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster of this run."""
    with fresh_cluster() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty place for a ledger, once on each engine."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ledger.db"
        return
    found: Cluster = request.getfixturevalue("cluster")
    url = found.create()
    yield url
    if found.server is not None:
        found.drop(url)
