"""Process trees: what `Token.run` and `Token.spawn` start, and the handle on it.

The engine starts and ends them. This says what to start, and waits, under asyncio and trio.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from subprocess import DEVNULL, PIPE, CalledProcessError, CompletedProcess
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from ._callbacks import call_once, from_any_thread
from ._native import Callbacks, Tree

if TYPE_CHECKING:
    from ._native import Token

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""

Path: TypeAlias = "str | os.PathLike[str]"
Folder: TypeAlias = Path
Command: TypeAlias = "str | Sequence[Path]"
Environment: TypeAlias = Mapping[str, str]
Redirect: TypeAlias = "int | IO[Any] | None"


def start(
    token: Token,
    command: Command,
    streams: tuple[Redirect, Redirect, Redirect],
    cwd: Folder | None,
    env: Environment | None,
    session: bool,
    grace: float,
    *,
    capture: bool = False,
    input: bytes | None = None,
) -> Tree:
    """Starts a command under a token."""
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else [os.fsdecode(part) for part in command]
    if capture:
        streams = (DEVNULL if input is None else PIPE, *streams[1:])
    stdin, stdout, stderr = (_number(stream, own) for own, stream in enumerate(streams))
    return Tree(
        token,
        argv,
        list((os.environ if env is None else env).items()),
        cwd=None if cwd is None else os.fsdecode(cwd),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        session=session,
        grace=grace,
        capture=capture,
        input=input,
    )


def _number(stream: Redirect, own: int) -> int:
    if stream is None:
        return own
    return stream if isinstance(stream, int) else stream.fileno()


async def ended(tree: Tree) -> None:
    """Returns when nothing of the tree is left. Where the wait is cancelled, the tree is ended first."""
    try:
        await _told(tree.notify_ended)
    except BaseException:
        tree.stop()
        with anyio.CancelScope(shield=True):
            await _told(tree.notify_ended)
        raise


def completed(
    tree: Tree, command: Command, stdout: Redirect, stderr: Redirect, check: bool
) -> CompletedProcess[bytes]:
    """What came of a tree that has ended."""
    collected = tree.output()
    written = [data if to == PIPE else None for to, data in zip((stdout, stderr), collected, strict=True)]
    code = tree.returncode or 0
    if check and code:
        raise CalledProcessError(code, command, *written)
    return CompletedProcess(command, code, *written)  # type: ignore[arg-type]


async def _told(notify: Callable[[Callbacks, int], object]) -> None:
    event = anyio.Event()
    unregister = call_once(from_any_thread(event.set), notify)
    try:
        await event.wait()
    finally:
        unregister()


class Process:
    """A command that was started, and whatever it started: the tree ends with its token, with the
    ``async with`` block of this handle, and when the handle is let go of.

    Attributes:
        stdin: to be written, as any byte stream of anyio's; None where it is no pipe.
        stdout: to be read; None where it is no pipe.
        stderr: to be read; None where it is no pipe.
    """

    def __init__(self, tree: Tree) -> None:
        """Belongs to a tree that was just started."""
        self._tree = tree
        stdin, stdout, stderr = tree.pipes()
        self.stdin = None if stdin is None else PipeSendStream(stdin)
        self.stdout = None if stdout is None else PipeReceiveStream(stdout)
        self.stderr = None if stderr is None else PipeReceiveStream(stderr)

    @property
    def pid(self) -> int:
        """The number of the command's process, and of its process group."""
        return self._tree.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, or the negated number of the signal that killed it; None while it runs."""
        return self._tree.returncode

    @property
    def left(self) -> int:
        """How many processes of the tree outlived SIGKILL: none but those that this user may not kill, or
        that hang in the kernel."""
        return self._tree.left

    async def wait(self) -> int:
        """Returns the exit code of the command when it has exited."""
        await _told(self._tree.notify_exited)
        return self._tree.returncode or 0

    async def stop(self) -> int:
        """Ends the tree, with SIGTERM, the grace period and SIGKILL.

        Returns the exit code of the command when nothing of the tree is left.
        """
        self._tree.stop()
        await _told(self._tree.notify_ended)
        return self._tree.returncode or 0

    async def aclose(self) -> None:
        """Ends the tree and closes the streams."""
        with anyio.CancelScope(shield=True):
            try:
                await self.stop()
            finally:
                for stream in (self.stdin, self.stdout, self.stderr):
                    if stream is not None:
                        await stream.aclose()

    async def __aenter__(self) -> Process:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the tree and closes the streams."""
        await self.aclose()


class _Pipe:
    """This process's end of a pipe."""

    def __init__(self, fd: int) -> None:
        """Owns the descriptor, which does not block."""
        self._fd = fd

    def _open(self) -> int:
        if self._fd < 0:
            raise anyio.ClosedResourceError
        return self._fd

    async def aclose(self) -> None:
        """Closes it."""
        if self._fd >= 0:
            anyio.notify_closing(self._fd)
            self._close()
        await anyio.lowlevel.checkpoint()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        """Closes it."""
        self._close()


class PipeReceiveStream(_Pipe, ByteReceiveStream):
    """What the command writes."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The next bytes.

        Raises:
            anyio.EndOfStream: when nobody has the other end any more.
            anyio.ClosedResourceError: if this end was closed.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = os.read(self._open(), max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._open())
                continue
            if not data:
                raise anyio.EndOfStream
            return data


class PipeSendStream(_Pipe, ByteSendStream):
    """What the command reads."""

    async def send(self, item: bytes) -> None:
        """Sends all of the bytes.

        Raises:
            anyio.BrokenResourceError: if nobody has the other end any more.
            anyio.ClosedResourceError: if this end was closed.
        """
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(self._open(), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._open())
            except BrokenPipeError:
                raise anyio.BrokenResourceError from None
