"""Process trees of a real server: nothing is left after a trip, the end of stdin, SIGTERM and SIGKILL."""

from __future__ import annotations

import signal
import time

import pytest

from driver import Server, call, cancel, serving
from sdk import NAME
from trees import gone, tree

ENDS = ["trip", "eof", "sigterm", "sigkill"]
# Every environment tries, one of them at length: a server takes its time to start.
LONG = 200 if NAME == "mcp2" else 20


def end(server: Server, how: str, tool: str = "tree") -> None:
    """Has a tool start its tree, ends the request or the server, and waits until nothing is left."""
    with tree() as stubborn:
        id = server.id()
        server.write(call(id, tool, tag=str(id), folder=stubborn.folder))
        pids = stubborn.ready()
        at = time.monotonic()
        if how == "trip":
            server.write(cancel(id))
        elif how == "eof":
            server.close_stdin()
        else:
            server.signal({"sigterm": signal.SIGTERM, "sigkill": signal.SIGKILL}[how])
        gone(pids)
        if how == "sigkill":
            # The promise is two seconds.
            assert time.monotonic() - at < 2
        if how == "trip":
            server.silent(id)
        else:
            server.exit()
            assert server.answers(id) == []


def rounds(how: str, count: int) -> None:
    if how == "trip":
        with serving("run") as server:
            for _ in range(count):
                end(server, how)
            assert server.finish() == 0
        return
    for _ in range(count):
        with serving("run") as server:
            end(server, how)


@pytest.mark.parametrize("how", ENDS)
def test_i11_nothing_left_of_a_tree(how: str) -> None:
    rounds(how, 3)


@pytest.mark.long
@pytest.mark.parametrize("how", ENDS)
def test_i11_nothing_left_of_a_tree_many_times_in_a_row(how: str) -> None:
    rounds(how, LONG)


@pytest.mark.parametrize("tool", ["deaf_tree", "forgotten_tree", "blocked_tree"])
@pytest.mark.parametrize("how", ["trip", "eof"])
def test_i11_nothing_left_of_a_tree_whatever_its_handler_does(own: Server, tool: str, how: str) -> None:
    end(own, how, tool)


def test_k04_a_tree_that_a_handler_forgets_ends_with_its_request(own: Server) -> None:
    with tree() as stubborn:
        own.call("returns_from_tree", folder=stubborn.folder)
        gone(stubborn.pids())
