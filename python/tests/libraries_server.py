"""A server whose tools use libraries that take the event loop's cancellation, or a callback.

    libraries_server.py PORT

On the port is what they talk to.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import aiohttp
import aiosqlite

import countermand
from report import report
from sdk import FastMCP

server = FastMCP("libraries")
URL = f"http://127.0.0.1:{sys.argv[1]}"


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def stats() -> str:
    return json.dumps(countermand.stats())


def httpx_tools(name: str) -> None:
    """Tools that use `httpx`, or `httpx2`, which `mcp` 2.x uses."""
    httpx = import_module(name)
    kept: list[Any] = []

    @server.tool(name=f"{name}_get")
    async def get(path: str) -> str:
        async with httpx.AsyncClient(timeout=None) as client:
            return (await client.get(URL + path)).text

    @server.tool(name=f"{name}_kept")
    async def get_kept(path: str) -> str:
        """Through a client that outlives the call: its pool must let go of the connection."""
        if not kept:
            kept.append(httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=1)))
        return (await kept[0].get(URL + path)).text

    @server.tool(name=f"{name}_stream")
    async def stream(path: str) -> str:
        async with httpx.AsyncClient(timeout=None) as client, client.stream("GET", URL + path) as response:
            async for line in countermand.current().guard(response.aiter_lines()):
                report(f"line {line}")
        return "done"


@server.tool()
async def aiohttp_get(path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(URL + path) as response:
        return await response.text()


@server.tool()
async def aiohttp_stream(path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(URL + path) as response:
        async for line in countermand.current().guard(response.content):
            report(f"line {line.decode().strip()}")
    return "done"


@server.tool()
async def streams(path: str) -> str:
    """No library at all."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        return (await reader.read()).decode()
    finally:
        writer.close()


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@server.tool()
async def sqlite(tag: str) -> str:
    """The driver awaits a thread, which nothing but `interrupt` ends."""
    async with aiosqlite.connect(":memory:") as database:

        def interrupt() -> None:
            asyncio.run_coroutine_threadsafe(database.interrupt(), loop)

        loop = asyncio.get_running_loop()
        unregister = countermand.current().on_cancel(interrupt)
        report(f"start {tag}")
        try:
            await database.execute_fetchall(ENDLESS)
        finally:
            unregister()
            async with countermand.current().shield(2):
                # Waits for its turn in the driver's thread: the query has ended when it comes.
                await database.execute_fetchall("SELECT 1")
            report(f"free {tag}")
    return tag


for name in ("httpx", "httpx2"):
    if find_spec(name):
        httpx_tools(name)

if __name__ == "__main__":
    countermand.run(server)
