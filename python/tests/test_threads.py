"""Blocking functions in threads: the package's own, and those in which the SDKs run sync tools."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import anyio
import pytest

import sdk
from countermand import Cancelled, to_thread
from countermand._interrupt import Interrupted
from countermand._native import ThreadSection
from countermand._threads import Job, _pool
from driver import Server, call, cancel, serving, text

PROMPT = 0.1
"""Seconds in which another request is answered: the promise."""
BUDGET = 0.2
"""Seconds from a cancel to the end of the work: the promise."""

in_threads = pytest.mark.skipif(sdk.NAME == "mcp1", reason="its sync tools run on the event loop")


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


def seconds_of_a_call(server: Server, tool: str, **arguments: object) -> float:
    before = time.monotonic()
    assert "result" in server.call(tool, **arguments)
    return time.monotonic() - before


def test_k12_a_thread_sees_the_token_of_its_request(server: Server) -> None:
    id = f"{server.id()}"
    server.write(call(id, "thread_request_id"))
    assert json.loads(text(server.answer(id))) == id


@pytest.mark.parametrize("kind", ["sleep", "recv", "subprocess"])
def test_k08_the_caller_is_back_at_once_whatever_its_thread_does(server: Server, kind: str) -> None:
    id, tag = server.id(), f"left-{kind}"
    server.write(call(id, "thread", kind=kind, tag=tag))
    server.mark(f"start {tag}")
    before = time.monotonic()
    server.write(cancel(id))
    server.mark(f"caller Cancelled {tag}")
    assert time.monotonic() - before < PROMPT
    server.silent(id)


def test_k08_a_loop_in_a_thread_is_interrupted(server: Server) -> None:
    id = server.id()
    server.write(call(id, "thread", kind="loop", tag="looping", interrupt=True))
    server.mark("start looping")
    before = time.monotonic()
    server.write(cancel(id))
    server.mark("Interrupted looping")
    assert time.monotonic() - before < BUDGET
    server.mark("caller Cancelled looping")
    server.silent(id)


def test_k08_sixty_cancelled_threads_and_the_next_call(server: Server, tmp_path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    ids = [server.id() for _ in range(60)]
    server.write(*(call(id, "thread", kind=str(gate), tag=f"own-{id}") for id in ids))
    started(server, "own-", 40)
    server.write(*(cancel(id) for id in ids))
    assert seconds_of_a_call(server, "thread", kind="none", tag="after") < PROMPT
    for id in ids:
        server.silent(id)
    gate.unlink()
    server.settled(in_flight=1)


@in_threads
def test_k08_sixty_cancelled_sync_tools_and_the_next_call(server: Server, tmp_path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    server.call("sync", kind="none", tag="warm")
    for round in range(3):
        # Each takes all of anyio's slots, and each finds them free.
        ids = [server.id() for _ in range(60)]
        tag = f"sync-{round}-"
        server.write(*(call(id, "sync", kind=str(gate), tag=f"{tag}{id}") for id in ids))
        started(server, tag, 40)
        server.write(*(cancel(id) for id in ids))
        assert seconds_of_a_call(server, "sync", kind="none", tag=f"after-{round}") < PROMPT
        for id in ids:
            server.silent(id)
    assert json.loads(text(server.call("slots"))) == 160
    gate.unlink()
    server.settled(in_flight=1)
    assert json.loads(text(server.call("slots"))) == 40


@in_threads
@pytest.mark.parametrize("kind", ["sleep", "recv", "subprocess"])
def test_k08_beside_blocking_sync_tools_others_are_answered(server: Server, kind: str) -> None:
    id = server.id()
    server.write(call(id, "sync", kind=kind, tag=f"beside-{kind}"))
    server.mark(f"start beside-{kind}")
    assert seconds_of_a_call(server, "echo", text="beside") < PROMPT
    server.write(cancel(id))
    assert seconds_of_a_call(server, "sync", kind="none", tag="beside") < PROMPT
    server.silent(id)


def started(server: Server, tag: str, count: int) -> None:
    server.until(
        lambda: sum(line.startswith(f"@start {tag}") for line in server.lines) == count, f"{count} of {tag}"
    )


# Without a server.


@runtimes
async def test_k28_a_thread_is_left_by_any_cancellation() -> None:
    done, begun = threading.Event(), threading.Event()

    def wait() -> str:
        begun.set()
        done.wait(30)
        return "late"

    with anyio.move_on_after(0.05) as scope:
        await to_thread(wait)
    assert scope.cancelled_caught
    assert begun.is_set()
    done.set()


@runtimes
async def test_k28_results_and_errors_come_back() -> None:
    assert await to_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await to_thread(divmod, 7, 0)
    with pytest.raises(Cancelled):
        await to_thread(stop)


def stop() -> None:
    raise Cancelled("local")


@runtimes
async def test_k21_no_more_than_the_slots_run_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1

    async with anyio.create_task_group() as group:
        for _ in range(200):
            group.start_soon(to_thread, work)
    assert most <= 40


def test_i7_right_target_an_interrupt_never_reaches_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job is broken off at some moment of its life; the next job of its thread never is."""
    failed: list[object] = []
    # Threads take turns often: there are more moments.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    monkeypatch.setattr(threading, "excepthook", failed.append)
    ended = {"whole": 0, "interrupted": 0}
    for number in range(1000):
        section = ThreadSection(Interrupted)
        begun, done = threading.Event(), threading.Event()
        hit = Job(lambda begun=begun, seconds=number % 40 / 5000: spin(begun, seconds), section)
        next_one = Job(lambda: sum(range(200)))
        next_one.tell = done.set
        _pool.submit(hit)
        begun.wait(30)
        time.sleep(number % 37 / 5000)
        hit.give_up()
        _pool.submit(next_one)
        assert done.wait(30)
        assert next_one.outcome() == 19900
        deadline = time.monotonic() + 30
        while not hit.finished and time.monotonic() < deadline:
            time.sleep(0)
        try:
            hit.outcome()
        except Interrupted:
            ended["interrupted"] += 1
        else:
            ended["whole"] += 1
    sys.setswitchinterval(before)
    assert not failed
    # Else this has tested nothing.
    assert min(ended.values()) > 20, ended


