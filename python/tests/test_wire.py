"""The wire itself: what may be on it, and how it ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from driver import Server, call, cancel, request, serving, text


@pytest.fixture(params=["run", "guard"])
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server under ``countermand.run``, and one under ``countermand.guard`` and its own ``run``."""
    with serving(request.param) as server:
        yield server


def test_i4_whole_frames_stray_output_stays_off_the_wire(own: Server) -> None:
    assert text(own.call("noise")) == "done"
    own.alive()
    assert own.finish() == 0
    assert all(message["jsonrpc"] == "2.0" for message in own.messages)
    for stray in ("a stray print", "a stray write", "a stray puts", "a stray child"):
        assert stray in own.log
    own.quiet()


def test_i4_whole_frames_cancels_among_huge_answers(own: Server) -> None:
    size = 300_000
    numbers = range(100, 120)
    for id in numbers:
        own.write(call(id, "big", size=size), call(-id, "sleep", tag=str(id)))
    for id in numbers:
        own.write(cancel(-id), cancel(id))
    own.alive()
    assert own.finish() == 0
    # Each came whole or not at all, and every line is a message.
    for message in own.messages:
        if message.get("id") in numbers:
            assert len(text(message)) == size
    for id in numbers:
        assert len(own.answers(id)) <= 1
        assert own.answers(-id) == []
    own.quiet()


def test_i4_whole_frames_a_frame_that_is_too_long_is_refused(own: Server) -> None:
    own.write(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"x":"' + b"x" * (64 << 20) + b'"}}')
    refused = own.until(lambda: own.answers(None), "a refusal")
    assert refused[0]["error"]["code"] == -32600
    own.alive()


def test_i3_no_loss_a_peer_that_reads_nothing_for_a_while(own: Server) -> None:
    """More than any queue of ours holds: nothing is lost, and a cancel is heard meanwhile."""
    numbers = list(range(100, 150))
    with own.not_reading():
        own.write(*(call(id, "big", size=1_000_000) for id in numbers), call(99, "sleep", tag="meanwhile"))
        own.mark("start meanwhile")
        own.write(cancel(99))
        own.mark("CancelledError meanwhile")
    for id in numbers:
        assert len(text(own.answer(id))) == 1_000_000
    own.silent(99)


def test_k03_eof_cancels_everything_and_the_process_ends(either: Server) -> None:
    for number in (1, 2, 3):
        either.write(call(number + 100, "describe", tag=f"eof-{number}"))
        either.mark(f"start eof-{number}")
    assert either.finish() == 0
    for number in (1, 2, 3):
        assert any(line.startswith(f'@token eof-{number} [true, "disconnect"') for line in either.lines)
        assert either.answers(number + 100) == []
    assert either.marked("returned")
    either.quiet()


def test_k16_eof_with_nothing_in_flight(either: Server) -> None:
    either.alive()
    assert either.finish() == 0
    assert either.marked("returned")
    either.quiet()


@pytest.fixture
def hasty() -> Iterator[Server]:
    """A server that gives its handlers little time to unwind."""
    with serving("run", "0.2") as server:
        yield server


def test_k16_eof_ends_the_process_after_two_seconds_by_default(own: Server) -> None:
    own.write(call(100, "subprocess_run", tag="stuck"))
    own.mark("start stuck")
    assert own.finish() == 0


@pytest.mark.parametrize("tool", ["subprocess_run", "sync_subprocess_run", "spin", "sync"])
def test_k16_eof_ends_the_process_whatever_a_handler_does(hasty: Server, tool: str) -> None:
    hasty.write(call(100, tool, tag="stuck"))
    hasty.mark("start stuck")
    assert hasty.finish() == 0
    assert hasty.answers(100) == []
    hasty.quiet()


@pytest.mark.parametrize("tool", ["sleep", "swallow", "sync_subprocess_run", "spin"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_k16_a_signal_ends_the_process_whatever_a_handler_does(
    hasty: Server, tool: str, number: signal.Signals
) -> None:
    hasty.write(call(100, tool, tag="stuck"))
    hasty.mark("start stuck")
    hasty.signal(number)
    assert hasty.exit() == 128 + number
    assert hasty.answers(100) == []
    hasty.quiet()


def test_k16_a_signal_trips_with_cause_shutdown(own: Server) -> None:
    own.write(call(100, "describe", tag="shutdown"))
    own.mark("start shutdown")
    own.signal(signal.SIGTERM)
    own.exit()
    assert any(line.startswith('@token shutdown [true, "shutdown"') for line in own.lines), own.log


def test_i15_session_lives_no_crash_when_the_client_closes_our_stdout(own: Server) -> None:
    own.write(call(100, "describe", tag="unread"))
    own.mark("start unread")
    own.close_stdout()
    own.write(call(101, "big", size=1_000_000), call(102, "echo", text="nobody reads this"))
    assert own.exit() == 0
    assert any(line.startswith('@token unread [true, "disconnect"') for line in own.lines), own.log
    own.quiet()


def test_k16_eof_before_the_handshake() -> None:
    with serving("run", initialize=False) as server:
        assert server.finish() == 0
        server.quiet()


def test_i3_no_loss_what_was_answered_before_eof_is_written(own: Server) -> None:
    numbers = range(100, 400)
    own.write(*(call(id, "echo", text=str(id)) for id in numbers))
    for id in numbers:
        own.answer(id)
    own.write(request(500, "ping"))
    own.answer(500)
    assert own.finish() == 0
    assert [len(own.answers(id)) for id in numbers] == [1] * 300
    own.quiet()
