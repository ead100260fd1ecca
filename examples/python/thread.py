"""Blocking code in a thread: left behind on a cancel, or interrupted. `mcp` 2.x."""

import hashlib
import itertools
import time

import countermand
from mcp.server.mcpserver import MCPServer

server = MCPServer("example")


@server.tool()
async def wait(seconds: float) -> str:
    """A system call: on a cancel the tool ends at once, and the thread when the call returns."""
    await countermand.to_thread(time.sleep, seconds)
    return "done"


@server.tool()
async def mine(text: str, zeros: int) -> int:
    """A loop in Python: `interrupt` ends it in its thread as well."""
    return await countermand.to_thread(search, text, "0" * zeros, interrupt=True)


def search(text: str, start: str) -> int:
    """Never looks at a token."""
    for number in itertools.count():
        if hashlib.sha256(f"{text}{number}".encode()).hexdigest().startswith(start):
            return number
    raise AssertionError("count() does not end")


if __name__ == "__main__":
    countermand.run(server)
