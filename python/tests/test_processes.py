"""Functions in worker processes: what ends with a cancel, what comes back, and what is said when something
cannot."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Iterator

import anyio
import pytest

import blocking
from countermand import to_process
from driver import PATIENCE, Server, call, cancel, serving, text

BUDGET = 0.2
"""Seconds from a cancel to the end of the work: the promise."""


def runtimes(test):
    """Runs an async test under both event loops."""
    return pytest.mark.anyio(pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])(test))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("plain", script="blocking_server.py") as server:
        yield server
        server.alive()
        assert server.finish() == 0
        server.quiet()


def running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    state, *_, threads = stat.rpartition(")")[2].split()[:18]
    # A first thread that is a zombie already says nothing of the others.
    return state not in "ZX" or int(threads) > 1


def gone(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(running(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def family(server: Server, tag: str) -> list[int]:
    """The worker that runs `family`, and its child."""
    line = server.until(
        lambda: next((line for line in server.lines if line.startswith(f"@family {tag} ")), None), tag
    )
    return [int(pid) for pid in line.split()[2:]]


@pytest.mark.parametrize("kind", ["sleep", "loop", "recv", "subprocess", "lock"])
def test_k08_a_cancel_ends_whatever_a_worker_does(server: Server, kind: str) -> None:
    id, tag = server.id(), f"worker-{kind}"
    server.write(call(id, "process", kind=kind, tag=tag))
    server.mark(f"start {tag}")
    before = time.monotonic()
    server.write(cancel(id))
    server.mark(f"caller Cancelled {tag}")
    assert time.monotonic() - before < BUDGET
    server.silent(id)


@pytest.mark.parametrize("kind", ["sleep", "loop", "recv", "subprocess", "lock"])
def test_k08_a_sync_tool_in_a_process_is_ended_whatever_it_does(server: Server, kind: str) -> None:
    id, tag = server.id(), f"sync-{kind}"
    server.write(call(id, "sync_in_process", kind=kind, tag=tag))
    server.mark(f"start {tag}")
    server.write(cancel(id))
    server.silent(id)
    server.settled(in_flight=1)
    assert text(server.call("sync_in_process", kind="none", tag=f"then-{kind}")) == f"then-{kind}"


def test_k04_the_worker_and_its_children_are_gone_and_another_takes_its_place(server: Server) -> None:
    id = server.id()
    server.write(call(id, "process_family", tag="family"))
    pids = family(server, "family")
    server.write(cancel(id))
    assert gone(pids, BUDGET)
    server.silent(id)
    assert int(text(server.call("process_pid"))) not in pids


def test_k14_a_worker_is_kept_for_the_next_call(server: Server) -> None:
    pids = {text(server.call("process_pid")) for _ in range(40)}
    # Not always one: those that replace others wait too.
    assert len(pids) <= 2 * max(2, os.cpu_count() or 1)


@pytest.mark.parametrize("how", ["killed", "terminated", "left"])
def test_k04_workers_end_with_their_host(how: str) -> None:
    with serving("plain", script="blocking_server.py") as server:
        idle = int(text(server.call("process_pid")))
        server.write(call(1000, "process_family", tag="host"), call(1001, "process_family", tag="second"))
        pids = [idle, *family(server, "host"), *family(server, "second")]
        if how == "killed":
            server.signal(signal.SIGKILL)
        elif how == "terminated":
            server.signal(signal.SIGTERM)
        else:
            server.close_stdin()
        server.process.wait(PATIENCE)
        assert gone(pids, 2.0)


# Without a server.


@runtimes
async def test_k28_results_and_errors_come_back() -> None:
    assert await to_process(divmod, 7, 2) == (3, 1)
    with pytest.raises(LookupError, match="not here") as raised:
        await to_process(blocking.fails, "not here")
    assert "in fails" in str(raised.value.__cause__)
    with pytest.raises(RuntimeError, match="Unreadable: 1 and 2"):
        await to_process(blocking.fails_unreadably)


@runtimes
async def test_k28_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(TypeError, match="importable by its name, from the top level of a module"):
        await to_process(lambda: None)
    with pytest.raises(TypeError, match="its arguments must pickle"):
        await to_process(print, (number for number in ()))
    with pytest.raises(TypeError, match="returned what cannot be sent to another process"):
        await to_process(blocking.unpicklable)


@runtimes
async def test_k28_a_worker_that_ends_by_itself_is_an_error_and_is_replaced() -> None:
    with pytest.raises(ChildProcessError, match="exit code 7"):
        await to_process(blocking.crash, 7)
    with pytest.raises(ChildProcessError, match="killed by signal 9"):
        await to_process(os.kill, 0, signal.SIGKILL)
    assert await to_process(blocking.pid) != os.getpid()


@runtimes
async def test_k28_a_worker_that_was_killed_while_it_waited_is_no_error() -> None:
    first = await to_process(blocking.pid)
    os.kill(first, signal.SIGKILL)
    while running(first):
        await anyio.sleep(0.001)
    assert await to_process(divmod, 7, 2) == (3, 1)


@runtimes
async def test_k28_a_worker_is_left_by_any_cancellation() -> None:
    with anyio.move_on_after(0.05) as scope:
        await to_process(time.sleep, 3600)
    assert scope.cancelled_caught
    assert await to_process(divmod, 7, 2) == (3, 1)
