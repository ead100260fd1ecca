"""Puts a server under the engine: stands at the seams of the one object that it is handed."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from . import _handler
from ._call import link_of
from ._client import guard_session
from ._native import Wire
from ._sdk import sdk
from ._signals import exit_code
from ._stdio import serving, sigint_to_the_engine

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import Options

Server = TypeVar("Server")

_GUARDED = "_countermand_guarded"
_wire: ContextVar[Wire | None] = ContextVar("countermand.wire", default=None)
"""The wire on which the server that is being started is to run."""


def guard(server: Server, *, interrupt: bool = False, **options: Unpack[Options]) -> Server:
    """Puts a server under the engine, and returns it.

    Its handlers find their token with :func:`countermand.current`, and when it is run over stdio the engine
    reads and writes the wire. Other transports work as before. Guarding it again does nothing.

    Args:
        server: a ``FastMCP`` of ``mcp`` 1.x or ``fastmcp`` 3 or 4, an ``MCPServer`` of ``mcp`` 2.x, or the
            low-level ``Server`` of either. Or a ``ClientSession`` on the streams of :func:`stdio_client`:
            then its requests are cancelled when nobody waits for them any more, which ``mcp`` 1.x does not
            do by itself.
        interrupt: whether a cancel also breaks off a handler that blocks the main thread, as Ctrl-C would: a
            loop, ``time.sleep``, a socket, ``subprocess.run``. See :func:`countermand.interruptible`, which
            does it for one function, and in other threads.
        **options: see :class:`countermand.Options`.

    Raises:
        TypeError: if it is none of these.
    """
    if hasattr(server, _GUARDED):
        return server
    if link_of(server) is not None:
        return guard_session(server)
    inner = _low_level(server)
    guard_handlers(inner, interrupt)
    if inner is not server:
        _guard_stdio(server, inner, options)
    setattr(server, _GUARDED, True)
    return server


def run(server: Any, *, interrupt: bool = False, **options: Unpack[Options]) -> None:
    """Runs a server over stdio under the engine: the one changed line, in place of ``server.run()``.

    Returns when the connection is over. ``grace`` seconds after that the process ends, whatever a handler is
    still stuck in: a program that goes on after serving passes ``exit_process=False``.

    Args:
        server: as for :func:`guard`, but for low-level servers: see :func:`stdio_server`.
        interrupt: as for :func:`guard`.
        **options: see :class:`countermand.Options`.

    Raises:
        TypeError: if it cannot be run this way.
    """
    guard(server, interrupt=interrupt, **options)
    if not hasattr(server, "run_stdio_async"):
        raise TypeError(
            "a low-level server is run on streams: async with countermand.stdio_server(server) as (read, "
            "write): await server.run(read, write, server.create_initialization_options())"
        )
    server.run(transport="stdio")


def guard_handlers(server: Any, interrupt: bool) -> None:
    """Has the engine run every request handler of a low-level server."""
    if not hasattr(server, _GUARDED):
        sdk().wrap(server, partial(_handler.run, interrupt=True) if interrupt else _handler.run)
        setattr(server, _GUARDED, True)


def _low_level(server: Any) -> Any:
    """The low-level server in a server, or the server if it is one."""
    for name in ("_mcp_server", "_lowlevel_server"):
        inner = getattr(server, name, None)
        if inner is not None:
            return inner
    if hasattr(server, "create_initialization_options"):
        return server
    raise TypeError(
        f"countermand cannot guard a {type(server).__name__}: it takes FastMCP (mcp 1.x, fastmcp 3 and 4), "
        "MCPServer (mcp 2.x) and their low-level Server"
    )


def _guard_stdio(server: Any, inner: Any, options: Options) -> None:
    """Gives the server the engine's streams where it would run on the SDK's stdio streams.

    The SDK's own are opened beside them and find an empty stdin, since the wire has been taken by then: all
    else that the framework does around them (lifespans, banners, log levels) stays as it is.
    """
    run_stdio, run_streams, run_sync = server.run_stdio_async, inner.run, server.run

    @wraps(run_stdio)
    async def run_stdio_async(*args: Any, **kwargs: Any) -> Any:
        with sigint_to_the_engine():
            before = _wire.set(Wire(**options))
            try:
                return await run_stdio(*args, **kwargs)
            finally:
                _wire.reset(before)

    @wraps(run_streams)
    async def run_on_streams(read: Any, write: Any, *args: Any, **kwargs: Any) -> Any:
        wire = _wire.get()
        if wire is None:
            return await run_streams(read, write, *args, **kwargs)
        async with serving(wire) as link:
            try:
                return await run_streams(link.read, link.write, *args, **kwargs)
            finally:
                await write.aclose()
                await read.aclose()

    @wraps(run_sync)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = run_sync(*args, **kwargs)
        code = exit_code() if options.get("exit_process", True) else None
        if code:
            sys.exit(code)
        return result

    server.run_stdio_async, inner.run, server.run = run_stdio_async, run_on_streams, run
