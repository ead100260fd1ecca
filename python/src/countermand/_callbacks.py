"""Functions that are called when a token trips or a process ends, in one thread that is started with the
first of them."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from functools import partial

from ._native import Callbacks, Token, Watch

logger = logging.getLogger("countermand")

Unregister = Callable[[], None]
"""Takes a callback back. Calling it again, or after the callback was called, does nothing."""

_waiting: dict[int, tuple[Callable[[], object], Watch | None]] = {}
"""What is to be called, by key. A token's watch stands here too, since it ends when it is dropped."""
_keys = itertools.count(1)
_lock = threading.Lock()
_queue: Callbacks | None = None


class Registrations:
    """The callbacks of one request's tokens. Those that were never called go when its last token goes."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        """Has none."""
        self._keys: set[int] = set()

    def register(self, token: Token, function: Callable[[], object]) -> Unregister:
        """Has ``function`` called when ``token`` trips."""
        key = next(_keys)
        queue = _running_queue()
        # A token that has tripped sends its key at once: the thread must find the function then.
        with _lock:
            _waiting[key] = (function, queue.watch(token, key))
            self._keys.add(key)

        def unregister() -> None:
            self._keys.discard(key)
            _take_back(key)

        return unregister

    def __del__(self) -> None:
        """A request that ended well has nothing to call any more; one that tripped has, or had."""
        for key in self._keys:
            waiting = _waiting.get(key)
            if waiting is not None and waiting[1] is not None and not waiting[1].tripped:
                _take_back(key)


def call_once(function: Callable[[], object], notify: Callable[[Callbacks, int], object]) -> Unregister:
    """Has ``function`` called when the key that ``notify`` is given arrives."""
    key = next(_keys)
    queue = _running_queue()
    with _lock:
        _waiting[key] = (function, None)
    notify(queue, key)
    return partial(_take_back, key)


def from_any_thread(function: Callable[[], object]) -> Callable[[], object]:
    """``function``, to be run by the event loop that runs now."""
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return partial(trio.lowlevel.current_trio_token().run_sync_soon, function)
    return partial(loop.call_soon_threadsafe, function)


def _take_back(key: int) -> None:
    waiting = _waiting.pop(key, None)
    if waiting is not None and waiting[1] is not None:
        waiting[1].close()


def _running_queue() -> Callbacks:
    global _queue
    with _lock:
        if _queue is None:
            _queue = Callbacks()
            thread = threading.Thread(
                target=_serve, args=(_queue,), name="countermand-callbacks", daemon=True
            )
            thread.start()
        return _queue


def _serve(queue: Callbacks) -> None:
    while (key := queue.next()) is not None:
        # In a frame of its own: what it holds must not outlive the call.
        _call(key)


def _call(key: int) -> None:
    with _lock:
        waiting = _waiting.pop(key, None)
    if waiting is None:
        return
    try:
        waiting[0]()
    except Exception:
        logger.exception("an on_cancel callback failed")
