"""The server that the tests drive, on whichever SDK is installed.

    server.py stock | run | guard [GRACE]

A handler reports where it is as `@…` on stderr: `start`, then how it ended, then its tag.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio

import countermand
from countermand import Cancelled, current
from report import report
from sdk import Context, FastMCP
from trees import Tree

server = FastMCP("tests")


@contextmanager
def reported(tag: str) -> Iterator[None]:
    report(f"start {tag}")
    try:
        yield
    except BaseException as error:
        report(f"{type(error).__name__} {tag}")
        raise
    else:
        report(f"end {tag}")


async def forever() -> None:
    await anyio.sleep(3600)


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def stats() -> str:
    gc.collect()  # A traceback may keep a token alive in a cycle.
    return json.dumps(countermand.stats())


@server.tool()
async def memory() -> str:
    gc.collect()
    with open("/proc/self/statm") as statm:
        return str(int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))


@server.tool()
async def sleep(tag: str, seconds: float = 3600) -> str:
    with reported(tag):
        await anyio.sleep(seconds)
    return tag


@server.tool()
async def silent(seconds: float) -> str:
    """As sleep, for thousands of calls."""
    await anyio.sleep(seconds)
    return "done"


@server.tool()
async def describe(tag: str) -> str:
    """What the token says once it has tripped."""
    token = current()
    try:
        with reported(tag):
            await forever()
    finally:
        report(f"token {tag} {json.dumps([token.cancelled, token.cause, token.reason, token.request_id])}")
    return tag


@server.tool()
async def received(text: str, number: float, deep: dict) -> str:
    """What arrived, as this end sees it."""
    return hashlib.sha256(repr((text, number, deep)).encode("utf-8", "surrogatepass")).hexdigest()


@server.tool()
async def request_id() -> str:
    return json.dumps(current().request_id)


# Handlers that misbehave when they are cancelled.


@server.tool()
async def swallow(tag: str) -> str:
    try:
        with reported(tag):
            await forever()
    except asyncio.CancelledError:
        pass
    return "swallowed"


@server.tool()
async def raise_in_cleanup(tag: str) -> str:
    try:
        with reported(tag):
            await forever()
    finally:
        raise ValueError("the cleanup failed")
    return tag


@server.tool()
async def late(tag: str, seconds: float, fails: bool = False) -> str:
    """Works on for a while after its cancel, then returns or raises."""
    try:
        with reported(tag):
            await forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(seconds)
        report(f"late {tag}")
        if fails:
            raise RuntimeError("too late")
    return tag


@server.tool()
async def own_cancelled_error() -> str:
    raise asyncio.CancelledError


@server.tool()
async def cancel_own_task() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await forever()
    return "never"


@server.tool()
async def own_checkpoint() -> str:
    """A tool that cancels its own request and stops at the checkpoint."""
    token = current()
    token.cancel("by myself")
    token.checkpoint()
    return "never"


@server.tool()
async def child_checkpoint() -> str:
    child = current().child()
    child.cancel()
    try:
        child.checkpoint()
    except Exception:
        return "an Exception"
    except Cancelled as error:
        return json.dumps([error.cause, current().cancelled])
    return "nothing was raised"


# Threads, and a loop that is blocked.


@server.tool()
async def to_thread(tag: str) -> str:
    """Awaits a thread that looks at the token."""
    with reported(tag):
        await anyio.to_thread.run_sync(_poll, tag)
    return tag


@server.tool()
async def checkpoint_in_thread(tag: str) -> str:
    with reported(tag):
        await anyio.to_thread.run_sync(_poll_checkpoints)
    return tag


@server.tool()
async def checkpoint_in_task(tag: str) -> str:
    async def child() -> None:
        while True:
            current().checkpoint()
            try:
                await anyio.sleep(0.001)
            except asyncio.CancelledError:
                current().checkpoint()

    with reported(tag):
        async with anyio.create_task_group() as group:
            group.start_soon(child)
            group.start_soon(child)
    return tag


@server.tool()
def sync(tag: str) -> str:
    with reported(tag):
        _poll(tag)
    return tag


@server.tool()
def sync_checkpoint(tag: str) -> str:
    with reported(tag):
        _poll_checkpoints()
    return tag


def _poll(tag: str) -> None:
    token = current()
    report(f"thread {tag}")
    while not token.cancelled:
        time.sleep(0.001)
    report(f"flag {tag}")


def _poll_checkpoints() -> None:
    while True:
        try:
            current().checkpoint()
        except Exception:
            report("an Exception swallowed the checkpoint")
        time.sleep(0.001)


@server.tool()
async def spin(tag: str, seconds: float = 30) -> str:
    """Blocks the event loop until its token trips."""
    token = current()
    end = time.monotonic() + seconds
    with reported(tag):
        while not token.cancelled and time.monotonic() < end:
            pass
        token.checkpoint()
    return tag


@server.tool()
async def block_until_gone(path: str) -> str:
    """Blocks the event loop, deaf to its token, until a file is gone."""
    report("blocked")
    while os.path.exists(path):
        time.sleep(0.001)
    return "done"


@server.tool()
async def busy_threads(count: int, path: str) -> str:
    """Takes so many of anyio's worker threads until a file is gone."""

    def wait() -> None:
        report("busy")
        while os.path.exists(path):
            time.sleep(0.001)

    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(anyio.to_thread.run_sync, wait)
    return "done"


