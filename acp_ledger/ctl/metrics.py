"""`ledgerctl metrics`: the daemon's figures in the Prometheus text format, once.

What must not be broken here: a name, once given, keeps its meaning and its unit; and no session, path or word of an
agent's becomes a label, for there is no end to them. An agent's own name is one, and a transport's number.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from acp_ledger.ctl.control import ask, socket_path
from acp_ledger.ctl.operate import trouble
from acp_ledger.ctl.options import Command, current_options
from acp_ledger.errors import DaemonUnreachable, ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PREFIX: Final = "acp_ledger_"
_MICROSECONDS: Final = 1_000_000


class Metric(NamedTuple):
    """A metric: its name without the prefix, its kind in Prometheus's word, what it means, and its samples."""

    name: str
    kind: str
    meaning: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


@click.command(
    cls=Command,
    examples=(
        "ledgerctl metrics",
        "ledgerctl metrics > /var/lib/node_exporter/acp_ledger.prom",
    ),
)
def metrics() -> int:
    """Print the daemon's figures in the Prometheus text format, for a textfile collector.

    The figures are those of `ledgerctl status`: what is open, what waits, how long commits take, and how the reading of
    each agent stands whose client the daemon is. Without a daemon acp_ledger_up is 0, and it exits with 69.
    """
    try:
        told = ask(socket_path(current_options()), "status")
    except DaemonUnreachable:
        sys.stdout.write(exposition([_up(0)]))
        return ExitCode.UNREACHABLE
    sys.stdout.write(exposition(figures(told)))
    return ExitCode.OK


def figures(told: Mapping[str, Any]) -> Iterator[Metric]:
    """The metrics of a daemon that told its status."""
    committer, transports = told.get("committer") or {}, told.get("transports") or []
    modes = [str(each.get("mode") or "relay") for each in transports]
    yield _up(0 if trouble(dict(told)) else 1)
    yield Metric("build_info", "gauge", "The daemon's version.", (({"version": str(told.get("version"))}, 1),))
    yield _one("uptime_seconds", "gauge", "Seconds since the daemon started.", told.get("uptime_seconds"))
    open_modes = tuple(({"mode": mode}, float(modes.count(mode))) for mode in ("relay", "client", "terminal"))
    yield Metric("transports_open", "gauge", "Connections that are open.", open_modes)
    busy = sum(each.get("busy") or 0 for each in transports)
    yield _one("sessions_active", "gauge", "Sessions in which a turn runs or a question waits.", busy)
    held = sum(each.get("asked") or 0 for each in transports)
    yield _one("questions_held", "gauge", "Questions that wait for a person.", held)
    yield _one("queue_entries", "gauge", "Lines and events that wait for their commit.", committer.get("queued"))
    yield _one("commits_total", "counter", "Transactions since the daemon started.", committer.get("commits"))
    yield _one("entries_total", "counter", "Lines and events committed since then.", committer.get("entries"))
    quantiles = (("0.5", committer.get("commit_p50")), ("0.99", committer.get("commit_p99")))
    times = tuple(({"quantile": name}, value / _MICROSECONDS) for name, value in quantiles if value is not None)
    yield Metric("commit_seconds", "summary", "How long the last commits took.", times)
    yield from _readers([each for each in transports if isinstance(each.get("reader"), dict)])


def _readers(clients: list[dict[str, Any]]) -> Iterator[Metric]:
    """How the reading of each agent stands whose client the daemon is."""
    for key, name, kind, meaning in (
        ("limit", "reader_limit_bytes", "gauge", "The longest line that is taken."),
        ("storage", "reader_storage_bytes", "gauge", "What a line may occupy."),
        ("buffered", "reader_buffered_bytes", "gauge", "What is held of lines that were not taken yet."),
        ("high_water", "reader_high_water_bytes", "gauge", "The longest line seen."),
        ("rejected", "reader_rejected_total", "counter", "Lines past the limit."),
        ("terminal", "reader_terminal", "gauge", "Whether nothing more is read."),
    ):
        samples = tuple(
            (
                {"transport": str(each.get("transport_id")), "agent": str(each.get("agent"))},
                float(each["reader"].get(key) or 0),
            )
            for each in clients
        )
        yield Metric(name, kind, meaning, samples)


def exposition(metrics: Iterator[Metric] | list[Metric]) -> str:
    """Write metrics in the Prometheus text format; one without a sample is left out."""
    return "".join(line for metric in metrics if metric.samples for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    name = _PREFIX + metric.name
    yield f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind}\n"
    for labels, value in metric.samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        number = int(value) if float(value).is_integer() else value
        yield f"{name}{{{inside}}} {number}\n" if inside else f"{name} {number}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _one(name: str, kind: str, meaning: str, value: float | None) -> Metric:
    return Metric(name, kind, meaning, () if value is None else (({}, value),))


def _up(value: int) -> Metric:
    return _one("up", "gauge", "Whether the daemon answers, and can commit.", value)
