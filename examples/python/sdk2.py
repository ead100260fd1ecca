"""A server on `mcp 2.x` under the engine. An MCP host runs it, over stdin and stdout."""

import anyio
import countermand
from mcp.server.mcpserver import MCPServer

server = MCPServer("example")


@server.tool()
async def wait(seconds: float) -> str:
    """Awaits: is cancelled as asyncio cancels."""
    await anyio.sleep(seconds)
    return "done"


@server.tool()
async def count(limit: int) -> str:
    """Computes without awaiting: looks at its token."""
    token = countermand.current()
    for _ in range(limit):
        token.checkpoint()
    return "done"


if __name__ == "__main__":
    countermand.run(server)
