"""A server whose tools ask the client something: `nested_server.py`."""

from __future__ import annotations

import anyio

import countermand
from report import report
from sdk import Context, FastMCP

server = FastMCP("nested")


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def ask(ctx: Context, tag: str) -> str:
    report(f"start {tag}")
    try:
        await ctx.session.list_roots()
    except BaseException as error:
        report(f"{type(error).__name__} {tag}")
        raise
    return "asked"


@server.tool()
async def insist(ctx: Context, tag: str) -> str:
    """Shields itself from its cancellation, and asks again after it."""
    with anyio.CancelScope(shield=True):
        for attempt in range(2):
            report(f"asks {attempt} {tag}")
            try:
                await ctx.session.list_roots()
            except Exception:
                report(f"refused {attempt} {tag}")
    return "insisted"


countermand.run(server)
