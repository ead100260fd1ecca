"""Requests, their answers and their cancels: what reaches the wire, and what does not."""

from __future__ import annotations

import json

import pytest

from driver import INITIALIZE, Server, call, cancel, note, request, serving, text


def test_i2_silence_a_cancel_mid_await(server: Server) -> None:
    id = server.id()
    server.write(call(id, "sleep", tag="mid-await"))
    server.mark("start mid-await")
    server.write(cancel(id))
    server.mark("CancelledError mid-await")
    server.silent(id)


@pytest.mark.parametrize("how", ["swallow", "raise_in_cleanup"])
def test_i2_silence_whatever_the_handler_does(server: Server, how: str) -> None:
    id = server.id()
    server.write(call(id, how, tag=how))
    server.mark(f"start {how}")
    server.write(cancel(id))
    server.mark(f"CancelledError {how}")
    server.silent(id)


@pytest.mark.parametrize("fails", [False, True])
def test_i2_silence_two_seconds_later(server: Server, fails: bool) -> None:
    id, tag = server.id(), f"later-{fails}"
    server.write(call(id, "late", tag=tag, seconds=2, fails=fails))
    server.mark(f"start {tag}")
    server.write(cancel(id))
    server.mark(f"late {tag}")
    server.silent(id)


def test_i2_silence_progress_stops_k22(server: Server) -> None:
    id = server.id()
    server.write(call(id, "progress", tag="progress", progress="token-a"))
    server.mark("start progress")
    server.until(lambda: progress_of(server, "token-a"), "progress before the cancel")
    server.write(cancel(id))
    server.mark("progressed progress")
    server.silent(id)
    assert len(progress_of(server, "token-a")) == 1


def test_i3_no_loss_progress_without_a_cancel(server: Server) -> None:
    id = server.id()
    server.write(call(id, "progress_and_return", steps=5, progress="token-b"))
    server.answer(id)
    assert [m["params"]["progress"] for m in progress_of(server, "token-b")] == [0, 1, 2, 3, 4]


def test_i1_one_answer_and_late_cancels_are_ignored_k24(server: Server) -> None:
    late = server.stats()["late_cancels"]
    id = server.id()
    server.write(call(id, "echo", text="first"))
    assert text(server.answer(id)) == "first"
    server.write(cancel(id), cancel(id))
    server.settled(late_cancels=late + 2)
    assert len(server.answers(id)) == 1


def test_i1_one_answer_three_cancels_during_one_cleanup_k05(server: Server) -> None:
    id = server.id()
    server.write(call(id, "late", tag="thrice", seconds=0.2))
    server.mark("start thrice")
    for _ in range(3):
        server.write(cancel(id))
    server.mark("late thrice")
    server.silent(id)


def test_i3_no_loss_an_answer_before_its_cancel_is_whole(server: Server) -> None:
    id = server.id()
    server.write(call(id, "big", size=1_000_000))
    server.write(call(id + 1_000_000, "sleep", tag="beside the big one"))
    server.answer(id)
    server.write(cancel(id), cancel(id + 1_000_000))
    server.mark("CancelledError beside the big one")
    assert len(text(server.answer(id))) == 1_000_000
    server.silent(id + 1_000_000)


def test_i7_right_target_number_and_string_k12(server: Server) -> None:
    id = server.id()
    server.write(call(id, "sleep", tag="number"), call(str(id), "sleep", tag="string"))
    server.mark("start number")
    server.mark("start string")
    server.write(cancel(id))
    server.mark("CancelledError number")
    server.alive()
    assert not server.marked("CancelledError string")
    server.write(cancel(str(id)))
    server.mark("CancelledError string")
    server.silent(id)
    server.silent(str(id))


@pytest.mark.parametrize("id", [0, "", -7, 2**53 - 1, 2**53 + 1, "\u00fc\U0001f600", 'a"b\\c'])
def test_i7_right_target_every_id_is_an_id_k12(server: Server, id: int | str) -> None:
    tag = f"id-{json.dumps(id)}"
    server.write(call(id, "request_id"))
    assert json.loads(text(server.answer(id))) == id
    server.write(call(id, "describe", tag=tag))
    server.mark(f"start {tag}")
    server.write(cancel(id, reason="why not"))
    server.mark(f"token {tag} {json.dumps([True, 'peer', 'why not', id])}")
    server.silent(id, answers=1)


def test_i7_right_target_the_value_counts_not_the_spelling_k12(server: Server) -> None:
    id = server.id()
    server.write(call(id, "sleep", tag="spelling"))
    server.mark("start spelling")
    server.write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d.0}}' % id)
    server.mark("CancelledError spelling")
    server.silent(id)


def test_i7_right_target_the_other_direction_is_apart_k23(server: Server) -> None:
    """An answer of the peer's under the id of a live request of its own cancels nothing."""
    id = server.id()
    server.write(call(id, "sleep", tag="direction", seconds=0.2))
    server.write({"jsonrpc": "2.0", "id": id, "result": {}})
    assert text(server.answer(id)) == "direction"


def test_i7_right_target_duplicate_id_is_rejected_k13(server: Server) -> None:
    id = server.id()
    server.write(call(id, "sleep", tag="original", seconds=0.3), call(id, "sleep", tag="duplicate"))
    server.until(lambda: len(server.answers(id)) == 2, "two answers")
    rejected, answered = server.answers(id)
    assert rejected["error"]["code"] == -32600
    assert text(answered) == "original"
    assert not server.marked("start duplicate")


