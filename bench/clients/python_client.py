"""Measures a Python client, with arguments SIDE SECONDS IN_FLIGHT PEER: the side is stock, guarded or calls.

Prints calls per second with so many in flight, and the milliseconds from the abandonment of a call to
its return, for each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

ABANDONED = 200


async def main() -> None:
    side, seconds, in_flight, peer = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    params = StdioServerParameters(command=peer)
    if side == "stock":
        opened: Any = stdio_client(params)
    else:
        import countermand

        opened = countermand.stdio_client(params)
    async with opened as (read, write), ClientSession(read, write) as session:
        call: Callable[[str], Awaitable[Any]] = session.call_tool
        if side != "stock":
            countermand.guard(session)
        if side == "calls":

            def call(tool: str) -> Awaitable[Any]:
                return countermand.call(session, "tools/call", {"name": tool, "arguments": {}})

        await session.initialize()
        await per_second(call, in_flight, seconds / 2)  # Warm.
        report = {"per_second": await per_second(call, in_flight, seconds)}
        report["abandon_ms"] = [await abandon(call) for _ in range(ABANDONED)]
    print(json.dumps(report))


async def per_second(call: Callable[[str], Awaitable[Any]], in_flight: int, seconds: float) -> float:
    done = 0
    end = time.perf_counter() + seconds

    async def loop() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await call("echo")
            done += 1

    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(in_flight):
            tasks.start_soon(loop)
    return done / (time.perf_counter() - begun)


async def abandon(call: Callable[[str], Awaitable[Any]]) -> float:
    left = 0.0

    async def wait() -> None:
        nonlocal left
        try:
            await call("never")
        finally:
            left = time.perf_counter()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(0.001)
        begun = time.perf_counter()
        tasks.cancel_scope.cancel()
    return (left - begun) * 1000


anyio.run(main)
