"""What a handler asks the client is cancelled with the handler's own request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from driver import Server, call, cancel, note, request, serving, text

INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"roots": {}},
    "clientInfo": {"name": "nested", "version": "1"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(script="nested_server.py", initialize=False) as server:
        server.write(request("init", "initialize", **INITIALIZE))
        assert "result" in server.answer("init")
        server.write(note("notifications/initialized"))
        yield server
        server.alive()
        assert server.finish() == 0
        server.quiet()


def asked(server: Server, count: int) -> Any:
    """The id of the question with this number."""

    def ids() -> list[Any]:
        return [message["id"] for message in server.messages if message.get("method") == "roots/list"]

    return server.until(lambda: ids()[count:] and ids(), f"question {count}")[count]


def cancelled(server: Server) -> list[Any]:
    """The ids that the server has cancelled."""
    cancels = [m for m in server.messages if m.get("method") == "notifications/cancelled"]
    return [message["params"]["requestId"] for message in cancels]


def test_k18_questions_are_cancelled_with_who_asks(server: Server) -> None:
    server.write(call("a", "ask", tag="a"), call("b", "ask", tag="b"))
    first, second = asked(server, 0), asked(server, 1)
    server.write(cancel("a"))
    server.until(lambda: cancelled(server), "a cancel of the question")
    # The answer crosses it, and that to the other is still waited for.
    for question in (first, second):
        server.write({"jsonrpc": "2.0", "id": question, "result": {"roots": []}})
    assert text(server.answer("b")) == "asked"
    server.silent("a")
    assert cancelled(server) == [first]


def test_k18_nothing_is_asked_for_a_cancelled_request(server: Server) -> None:
    before = len(cancelled(server))
    server.write(call("c", "insist", tag="c"))
    question = asked(server, 2)
    server.write(cancel("c"))
    # Whoever shields itself from its own cancellation is told that its question is none any more.
    server.mark("refused 0 c")
    server.mark("refused 1 c")
    server.alive()
    assert cancelled(server)[before:] == [question]
    questions = [m for m in server.messages if m.get("method") == "roots/list"]
    assert len(questions) == 3
    server.silent("c")
