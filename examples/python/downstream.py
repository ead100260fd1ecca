"""A server that is a client too: its tool asks other servers, and they stop with it. `mcp` 2.x."""

import sys
from pathlib import Path
from typing import Any

import countermand
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import MCPServer

server = MCPServer("example")

HERE = Path(__file__).parent
CLEANUP = StdioServerParameters(command=sys.executable, args=[str(HERE / "cleanup.py")])
THREAD = StdioServerParameters(command=sys.executable, args=[str(HERE / "thread.py")])


@server.tool()
async def both(seconds: float) -> list[str]:
    """Asks two servers at once: if this call is cancelled, or one of theirs fails, the rest is cancelled there."""
    async with (
        countermand.stdio_client(CLEANUP) as first,
        countermand.stdio_client(THREAD) as second,
        ClientSession(*first) as cleanup,
        ClientSession(*second) as thread,
    ):
        await cleanup.initialize()
        await thread.initialize()
        results = await countermand.gather(
            call(cleanup, "transfer", seconds=seconds),
            call(thread, "wait", seconds=seconds),
        )
        return [result["content"][0]["text"] for result in results]


def call(session: ClientSession, tool: str, **arguments: Any) -> countermand.Call:
    """May be abandoned at any moment; takes a minute at most, and 20 seconds without progress."""
    params = {"name": tool, "arguments": arguments}
    return countermand.call(session, "tools/call", params, idle=20, total=60)


if __name__ == "__main__":
    countermand.run(server)
