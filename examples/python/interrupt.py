"""Handlers that block the event loop itself, and are interrupted as Ctrl-C would. `mcp` 1.x."""

import subprocess
import time

import countermand
from mcp.server.fastmcp import FastMCP

server = FastMCP("example")


@server.tool()
def pause(seconds: float) -> str:
    """`mcp` 1.x runs a sync tool on the event loop: nothing else is served meanwhile, but a cancel is."""
    time.sleep(seconds)
    return "done"


@server.tool()
async def shell(command: str) -> str:
    """An async tool that forgot to await. `subprocess.run` kills its child when it is interrupted."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


@server.tool()
async def count(limit: int) -> str:
    """Computes, and never looks at its token. What is in `finally` is not interrupted."""
    number = 0
    try:
        while number < limit:
            number += 1
    finally:
        time.sleep(0.01)
    return "done"


if __name__ == "__main__":
    # For all handlers. For one: @countermand.interruptible below its @server.tool().
    countermand.run(server, interrupt=True)
