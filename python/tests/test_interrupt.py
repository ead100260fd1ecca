"""Handlers that block the main thread, and what breaks them off: in time, and nothing but them."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pytest

import sdk
from driver import Server, call, cancel, serving, text

BUDGET = 0.2
"""Seconds from a cancel to the end of the work: the promise."""
KINDS = ("sleep", "loop", "recv", "subprocess", "lock")
ON_THE_LOOP = sdk.NAME == "mcp1"
"""`mcp` 1.x runs sync tools on the event loop; the others in anyio's threads."""

tags = (f"tag-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("interrupt", script="blocking_server.py") as server:
        yield server
        server.alive()
        assert server.finish() == 0
        server.quiet()


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    with serving("plain", script="blocking_server.py") as server:
        yield server
        server.alive()
        assert server.finish() == 0
        server.quiet()


def stopped(server: Server, tool: str, **arguments: object) -> float:
    """Calls a tool, cancels it when it blocks; the seconds from the cancel to its end."""
    id, tag = server.id(), next(tags)
    server.write(call(id, tool, tag=tag, **arguments))
    server.mark(f"start {tag}")
    # Until it is really in there: the mark comes first.
    time.sleep(0.01)
    before = time.monotonic()
    server.write(cancel(id))
    server.until(
        lambda: server.marked(f"Cancelled {tag}") or server.marked(f"Interrupted {tag}"), f"the end of {tag}"
    )
    took = time.monotonic() - before
    server.silent(id)
    return took


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tool", ["on_the_loop", "between_awaits", "interruptible_async"])
def test_k08_a_blocked_main_thread_is_interrupted_within_200_ms(server: Server, tool: str, kind: str) -> None:
    assert stopped(server, tool, kind=kind) < BUDGET


@pytest.mark.parametrize("kind", KINDS)
def test_k08_one_tool_opts_in(plain: Server, kind: str) -> None:
    assert stopped(plain, "interruptible_async", kind=kind) < BUDGET


@pytest.mark.parametrize("kind", KINDS if ON_THE_LOOP else ["loop"])
def test_k08_a_sync_tool_is_interrupted_where_it_runs(plain: Server, kind: str) -> None:
    """In a thread of the SDK's nothing breaks off a system call."""
    assert stopped(plain, "interruptible_sync", kind=kind) < BUDGET


@pytest.mark.skipif(not ON_THE_LOOP, reason="its sync tools run in threads")
@pytest.mark.parametrize("kind", KINDS)
def test_k08_a_sync_tool_on_the_loop_is_interrupted(server: Server, kind: str) -> None:
    assert stopped(server, "sync", kind=kind) < BUDGET


def test_k08_sixty_that_block_one_after_the_other_and_the_next_call(server: Server) -> None:
    """Only the first has started when they are cancelled: the others never do."""
    ids = [server.id() for _ in range(60)]
    server.write(*(call(id, "on_the_loop", kind="sleep", tag=f"sixty-{id}") for id in ids))
    server.mark(f"start sixty-{ids[0]}")
    before = time.monotonic()
    server.write(*(cancel(id) for id in ids))
    server.alive()
    assert time.monotonic() - before < BUDGET
    for id in ids:
        server.silent(id)


def test_k15_cleanup_is_not_interrupted(server: Server) -> None:
    id = server.id()
    server.write(call(id, "cleanup", tag="cleanup", seconds=0.1))
    server.mark("start cleanup")
    server.write(cancel(id))
    server.mark("cleaned cleanup")
    server.silent(id)


@pytest.mark.parametrize("which", ["server", "plain"])
def test_k15_cleanup_may_await_for_a_bounded_time(which: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(which)
    id = server.id()
    server.write(call(id, "shielded", tag=which))
    server.mark(f"start {which}")
    server.write(cancel(id))
    for step in ("cleaned", "cut", "left"):
        server.mark(f"{step} {which}")
    server.silent(id)


def test_k15_a_handler_that_swallows_its_interrupt_is_not_answered(server: Server) -> None:
    id = server.id()
    server.write(call(id, "swallow", tag="swallow"))
    server.mark("start swallow")
    server.write(cancel(id))
    server.mark("swallowed swallow")
    server.silent(id)


def test_i15_session_lives_interrupts_at_any_moment_hit_only_their_own_handler(server: Server) -> None:
    storm(server, 300)


@pytest.mark.long
def test_i15_session_lives_interrupts_at_any_moment_five_thousand_times(server: Server) -> None:
    storm(server, 5000)


def storm(server: Server, count: int) -> None:
    """Short handlers, each cancelled at some moment of its life, and each beside one that nobody cancels."""
    tools = ("short", "short_sync")
    chosen = random.Random(count)
    for number in range(count):
        hit, kept = server.id(), server.id()
        seconds = chosen.random() / 500
        server.write(
            call(hit, tools[number % 2], seconds=seconds),
            call(kept, tools[number // 2 % 2], seconds=seconds),
        )
        time.sleep(chosen.random() / 250)
        server.write(cancel(hit))
        assert text(server.answer(kept)) == "done"
        assert len(server.answers(hit)) < 2
    # The call that asks is watched too.
    server.settled(in_flight=1, tokens=1, watches=1)
    server.quiet()


def test_k16_a_blocked_handler_does_not_hold_up_the_end() -> None:
    with serving("interrupt", script="blocking_server.py") as server:
        server.write(call(1, "on_the_loop", kind="sleep", tag="last"))
        server.mark("start last")
        before = time.monotonic()
        assert server.finish() == 0
        # Without the interrupt it is the grace period, of 2 s, that ends the process.
        assert time.monotonic() - before < 1.5
        assert server.marked("Cancelled last")