def spin(begun: threading.Event, seconds: float) -> None:
    begun.set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_i7_right_target_what_is_given_up_before_it_starts_never_starts() -> None:
    ran: list[int] = []
    job = Job(lambda: ran.append(1), ThreadSection(Interrupted))
    job.give_up()
    _pool.submit(job)
    assert not ran
    section = ThreadSection(Interrupted)
    assert section.break_off()
    assert not section.break_off()
    with pytest.raises(Interrupted):
        section.run(ran.append, 1)
    assert not ran


OUTLIVES = """
import threading, time, countermand
from countermand._interrupt import Interrupted
from countermand._native import ThreadSection

connection = countermand.Connection()
(verdict,) = connection.receive(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', 0.0)
token = countermand.Token(connection, verdict["generation"])
token.cancel()
started = threading.Event()

def loop():
    started.set()
    while True:
        pass

def ask():
    started.set()
    while True:
        try:
            token.checkpoint()
        except countermand.Cancelled:
            pass

class Late:
    def __del__(self, sleep=time.sleep):
        sleep(0.2)  # While the interpreter is finalized: the thread wants it meanwhile.

late = Late()
targets = {"loop": lambda: ThreadSection(Interrupted).run(loop), "ask": ask}
threading.Thread(target=targets[which], daemon=True).start()
started.wait()
"""


@pytest.mark.parametrize("which", ["loop", "ask"])
def test_k16_a_thread_that_outlives_the_interpreter_does_not_abort_the_process(which: str) -> None:
    ended = subprocess.run([sys.executable, "-c", f"which = {which!r}{OUTLIVES}"], capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
