"""What runs in a worker process of :func:`countermand.to_process`. Its other half is `_pool`."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from ._native import die_with

_registered: dict[tuple[str, str], Callable[..., Any]] = {}


def register(function: Callable[..., Any]) -> tuple[str, str]:
    """The name under which a worker finds a function whose own name decorators have taken."""
    module = function.__module__
    # As multiprocessing names the host's main module in a worker.
    name = ("__main__" if module == "__mp_main__" else module, function.__qualname__)
    _registered[name] = function
    return name


def call_registered(name: tuple[str, str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a function that its module has registered, in a worker."""
    import_module(name[0])
    return _registered[name](*args, **kwargs)


def serve(connection: Connection) -> None:
    """Answers calls until the other end is gone."""
    # A group of its own, so that one signal reaches all that a call starts.
    os.setpgid(0, 0)
    parent = multiprocessing.parent_process()
    if parent is not None:
        die_with(os.dup(parent.sentinel))
    connection.send_bytes(b"ready")
    while True:
        try:
            call = connection.recv_bytes()
        except EOFError:
            return
        connection.send_bytes(_answer(call))


def _answer(call: bytes) -> bytes:
    """The pickled result, exception, and traceback of the exception."""
    try:
        function, args = pickle.loads(call)
    except Exception as error:
        name = type(error).__name__
        failure = TypeError(f"a worker process cannot read the call that it was sent: {name}: {error}")
        return _failed(failure, error)
    try:
        result = function(*args)
    except BaseException as error:
        return _failed(error, error)
    try:
        return pickle.dumps((result, None, ""))
    except Exception as error:
        failure = TypeError(f"{function!r} returned what cannot be sent to another process: {error}")
        return _failed(failure, error)


def _failed(error: BaseException, where: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(where))
    answer: tuple[Any, BaseException, str] = (None, error, trace)
    try:
        pickled = pickle.dumps(answer)
        pickle.loads(pickled)
    except Exception:
        # Many exceptions pickle, and cannot be read back.
        stand_in = RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps((None, stand_in, trace))
    return pickled
