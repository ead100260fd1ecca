# Only one of the two SDKs is ever installed: what comes from the other cannot be resolved.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""What differs between the two generations of the Python SDK: `mcp` 1.x and 2.x.

`fastmcp` 3 stands on the first and `fastmcp` 4 on the second. Nothing of either is imported before a server
is guarded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

CANCELLED = -32800
"""JSON-RPC error code of a request that was cancelled. The peer never sees it over stdio."""
INTERNAL_ERROR = -32603
"""JSON-RPC error code of a handler that failed."""

Handler = Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Runs a request, named by its id, by awaiting the function."""


@dataclass(frozen=True)
class Sdk:
    """The SDK's own reading and writing of messages, and the seam at which handlers are wrapped."""

    parse: Callable[[str], Any]
    """One frame as the item that the SDK's read stream yields. Raises where the SDK's transport would."""
    model: Callable[[Any], Any]
    """The request, response or notification in an item."""
    dump: Callable[[Any], str]
    """An item as the frame that the SDK's transport would write."""
    is_response: Callable[[Any], bool]
    """Whether a model is a result or an error."""
    failure: Callable[[int, str], Exception]
    """An exception that the SDK answers with this JSON-RPC error."""
    wrap: Callable[[Any, Handler], None]
    """Has every request handler of a low-level server run by the function."""


@lru_cache(maxsize=1)
def sdk() -> Sdk:
    """The SDK that is installed.

    Raises:
        ImportError: if there is none.
    """
    if find_spec("mcp_types") is not None:
        return _v2()
    if find_spec("mcp") is not None:
        return _v1()
    raise ImportError("countermand guards servers made with the MCP SDK: pip install mcp (or fastmcp)")


def _v1() -> Sdk:
    from mcp.server.lowlevel.server import request_ctx
    from mcp.shared.exceptions import McpError
    from mcp.shared.message import SessionMessage
    from mcp.types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse

    class Handlers(dict[Any, Any]):
        """The server's own table of handlers, which gives them out wrapped."""

        def __init__(self, handlers: dict[Any, Any], run: Handler) -> None:
            super().__init__(handlers)
            self.run = run

        def get(self, key: Any, default: Any = None) -> Any:
            handler = super().get(key)
            if handler is None:
                return default

            async def wrapped(request: Any) -> Any:
                return await self.run(request_ctx.get().request_id, lambda: handler(request))

            return wrapped

    def wrap(server: Any, run: Handler) -> None:
        server.request_handlers = Handlers(server.request_handlers, run)

    return Sdk(
        parse=lambda frame: SessionMessage(JSONRPCMessage.model_validate_json(frame)),
        model=lambda item: item.message.root,
        dump=lambda item: item.message.model_dump_json(by_alias=True, exclude_none=True),
        is_response=lambda model: isinstance(model, (JSONRPCResponse, JSONRPCError)),
        failure=lambda code, message: McpError(ErrorData(code=code, message=message)),
        wrap=wrap,
    )


def _v2() -> Sdk:
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

    def wrap(server: Any, run: Handler) -> None:
        async def middleware(context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
            if context.request_id is None:
                return await call_next(context)
            return await run(context.request_id, lambda: call_next(context))

        server.middleware.insert(0, middleware)

    validate = jsonrpc_message_adapter.validate_json
    return Sdk(
        parse=lambda frame: SessionMessage(validate(frame, by_name=False)),
        model=lambda item: item.message,
        dump=lambda item: item.message.model_dump_json(by_alias=True, exclude_unset=True),
        is_response=lambda model: isinstance(model, (JSONRPCResponse, JSONRPCError)),
        failure=lambda code, message: MCPError(code=code, message=message),
        wrap=wrap,
    )
