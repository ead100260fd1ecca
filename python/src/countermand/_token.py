"""The request's token, and how code below a handler finds it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from subprocess import PIPE, CompletedProcess
from threading import Lock
from typing import TypeVar, overload

import anyio

from ._callbacks import Registrations, Unregister, from_any_thread
from ._native import Token as NativeToken
from ._process import GRACE, Command, Environment, Folder, Process, Redirect, completed, ended, start

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

    async def run(
        self,
        command: Command,
        *,
        input: bytes | None = None,
        stdout: Redirect = PIPE,
        stderr: Redirect = PIPE,
        cwd: Folder | None = None,
        env: Environment | None = None,
        start_new_session: bool = False,
        grace: float = GRACE,
        check: bool = False,
    ) -> CompletedProcess[bytes]:
        """Runs a command that dies with this token, and everything that it starts with it.

        Returns when nothing of the command is left, with what it wrote. What it leaves behind when it exits
        has ``grace`` seconds to end too. What has to be ended gets SIGTERM, ``grace`` seconds and SIGKILL:
        when the token trips, when this call is cancelled, and, within two seconds, when this process dies.

        Args:
            command: a list of strings, or a string that the shell runs.
            input: what it reads from its stdin, which is empty otherwise.
            stdout: ``PIPE``, ``DEVNULL``, a file or its descriptor, or None for this process's own. While a
                server runs on stdio, this process's own stdout is its stderr.
            stderr: the same, or ``STDOUT``.
            cwd: the folder in which it runs.
            env: its whole environment, in place of this process's.
            start_new_session: whether it gets a session of its own, and not only a process group.
            grace: seconds between SIGTERM and SIGKILL.
            check: whether an exit code that is not 0 is an error.

        Raises:
            Cancelled: if the token has tripped, before (then nothing is started) or meanwhile.
            OSError: if it cannot be started.
            subprocess.CalledProcessError: if ``check`` finds an exit code that is not 0.
            NotImplementedError: where the system is not Linux.
        """
        tree = start(
            self,
            command,
            (None, stdout, stderr),
            cwd,
            env,
            start_new_session,
            grace,
            capture=True,
            input=input,
        )
        await ended(tree)
        self.checkpoint()
        return completed(tree, command, stdout, stderr, check)

    def spawn(
        self,
        command: Command,
        *,
        stdin: Redirect = PIPE,
        stdout: Redirect = PIPE,
        stderr: Redirect = PIPE,
        cwd: Folder | None = None,
        env: Environment | None = None,
        start_new_session: bool = False,
        grace: float = GRACE,
    ) -> Process:
        """Starts a command that dies with this token, and everything that it starts with it.

        As :meth:`run`, with a handle in place of the wait. The tree also ends with the ``async with`` block
        of the handle, and when the handle is let go of. What is sent to a ``PIPE`` has to be read.

        Raises:
            Cancelled: if the token has tripped: nothing is started then.
            OSError: if it cannot be started.
            NotImplementedError: where the system is not Linux.
        """
        tree = start(self, command, (stdin, stdout, stderr), cwd, env, start_new_session, grace)
        return Process(tree)

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