def test_i7_right_target_duplicate_id_then_cancel_k13(server: Server) -> None:
    id = server.id()
    server.write(call(id, "sleep", tag="kept"))
    server.mark("start kept")
    server.write(call(id, "echo", text="no"))
    assert server.answer(id)["error"]["code"] == -32600
    server.write(cancel(id))
    server.mark("CancelledError kept")
    server.alive()
    assert len(server.answers(id)) == 1


def test_i7_right_target_id_reused_while_the_old_handler_runs_k13(server: Server) -> None:
    id = server.id()
    server.write(call(id, "late", tag="old", seconds=0.5))
    server.mark("start old")
    server.write(cancel(id), call(id, "describe", tag="new"))
    server.mark("start new")
    assert not server.marked("late old")
    server.mark("late old")
    server.alive()
    assert server.answers(id) == []
    server.write(cancel(id, reason="the second"))
    server.mark(f"token new {json.dumps([True, 'peer', 'the second', id])}")
    server.write(call(id, "echo", text="third"))
    assert text(server.answer(id)) == "third"
    server.silent(id, answers=1)


def test_i7_right_target_reused_id_answers_while_the_old_handler_runs_k13(server: Server) -> None:
    id = server.id()
    server.write(call(id, "late", tag="older", seconds=0.5))
    server.mark("start older")
    server.write(cancel(id), call(id, "echo", text="newer"))
    assert text(server.answer(id)) == "newer"
    server.mark("late older")
    server.alive()
    assert len(server.answers(id)) == 1


def test_k11_request_and_cancel_in_one_chunk_never_starts(server: Server) -> None:
    id = server.id()
    server.write(call(id, "sleep", tag="one chunk"), cancel(id))
    server.silent(id)
    assert not server.marked("start one chunk")


def test_k11_request_cancel_request_with_one_id_in_one_chunk(server: Server) -> None:
    id = server.id()
    server.write(call(id, "sleep", tag="withdrawn"), cancel(id), call(id, "echo", text="second"))
    assert text(server.answer(id)) == "second"
    server.alive()
    assert not server.marked("start withdrawn")
    assert len(server.answers(id)) == 1


MALFORMED: list[bytes] = [
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":true}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.5}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"no such id"}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99999999}}',
]


def test_i15_session_lives_malformed_and_unknown_cancels_k24(server: Server) -> None:
    id = server.id()
    before = server.stats()
    server.write(call(id, "sleep", tag="undisturbed", seconds=0.3), *MALFORMED)
    assert text(server.answer(id)) == "undisturbed"
    stats = server.settled(malformed_cancels=before["malformed_cancels"] + 7)
    # An id that never was is unknown or late: numbers below the highest seen might have been.
    ignored = ("unknown_cancels", "late_cancels")
    assert sum(stats[name] - before[name] for name in ignored) == 2


def test_i15_session_lives_a_reason_of_the_wrong_type_k24(server: Server) -> None:
    id = server.id()
    server.write(call(id, "describe", tag="reason"))
    server.mark("start reason")
    server.write(cancel(id, reason=7))
    server.mark(f"token reason {json.dumps([True, 'peer', None, id])}")
    server.silent(id)


def test_i15_session_lives_garbage_between_requests(server: Server) -> None:
    id = server.id()
    server.write(call(id, "sleep", tag="amid garbage", seconds=0.3))
    server.write(b"", b"   ", b"not json", b"\xff\xfe", b'{"jsonrpc":"2.0"', b"[1,", b"null", b"7", b"{}")
    assert text(server.answer(id)) == "amid garbage"


def test_i15_session_lives_an_unreadable_request_leaves_nothing_i11(server: Server) -> None:
    """Its envelope is read by the engine, and the rest is refused by the SDK."""
    server.write(b'{"jsonrpc":"1.0","id":"unreadable","method":"tools/call","params":{}}')
    server.write(b'{"jsonrpc":"2.0","id":"unreadable","method":"tools/call","params":3}')
    server.settled(in_flight=1, tokens=1)


def test_i9_handshake_initialize_and_its_cancel_in_one_write_k23() -> None:
    with serving("run", initialize=False) as server:
        server.write(request(0, "initialize", **INITIALIZE), cancel(0))
        assert "result" in server.answer(0)
        server.write(note("notifications/initialized"), cancel(0))
        server.alive()
        assert server.stats()["initialize_cancels"] == 1
        assert server.finish() == 0


def test_i11_nothing_left_after_cancels(server: Server) -> None:
    for number in range(50):
        id = server.id()
        server.write(call(id, "callbacks", tag=f"left-{number}"))
        server.mark(f"start left-{number}")
        server.write(cancel(id))
    for number in range(50):
        server.mark(f"waited left-{number}")
    stats = server.settled(in_flight=1, tokens=1, watches=0)
    assert stats["held"] == 0
    assert stats["tasks"] == 0


def progress_of(server: Server, token: str) -> list[dict]:
    messages = server.messages
    return [
        m
        for m in messages
        if m.get("method") == "notifications/progress" and m["params"]["progressToken"] == token
    ]
