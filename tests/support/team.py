"""A Postgres that a team shares: the four roles as they are shipped, and a ledger made by its owner.

What must not be broken here: the roles come from `ledgerctl db roles` through psql and from nothing else, and the
ledger from `ledgerctl db create` as the owner.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from click.testing import CliRunner, Result

from acp_ledger.ctl.main import root
from tests.system.installed import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import Cluster

ROLES: Final = ("owner", "writer", "auditor", "reader")


class Team(NamedTuple):
    """A database with its four roles; `url` is the superuser's."""

    cluster: Cluster
    url: str

    def role(self, name: str) -> str:
        """What a role is called here: roles are the whole server's, and a run has many databases."""
        return f"{self.database}_{name}"

    @property
    def database(self) -> str:
        """The name of the database."""
        return self.url.rpartition("/")[2]

    def url_of(self, name: str) -> str:
        """The ledger's address for a role."""
        return self.url.replace("://postgres@", f"://{self.role(name)}@")

    def run_roles(self, *settings: str, admin: str = "postgres") -> None:
        """Run the shipped SQL as a superuser, or as another who may."""
        names = [word for name in ROLES for word in ("-v", f"{name}={self.role(name)}")]
        where = ["-h", "127.0.0.1", "-p", str(self.cluster.port), "-U", admin, "-d", self.database]
        sql = run("ledgerctl", "db", "roles").stdout
        psql = [str(self.cluster.programs / "psql"), "-X", "-q", *where, *names, *settings]
        subprocess.run(psql, input=sql, text=True, check=True, capture_output=True)

    def ledgerctl(self, role: str, *words: str) -> Result:
        """Run `ledgerctl` as a role, in this process."""
        return CliRunner().invoke(root, [*words, "-L", self.url_of(role)], prog_name="ledgerctl")


def run(program: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program of ours, in a home without settings."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    return subprocess.run(
        [str(PROGRAMS / program), *words], env=environment, text=True, capture_output=True, check=False, **options
    )


def made_by_owner(cluster: Cluster, *settings: str) -> Iterator[Team]:
    """A team's ledger, empty."""
    found = Team(cluster, cluster.create())
    found.run_roles(*settings)
    made = found.ledgerctl("owner", "db", "create")
    assert made.exit_code == 0, made.stderr
    yield found
    cluster.drop(found.url)
