"""The exceptions of this package: what handlers meet, and how calls end."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, cast

Cause = Literal["peer", "timeout", "disconnect", "shutdown", "local"]
"""Why a token tripped."""


class Cancelled(BaseException):
    """The request was cancelled: raised by :meth:`Token.checkpoint` to end its handler.

    Not an ``Exception``, so that ``except Exception`` in a handler does not swallow it, and not the
    ``CancelledError`` of an event loop, so that it may be raised in any thread or task. It ends the call,
    never the server.

    Attributes:
        cause: why the token tripped.
        reason: what the peer gave as its reason, if anything. It is the peer's text.
    """

    def __init__(self, cause: Cause, reason: str | None = None) -> None:
        """Says why."""
        super().__init__(f"cancelled ({cause})" if reason is None else f"cancelled ({cause}): {reason!r}")
        self.cause: Cause = cause
        self.reason = reason

    def __reduce__(self) -> tuple[type[Cancelled], tuple[Cause, str | None]]:
        """Copied and pickled by what it was made of."""
        return type(self), (self.cause, self.reason)


class _AsyncioCancelled(Cancelled, asyncio.CancelledError):
    """Raised where asyncio runs, for those who look for its own cancellation."""


def cancellation(cause: Cause, reason: str | None) -> Cancelled:
    """The cancellation of the runtime that runs now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return Cancelled(cause, reason)
    return _AsyncioCancelled(cause, reason)


class RpcError(Exception):
    """The peer's own error.

    Attributes:
        code: the JSON-RPC error code.
        message: what the peer says.
        data: what it adds, if anything.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        """Says what the peer said."""
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def of(cls, error: Any) -> RpcError:
        """Of the ``error`` in a response, which may be anything."""
        fields = cast("dict[str, Any]", error if isinstance(error, dict) else {"message": error})
        return cls(fields.get("code", 0), str(fields.get("message", "")), fields.get("data"))


class CallTimeout(TimeoutError):
    """A call took too long, and was cancelled.

    Attributes:
        outcome: what was known of its effects then: ``not_sent`` or ``unknown``.
    """

    def __init__(self, message: str, outcome: str) -> None:
        """Says what is known."""
        super().__init__(f"{message} (its outcome: {outcome})")
        self.outcome = outcome


class Disconnected(ConnectionError):
    """The connection ended before the call did.

    Attributes:
        outcome: what is known of its effects: ``not_sent`` or ``unknown``.
    """

    def __init__(self, message: str, outcome: str) -> None:
        """Says what is known."""
        super().__init__(f"{message} (the call's outcome: {outcome})")
        self.outcome = outcome
