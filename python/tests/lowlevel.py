"""A low-level server on the engine's streams.

lowlevel.py asyncio | trio
"""

from __future__ import annotations

import functools
import sys
import threading
import time

import anyio

import countermand
import sdk
from report import report


async def tool(name: str, tag: str) -> str:
    token = countermand.current()
    report(f"start {tag}")
    try:
        if name == "sleep":
            await anyio.sleep(3600)
        elif name == "spin":
            while not token.cancelled:
                pass
            token.checkpoint()
        elif name == "thread":
            await anyio.to_thread.run_sync(functools.partial(poll, token))
        elif name == "left":
            await countermand.to_thread(threading.Event().wait)
        elif name == "block":
            countermand.interruptible(time.sleep)(3600)
        elif name == "wait":
            with anyio.CancelScope(shield=True):
                await token.wait()
        elif name == "raise":
            raise (
                anyio.get_cancelled_exc_class()
                if sys.argv[1] == "asyncio"
                else countermand.Cancelled("local")
            )
    finally:
        report(f"end {tag} {token.cause}")
    return tag


def poll(token: countermand.Token) -> None:
    while not token.cancelled:
        time.sleep(0.001)
    token.checkpoint()


if sdk.GENERATION == 2:
    import mcp_types as types
    from mcp.server.lowlevel import Server

    async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        result = await tool(params.name, (params.arguments or {})["tag"])
        return types.CallToolResult(content=[types.TextContent(type="text", text=result)])

    server = Server("low", on_call_tool=call_tool)
else:
    import mcp.types as types
    from mcp.server.lowlevel import Server

    server = Server("low")

    @server.call_tool()
    async def call_tool(name: str, arguments: dict) -> list[types.TextContent]:
        return [types.TextContent(type="text", text=await tool(name, arguments["tag"]))]


async def main() -> None:
    async with countermand.stdio_server(server) as (read, write):
        await server.run(read, write, server.create_initialization_options())
    report("returned")


anyio.run(main, backend=sys.argv[1])
