"""The Python server of the host: the official SDK, guarded. Says on stderr when a handler begins and ends."""

import logging
import os
import time

import anyio
import countermand
from mcp.server.mcpserver import MCPServer

server = MCPServer("python")
# One line a cancelled request is too much where they are cancelled by the dozen.
logging.getLogger("countermand").setLevel(logging.WARNING)


def tell(what: str) -> None:
    os.write(2, f"{what} {time.monotonic_ns()}\n".encode())


@server.tool()
async def work() -> str:
    """Works until it is told to stop."""
    tell("began")
    try:
        await anyio.sleep_forever()
    finally:
        tell("ended")
    return "done"


if __name__ == "__main__":
    countermand.run(server)
