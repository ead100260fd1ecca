"""Loops that stop at the trip, and cleanup that may go on for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import anyio
import pytest

from countermand import Cancelled, Connection, Token

CALL = b'{"jsonrpc":"2.0","id":"7","method":"tools/call"}'


def runtimes(test):
    """Runs an async test under both event loops."""
    return pytest.mark.anyio(pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])(test))


@pytest.fixture
def token() -> Token:
    connection = Connection()
    (verdict,) = connection.receive(CALL, 0.0)
    return Token(connection, verdict["generation"])


def test_k02_a_loop_stops_at_the_trip(token: Token) -> None:
    seen: list[int] = []
    with pytest.raises(Cancelled):  # noqa: PT012
        for number in token.guard(range(10)):
            seen.append(number)
            if number == 3:
                token.cancel()
    assert seen == [0, 1, 2, 3]
    with pytest.raises(Cancelled):
        next(token.guard([1]))


def test_k02_a_loop_that_nobody_cancels_is_as_it_was(token: Token) -> None:
    assert list(token.guard("abc")) == ["a", "b", "c"]
    assert list(token.guard([])) == []


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number
    await anyio.sleep(3600)


@runtimes
async def test_k02_an_async_loop_stops_at_the_trip(token: Token) -> None:
    seen: list[int] = []
    with pytest.raises(Cancelled):  # noqa: PT012
        async with aclosing(numbers(10)) as items:
            async for number in token.guard(items):
                seen.append(number)
                if number == 3:
                    token.cancel()
    assert seen == [0, 1, 2, 3]


@runtimes
async def test_k02_an_async_loop_stops_while_it_waits(token: Token) -> None:
    """Also for a child, whose trip cancels no task."""
    child = token.child()
    seen: list[int] = []
    with pytest.raises(Cancelled):  # noqa: PT012
        async with anyio.create_task_group() as group:
            group.start_soon(cancel_when_waiting, child, seen)
            try:
                async for number in child.guard(numbers(2)):
                    seen.append(number)
            except Cancelled as error:
                raised = error
            group.cancel_scope.cancel()
        raise raised
    assert seen == [0, 1]
    assert not token.cancelled


async def cancel_when_waiting(token: Token, seen: list[int]) -> None:
    while len(seen) < 2:
        await anyio.lowlevel.checkpoint()
    token.cancel()


@runtimes
async def test_k14_a_loop_leaves_no_watch(token: Token) -> None:
    connection = Connection()
    (verdict,) = connection.receive(CALL, 0.0)
    other = Token(connection, verdict["generation"])
    async with aclosing(numbers(10)) as items:
        async for number in other.guard(items):
            if number == 5:
                break
    assert connection.stats()["watches"] == 0


@runtimes
async def test_k15_cleanup_may_await_for_its_budget_and_not_longer(token: Token) -> None:
    steps: list[str] = []
    with anyio.CancelScope() as scope:
        token.cancel()
        scope.cancel()
        try:
            await anyio.sleep(3600)
        finally:
            async with token.shield(5):
                await anyio.sleep(0.001)
                steps.append("done")
            async with token.shield(0.01):
                await anyio.sleep(3600)
                steps.append("never")
            steps.append("left")
    assert scope.cancelled_caught
    assert steps == ["done", "left"]


@runtimes
async def test_k15_cleanup_that_nobody_cancelled_and_that_was_cut_says_so(token: Token) -> None:
    with pytest.raises(TimeoutError, match=r"longer than its 0\.01 seconds"):
        async with token.shield(0.01):
            await anyio.sleep(3600)
    with pytest.raises(ZeroDivisionError):
        async with token.shield(1):
            _ = 1 / 0
