"""The link between the wire and an event loop: two streams for the SDK, and the trips for its handlers.

The engine's threads read and write; this drains what they read when they say so, and hands them what the
SDK writes, both in batches. It decides nothing: what is delivered, cancelled or swallowed, the engine has
decided before.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from ._native import Token, Wire
from ._running import Running
from ._sdk import Sdk
from ._signals import opened, tell
from ._token import _current  # pyright: ignore[reportPrivateUsage]

if TYPE_CHECKING:
    from ._call import Call

_MESSAGE, _CANCELLED, _WRITABLE, _CLOSED, _SETTLED, _PROGRESS, _ABANDONED, _GONE = range(8)
_CANCEL = "notifications/cancelled"
_BATCH = 256
"""Events that are taken at once; between two batches the event loop runs."""
_AHEAD = 1024
"""Messages that may wait for the SDK before no more are taken."""
_LAST_WORDS = 0.5
"""Seconds that what was decided before the end may take to be written."""

current_link: ContextVar[Link | None] = ContextVar("countermand.link", default=None)
"""The link that this task serves: inherited by the tasks in which the SDK runs handlers."""


class Sending:
    """A request that an SDK is making in this task."""

    id: Any = None
    """By which the SDK knows it, once it was sent."""


now_sending: ContextVar[Sending | None] = ContextVar("countermand.sending", default=None)


class Link:
    """One wire, served by one event loop."""

    def __init__(self, wire: Wire, sdk: Sdk) -> None:
        """Takes the wire; nothing is read before :meth:`open`."""
        opened(wire)
        self.wire = wire
        self.sdk = sdk
        self.waiting: dict[Any, int] = {}
        """Generations of requests that no handler has started for, by the id that the SDK knows them by."""
        self.running: dict[int, Running] = {}
        """The handlers that run."""
        self.read = ReadStream(self)
        self.write = WriteStream(self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots: Any = None
        self.calls: dict[int, Call] = {}
        """Requests of our own that are not over."""
        self.gone: anyio.Event | None = None
        """Set when nothing is left of the server at the other end."""
        self._outgoing: list[tuple[str, Token | None]] = []
        self._pumping: Any = None
        self._draining = False
        self._paused = False
        self._congested: anyio.Event | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Link]:
        """Serves while the block runs; at its end the connection is over."""
        self.start()
        try:
            yield self
        finally:
            self._flush()
            self.stop()
            self.wire.close("shutdown")
            self.wire.flush(_LAST_WORDS)
            self.report()

    def start(self) -> None:
        """Takes what the engine reads from here on. In no task's scope: any task may stop it."""
        self._slots = anyio.to_thread.current_default_thread_limiter()
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio

            self._pumping = trio.CancelScope()
            trio.lowlevel.spawn_system_task(self._pump)
        else:
            self._loop.add_reader(self.wire.fileno(), self._drain)

    def stop(self) -> None:
        """Takes no more."""
        if self._loop is not None:
            self._loop.remove_reader(self.wire.fileno())
        elif self._pumping is not None:
            self._pumping.cancel()

    def runs(self, generation: int, scope: anyio.CancelScope, token: Token) -> None:
        """A handler starts in this scope and in the task that calls this."""
        if self._loop is not None:
            task: Any = asyncio.current_task(self._loop)
        else:
            import trio

            task = trio.lowlevel.current_task()
        self.running[generation] = Running(scope, token, task, self._slots)

    def exited(self, generation: int) -> None:
        """A handler has ended."""
        self.running.pop(generation).exited()
        if self.wire.finish(generation) == "silent":
            self.report()

    async def _pump(self) -> None:
        """What `add_reader` does where there is one."""
        with self._pumping:
            while True:
                await anyio.wait_readable(self.wire.fileno())
                self._drain()
                while self._draining:
                    await anyio.lowlevel.checkpoint()
                    self._drain()

    def _drain(self) -> None:
        """Takes what the engine has read."""
        if len(self.read.items) >= _AHEAD:
            self._paused = True
            return
        events, more = self.wire.drain(_BATCH)
        for kind, generation, payload in events:
            if kind == _MESSAGE:
                self._take(generation, payload or "")
            elif kind == _CANCELLED:
                handler = self.running.get(generation)
                if handler is not None:
                    handler.cancel()
            elif kind == _WRITABLE:
                if self._congested is not None:
                    self._congested.set()
            elif kind == _CLOSED:
                self.read.ended = True
            elif kind == _PROGRESS:
                self.calls[generation].moved(payload)
            elif kind == _SETTLED:
                self.calls.pop(generation).settled(payload)
            elif kind == _ABANDONED:
                self.calls.pop(generation).abandoned(*payload)
            elif kind == _GONE and self.gone is not None:
                self.gone.set()
        self.read.tell()
        self.report()
        self._draining = more
        if more and self._loop is not None:
            self._loop.call_soon(self._drain)

    def report(self) -> None:
        """Tells of the cancelled requests that are over."""
        tell(self.wire.connection)

    def resume(self) -> None:
        """The SDK has taken what waited for it."""
        if self._paused:
            self._paused = False
            self._drain()

    def _take(self, generation: int, frame: str) -> None:
        try:
            item = self.sdk.parse(frame)
        except Exception as error:
            # As the SDK's own transport does: it is told, and the peer gets no answer.
            if generation:
                self.wire.discard(generation)
            self.read.items.append(error)
            return
        if generation:
            self.waiting[self.sdk.model(item).id] = generation
        self.read.items.append(item)

    async def send(self, item: Any) -> None:
        """Hands a message of the SDK's to the engine with the others of this turn of the loop."""
        model = self.sdk.model(item)
        if self.sdk.is_response(model):
            self.waiting.pop(model.id, None)
            self._post(self.sdk.dump(item), None)
        else:
            sending = now_sending.get()
            if sending is not None:
                sending.id = getattr(model, "id", None)
            self._post(self.sdk.dump(item), _current.get(None))
            if getattr(model, "method", None) == _CANCEL:
                self._flush()
        if self._congested is not None:
            await self._congested.wait()

    def cancel(self, id: Any) -> None:
        """Nobody waits for a request of the SDK's any more. Does nothing once it is over."""
        params = {"requestId": id}
        frame = {"jsonrpc": "2.0", "method": _CANCEL, "params": params}
        self._post(json.dumps(frame), None)
        self._flush()

    def _post(self, frame: str, parent: Token | None) -> None:
        self._outgoing.append((frame, parent))
        if self._loop is None:
            self._flush()
        elif len(self._outgoing) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        frames, self._outgoing = self._outgoing, []
        if not frames:
            return
        try:
            congested = self.wire.send(frames)
        except ConnectionError:
            return  # The peer is gone; that the connection is over is said by an event.
        if not congested:
            self._congested = None
        elif self._congested is None or self._congested.is_set():
            self._congested = anyio.Event()


