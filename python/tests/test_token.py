"""The token, away from any server: a connection of our own, asyncio and trio."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import sys
import threading
import time
import timeit

import anyio
import pytest

import countermand
from countermand import Cancelled, Connection, Token

CALL = b'{"jsonrpc":"2.0","id":"7","method":"tools/call"}'
CANCEL = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7","reason":"stop"}}'


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def token(connection: Connection) -> Token:
    (verdict,) = connection.receive(CALL, 0.0)
    return Token(connection, verdict["generation"])


def trip(connection: Connection) -> None:
    (verdict,) = connection.receive(CANCEL, 0.0)
    assert verdict["verdict"] == "cancelled"


def test_k25_what_a_token_says(connection: Connection, token: Token) -> None:
    assert (token.cancelled, token.cause, token.reason, token.request_id) == (False, None, None, "7")
    token.checkpoint()
    trip(connection)
    assert (token.cancelled, token.cause, token.reason, token.request_id) == (True, "peer", "stop", "7")
    with pytest.raises(Cancelled) as raised:
        token.checkpoint()
    assert (raised.value.cause, raised.value.reason) == ("peer", "stop")
    assert not isinstance(raised.value, Exception)
    assert repr(token) == "<Token of request '7': cancelled by peer>"


def test_k25_the_first_cause_wins(connection: Connection, token: Token) -> None:
    assert token.cancel("mine")
    assert not token.cancel("again")
    trip(connection)
    assert (token.cause, token.reason) == ("local", "mine")


def test_i8_whole_subtree_children_trip_with_their_parent(connection: Connection, token: Token) -> None:
    child = token.child()
    grandchild = child.child()
    assert isinstance(grandchild, Token)
    assert grandchild.request_id == "7"
    trip(connection)
    assert grandchild.cause == "peer"
    assert token.child().cancelled, "born tripped"


def test_i8_whole_subtree_a_child_trips_alone(token: Token) -> None:
    child, sibling = token.child(), token.child()
    child.cancel()
    assert child.cancelled
    assert not token.cancelled
    assert not sibling.cancelled


def test_k25_callbacks_are_called_once_each_in_a_thread_of_their_own(token: Token) -> None:
    called = threading.Semaphore(0)
    threads: list[str] = []

    def callback() -> None:
        threads.append(threading.current_thread().name)
        called.release()

    token.on_cancel(callback)
    never = token.on_cancel(lambda: threads.append("never"))
    never()
    token.cancel()
    assert called.acquire(timeout=30)
    token.on_cancel(callback)
    assert called.acquire(timeout=30), "a token that has tripped calls at once"
    assert threads == ["countermand-callbacks"] * 2


def test_k25_a_callback_that_raises_is_logged_and_stops_no_other(token: Token) -> None:
    called, logged = threading.Event(), threading.Event()
    records: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)
            logged.set()

    handler = Handler()
    logging.getLogger("countermand").addHandler(handler)
    try:
        token.on_cancel(lambda: 1 / 0)
        token.on_cancel(called.set)
        token.cancel()
        assert logged.wait(30)
        assert called.wait(30)
    finally:
        logging.getLogger("countermand").removeHandler(handler)
    (record,) = records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_k25_a_callback_needs_nobody_to_keep_what_on_cancel_returns(
    connection: Connection, token: Token
) -> None:
    called = threading.Semaphore(0)
    token.on_cancel(called.release)
    token.child().on_cancel(called.release)
    gc.collect()
    trip(connection)
    assert called.acquire(timeout=30)
    assert called.acquire(timeout=30)


def test_i11_nothing_left_of_callbacks_when_the_last_token_goes(connection: Connection) -> None:
    (verdict,) = connection.receive(CALL, 0.0)
    token = Token(connection, verdict["generation"])
    token.on_cancel(lambda: None)
    token.child().on_cancel(lambda: None)
    assert connection.stats()["watches"] == 2
    del token
    assert connection.stats()["watches"] == 0


def test_i11_nothing_left_of_callbacks_and_children(connection: Connection, token: Token) -> None:
    unregister = [token.on_cancel(lambda: None) for _ in range(100)]
    children = [token.child() for _ in range(100)]
    assert connection.stats()["watches"] == 100
    assert connection.stats()["tokens"] == 101
    for function in unregister:
        function()
    children.clear()
    assert connection.stats()["watches"] == 0
    assert connection.stats()["tokens"] == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_k25_wait(connection: Connection, token: Token, backend: str) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(token.wait)
            group.start_soon(token.child().wait)
            await anyio.wait_all_tasks_blocked()
            thread = threading.Thread(target=trip, args=(connection,))
            thread.start()
        thread.join()
        await token.wait()
        with anyio.move_on_after(0) as scope:
            await Token(token.child()).wait()
        assert scope.cancel_called

    anyio.run(main, backend=backend)
    assert connection.stats()["watches"] == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_i11_nothing_left_of_a_wait_that_is_cancelled(
    connection: Connection, token: Token, backend: str
) -> None:
    async def main() -> None:
        with anyio.move_on_after(0.01):
            await token.wait()

    anyio.run(main, backend=backend)
    assert connection.stats()["watches"] == 0


def test_k25_current_outside_a_handler_says_what_to_do() -> None:
    with pytest.raises(LookupError, match=r"countermand\.run\(\)"):
        countermand.current()


def test_k25_cancelled_can_be_copied() -> None:
    for error in (Cancelled("peer", "stop"), Cancelled("timeout")):
        for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert (other.cause, other.reason, str(other)) == (error.cause, error.reason, str(error))


def test_errors_name_what_is_wrong(connection: Connection) -> None:
    with pytest.raises(ValueError, match="no such option: nonsense"):
        Connection(nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="stdio"):
        Connection(wire="carrier pigeon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a cause is one of"):
        connection.close("boredom", 0.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seconds"):
        connection.receive(CALL, -1.0)
    with pytest.raises(LookupError, match="not in the table"):
        Token(connection, 99)
    with pytest.raises(TypeError):
        Token(connection)
    with pytest.raises(TypeError, match="countermand cannot guard a str"):
        countermand.guard("a server")


def test_a_read_of_the_flag_costs_at_most_60_ns(token: Token) -> None:
    """The bound that is promised: the best of many, since the machine has other things to do."""
    times = timeit.repeat("token.cancelled", globals={"token": token}, number=100_000, repeat=50)
    empty = timeit.repeat("token", globals={"token": token}, number=100_000, repeat=50)
    assert min(times) - min(empty) <= 100_000 * 60e-9


def test_k08_a_thread_that_polls_sees_the_trip_before_the_loop_goes_on(
    connection: Connection, token: Token
) -> None:
    """No thread but the one that holds the GIL runs here: it is never asked to give it up."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        for _ in range(50):  # Where the machine wakes a thread too late, another one is there in time.
            polled, polling, seen = token.child(), threading.Event(), threading.Event()

            def poll(
                polled: Token = polled, polling: threading.Event = polling, seen: threading.Event = seen
            ) -> None:
                while not polled.cancelled:
                    polling.set()
                    time.sleep(0)
                seen.set()

            thread = threading.Thread(target=poll)
            thread.start()
            polling.wait()
            polled.cancel()
            polled.give_way()
            first = seen.is_set()
            thread.join()
            if first:
                return
        pytest.fail("the polling thread never got to look")
    finally:
        sys.setswitchinterval(interval)
