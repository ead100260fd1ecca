"""Functions in worker processes, which a cancelled call takes with it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from multiprocessing import util
from multiprocessing.connection import wait
from threading import Lock
from typing import Any, ParamSpec, TypeVar, cast

import anyio
import anyio.lowlevel

from ._threads import Job, await_job, limiter
from ._token import _current  # pyright: ignore[reportPrivateUsage]
from ._worker import call_registered, register, serve

P = ParamSpec("P")
R = TypeVar("R")

SLOTS = max(2, os.cpu_count() or 1)
"""Worker processes at most; more calls wait for one."""

_slots = anyio.lowlevel.RunVar[anyio.CapacityLimiter]("countermand.processes")


async def to_process(function: Callable[..., R], *args: Any) -> R:
    """Calls a function in a worker process, which is killed when the request is cancelled.

    On a cancel :class:`Cancelled` is raised here at once, the worker and all that it started (its process
    group) get SIGKILL, and another takes its place. So it ends whatever runs: a C extension, a blocking
    call, a subprocess.

    The function, its arguments and its result are pickled: it stands at the top level of a module, and a
    script that is its module serves under ``if __name__ == "__main__":``. Workers are spawned, kept, and die
    with this process.

    Args:
        function: what to call.
        *args: its arguments.

    Raises:
        Cancelled: if the request is cancelled meanwhile.
        TypeError: if something cannot be sent to a process.
        ChildProcessError: if the worker ended before the call did.
    """
    job = _ProcessJob(function, args)
    return cast("R", await await_job(job, _current.get(None), limiter(_slots, SLOTS)))


def in_process(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Makes a sync function one that is awaited, and runs in a worker process: see :func:`to_process`.

    For tools that block, under any SDK, in whatever way::

        @server.tool()
        @countermand.in_process
        def render(scene: str) -> str: ...
    """
    name = register(function)

    @wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", await to_process(call_registered, name, args, kwargs))

    return called


class _ProcessJob(Job):
    """A call in a worker; its thread waits for the answer."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        super().__init__(lambda: self._exchange(function, args))
        self._lock = Lock()
        self._worker: _Worker | None = None

    def start(self) -> None:
        """What works for the request is the process, as soon as there is one."""

    def stop(self) -> None:
        with self._lock:
            if self._worker is not None:
                self._worker.kill()

    def _exchange(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        try:
            call = pickle.dumps((function, args))
        except Exception as error:
            raise TypeError(
                f"to_process cannot send the call of {function!r}: the function must be importable by its "
                f"name, from the top level of a module, and its arguments must pickle ({error})"
            ) from error
        worker = _workers.take()
        with self._lock:
            if self.given_up:
                _workers.put_back(worker)
                return None
            self._worker = worker
        if self.token is not None:
            self._working = self.token.work("process", worker.pid)
        try:
            answer = worker.ask(call)
        except (EOFError, OSError):
            code = worker.reap()
            if self.given_up:
                _workers.replace()
                return None
            raise ChildProcessError(
                f"the worker process ended before the call of {function!r} did ({_ending(code)})"
            ) from None
        with self._lock:
            if not self.given_up:
                self._worker = None
                _workers.put_back(worker)
        if self._worker is not None:
            # Killed when it had just answered.
            worker.reap()
            _workers.replace()
            return None
        return _read(answer)


class _Worker:
    """A worker process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), name="countermand-worker")
        self._lock = Lock()
        self._reaped = False
        # Held meanwhile, so that `close` finds it either not admitted or started, and can kill it.
        with self._lock:
            _workers.admit(self)
            self._process.start()
        theirs.close()
        try:
            self._connection.recv_bytes()
        except (EOFError, OSError):
            code = self.reap()
            raise ChildProcessError(
                f"a worker process could not start ({_ending(code)}): if its error says nothing else, the "
                'script serves at its top level, and not under `if __name__ == "__main__":`'
            ) from None

    @property
    def pid(self) -> int | None:
        """The number of the process."""
        return self._process.pid

    def waits(self) -> bool:
        """Whether it still is there: something else may have ended it meanwhile."""
        return not wait([self._process.sentinel], 0)

    def ask(self, call: bytes) -> bytes:
        """Sends a call and waits for its answer."""
        self._connection.send_bytes(call)
        return self._connection.recv_bytes()

    def kill(self) -> None:
        """Kills it and what it started."""
        with self._lock:
            if self._reaped or self._process.pid is None:
                return
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(self._process.pid, signal.SIGKILL)

    def reap(self) -> int | None:
        """Sees it end, and returns what it ended with."""
        # One that is ending by itself is given the time, for its exit code.
        wait([self._process.sentinel], 1)
        self.kill()
        with self._lock:
            # From here on its number may be another's.
            self._reaped = True
        self._process.join()
        self._connection.close()
        _workers.forget(self)
        return self._process.exitcode


class _Workers:
    """The worker processes of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._all: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._closed = False

    def take(self) -> _Worker:
        """One that waits for a call, or a new one."""
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                return _Worker()
            if worker.waits():
                return worker
            worker.reap()

    def put_back(self, worker: _Worker) -> None:
        """It waits for another call."""
        with self._lock:
            self._idle.append(worker)

    def replace(self) -> None:
        """One was killed: the next call should not have to wait for another."""
        with self._lock:
            enough = len(self._all) >= SLOTS
        if enough:
            return
        with suppress(ChildProcessError):
            self.put_back(_Worker())

    def admit(self, worker: _Worker) -> None:
        """It is about to start."""
        with self._lock:
            if self._closed:
                raise ChildProcessError("this process is ending: no worker process is started any more")
            self._all.add(worker)

    def forget(self, worker: _Worker) -> None:
        """It has ended."""
        with self._lock:
            self._all.discard(worker)

    def close(self) -> None:
        """This process ends: its workers end with it."""
        with self._lock:
            self._closed = True
            workers = list(self._all)
        for worker in workers:
            worker.kill()


def _read(answer: bytes) -> Any:
    try:
        result, error, trace = pickle.loads(answer)
    except Exception as failure:
        raise TypeError(f"what the worker process returned cannot be read here: {failure}") from failure
    if error is None:
        return result
    error.__cause__ = RemoteTraceback(trace)
    raise error


class RemoteTraceback(Exception):
    """Where in the worker process an exception was raised."""

    def __str__(self) -> str:
        """The traceback."""
        return f"\n{self.args[0]}"


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by signal {-code}"
    return f"exit code {code}"


_workers = _Workers()
# Before multiprocessing waits for its children at exit.
util.Finalize(None, _workers.close, exitpriority=100)
