"""`ledgerctl db create` and `ledgerctl db roles`: a ledger that a team shares, set up by whoever keeps the database.

What must not be broken here: neither changes a ledger that is there, and what the roles may do is said by the SQL that
is shipped, printed as it is for its reader to judge.
"""

from __future__ import annotations

import sys

import click

from acp_ledger.ctl.options import Command, current_options
from acp_ledger.ctl.reading import ledger_url
from acp_ledger.ctl.render import note
from acp_ledger.errors import ExitCode, without_secrets


@click.command(
    cls=Command,
    examples=("ledgerctl db create", "ledgerctl db create -L postgresql://acp_ledger_owner@db.internal/acp_ledger"),
)
def create() -> int:
    """Make a ledger where there is none; one that is there stays as it is.

    The daemon makes a missing ledger itself where its role may. On a Postgres whose writer may not, the owner does.
    """
    from acp_ledger.store import schema

    options = current_options()
    url = ledger_url(options)
    made = schema.create(url)
    note(f"{'made a ledger' if made else 'there is a ledger'} in {without_secrets(url)}", options)
    return ExitCode.OK


@click.command(
    cls=Command,
    examples=("ledgerctl db roles | psql --dbname acp_ledger", "ledgerctl db roles | psql -d acp -v writer=laptops"),
)
def roles() -> None:
    """Print the SQL that makes an owner, a writer, an auditor and a reader of a ledger on Postgres.

    It is for psql, as a superuser or as the database's owner with CREATEROLE, in the ledger's database; it says itself
    what each role may do, and which names can be given to it.
    """
    from acp_ledger.store.rights import roles_sql

    sys.stdout.write(roles_sql())
