"""The signals, for people and for exporters: a log line for each cancelled request, plain data, Prometheus,
OpenTelemetry. The engine counts; this hands on what it counted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ._native import Connection, Wire

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

logger = logging.getLogger("countermand")
"""One INFO record for each cancelled request, when it is over; ``record.countermand`` has its parts."""

_open: Wire | None = None
_listeners: list[Callable[[dict[str, Any]], None]] = []


def opened(wire: Wire) -> None:
    """This is the process's wire from now on."""
    global _open
    _open = wire


def stats() -> dict[str, Any] | None:
    """What this process's connection has counted, as plain data; None before there is one.

    ``in_flight``, ``retired``, ``tokens`` and ``works`` are sizes; ``cancelled`` counts requests by cause,
    ``cancels`` the peer's cancels by what they hit.

    ``tools`` has a row for each method, and for each tool: ``requests``, ``in_flight``, ``cancelled`` by
    cause, ``latency`` (from the cancel's being read to the handler's exit: ``count``, and ``total``,
    ``p50``, ``p99`` and ``max`` in seconds), ``orphans`` that run on now and those that were
    (``orphaned``), ``dropped_answers``, ``abandoned_with_effects``.

    ``orphans`` lists what runs on although it was cancelled more than ``orphan_after`` seconds ago: ``id``,
    ``method``, ``tool``, ``cause``, ``age`` in seconds, and the ``work`` that goes on: ``handler``,
    ``thread``, ``process 4711``.
    """
    return None if _open is None else _open.stats()


def prometheus() -> str:
    """The same in the text format of Prometheus; empty before there is a connection.

    https://prometheus.io/docs/instrumenting/exposition_formats/
    """
    return "" if _open is None else _open.prometheus()


def exit_code() -> int | None:
    """With what this process should exit once its connection is over: 128 and the signal that ended it."""
    return None if _open is None else _open.exit_code()


def tell(connection: Connection) -> None:
    """Logs the cancelled requests that are over since the last time, and hands them to exporters."""
    for report in connection.reports():
        if logger.isEnabledFor(logging.INFO):
            latency, reason = report["latency"], report["reason"]
            logger.info(
                "cancelled id=%s tool=%s cause=%s reason=%s latency=%s",
                json.dumps(report["id"]),
                json.dumps(report["tool"] or report["method"]),
                report["cause"],
                # Of the peer: nothing of it may end the line.
                json.dumps(reason),
                "never started" if latency is None else f"{latency * 1e3:.1f} ms",
                extra={"countermand": report},
            )
        for listener in _listeners:
            listener(report)


def instrument(meter: Meter | None = None) -> None:
    """Reports the signals through OpenTelemetry, from now on.

    Args:
        meter: Where to; by default the meter ``countermand`` of the global meter provider.

    Raises:
        ModuleNotFoundError: without ``opentelemetry-api`` (``pip install countermand[otel]``).
    """
    from opentelemetry import metrics

    if meter is None:
        meter = metrics.get_meter("countermand")
    observation = metrics.Observation

    def tools() -> Iterable[tuple[dict[str, str], dict[str, Any]]]:
        for row in (stats() or {"tools": []})["tools"]:
            yield _attributes(row), row

    def each(key: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: [observation(row[key], names) for names, row in tools()]

    def cancelled(options: CallbackOptions) -> Iterable[Observation]:
        for names, row in tools():
            for cause, count in row["cancelled"].items():
                yield observation(count, {**names, "countermand.cause": cause})

    def hits(options: CallbackOptions) -> Iterable[Observation]:
        counted = stats()
        for hit, count in (counted or {"cancels": {}})["cancels"].items():
            yield observation(count, {"countermand.hit": hit})

    counter, gauge = meter.create_observable_counter, meter.create_observable_gauge
    counter("countermand.requests", [each("requests")], "{request}", "Requests of the peer")
    gauge("countermand.in_flight", [each("in_flight")], "{request}", "Requests in the table")
    counter("countermand.cancelled", [cancelled], "{request}", "Cancelled requests, by cause")
    counter("countermand.cancels", [hits], "{cancel}", "Cancels that the peer sent, by what they hit")
    gauge("countermand.orphans", [each("orphans")], "{request}", "Cancelled requests that run on now")
    counter(
        "countermand.orphaned", [each("orphaned")], "{request}", "Cancelled requests that ended as orphans"
    )
    counter("countermand.dropped_answers", [each("dropped_answers")], "{answer}", "Answers that were dropped")
    effects = "Requests cancelled after they had committed an effect"
    counter("countermand.abandoned_with_effects", [each("abandoned_with_effects")], "{request}", effects)
    latency = meter.create_histogram(
        "countermand.cancel.latency", "s", "From the cancel's being read to the handler's exit"
    )

    def record(report: dict[str, Any]) -> None:
        if report["latency"] is not None:
            latency.record(report["latency"], _attributes(report))

    _listeners.append(record)


def _attributes(row: dict[str, Any]) -> dict[str, str]:
    """As the semantic conventions for MCP and generative AI name them."""
    names = {"mcp.method.name": row["method"]}
    if row["tool"] is not None:
        names["gen_ai.tool.name"] = row["tool"]
    return names
