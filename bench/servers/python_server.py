"""The benchmarks' server on each Python SDK.

    python_server.py mcp1|mcp2|fastmcp3|fastmcp4 [structured] [guarded]

With `structured` echo answers with a structured result beside the text, whose schema the SDK may check.
"""

import os
import sys
import time
import timeit

import anyio
import anyio.to_thread
import countermand

_FD = int(os.environ["BENCH_REPORT_FD"])


def make(sdk: str):
    if sdk == "mcp1":
        from mcp.server.fastmcp import FastMCP

        return FastMCP("bench", log_level="WARNING")
    if sdk == "mcp2":
        from mcp.server import MCPServer

        return MCPServer("bench", log_level="WARNING")
    from fastmcp import FastMCP

    return FastMCP("bench")


def report(event: str, tag: str) -> None:
    os.write(_FD, f"{event} {tag} {time.monotonic_ns()}\n".encode())


server = make(sys.argv[1])


plain = {"output_schema": None} if sys.argv[1].startswith("fastmcp") else {"structured_output": False}


@server.tool(**({} if "structured" in sys.argv else plain))
async def echo(text: str) -> str:
    return text


@server.tool()
async def wait(tag: str) -> str:
    """Awaits until it is cancelled."""
    report("start", tag)
    try:
        await anyio.sleep(60)
    finally:
        report("exit", tag)
    return tag


@server.tool()
async def poll(tag: str) -> str:
    """Looks at the token in a tight loop, in a thread."""
    token = countermand.current()

    def body() -> None:
        report("start", tag)
        while not token.cancelled:
            pass
        report("exit", tag)

    await anyio.to_thread.run_sync(body)
    return tag


@server.tool()
async def cost() -> str:
    """Nanoseconds for one read of `cancelled`, with the loop around it."""
    timer = timeit.Timer("token.cancelled", globals={"token": countermand.current()})
    return str(min(timer.repeat(7, 200_000)) / 200_000 * 1e9)


if "guarded" in sys.argv:
    countermand.run(server)
else:
    server.run(**({"show_banner": False} if sys.argv[1].startswith("fastmcp") else {}))
