"""Thousands of requests and cancels: nothing is lost, answered twice or left. Long runs: `-m long`."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from typing import Any

import pytest

from driver import Message, Server, call, cancel, text

WINDOW = 64


def storm(server: Server, count: int, seed: int) -> None:
    """Calls of 0 to 20 ms, half of them cancelled at a random moment; then everything is looked at."""
    choose = random.Random(seed)
    before = server.stats()
    numbers = [server.id() for _ in range(count)]
    cancelled = set(choose.sample(numbers, count // 2))

    def plan(id: int) -> list[tuple[float, Message]]:
        planned = [(0.0, call(id, "silent", seconds=choose.uniform(0, 0.02)))]
        if id in cancelled:
            planned.append((choose.uniform(0, 0.03), cancel(id)))
        return planned

    drive(server, [plan(id) for id in numbers])
    for id in numbers:
        if id not in cancelled:
            assert text(server.answer(id)) == "done"
    answered = {id for id in cancelled if server.answers(id)}
    ignored = lambda: server.stats()["late_cancels"] - before["late_cancels"]  # noqa: E731
    stats = server.settled(in_flight=1, tokens=1, watches=0, held=0)
    # A cancel either came first, and then nothing was sent, or it came late, and the answer is whole.
    assert stats["cancelled"]["peer"] - before["cancelled"]["peer"] == len(cancelled - answered)
    assert ignored() == len(answered)
    assert all(len(server.answers(id)) == (id not in cancelled or id in answered) for id in numbers)
    assert stats["duplicate_ids"] == before["duplicate_ids"]


def drive(server: Server, plans: list[list[tuple[float, Message]]]) -> None:
    """Sends what was planned: each message so long after its request went out, 64 requests at a time."""
    due: list[tuple[float, int, Message]] = []
    order = itertools.count()
    waiting = iter(plans)
    open_until: list[float] = []
    more = True
    while more or due:
        now = time.monotonic()
        while open_until and open_until[0] <= now:
            heapq.heappop(open_until)
        while more and len(open_until) < WINDOW:
            plan = next(waiting, None)
            if plan is None:
                more = False
                break
            for delay, message in plan:
                heapq.heappush(due, (now + delay, next(order), message))
            heapq.heappush(open_until, now + max(delay for delay, _ in plan) + 0.01)
        batch: list[Message] = []
        while due and due[0][0] <= now:
            batch.append(heapq.heappop(due)[2])
        if batch:
            server.write(*batch)
        following = min([at for at, *_ in due[:1]] + open_until[:1], default=now)
        time.sleep(max(0.0, following - time.monotonic()))


def race(server: Server, count: int, **arguments: Any) -> None:
    """Cancels in a window of 10 ms around the end of a tool of 20 ms, which kills a stock 1.x server."""
    choose = random.Random(count)
    numbers = [server.id() for _ in range(count)]
    plans = [
        [(0.0, call(id, "silent", seconds=0.02)), (0.02 + choose.uniform(-0.005, 0.005), cancel(id))]
        for id in numbers
    ]
    drive(server, plans)
    server.settled(in_flight=1, tokens=1)
    assert all(len(server.answers(id)) <= 1 for id in numbers)
    server.alive()


def test_i15_session_lives_cancels_around_completion_k05(server: Server) -> None:
    race(server, 200)


def test_i3_no_loss_half_cancelled_at_random_moments(server: Server) -> None:
    storm(server, 600, seed=1)


def test_i11_nothing_left_in_the_tables(server: Server) -> None:
    storm(server, 200, seed=2)
    stats = server.settled(retired=0)
    assert stats["tasks"] == stats["held"] == 0


@pytest.mark.long
def test_i15_session_lives_2_000_cancels_around_completion_k05(own: Server) -> None:
    race(own, 2_000)
    assert own.finish() == 0


@pytest.mark.long
def test_i11_nothing_left_after_10_000_requests_half_of_them_cancelled(own: Server) -> None:
    storm(own, 2_000, seed=3)
    before = int(text(own.call("memory")))
    storm(own, 10_000, seed=4)
    after = int(text(own.call("memory")))
    print(f"resident memory after warm-up {before:,}, after 10,000 requests {after:,} bytes")
    assert after <= before * 1.1
    own.settled(retired=0)
    assert own.finish() == 0
