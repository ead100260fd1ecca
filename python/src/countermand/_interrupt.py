"""Breaks a handler out of code that never asks its token: on the main thread by a signal, elsewhere by an
exception.

Whether it may be broken off at this moment the engine decides (`Section`). What lives here: the signal's
handler, and how a handler opts in.
"""

from __future__ import annotations

import inspect
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from functools import partial, wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar, cast

from ._errors import Cancelled, Cause
from ._native import MainSection, ThreadSection
from ._token import Token, _current  # pyright: ignore[reportPrivateUsage]

P = ParamSpec("P")
R = TypeVar("R")

_LOOPS = ("asyncio", "uvloop", "anyio", "trio", "outcome", "sniffio")
_SDKS = ("mcp", "mcp_types", "fastmcp", "countermand")
_SWALLOWERS = ("pydantic", "pydantic_core")
"""They check results for the SDKs, and report what is raised meanwhile to ``sys.unraisablehook`` alone."""
_MACHINERY = frozenset(_LOOPS + _SDKS + _SWALLOWERS)
"""Whose code is left alone: it would be left half done. It is tried again a little later."""
_TRANSPARENT = frozenset(["countermand._interrupt", "countermand._loops"])
"""Modules of it that only call the handler's own code, which may be written in C and have no frame."""

_before: Any = None
"""Who handled the signal before us: it is still called for signals that are not ours."""
_installed = False


class Interrupted(Cancelled):
    """A :class:`Cancelled` that Python makes by itself, in the thread that it is raised in."""

    def __init__(self, cause: Cause | None = None, reason: str | None = None) -> None:
        """Says why the request of this context was cancelled."""
        token = _current.get(None)
        if cause is None and token is not None:
            cause, reason = token.cause, token.reason
        super().__init__(cause or "local", reason)


def interruptible(function: Callable[P, R]) -> Callable[P, R]:
    """Has a cancelled request interrupt this function, also where it never looks at its token.

    For tools and what they call, sync or async::

        @server.tool()
        @countermand.interruptible
        def crack(digest: str) -> str: ...

    On the main thread, where the event loop runs async tools (and the sync ones of ``mcp`` 1.x), a signal
    (SIGURG) breaks off everything that Ctrl-C would: loops, ``time.sleep``, a socket, ``subprocess.run``. In
    another thread an exception is raised between two steps of Python code: a loop ends, a call that blocks
    ends by itself first.

    Either way :class:`Cancelled` is raised once, anywhere in the function, and only there; what it does then
    in ``finally`` is left alone. Within code that must not stop half way, ask ``token.checkpoint()``
    instead.
    """
    if inspect.iscoroutinefunction(function):
        asynchronous = cast("Callable[P, Coroutine[Any, Any, Any]]", function)

        @wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            token = _current.get(None)
            if token is None or not on_main_thread():
                return await asynchronous(*args, **kwargs)
            token.checkpoint()
            section = main_section(token)
            try:
                return await _Interruptible(asynchronous(*args, **kwargs), token, section)
            finally:
                section.close()

        return cast("Callable[P, R]", awaited)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _current.get(None)
        if token is None:
            return function(*args, **kwargs)
        token.checkpoint()
        call = partial(function, *args, **kwargs)
        if on_main_thread():
            section = main_section(token)
            try:
                return section.run(call)
            finally:
                section.close()
        section = ThreadSection(Interrupted)
        unregister = token.on_cancel(section.break_off)
        try:
            return section.run(call)
        finally:
            unregister()

    return called


class _Interruptible:
    """Awaits a coroutine, each of whose steps may be broken off."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], token: Token, section: MainSection) -> None:
        self._coroutine = coroutine
        self._token = token
        self._section = section

    def __await__(self) -> Generator[Any, Any, Any]:
        """Its steps. One that starts after the trip is cleanup, and left alone."""
        steps = self._coroutine.__await__()
        step: Callable[[], Any] = partial(steps.send, None)
        while True:
            try:
                wanted = step() if self._token.cancelled else self._section.run(step)
            except StopIteration as stop:
                return stop.value
            try:
                step = partial(steps.send, (yield wanted))
            except BaseException as raised:
                step = partial(steps.throw, raised)


def on_main_thread() -> bool:
    """Whether signals can interrupt what runs here."""
    return threading.current_thread() is threading.main_thread()


def main_section(token: Token) -> MainSection:
    """A section for code of this token's request on the main thread, where this must be called."""
    global _before, _installed
    if not _installed:
        _before = signal.signal(signal.SIGURG, _on_signal)
        _installed = True
    return MainSection(token)


def _on_signal(number: int, frame: FrameType | None) -> None:
    if MainSection.wanted():
        if not _in_machinery(frame):
            claimed = MainSection.claim()
            if claimed is not None:
                raise Cancelled(*claimed)
    elif callable(_before):
        _before(number, frame)


def _in_machinery(frame: FrameType | None) -> bool:
    """Whether it is the loop or the SDK that was interrupted, itself or in the standard library."""
    while frame is not None:
        module: str = frame.f_globals.get("__name__") or ""
        package = module.partition(".")[0]
        if package in _MACHINERY and module not in _TRANSPARENT:
            return True
        if package not in sys.stdlib_module_names:
            return False
        frame = frame.f_back
    return False
