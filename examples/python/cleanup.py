"""Cleanup that awaits after a cancel, for a bounded time. `mcp` 2.x."""

import anyio
import countermand
from mcp.server.mcpserver import MCPServer

server = MCPServer("example")


@server.tool()
async def transfer(seconds: float) -> str:
    """Works, and cleans up however it ends."""
    token = countermand.current()
    try:
        await anyio.sleep(seconds)
        return "done"
    finally:
        # Without the shield the first await in here would be cancelled as well.
        async with token.shield(2):
            await roll_back()


async def roll_back() -> None:
    """What takes longer than the two seconds is cut off."""
    await anyio.sleep(0.1)


@server.tool()
async def checked(rows: int) -> int:
    """A loop with a checkpoint in each round."""
    total = 0
    for row in countermand.current().guard(range(rows)):
        total += row
    return total


if __name__ == "__main__":
    countermand.run(server)
