"""Whose the tables of a Postgres ledger are, and who else may do what with them.

What must not be broken here: tables and views belong to one owner, whoever runs a command that makes them, so that a
view reads for people who may not read tables; and what they may is said in one place, the SQL of
`deploy/postgres/roles.sql`, which leaves a function behind that is called whenever something was made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, text
from sqlalchemy.exc import SQLAlchemyError

from acp_ledger.errors import DatabaseRefused
from acp_ledger.store.faults import NOT_ALLOWED, driver_error

if TYPE_CHECKING:
    from sqlalchemy import Connection

FUNCTION: Final = "acp_ledger_rights"
"""Gives the roles their rights on everything in the schema; belongs to the owner."""

_CALL: Final = {"function": f"{FUNCTION}()"}

_OWNER: Final = text(
    "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass('transports') UNION ALL "
    "SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE oid = to_regprocedure(:function) LIMIT 1"
)


def roles_sql() -> str:
    """The SQL that makes the roles, for psql.

    Raises:
        DatabaseRefused: This installation does not have it.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_postgres", package.parent / "deploy/postgres"):
        if (file := folder / "roles.sql").is_file():
            return file.read_text(encoding="utf-8")
    raise DatabaseRefused(
        "this installation has no roles.sql", hint="install it again: pip install --force-reinstall acp-ledger"
    )


def become_owner(connection: Connection, command: str) -> None:
    """On Postgres, act as the owner of the ledger until the transaction ends; `command` is what the owner has to run.

    Raises:
        DatabaseRefused: This role may not.
    """
    if connection.dialect.name == "sqlite" or (owner := connection.execute(_OWNER, _CALL).scalar()) is None:
        return
    quoted = connection.dialect.identifier_preparer.quote_identifier(str(owner))
    try:
        connection.exec_driver_sql(f"SET LOCAL ROLE {quoted.replace('%', '%%')}")
    except SQLAlchemyError as error:
        if getattr(driver_error(error), "sqlstate", None) != NOT_ALLOWED:
            raise
        url = connection.engine.url
        raise DatabaseRefused(
            f"the schema belongs to {owner}, and {url.username or 'this role'} may not change it",
            hint=f"{command} -L {owner_url(connection, str(owner))}",
        ) from error


def owner_url(connection: Connection, owner: str) -> str:
    """The address of this database for its owner, without a password."""
    url = connection.engine.url
    named = url.set(username=owner, password=None).difference_update_query(("application_name", "target_session_attrs"))
    return named.render_as_string()


def give(connection: Connection) -> None:
    """Give the roles their rights on what is there now, where there are roles; as the owner."""
    if connection.dialect.name == "sqlite":
        return
    # Of the owner alone: whoever else may make functions here must not have them run by who upgrades.
    ours = text(
        "SELECT count(*) FROM pg_proc p WHERE p.oid = to_regprocedure(:function) "
        "AND pg_get_userbyid(p.proowner) = current_user"
    )
    if connection.execute(ours, _CALL).scalar_one():
        connection.execute(func.acp_ledger_rights().select())
