"""A server whose signals are read through every exporter: plain data, Prometheus, OpenTelemetry, the log."""

from __future__ import annotations

import json
import logging
import sys

import anyio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import countermand
from blocking import block
from countermand import current
from report import report
from sdk import FastMCP

server = FastMCP("measured")
reader = InMemoryMetricReader()


@server.tool()
async def wait(tag: str) -> str:
    """Ends with its cancel."""
    report(f"start {tag}")
    await anyio.sleep(3600)
    return tag


@server.tool()
async def linger(tag: str, seconds: float) -> str:
    """Cleans up for a while after its cancel."""
    report(f"start {tag}")
    try:
        await anyio.sleep(3600)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(seconds)
    return tag


@server.tool()
async def mail(tag: str) -> str:
    """Commits an effect, and goes on."""
    current().commit()
    report(f"start {tag}")
    await anyio.sleep(3600)
    return tag


@server.tool()
async def thread(tag: str, file: str) -> str:
    """Leaves a thread behind, which runs while there is the file."""
    return await countermand.to_thread(block, file, tag)


@server.tool()
async def process(tag: str) -> str:
    """Waits for a process that ignores SIGTERM, and has an hour for it."""
    deaf = f"trap '' TERM; echo @start {tag} >&2; while :; do sleep 1; done"
    await current().run(["sh", "-c", deaf], grace=3600, stderr=None)
    return tag


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def signals() -> str:
    exported = reader.get_metrics_data()
    return json.dumps(
        {
            "stats": countermand.stats(),
            "prometheus": countermand.prometheus(),
            "opentelemetry": [] if exported is None else json.loads(exported.to_json())["resource_metrics"],
        }
    )


if __name__ == "__main__":
    countermand.instrument(MeterProvider([reader]).get_meter("tests"))
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(logging.Formatter("log %(name)s %(levelname)s %(message)s"))
    logging.getLogger("countermand").addHandler(log)
    logging.getLogger("countermand").setLevel(logging.INFO)
    logging.getLogger("countermand").propagate = False
    countermand.run(server, orphan_after=0.2, grace=float(sys.argv[1]))
