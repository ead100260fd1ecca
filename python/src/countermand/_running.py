"""A handler that runs: what a cancel does to it, beside tripping its token."""

from __future__ import annotations

from typing import Any

import anyio

from ._native import Token


class Running:
    """One handler, in its scope and its task."""

    __slots__ = ("_lent", "_scope", "_slots", "_task", "_token")

    def __init__(
        self, scope: anyio.CancelScope, token: Token, task: Any, slots: anyio.CapacityLimiter
    ) -> None:
        """Runs in this scope and task; the limiter is that of the threads of this event loop."""
        self._scope = scope
        self._token = token
        self._task = task
        self._slots = slots
        self._lent = False

    def cancel(self) -> None:
        """Cancels the scope. A handler that waits for a thread goes on waiting: its slot is replaced
        meanwhile.

        The SDKs run sync tools in anyio's 40 threads, and wait for them whatever is cancelled. Without this,
        the 41st request would wait until one of 40 cancelled tools has ended.
        """
        self._scope.cancel()
        self._token.give_way()
        if not self._lent and self._task in self._slots.statistics().borrowers:
            self._lent = True
            self._slots.total_tokens += 1

    def exited(self) -> None:
        """The handler has ended, and with it what it waited for."""
        if self._lent:
            self._slots.total_tokens -= 1
