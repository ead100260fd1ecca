"""Functions that are called when a token trips, in one thread that is started with the first of them."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable

from ._native import Callbacks
from ._native import Token as NativeToken

logger = logging.getLogger("countermand")

Unregister = Callable[[], None]
"""Takes a callback back. Calling it again, or after the callback was called, does nothing."""

_functions: dict[int, Callable[[], object]] = {}
_keys = itertools.count(1)
_start = threading.Lock()
_queue: Callbacks | None = None


def register(token: NativeToken, function: Callable[[], object]) -> Unregister:
    """Has ``function`` called when ``token`` trips."""
    key = next(_keys)
    _functions[key] = function
    watch = _running_queue().watch(token, key)

    def unregister() -> None:
        _functions.pop(key, None)
        watch.close()

    return unregister


def _running_queue() -> Callbacks:
    global _queue
    with _start:
        if _queue is None:
            _queue = Callbacks()
            thread = threading.Thread(
                target=_serve, args=(_queue,), name="countermand-callbacks", daemon=True
            )
            thread.start()
        return _queue


def _serve(queue: Callbacks) -> None:
    while (key := queue.next()) is not None:
        function = _functions.pop(key, None)
        if function is None:
            continue
        try:
            function()
        except Exception:
            logger.exception("an on_cancel callback failed")
