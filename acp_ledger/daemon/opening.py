"""What a runner asked for, as the process to start and as the row that is written before it starts.

What must not be broken here: the agent gets the editor's own words, byte for byte; the row gets names of environment
variables and never their values.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from acp_ledger.daemon.agent import Command
from acp_ledger.errors import ConfigError, UsageError
from acp_ledger.handshake import PURPOSE_CLIENT, PURPOSE_TERMINAL
from acp_ledger.policy import Policy, Rule
from acp_ledger.protocol.revisions import MAPPING_VERSION
from acp_ledger.store.ledger import NewTransport

if TYPE_CHECKING:
    from acp_ledger.daemon.terms import Terms
    from acp_ledger.handshake import Greeting
    from acp_ledger.settings import Settings


LONGEST_NAME: Final = 128


class Peer(NamedTuple):
    """Who is at the other end of a socket, in the kernel's word."""

    pid: int
    uid: int
    gid: int


def command_of(greeting: Greeting, settings: Settings) -> Command:
    """The process to start.

    Raises:
        ConfigError: `--agent` names an agent the settings do not know, or know no command of.
        UsageError: There is neither a command nor a name.
    """
    _check_name(greeting.agent)
    if greeting.argv:
        return Command(greeting.argv, greeting.cwd, greeting.env, greeting.umask)
    if greeting.agent is None:
        raise UsageError("no agent to start", hint="give its command, or the name of one in the settings")
    name = os.fsdecode(greeting.agent)
    agent = settings.agents.get(name)
    if agent is None or agent.command is None:
        raise _no_command(name, settings, given=_GIVEN_TO_A_CLIENT if greeting.purpose == PURPOSE_CLIENT else _GIVEN)
    added = {os.fsencode(key): os.fsencode(value) for key, value in agent.env.items()}
    argv = (os.fsencode(agent.command), *map(os.fsencode, agent.args), *greeting.added)
    return Command(argv, greeting.cwd, {**greeting.env, **added}, greeting.umask)


def _check_name(agent: bytes | None) -> None:
    """An agent's name is read in lists: it is a line, and a short one."""
    if agent is None:
        return
    name = os.fsdecode(agent)
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise UsageError(
            f"an agent's name is a word or a few, up to {LONGEST_NAME} printable characters", hint="--agent NAME"
        )


_GIVEN: Final = "acp-ledger-run --agent {name} -- COMMAND"
_GIVEN_TO_A_CLIENT: Final = "ledgerctl prompt --agent {name} --command 'CMD ARGS'"


def _no_command(name: str, settings: Settings, *, given: str) -> ConfigError:
    known = ", ".join(sorted(each for each, agent in settings.agents.items() if agent.command)) or "none"
    what = f"[agents.{name}] has no command" if name in settings.agents else f"no agent is named {name}"
    return ConfigError(
        f"{what} in {settings.file} (with one there are: {known})",
        hint=f"Write [agents.{name}] with its command there and reload acp-ledgerd (SIGHUP), or give the command: "
        + given.format(name=name),
    )


def policy_of(greeting: Greeting, settings: Settings) -> Policy:
    """The policy a connection opens with: the settings', with the named agent's own keys over them."""
    own = settings.agents.get(os.fsdecode(greeting.agent)) if greeting.agent is not None else None
    given = {} if own is None else {name: getattr(own.policy, name) for name in own.policy.model_fields_set}
    merged = dict(settings.policy) | given
    return Policy(**{**merged, "rules": tuple(Rule(**dict(rule)) for rule in merged["rules"])})


def transport_of(greeting: Greeting, command: Command, peer: Peer, settings: Settings, opened_at: int) -> NewTransport:
    """The row of a transport that is about to open, at `opened_at` (UTC microseconds)."""
    named = greeting.agent or os.path.basename(command.argv[0])  # noqa: PTH119  # bytes, as the runner gave it
    return NewTransport(
        opened_at=opened_at,
        mode="terminal" if greeting.purpose == PURPOSE_TERMINAL else "relay",
        agent=os.fsdecode(named),
        argv=[os.fsdecode(word) for word in command.argv],
        cwd=os.fsdecode(command.cwd),
        mapping_version=MAPPING_VERSION,
        env_names=[os.fsdecode(name) for name in command.env],
        label={os.fsdecode(key): os.fsdecode(value) for key, value in greeting.labels},
        peer_uid=peer.uid,
        peer_gid=peer.gid,
        peer_pid=peer.pid,
        os_user=_user(peer.uid),
        limits={"line_bytes": settings.limits.line_bytes, "parse_bytes": settings.limits.parse_bytes},
        policy_digest=policy_of(greeting, settings).digest,
        failure_mode=settings.failure.mode,
    )


def client_of(
    greeting: Greeting, command: Command, peer: Peer, terms: Terms, settings: Settings, opened_at: int
) -> NewTransport:
    """The row of a transport whose client we are."""
    return replace(
        transport_of(greeting, command, peer, settings, opened_at),
        mode="client",
        limits=terms.limits.model_dump(),
        policy_digest=terms.policy.digest,
        epoch=terms.epoch,
    )


def _user(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
