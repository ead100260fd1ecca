"""The demo's server on the Python SDK 2.x.

`guarded` on the command line changes one line, the last, and who runs what never asks its token: the tree of
processes, and code that blocks.
"""

import asyncio
import importlib.metadata
import sys
import time

import anyio
import countermand
from mcp.server import MCPServer
from report import fresh_tree, report, reported


def stop_asked() -> bool:
    """What code that does not await can look at: nothing, in a stock server."""
    try:
        return countermand.current().cancelled
    except LookupError:
        return False


interruptible = countermand.interruptible if "guarded" in sys.argv else lambda function: function

server = MCPServer("demo")


@server.tool()
async def echo(tag: str) -> str:
    """Answers at once."""
    with reported(tag):
        return tag


@server.tool()
async def sleep(tag: str, seconds: float) -> str:
    """Awaits."""
    with reported(tag):
        await asyncio.sleep(seconds)
    return tag


@server.tool()
async def stubborn(tag: str, seconds: float) -> str:
    """Swallows its cancellation, works on for a while and returns a result."""
    with reported(tag):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(seconds)
    return tag


@server.tool()
async def spin(tag: str, seconds: float) -> str:
    """Blocks the event loop."""
    end = time.monotonic() + seconds
    with reported(tag):
        while time.monotonic() < end and not stop_asked():
            pass
    return tag


@server.tool()
def block(tag: str, seconds: float) -> str:
    """Blocks a thread: the SDK runs a plain `def` in one."""
    end = time.monotonic() + seconds
    with reported(tag):
        while time.monotonic() < end and not stop_asked():
            time.sleep(0.005)
    return tag


@server.tool()
def hold(tag: str, seconds: float) -> str:
    """Blocks a thread, and never asks."""
    with reported(tag):
        time.sleep(seconds)
    return tag


@server.tool()
@interruptible
async def loop(tag: str, seconds: float) -> str:
    """Blocks the event loop with a loop that never asks."""
    end = time.monotonic() + seconds
    with reported(tag):
        while time.monotonic() < end:
            pass
    return tag


@server.tool()
@interruptible
async def stuck(tag: str, seconds: float) -> str:
    """Blocks the event loop in a call."""
    with reported(tag):
        time.sleep(seconds)
    return tag


@server.tool()
async def tree(tag: str) -> str:
    """Runs a command that leaves much behind."""
    command = fresh_tree(tag)
    with reported(tag):
        if "guarded" in sys.argv:
            await countermand.current().run(command, grace=0.3)
        else:
            await anyio.run_process(command)
    return tag


report("sdk", importlib.metadata.version("mcp"))
countermand.run(server) if "guarded" in sys.argv else server.run()
