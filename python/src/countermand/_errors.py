"""The one exception of this package that handlers meet."""

from __future__ import annotations

from typing import Literal

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
