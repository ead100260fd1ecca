"""The drop-in for the SDK's `stdio_server()`."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from ._link import Link, ReadStream, WriteStream, current_link
from ._native import Wire
from ._sdk import sdk

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import Options


@asynccontextmanager
async def stdio_server(
    server: Any = None, *, interrupt: bool = False, **options: Unpack[Options]
) -> AsyncGenerator[tuple[ReadStream, WriteStream]]:
    """Serves MCP on this process's stdin and stdout, read and written by the engine.

    In place of ``mcp.server.stdio.stdio_server()``::

        async with countermand.stdio_server(server) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    ``server`` is the low-level server that will run on the streams: its handlers are put under the engine
    (:func:`countermand.guard`). Without it cancelled requests are never started or answered, and
    the handlers that run are not stopped.

    From here on fd 0 reads as empty, and what is written to fd 1 (``print``, C code, a child) goes to stderr.
    After end of input, SIGTERM or SIGINT handlers may unwind for ``grace`` seconds; then the process ends.

    Args:
        server: a low-level ``Server`` of ``mcp`` 1.x or 2.x.
        interrupt: as for :func:`countermand.guard`.
        **options: see :class:`countermand.Options`.

    Raises:
        RuntimeError: if this process serves on its stdin and stdout already.
    """
    if server is not None:
        from ._guard import guard_handlers

        guard_handlers(server, interrupt)
    with sigint_to_the_engine():
        async with serving(Wire(**options)) as link:
            yield link.read, link.write


@contextmanager
def sigint_to_the_engine() -> Generator[None]:
    """Has SIGINT end the connection, and not the event loop beside it: that would cancel the SDK before the
    engine has heard, which answers what is in flight with errors. To be entered before the wire is opened."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@asynccontextmanager
async def serving(wire: Wire) -> AsyncGenerator[Link]:
    """Serves on a wire, and says so to the tasks that are started in the block."""
    async with Link(wire, sdk()).open() as link:
        before = current_link.set(link)
        try:
            yield link
        finally:
            current_link.reset(before)
