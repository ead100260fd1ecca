"""Requests to other servers: a cancel closes the socket, and a stream stops. `mcp` 1.x, `httpx`."""

import countermand
import httpx
from mcp.server.fastmcp import FastMCP

server = FastMCP("example")
client = httpx.AsyncClient(timeout=60)


@server.tool()
async def fetch(url: str) -> str:
    """Nothing to do: `httpx` closes what the event loop cancels, and the other end sees it."""
    response = await client.get(url)
    return response.text


@server.tool()
async def lines(url: str) -> int:
    """With a checkpoint before each line."""
    count = 0
    async with client.stream("GET", url) as response:
        async for _ in countermand.current().guard(response.aiter_lines()):
            count += 1
    return count


if __name__ == "__main__":
    countermand.run(server)
