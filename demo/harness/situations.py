"""The situations, a function each: what is written to the server, and what should come of it."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from .seen import PROMPT, PROMPT_END, Seen, after_cancel, broken, duration, listen
from .session import Call, Session, cancelled
from .tree import tree

# How long a loop or a blocked thread goes on where nobody stops it.
LONG = 1.2


def initialize(session: Session) -> Seen:
    session.initialize("first", cancelled({"requestId": "first"}))
    session.wait(lambda: session.sdk() or session.ended(), 10)  # It is up, and about to read.
    answered = session.wait(lambda: session.replies("first"), 1.5)
    if session.ended():
        return Seen("server died", False, f"exit status {session.exit_status()}")
    session.initialized()
    right = answered and not session.replies("first")[0].is_error
    return Seen("answered" if right else "error" if answered else "no answer", right)


def mid_await(session: Session) -> Seen:
    call = session.start("sleep", 5)
    return after_cancel(session, call, session.cancel(call.id), patience=1)


def swallowed(session: Session) -> Seen:
    # The handler works on for 0.3 s after its cancel; what it returns then is nobody's business.
    call = session.start("stubborn", 0.3)
    at = session.cancel(call.id)
    return after_cancel(session, call, at, patience=1, bound=PROMPT + 300_000_000)


def cpu_loop(session: Session) -> Seen:
    call = session.start("spin", LONG)
    return after_cancel(session, call, session.cancel(call.id), patience=LONG + 1)


def never_asks(tool: str, session: Session) -> Seen:
    call = session.start(tool, LONG)
    return after_cancel(session, call, session.cancel(call.id), patience=LONG + 1)


def queued(session: Session) -> Seen:
    loop = session.start("spin", LONG)
    call = session.call("sleep", 0.1)
    listen(session, 0.05)
    session.cancel(call.id)
    listen(session, 0.05)
    session.cancel(loop.id)
    session.wait(lambda: session.exited(loop), LONG + 1)
    listen(session, 0.3)
    if seen := broken(session):
        return seen
    replies, started = session.replies(call.id), session.started(call)
    text = "ran anyway" if started else "error reply" if replies else "never ran"
    return Seen(text, not started and not replies, f"{len(replies)} replies")


def busy_threads(session: Session) -> Seen:
    call = session.start("sleep", 5)
    busy = [session.call("block", LONG) for _ in range(45)]
    session.wait(lambda: sum(map(bool, map(session.started, busy))) >= 40, 1)
    return after_cancel(session, call, session.cancel(call.id), patience=LONG + 1)


def cancelled_threads(session: Session) -> Seen:
    # Nothing stops what runs in these threads; who comes after should not have to wait for them.
    held = [session.call("hold", LONG) for _ in range(60)]
    session.wait(lambda: sum(map(bool, map(session.started, held))) >= 40, 1)
    for call in held:
        session.cancel(call.id)
    at = time.monotonic_ns()
    call = session.call("hold", 0)
    session.wait(lambda: session.replies(call.id) or session.ended(), 2 * LONG)
    took = time.monotonic_ns() - at
    answered = bool(session.replies(call.id))
    session.wait(lambda: all(map(session.exited, filter(session.started, held))), 2 * LONG)
    listen(session)
    if seen := broken(session):
        return seen
    strays = sum(bool(session.replies(call.id)) for call in held)
    detail = f"answered after {took} ns, {strays} answers to cancelled calls"
    if not answered:
        return Seen("no answer", False, detail)
    return Seen(f"answer {duration(took)}", took < PROMPT and not strays, detail)


def after_the_answer(session: Session) -> Seen:
    call = session.call("echo")
    session.wait(lambda: session.replies(call.id), 2)
    session.cancel(call.id)
    return _untouched(session, call)


def id_again_in_one_write(session: Session) -> Seen:
    first = session.call("echo")
    session.wait(lambda: session.replies(first.id), 2)
    message, second = session.request("echo", id=first.id)
    session.write(cancelled({"requestId": first.id}), message)
    return _answers(session, second, [first.tag, second.tag])


def racing_the_answer(session: Session) -> Seen:
    # Always the same dice, so that the servers are told apart by what they do and not by luck.
    dice = random.Random(7)
    calls: list[Call] = []
    while len(calls) < 200 and not session.ended():
        batch = [session.request("sleep", 0.02) for _ in range(10)]
        calls += [call for _, call in batch]
        session.write(*(request for request, _ in batch))
        session.wait(partial(session.started, calls[-1]), 2)
        listen(session, 0.014 + dice.random() * 0.012)
        session.write(*(cancelled({"requestId": call.id}) for _, call in reversed(batch)))
    listen(session)
    if seen := broken(session):
        return Seen(seen.text, False, f"{seen.detail}, after {len(calls)} cancels")
    twice = sum(len(session.replies(call.id)) > 1 for call in calls)
    errors = sum(any(r.is_error for r in session.replies(call.id)) for call in calls)
    beaten = sum(not session.replies(call.id) for call in calls)
    detail = f"{beaten} silent, {errors} errors, {twice} answered twice"
    if errors:
        return Seen(f"{errors} errors", False, detail)
    if twice:
        return Seen(f"{twice} doubled", False, detail)
    return Seen("all right", True, detail)


def unknown_id(session: Session) -> Seen:
    bystander = session.start("sleep", 0.2)
    session.cancel(987_654_321)
    return _untouched(session, bystander)


def same_id_twice(session: Session) -> Seen:
    first = session.start("sleep", 0.6)
    second = session.call("sleep", 0.6, id=first.id)
    listen(session, 0.05)
    at = session.cancel(first.id)
    session.wait(lambda: session.exited(first) or session.ended(), 2)
    listen(session, 0.3)
    if seen := broken(session):
        return seen
    replies, exited = session.replies(first.id), session.exited(first)
    took = exited - at if exited else None
    detail = f"replies {[reply.text for reply in replies]}, first handler's exit after {took} ns"
    refused = [reply.text for reply in replies] == ["-32600"] and not session.started(second)
    if took is None or took >= PROMPT:
        return Seen("1st ran on", False, detail)
    if refused:
        return Seen("2nd refused", True, detail)
    return Seen(f"{len(replies)} replies" if replies else "2nd unheard", False, detail)


def malformed(session: Session) -> Seen:
    # 1 is what a sloppy reader makes of `true` and of 1.5.
    bystander = session.start("sleep", 0.3, id=1)
    for params in ({}, *({"requestId": id} for id in (None, True, 1.5, {})), [1]):
        session.write(cancelled(params))
    return _untouched(session, bystander)


def reason_of_the_wrong_type(session: Session) -> Seen:
    call = session.start("sleep", 0.6)
    return after_cancel(session, call, session.cancel(call.id, reason=7), patience=1.5)


def number_and_string(session: Session) -> Seen:
    number = session.start("sleep", 0.6, id=7)
    string = session.start("sleep", 0.6, id="7")
    at = session.cancel(7)
    session.wait(lambda: session.exited(number) and session.exited(string), 2)
    listen(session)
    if seen := broken(session):
        return seen
    hit = [call.id for call in (number, string) if (session.exited(call) or at) - at < PROMPT]
    answered = [reply.text for call in (number, string) for reply in session.replies(call.id)]
    words = {(7,): "right one", ("7",): "wrong one", (): "none"}
    right = hit == [7] and answered == [string.tag]
    text = "error reply" if hit == [7] and not right else words.get(tuple(hit), "both")
    return Seen(text, right, f"stopped {hit}, answers {answered}")


def id_again_while_the_old_runs(session: Session) -> Seen:
    old = session.start("stubborn", 0.5)
    session.cancel(old.id)
    listen(session, 0.05)
    new = session.call("sleep", 0.1, id=old.id)
    session.wait(lambda: session.exited(old), 1)
    return _answers(session, new, [new.tag])


def stdin_closed(session: Session) -> Seen:
    # The third does not yield: it has a thread of its own where the SDK has threads, else the loop.
    third = "block" if session.server.threads else "spin"
    calls = [session.start("sleep", 5), session.start("sleep", 5), session.start(third, 2 * LONG)]
    at = session.close_stdin()
    session.wait(session.ended, 2 * LONG + 2)
    ended, unwound = session.ended(), sum(bool(session.exited(call)) for call in calls)
    detail = f"exit status {session.exit_status()}, {unwound} of 3 handlers unwound"
    if ended is None:
        return Seen("no exit", False, detail)
    right = ended - at < PROMPT_END and unwound == 3 and session.exit_status() == 0
    return Seen(f"exit {duration(ended - at)}", right, detail)


def _untouched(session: Session, call: Call) -> Seen:
    """A cancel that hits nothing: the call beside it is answered, and nothing else is said."""
    session.wait(lambda: session.replies(call.id) or session.ended(), 2)
    listen(session)
    if seen := broken(session):
        return seen
    replies, stray = session.replies(call.id), session.stray_replies()
    detail = f"replies {[reply.text for reply in replies]}, {len(stray)} to nothing"
    if [reply.text for reply in replies] != [call.tag]:
        return Seen("hit another", False, detail)
    return Seen("error reply" if stray else "ignored", not stray, detail)


def _answers(session: Session, call: Call, expected: list[str]) -> Seen:
    """The id of the call is answered with exactly these results."""
    session.wait(lambda: len(session.replies(call.id)) >= len(expected) or session.ended(), 1)
    listen(session)
    if seen := broken(session):
        return seen
    texts = [reply.text for reply in session.replies(call.id)]
    if texts == expected:
        return Seen("new answer", True)
    if not set(expected) <= set(texts):
        foreign = set(texts) - set(expected)
        return Seen("old answer" if foreign else "no answer", False, str(texts))
    return Seen(f"{len(texts)} replies", False, str(texts))


@dataclass(frozen=True)
class Situation:
    name: str
    play: Callable[[Session], Seen]
    # It begins before the handshake, so with a new server.
    handshake: bool = True
    # It is about blocked threads: nothing to see where an SDK runs no tool in one.
    threads: bool = False


SITUATIONS = (
    Situation("initialize", initialize, handshake=False),
    Situation("mid-await", mid_await),
    Situation("handler swallows it", swallowed),
    Situation("CPU loop, no await", cpu_loop),
    Situation("queued behind that", queued),
    Situation("after the response", after_the_answer),
    Situation("... and the id again", id_again_in_one_write),
    Situation("racing the response", racing_the_answer),
    Situation("unknown id", unknown_id),
    Situation("same id twice", same_id_twice),
    Situation("malformed, six kinds", malformed),
    Situation("right id, reason: 7", reason_of_the_wrong_type),
    Situation('7 and "7", cancel 7', number_and_string),
    Situation("id again, old runs on", id_again_while_the_old_runs),
    Situation("45 threads busy", busy_threads, threads=True),
    Situation("60 cancelled, 1 more", cancelled_threads, threads=True),
    Situation("never asks: a loop", partial(never_asks, "loop")),
    Situation("never asks: a call", partial(never_asks, "stuck")),
    Situation("stdin closed, 3 busy", stdin_closed),
    Situation("process tree, cancel", partial(tree, lambda session, call: session.cancel(call.id))),
    Situation("... stdin closed", partial(tree, lambda session, _: session.close_stdin())),
    Situation("... SIGTERM", partial(tree, lambda session, _: session.signal(signal.SIGTERM))),
    Situation("... SIGKILL", partial(tree, lambda session, _: session.signal(signal.SIGKILL))),
)
