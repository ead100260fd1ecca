"""Loops that end when a token trips, and cleanup that may go on for a while after."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from ._callbacks import from_any_thread

if TYPE_CHECKING:
    from ._token import Token

T = TypeVar("T")


def guarded(token: Token, iterable: Iterable[T]) -> Iterator[T]:
    """The items, with a checkpoint before each."""
    token.checkpoint()
    for item in iterable:
        token.checkpoint()
        yield item


class AsyncGuard(AsyncIterator[T], Generic[T]):
    """The items; waiting for one ends when the token trips.

    Not a generator: one that is left half way is finished by the event loop, at a time of its own.
    """

    def __init__(self, token: Token, iterable: AsyncIterable[T]) -> None:
        """Iterates over it."""
        self._token = token
        self._items = aiter(iterable)

    async def __anext__(self) -> T:
        """The next item."""
        self._token.checkpoint()
        with anyio.CancelScope() as scope:
            unregister = self._token.on_cancel(from_any_thread(scope.cancel))
            try:
                item = await anext(self._items)
            finally:
                unregister()
            self._token.checkpoint()
            return item
        self._token.checkpoint()
        raise AssertionError("only the token cancels this scope")


@asynccontextmanager
async def shield(token: Token, budget: float) -> AsyncGenerator[None]:
    """See :meth:`Token.shield`."""
    with anyio.move_on_after(budget, shield=True) as scope:
        yield
    if scope.cancelled_caught and not token.cancelled:
        raise TimeoutError(f"this took longer than its {budget} seconds")
