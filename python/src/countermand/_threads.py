"""Blocking functions in threads of this package's own. A call that is cancelled leaves its thread behind.

A thread that runs what nobody waits for any more holds no slot: the next call starts another. The threads
are daemons: what is stuck in one does not hold up the end of the process.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar, cast

import anyio
import anyio.lowlevel

from ._callbacks import from_any_thread
from ._interrupt import Interrupted
from ._native import ThreadSection, Working
from ._token import Token, _current  # pyright: ignore[reportPrivateUsage]

R = TypeVar("R")

SLOTS = 40
"""Calls that may be awaited at once; more wait for a slot. As many as anyio has, which are others."""
MAX_ABANDONED = 1000
"""Calls that nobody waits for, and that still run: with more, no call is started."""
_IDLE = 10.0
"""Seconds after which a thread without work ends."""

_slots = anyio.lowlevel.RunVar[anyio.CapacityLimiter]("countermand.threads")


async def to_thread(function: Callable[..., R], *args: Any, interrupt: bool = False) -> R:
    """Calls a blocking function in a thread, and leaves it there when the request is cancelled.

    The thread sees :func:`current`, and the rest of the context. On a cancel :class:`Cancelled` is raised
    here at once, whatever the thread does; its result is dropped, and its slot goes to the next call.

    Args:
        function: what to call.
        *args: its arguments; for keyword arguments use ``functools.partial``.
        interrupt: whether to raise :class:`Cancelled` in the thread as well, between two steps of Python
            code. A call that blocks (``time.sleep``, a socket) ends by itself first: :func:`to_process` ends
            anything.

    Raises:
        Cancelled: if the request is cancelled meanwhile.
        RuntimeError: if 1,000 calls that were left behind still run.
    """
    token = _current.get(None)
    call = partial(contextvars.copy_context().run, function, *args)
    job = Job(call, ThreadSection(Interrupted) if interrupt else None)
    return cast("R", await await_job(job, token, limiter(_slots, SLOTS)))


def limiter(variable: anyio.lowlevel.RunVar[anyio.CapacityLimiter], slots: int) -> anyio.CapacityLimiter:
    """The limiter in a variable of the event loop that runs now."""
    try:
        return variable.get()
    except LookupError:
        variable.set(made := anyio.CapacityLimiter(slots))
        return made


async def await_job(job: Job, token: Token | None, slots: anyio.CapacityLimiter) -> Any:
    """Has a job done, and waits for it in a slot. It is given up when the token trips or the task is
    cancelled."""
    if token is not None:
        token.checkpoint()
    try:
        async with slots:
            event = anyio.Event()
            job.tell = from_any_thread(event.set)
            unregister = None if token is None else token.on_cancel(job.give_up)
            job.token = token
            try:
                _pool.submit(job)
                await event.wait()
            finally:
                if unregister is not None:
                    unregister()
                job.give_up()
    except anyio.get_cancelled_exc_class():
        if token is not None:
            token.checkpoint()
        raise
    if job.given_up and token is not None:
        token.checkpoint()
    return job.outcome()


class Job:
    """One call in a thread."""

    def __init__(self, call: Callable[[], Any], section: ThreadSection | None = None) -> None:
        """Calls it in the section, if there is one."""
        self._call = call if section is None else partial(section.run, call)
        self._section = section
        self._working: Working | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self.submitted = False
        self.finished = False
        self.given_up = False
        self.token: Token | None = None
        """Of the request for which it is done."""
        self.tell: Callable[[], object] = lambda: None
        """Called from any thread when the job is done or given up."""

    def run(self) -> None:
        """In the thread. One that was given up before does not start."""
        if not self.given_up:
            try:
                self.start()
                self._result = self._call()
            except BaseException as error:
                self._error = error
            if self._working is not None:
                self._working.close()
        # What the call refers to is let go of here, not when the next job comes.
        del self._call

    def start(self) -> None:
        """The thread counts as the request's work."""
        if self.token is not None:
            self._working = self.token.work("thread")

    def give_up(self) -> None:
        """Nobody waits for it any more. From any thread; does nothing once it has finished."""
        if not _pool.abandon(self):
            return
        if self._section is not None:
            self._section.break_off()
        self.stop()
        self.tell()

    def stop(self) -> None:
        """What else is to be done to it when it is given up."""

    def outcome(self) -> Any:
        """What the call returned. Raises what it raised."""
        if self._error is None:
            return self._result
        try:
            raise self._error
        finally:
            del self._error


class _Pool:
    """The threads of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: deque[SimpleQueue[Job]] = deque()
        self._abandoned = 0

    def submit(self, job: Job) -> None:
        """Has a thread run it."""
        with self._lock:
            if job.given_up:
                return
            if self._abandoned >= MAX_ABANDONED:
                raise RuntimeError(
                    f"{MAX_ABANDONED} cancelled calls still run in threads: no more are started before one "
                    "ends (countermand.to_process can end what it runs)"
                )
            job.submitted = True
            queue = self._idle.pop() if self._idle else None
        if queue is None:
            queue = SimpleQueue[Job]()
            Thread(target=self._serve, args=(queue,), name="countermand-worker", daemon=True).start()
        queue.put(job)

    def abandon(self, job: Job) -> bool:
        """Lets it count as abandoned; False if it has finished, or was given up before."""
        with self._lock:
            if job.finished or job.given_up:
                return False
            job.given_up = True
            self._abandoned += job.submitted
            return True

    def _serve(self, queue: SimpleQueue[Job]) -> None:
        while True:
            try:
                job = queue.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    if queue in self._idle:
                        self._idle.remove(queue)
                        return
                continue  # It was chosen at this moment: its job is about to come.
            job.run()
            with self._lock:
                job.finished = True
                self._abandoned -= job.given_up
                self._idle.append(queue)
            if not job.given_up:
                with suppress(RuntimeError):  # The loop has ended without cancelling its tasks.
                    job.tell()
            del job


_pool = _Pool()
