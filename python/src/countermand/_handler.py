"""One handler's life: it starts if the engine lets it, runs in a scope of ours, and its exit is told.

```text
waiting ──start──▶ running ──returned, raised──▶ exited ──▶ the SDK answers; the engine lets it pass or not
   └─ cancelled ─▶ never runs        └─ cancelled: the scope is cancelled, whatever comes of it is swallowed
```

The SDK never hears of the peer's cancel: what it makes of one differs, and kills some servers. It gets an
ordinary error in place of a handler that was cancelled, and its answer is swallowed.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Generator
from typing import Any, cast

import anyio

from ._errors import Cancelled
from ._interrupt import main_section, on_main_thread
from ._link import current_link
from ._native import MainSection
from ._sdk import CANCELLED, INTERNAL_ERROR
from ._token import Token, _current  # pyright: ignore[reportPrivateUsage]

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup  # anyio brings it


async def run(request_id: Any, call: Callable[[], Awaitable[Any]], interrupt: bool = False) -> Any:
    """Awaits ``call`` as the handler of the request that the SDK knows by this id.

    With ``interrupt``, what blocks the main thread in it is broken off when the request is cancelled.
    """
    link = current_link.get()
    generation = None if link is None else link.waiting.pop(request_id, None)
    if link is None or generation is None:
        return await call()  # Of another transport: not ours to stop.
    failure = link.sdk.failure
    if not link.wire.start(generation):
        raise failure(CANCELLED, "Request cancelled")
    token = Token(link.wire.connection, generation)
    before = _current.set(token)
    section = main_section(token) if interrupt and on_main_thread() else None
    steps = _Steps(call, token, section)
    link.runs(generation, steps.scope, token)
    try:
        with steps.scope:
            try:
                return await steps
            except BaseException as error:
                if not steps.cancelled and _cancelled_from_outside(error, steps.scope):
                    raise
                end = _end_of_call(error)
                if end is error:
                    raise
                if end is not None:
                    raise end from error
                if not token.cancelled:
                    raise failure(INTERNAL_ERROR, "Internal error: the handler was cancelled") from error
        raise failure(CANCELLED, "Request cancelled")
    finally:
        if section is not None:
            section.close()
        _current.reset(before)
        link.exited(generation)


class _Steps:
    """Awaits a handler step by step, so that none is taken after the token has tripped.

    The loop may have made the handler ready before it learns of the trip: a request that waited behind a
    handler which blocked the loop would start although it was cancelled meanwhile. Between two steps the
    token is asked, and the cancellation raised where the scope's own would be: not within a shield.
    """

    def __init__(self, call: Callable[[], Awaitable[Any]], token: Token, section: MainSection | None) -> None:
        self.scope = anyio.CancelScope()
        self.cancelled = False
        """Whether the cancellation was raised here."""
        self._call = call
        self._token = token
        self._section = section

    def __await__(self) -> Generator[Any, Any, Any]:
        handler = self._call().__await__()
        token, section = self._token, self._section
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                step, what = (handler.send, value) if error is None else (handler.throw, error)
                wanted = step(what) if section is None or token.cancelled else section.run(step, what)
            except StopIteration as stop:
                return stop.value
            error = None
            try:
                value = yield wanted
            except BaseException as raised:
                error = raised
            else:
                if token.cancelled and not self.cancelled:
                    error = self._cancellation()

    def _cancellation(self) -> BaseException | None:
        self.scope.cancel()
        if anyio.current_effective_deadline() != -math.inf:
            return None  # Shielded: the scope will raise it later.
        self.cancelled = True
        if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
            return asyncio.CancelledError("the request was cancelled")
        return Cancelled(self._token.cause or "local", self._token.reason)


def _cancelled_from_outside(error: BaseException, scope: anyio.CancelScope) -> bool:
    """Whether this is the runtime's cancellation, by our scope or by one around it: the server ends."""
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return False
    return scope.cancel_called or anyio.current_effective_deadline() == -math.inf


def _end_of_call(error: BaseException) -> BaseException | None:
    """What is left of an error when cancellation is taken out of it: the error itself where it had none,
    nothing where it was all."""
    cancellation = (Cancelled, anyio.get_cancelled_exc_class())
    if isinstance(error, cancellation):
        _withdraw_cancel()
        return None
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        found, rest = group.split(cancellation)
        return group if found is None else rest
    return error


def _withdraw_cancel() -> None:
    """A handler that cancelled its own task has ended; the task goes on to answer."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return
    if sys.version_info >= (3, 11) and task is not None:
        while task.cancelling():
            task.uncancel()