@server.tool()
async def callbacks(tag: str) -> str:
    """Every way to hear of the trip."""
    token = current()
    token.on_cancel(lambda: report(f"callback {tag} {threading.current_thread().name}"))
    token.child().on_cancel(lambda: report(f"child {tag}"))
    taken_back = token.on_cancel(lambda: report(f"taken back {tag}"))
    taken_back()
    taken_back()

    async def wait() -> None:
        with anyio.CancelScope(shield=True):
            await token.wait()
        report(f"waited {tag}")

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        with reported(tag):
            await forever()
    return tag


@server.tool()
async def subprocess_run(tag: str) -> str:
    """On the loop's own thread: nothing in Python runs until it ends."""
    report(f"start {tag}")
    subprocess.run(["sleep", "3600"], check=False)
    return tag


@server.tool()
def sync_subprocess_run(tag: str) -> str:
    report(f"start {tag}")
    subprocess.run(["sleep", "3600"], check=False)
    return tag


# Process trees: `tests/tree/tree.sh`, which does what it can to stay.


@server.tool()
async def tree(tag: str, folder: str) -> str:
    with reported(tag):
        await current().run(Tree(folder).command, grace=0.2)
    return tag


@server.tool()
async def deaf_tree(tag: str, folder: str) -> str:
    """Swallows its cancel, and works on."""
    process = current().spawn(Tree(folder).command, grace=0.2)
    with suppress(asyncio.CancelledError), reported(tag):
        await process.wait()
        await forever()
    with anyio.CancelScope(shield=True):
        await process.stop()
    return "swallowed"


@server.tool()
async def forgotten_tree(tag: str, folder: str) -> str:
    """Awaits something else."""
    process = current().spawn(Tree(folder).command, grace=0.2)
    with reported(tag):
        await forever()
    return str(process.pid)


@server.tool()
async def blocked_tree(tag: str, folder: str) -> str:
    """Blocks the event loop until the tree is gone."""
    process = current().spawn(Tree(folder).command, grace=0.2)
    with reported(tag):
        while process.returncode is None:
            time.sleep(0.001)
    return tag


@server.tool()
async def returns_from_tree(folder: str) -> str:
    """Returns without a look back once the tree is up."""
    stubborn = Tree(folder)
    process = current().spawn(stubborn.command, grace=0.2)
    while not stubborn.up():
        await anyio.sleep(0.001)
    return str(process.pid)


# The wire.


@server.tool()
async def noise() -> str:
    """Everything that writes to stdout without asking."""
    print("a stray print", flush=True)
    os.write(1, b"a stray write\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"a stray puts")
    libc.fflush(None)
    subprocess.run(["echo", "a stray child"], check=True)
    return "done"


@server.tool()
async def big(size: int) -> str:
    return "\u00e9" * size


@server.tool()
async def progress(tag: str, context: Context) -> str:
    """Reports progress before and after its cancel."""
    await context.report_progress(1, 3)
    try:
        with reported(tag):
            await forever()
    finally:
        with anyio.CancelScope(shield=True):
            await context.report_progress(2, 3)
            report(f"progressed {tag}")
    return tag


@server.tool()
async def progress_and_return(steps: int, context: Context) -> str:
    for step in range(steps):
        await context.report_progress(step, steps)
    return "done"


if __name__ == "__main__":
    mode = sys.argv[1]
    if mode == "run":
        # A stuck handler is left behind after this time: the default is for people, who wait less often.
        countermand.run(server, grace=float(sys.argv[2]) if len(sys.argv) > 2 else 2.0)
    elif mode == "guard":
        assert countermand.guard(countermand.guard(server)) is server
        server.run()
    else:
        server.run()
    report("returned")
