"""A low-level server of `mcp` 1.x on the engine's streams, on trio: one import and one line differ."""

import countermand
import mcp.types as types
import trio
from mcp.server.lowlevel import Server

server = Server("example")


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    """The one tool."""
    schema = {"type": "object", "properties": {"seconds": {"type": "number"}}}
    return [types.Tool(name="wait", inputSchema=schema)]


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, float]) -> list[types.TextContent]:
    """Is cancelled as trio cancels."""
    await trio.sleep(arguments["seconds"])
    return [types.TextContent(type="text", text=f"{name}: done")]


async def main() -> None:
    """Serves until the client leaves."""
    async with countermand.stdio_server(server) as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    trio.run(main)
