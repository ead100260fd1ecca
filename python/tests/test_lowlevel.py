"""Low-level servers on `stdio_server()`, under asyncio and under trio."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from driver import Server, call, cancel, serving, text


@pytest.fixture(params=["asyncio", "trio"])
def low(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(request.param, script="lowlevel.py") as server:
        yield server


def test_i2_silence_under_both_event_loops(low: Server) -> None:
    for number, tool in enumerate(["sleep", "thread", "wait"], 1):
        low.write(call(number, tool, tag=tool))
        low.mark(f"start {tool}")
        low.write(cancel(number))
        low.mark(f"end {tool} peer")
    low.write(call(4, "spin", tag="spin"))
    low.mark("start spin")
    low.write(call(5, "sleep", tag="queued"), cancel(5), cancel(4))
    low.mark("end spin peer")
    low.write(call(6, "echo", tag="answered"))
    assert text(low.answer(6)) == "answered"
    assert low.finish() == 0
    assert not low.marked("start queued")
    for number in range(1, 6):
        assert low.answers(number) == []
    assert low.marked("returned")
    low.quiet()


def test_k08_blocking_code_under_both_event_loops(low: Server) -> None:
    for number, tool in enumerate(["left", "block"], 1):
        low.write(call(number, tool, tag=tool))
        low.mark(f"start {tool}")
        low.write(cancel(number))
        low.mark(f"end {tool} peer")
    low.write(call(3, "echo", tag="answered"))
    assert text(low.answer(3)) == "answered"
    assert low.finish() == 0
    assert low.answers(1) == low.answers(2) == []
    low.quiet()


def test_i3_no_loss_a_handler_that_raises_cancellation_is_answered(low: Server) -> None:
    low.write(call(1, "raise", tag="raise"))
    assert low.answer(1)["error"]["code"] == -32603
    low.write(call(2, "echo", tag="alive"))
    assert text(low.answer(2)) == "alive"
    assert low.finish() == 0
    low.quiet()


def test_k03_eof_under_both_event_loops(low: Server) -> None:
    low.write(call(1, "sleep", tag="first"), call(2, "wait", tag="second"))
    low.mark("start first")
    low.mark("start second")
    assert low.finish() == 0
    assert low.marked("end first disconnect")
    assert low.marked("end second disconnect")
    assert low.marked("returned")
    low.quiet()


def test_k16_sigterm_under_both_event_loops(low: Server) -> None:
    low.write(call(1, "sleep", tag="first"))
    low.mark("start first")
    low.signal(signal.SIGTERM)
    assert low.exit() in (0, 128 + signal.SIGTERM)
    assert low.marked("end first shutdown")
    low.quiet()
