"""A server whose handlers block, on whichever SDK is installed.

    blocking_server.py plain | interrupt

A handler reports where it is as `@…` on stderr, as in `server.py`.
"""

from __future__ import annotations

import gc
import json
import sys
import time

import anyio
import anyio.to_thread

import blocking
import countermand
from countermand import current
from report import report
from sdk import FastMCP

server = FastMCP("blocking")


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def stats() -> str:
    gc.collect()
    return json.dumps(countermand.stats())


@server.tool()
async def slots() -> str:
    """Of anyio's threads."""
    return json.dumps(anyio.to_thread.current_default_thread_limiter().total_tokens)


# What blocks where the SDK runs it.


@server.tool()
def sync(kind: str, tag: str) -> str:
    return blocking.block(kind, tag)


@server.tool()
async def on_the_loop(kind: str, tag: str) -> str:
    return blocking.block(kind, tag)


@server.tool()
async def between_awaits(kind: str, tag: str) -> str:
    """Blocks in a step that is not its first."""
    await anyio.sleep(0.001)
    result = blocking.block(kind, tag)
    await anyio.sleep(0.001)
    return result


# What opts in by itself.


@server.tool()
@countermand.interruptible
def interruptible_sync(kind: str, tag: str) -> str:
    return blocking.block(kind, tag)


@server.tool()
@countermand.interruptible
async def interruptible_async(kind: str, tag: str) -> str:
    await anyio.sleep(0.001)
    return blocking.block(kind, tag)


# What is done after an interrupt.


@server.tool()
async def cleanup(tag: str, seconds: float) -> str:
    """Blocks again in its cleanup, which is left alone."""
    try:
        return blocking.block("sleep", tag)
    finally:
        time.sleep(seconds)
        report(f"cleaned {tag}")


@server.tool()
async def shielded(tag: str) -> str:
    """Cleans up for longer than it may."""
    token = current()
    try:
        report(f"start {tag}")
        await anyio.sleep(3600)
    finally:
        async with token.shield(5):
            await anyio.sleep(0.01)
            report(f"cleaned {tag}")
        async with token.shield(0.05):
            try:
                await anyio.sleep(3600)
            finally:
                report(f"cut {tag}")
        report(f"left {tag}")
    return tag


@server.tool()
async def swallow(tag: str) -> str:
    """Goes on after its interrupt as if nothing had been."""
    try:
        blocking.block("loop", tag)
    except BaseException:
        report(f"swallowed {tag}")
    return tag


@server.tool()
async def short(seconds: float) -> str:
    """Blocks the loop for so long, in Python and in system calls."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0)
    await anyio.sleep(0)
    return "done"


@server.tool()
@countermand.interruptible
def short_sync(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "done"


# Threads and processes of the package's own.


@server.tool()
async def thread(kind: str, tag: str, interrupt: bool = False) -> str:
    try:
        return await countermand.to_thread(blocking.block, kind, tag, interrupt=interrupt)
    except BaseException as error:
        report(f"caller {type(error).__name__} {tag}")
        raise


@server.tool()
async def thread_request_id() -> str:
    return await countermand.to_thread(lambda: json.dumps(current().request_id))


@server.tool()
async def process(kind: str, tag: str) -> str:
    try:
        return await countermand.to_process(blocking.block, kind, tag)
    except BaseException as error:
        report(f"caller {type(error).__name__} {tag}")
        raise


@server.tool()
@countermand.in_process
def sync_in_process(kind: str, tag: str) -> str:
    return blocking.block(kind, tag)


@server.tool()
async def process_family(tag: str) -> str:
    await countermand.to_process(blocking.family, tag)
    return tag


@server.tool()
async def process_pid() -> str:
    return str(await countermand.to_process(blocking.pid))


if __name__ == "__main__":
    countermand.run(server, interrupt=sys.argv[1] == "interrupt")
