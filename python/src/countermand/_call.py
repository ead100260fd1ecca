"""Requests of one's own: a handle that can be awaited, and abandoned at any moment.

The engine decides how each ends. What lives here: that end as Python's users expect it, and the waiting.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Literal, cast

import anyio

from ._errors import CallTimeout, Cause, Disconnected, RpcError, cancellation
from ._link import Link, WriteStream
from ._native import Follow
from ._token import Token, _current  # pyright: ignore[reportPrivateUsage]

State = Literal["queued", "running", "done", "failed", "cancelled", "timed_out", "disconnected"]
Outcome = Literal["not_sent", "cancelled", "completed", "unknown"]


def call(
    client: Any,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    idle: float | None = None,
    total: float | None = None,
    progress: bool = False,
    within: Token | None = None,
) -> Call:
    """Makes a request over a connection that :func:`stdio_client` opened, and returns at once::

        slow = countermand.call(session, "tools/call", {"name": "slow", "arguments": {}}, total=30)
        try:
            result = await slow
        except TimeoutError: ...

    Within a handler it is made on behalf of the handler's request, and is cancelled with it.

    Args:
        client: the session on that connection, or the pair of streams.
        method: the method.
        params: its parameters; anything that ``json`` can write.
        idle: seconds that may pass without progress.
        total: seconds that may pass, whatever progress there is.
        progress: whether to ask for progress: see :attr:`Call.progress`.
        within: the token on whose behalf it is made; that of this context unless it is given.

    Raises:
        ConnectionError: if the connection is closed.
        Cancelled: if the token has tripped.
        RuntimeError: if more than ``max_outbound`` calls wait.
        TypeError: if ``client`` is of no such connection.
    """
    link = link_of(client)
    if link is None:
        raise TypeError(
            f"a {type(client).__name__} is no connection of countermand's: open it with "
            "countermand.stdio_client(), and hand in the session or the pair of streams"
        )
    parent = _current.get(None) if within is None else within
    text = None if params is None else json.dumps(params)
    number, follow = link.wire.call(method, text, within=parent, idle=idle, total=total, progress=progress)
    made = Call(link, number, follow)
    link.calls[number] = made
    return made


def link_of(client: Any) -> Link | None:
    """The link of a session or of a pair of streams, if it is one of ours."""
    if isinstance(client, tuple):
        client = cast("tuple[Any, ...]", client)[-1]
    for path in ((), ("_write_stream",), ("_dispatcher", "_write_stream"), ("session",)):
        found = client
        for name in path:
            found = getattr(found, name, None)
        if isinstance(found, WriteStream):
            return found.link
        if path == ("session",) and found is not None:
            return link_of(found)
    return None


class Call:
    """A request of one's own. Awaiting it gives its result; it ends once, and nothing follows the end.

    Where the task that awaits it is cancelled, the call is cancelled too, and so it is at the end of an
    ``async with`` block. It belongs to one event loop; :meth:`cancel` may be called from any thread.

    Awaiting it raises:
        RpcError: the peer's own error.
        CallTimeout: it took too long (a :class:`TimeoutError`).
        Disconnected: the connection ended (a :class:`ConnectionError`).
        Cancelled: it was cancelled; under asyncio also an :class:`asyncio.CancelledError`.
    """

    def __init__(self, link: Link, number: int, follow: Follow | None) -> None:
        """Was just made."""
        self._link = link
        self._number = number
        self._follow = follow
        self._state: State | None = None
        self._result: Any = None
        self._error: Callable[[], BaseException] | None = None
        self._outcome: Outcome | None = None
        self._changed: list[anyio.Event] = []
        self._progress: deque[dict[str, Any]] = deque()

    @property
    def id(self) -> int:
        """Its JSON-RPC id, which is never used again on this connection."""
        return self._number

    @property
    def state(self) -> State:
        """``queued`` until it was sent, then ``running``, then how it ended."""
        if self._state is not None:
            return self._state
        return "queued" if self._link.wire.sent(self._number) is False else "running"

    @property
    def outcome(self) -> Outcome:
        """What is known of its effects: ``not_sent``, ``cancelled`` (the peer says so), ``completed`` (its
        response came, perhaps too late) or ``unknown``. Whether it would be safe to make it again, where that
        is unknown, is said by the tool's ``idempotentHint`` and ``readOnlyHint``."""
        if self._state in ("done", "failed"):
            return "completed"
        if self._outcome is None:
            return "not_sent" if self._link.wire.sent(self._number) is False else "unknown"
        return self._link.wire.outcome(self._number) or self._outcome

    def cancel(self, reason: str | None = None) -> bool:
        """Cancels it: whoever awaits it is told at once, and the peer as soon as it reads.

        From any thread, and at any time: false if it was over. The reason goes to the peer.
        """
        how = self._link.wire.abandon(self._number, "local", reason)
        if how == "settled":
            return False
        # Known here at once; who awaits it is woken by the event.
        self._over("local", reason, "not_sent" if how == "not_sent" else "unknown")
        return True

    async def result(self) -> Any:
        """The result, when it has come: the same as awaiting the call."""
        while self._state is None:
            try:
                await self._change()
            except anyio.get_cancelled_exc_class():
                self.cancel()
                raise
        if self._error is not None:
            raise self._error()
        return self._result

    def __await__(self) -> Generator[Any, Any, Any]:
        """Gives the result."""
        return self.result().__await__()

    @property
    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """The parameters of its progress notifications, as they come; ends with the call.

        For a call that was made with ``progress=True``.
        """
        while True:
            while self._progress:
                yield self._progress.popleft()
            if self._state is not None:
                return
            await self._change()

    async def __aenter__(self) -> Call:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancels it if it is not over."""
        self.cancel()

    def on_change(self, event: anyio.Event) -> None:
        """Has an event set when there is progress, and at the end."""
        self._changed.append(event)

    def off_change(self, event: anyio.Event) -> None:
        """Takes it back."""
        self._changed.remove(event)

    async def _change(self) -> None:
        event = anyio.Event()
        self.on_change(event)
        try:
            await event.wait()
        finally:
            self.off_change(event)

    def moved(self, frame: str) -> None:
        """There was progress."""
        self._progress.append(json.loads(frame).get("params") or {})
        self._tell()

    def settled(self, frame: str) -> None:
        """Its response has come."""
        response = json.loads(frame)
        error = response.get("error")
        if error is None:
            self._result = response.get("result")
            self._state = "done"
        else:
            self._error = lambda: RpcError.of(error)
            self._state = "failed"
        self._ended()

    def abandoned(self, cause: Cause, reason: str | None, outcome: Outcome) -> None:
        """Nothing will come any more."""
        self._over(cause, reason, outcome)
        self._ended()

    def _over(self, cause: Cause, reason: str | None, outcome: Outcome) -> None:
        if self._state is not None:
            return
        self._outcome = outcome
        if cause == "timeout":
            self._error = lambda: CallTimeout("the call took too long", outcome)
            self._state = "timed_out"
        elif cause in ("disconnect", "shutdown"):
            self._error = lambda: Disconnected("the connection ended", outcome)
            self._state = "disconnected"
        else:
            self._error = lambda: cancellation(cause, reason)
            self._state = "cancelled"

    def _ended(self) -> None:
        if self._follow is not None:
            self._follow.close()
        self._tell()

    def _tell(self) -> None:
        for event in self._changed:
            event.set()


async def gather(*calls: Call) -> list[Any]:
    """The results of several calls, in their order. If one of them fails, or this is cancelled, the others
    are cancelled."""
    try:
        while True:
            for failed in calls:
                if failed.state not in ("queued", "running", "done"):
                    await failed
            if all(one.state == "done" for one in calls):
                return [await one for one in calls]
            event = anyio.Event()
            for one in calls:
                one.on_change(event)
            try:
                await event.wait()
            finally:
                for one in calls:
                    one.off_change(event)
    finally:
        for one in calls:
            one.cancel()