class ReadStream:
    """What the SDK reads from: its items, in order, until the connection is over."""

    def __init__(self, link: Link) -> None:
        """Belongs to a link."""
        self._link = link
        self.items: deque[Any] = deque()
        self.ended = False
        self._told: anyio.Event | None = None

    def tell(self) -> None:
        """Wakes the SDK if it waits for what there is now."""
        if self._told is not None and (self.items or self.ended):
            self._told.set()

    async def receive(self) -> Any:
        """The next item.

        Raises:
            anyio.EndOfStream: when the connection is over.
        """
        while not self.items:
            if self.ended:
                raise anyio.EndOfStream
            self._link.resume()
            if self.items or self.ended:
                continue
            self._told = anyio.Event()
            await self._told.wait()
            self._told = None
        return self.items.popleft()

    def __aiter__(self) -> ReadStream:
        """Itself."""
        return self

    async def __anext__(self) -> Any:
        """The next item."""
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """The SDK reads no more."""
        self.close()

    def close(self) -> None:
        """The SDK reads no more."""
        self.ended = True
        self.items.clear()

    async def __aenter__(self) -> ReadStream:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The SDK reads no more."""
        self.close()


class WriteStream:
    """What the SDK writes to. Never blocks but while the peer reads too slowly."""

    def __init__(self, link: Link) -> None:
        """Belongs to a link."""
        self.link = link

    async def send(self, item: Any) -> None:
        """Sends one message, if the engine lets it pass."""
        await self.link.send(item)

    async def aclose(self) -> None:
        """The SDK writes no more; what it wrote goes out."""

    def close(self) -> None:
        """The SDK writes no more; what it wrote goes out."""

    async def __aenter__(self) -> WriteStream:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The SDK writes no more; what it wrote goes out."""
