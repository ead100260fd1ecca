"""The request's token, and how code below a handler finds it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import TypeVar, overload

import anyio

from ._callbacks import Registrations, Unregister
from ._native import Token as NativeToken

T = TypeVar("T")

_families = Lock()


class Token(NativeToken):
    """One request's place in the cancellation tree. Trips once, with a cause; its children trip with it.

    Usable in any thread and any task. ``cancelled`` is one load of an atomic that the wire's own thread
    writes, so a loop that never yields to the event loop sees it too.
    """

    __slots__ = ("_registrations",)

    _registrations: Registrations

    def child(self) -> Token:
        """A token that trips with this one and can be tripped alone; born tripped if this one has."""
        child = Token(self)
        child._registrations = self._family()
        return child

    def on_cancel(self, function: Callable[[], object]) -> Unregister:
        """Calls ``function`` once when the token trips, at once if it has.

        It is called in a thread of this package's own, also while the event loop is blocked: let it do
        something short that may be done from any thread, as ``connection.interrupt`` or
        ``process.terminate``. What it raises is logged. Returns a function that takes it back.
        """
        return self._family().register(self, function)

    def _family(self) -> Registrations:
        """What was registered with this request's tokens: shared, so that a child may be dropped."""
        with _families:
            try:
                return self._registrations
            except AttributeError:
                self._registrations = Registrations()
                return self._registrations

    async def wait(self) -> None:
        """Returns when the token has tripped. Under asyncio and trio."""
        if self.cancelled:
            await anyio.lowlevel.checkpoint()
            return
        event = anyio.Event()
        unregister = self.on_cancel(from_any_thread(event.set))
        try:
            await event.wait()
        finally:
            unregister()

    @overload
    def guard(self, iterable: AsyncIterable[T]) -> AsyncIterator[T]: ...

    @overload
    def guard(self, iterable: Iterable[T]) -> Iterator[T]: ...

    def guard(self, iterable: Iterable[T] | AsyncIterable[T]) -> Iterator[T] | AsyncIterator[T]:
        """The same items, with a checkpoint before each: ``for`` and ``async for`` end when the token trips.

        An ``async for`` also ends while it waits for an item, whichever token trips: also a child's, which
        cancels no task.
        """
        from ._loops import AsyncGuard, guarded

        if isinstance(iterable, AsyncIterable):
            return AsyncGuard(self, iterable)
        return guarded(self, iterable)

    def shield(self, budget: float) -> AbstractAsyncContextManager[None]:
        """Lets cleanup await although the request was cancelled, for at most ``budget`` seconds::

            finally:
                async with token.shield(2):
                    await connection.rollback()

        What has not ended by then is cancelled. If the request was cancelled, the block is left and the
        cancellation goes on; otherwise :class:`TimeoutError` is raised. Under asyncio and trio.
        """
        from ._loops import shield

        return shield(self, budget)


def from_any_thread(function: Callable[[], object]) -> Callable[[], object]:
    """``function``, to be run by the event loop that runs now."""
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return partial(trio.lowlevel.current_trio_token().run_sync_soon, function)
    return partial(loop.call_soon_threadsafe, function)


_current: ContextVar[Token] = ContextVar("countermand.current")


def current() -> Token:
    """The token of the request whose handler this runs in.

    Follows the context: into tasks, and into threads started with ``anyio.to_thread`` or
    ``asyncio.to_thread``. A bare ``threading.Thread`` starts with an empty context: hand it the token.

    Raises:
        LookupError: outside a handler of a guarded server.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError(
            "no request is being handled here: countermand.current() works in handlers of a server that runs "
            "under countermand.run(), guard() or stdio_server(), and where their context was copied to"
        ) from None
