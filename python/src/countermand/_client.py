"""The drop-in for the SDK's `stdio_client()`, and what makes its sessions cancel what nobody waits for."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import lru_cache, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import anyio

from ._call import link_of
from ._link import Link, ReadStream, Sending, WriteStream, now_sending
from ._native import Wire
from ._process import GRACE
from ._sdk import sdk

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import ClientOptions

CLOSE_WAIT = 2.0
"""Seconds that a server may take to end by itself once its stdin is closed."""


class StdioClient:
    """What :func:`stdio_client` returns: an async context manager whose value is the two streams."""

    def __init__(
        self, server: Any, errlog: TextIO, grace: float, close_wait: float, options: ClientOptions
    ) -> None:
        """Starts nothing yet."""
        encoding = str(getattr(server, "encoding", "utf-8")).lower().replace("_", "-")
        if encoding not in ("utf-8", "utf8"):
            raise ValueError(f"MCP's messages are UTF-8, not {encoding}")
        self._server = server
        self._errlog = errlog
        self._grace, self._close_wait = grace, close_wait
        self._options = options
        self._link: Link | None = None

    async def __aenter__(self) -> tuple[ReadStream, WriteStream]:
        """Starts the server."""
        if self._link is not None:
            raise RuntimeError("this connection was opened before: each takes a stdio_client() of its own")
        server = self._server
        wire = Wire.spawn(
            [server.command, *server.args],
            list(environment(server.env).items()),
            cwd=None if server.cwd is None else os.fsdecode(server.cwd),
            stderr=self._errlog.fileno(),
            grace=self._grace,
            close_wait=self._close_wait,
            **self._options,
        )
        link = self._link = Link(wire, sdk())
        link.gone = anyio.Event()
        link.start()
        return link.read, link.write

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the server, and returns when nothing of its tree is left. In any task."""
        link = self._link
        if link is None or link.gone is None:
            return
        link.wire.close("disconnect")
        with anyio.CancelScope(shield=True):
            await link.gone.wait()
        link.stop()

    @asynccontextmanager
    async def connect_session(self, **kwargs: Any) -> AsyncGenerator[Any]:
        """For ``fastmcp.Client``: a session on the streams."""
        from mcp import ClientSession

        # Of fastmcp 4: none of them concerns a pipe.
        kwargs.pop("transport_options", None)
        async with self as (read, write), ClientSession(read, write, **kwargs) as session:  # type: ignore[arg-type]
            yield guard_session(session)

    async def close(self) -> None:
        """For ``fastmcp.Client``: the connection ends with its session."""


def stdio_client(
    server: Any,
    errlog: TextIO = sys.stderr,
    *,
    grace: float = GRACE,
    close_wait: float = CLOSE_WAIT,
    **options: Unpack[ClientOptions],
) -> StdioClient:
    """Starts an MCP server and speaks to it over its stdin and stdout, read and written by the engine.

    In place of ``mcp.client.stdio.stdio_client()``::

        async with countermand.stdio_client(params) as (read, write):
            async with ClientSession(read, write) as session:
                countermand.guard(session)

    and as the transport of ``mcp.Client`` (2.x) and ``fastmcp.Client``. The server and everything that it
    starts end with the block, also if ``initialize`` is still pending: its stdin is closed; what is left
    after ``close_wait`` gets SIGTERM, and after ``grace`` SIGKILL. They also end with this process, within
    two seconds.

    Ids are never used twice, responses that come late, twice or for nothing reach nobody, nor does progress
    after the end, and no cancel is sent for what was not sent or is over. The block may be entered and left
    in different tasks.

    Args:
        server: ``StdioServerParameters`` of the SDK.
        errlog: where the server's stderr goes: a file with a descriptor.
        grace: seconds between SIGTERM and SIGKILL.
        close_wait: seconds that the server may take to end by itself.
        **options: see :class:`countermand.ClientOptions`.

    Raises:
        OSError: on entry, if the server cannot be started.
    """
    fastmcp: Any = sys.modules.get("fastmcp.client.transports")
    kind = StdioClient if fastmcp is None else _fastmcp_transport(fastmcp.ClientTransport)
    return kind(server, errlog, grace, close_wait, options)


@lru_cache(maxsize=1)
def _fastmcp_transport(base: Any) -> type[StdioClient]:
    """The same as a transport of ``fastmcp.Client``, which takes no other."""
    return type("StdioClient", (StdioClient, base), {})


def environment(given: dict[str, str] | None) -> dict[str, str]:
    """What the SDK gives a server: what is safe to inherit, and what was asked for."""
    from mcp.client.stdio import get_default_environment

    return {**get_default_environment(), **(given or {})}


def guard_session(session: Any) -> Any:
    """Has a client session of ``mcp`` 1.x cancel its requests when nobody waits for them any more.

    The SDK says nothing to the peer when a request times out or its task is cancelled; that of 2.x does.
    """
    link = link_of(session)
    send_request = getattr(session, "send_request", None)
    if link is None or send_request is None or hasattr(session, "_countermand_guarded"):
        return session

    @wraps(send_request)
    async def followed(*args: Any, **kwargs: Any) -> Any:
        sending = Sending()
        before = now_sending.set(sending)
        try:
            return await send_request(*args, **kwargs)
        except BaseException:
            if sending.id is not None:
                link.cancel(sending.id)
            raise
        finally:
            now_sending.reset(before)

    session.send_request = followed
    session._countermand_guarded = True
    return session
