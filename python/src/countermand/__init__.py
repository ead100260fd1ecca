"""Cancellation for MCP servers that stops the work.

A Rust engine reads the wire, decides every race between a request, its response and its cancellation,
and maps tokens to the cancellation of asyncio and trio. One line puts a server under it::

    countermand.run(server)        # instead of server.run()

and anywhere below a handler, in a task or a thread::

    token = countermand.current()
    token.checkpoint()             # stops here if the request was cancelled
"""

from ._call import Call, call, gather
from ._callbacks import Unregister
from ._client import stdio_client
from ._errors import CallTimeout, Cancelled, Disconnected, RpcError
from ._guard import guard, run
from ._interrupt import interruptible
from ._native import Connection
from ._options import ClientOptions, Options
from ._pool import in_process, to_process
from ._process import Process
from ._signals import instrument, prometheus, stats
from ._stdio import stdio_server
from ._threads import to_thread
from ._token import Token, current

__all__ = [
    "Call",
    "CallTimeout",
    "Cancelled",
    "ClientOptions",
    "Connection",
    "Disconnected",
    "Options",
    "Process",
    "RpcError",
    "Token",
    "Unregister",
    "call",
    "current",
    "gather",
    "guard",
    "in_process",
    "instrument",
    "interruptible",
    "prometheus",
    "run",
    "stats",
    "stdio_client",
    "stdio_server",
    "to_process",
    "to_thread",
]
