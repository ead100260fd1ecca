"""Libraries that are cancelled as the event loop cancels: the socket closes, and the other end sees it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from driver import PATIENCE, Server, call, cancel, serving, text


class Peer:
    """A web server on loopback: `/never` gets no answer, `/endless` one without an end, `/short` one at
    once."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.asked = threading.Semaphore(0)
        """Released for each request that has arrived."""
        self.closed = threading.Semaphore(0)
        """Released for each connection that the client closed with a request unanswered."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                received = connection.recv(4096)
                if not received:
                    return
                request += received
            path = request.split()[1]
            if path == b"/short":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nshort")
                return
            if path == b"/endless":
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n7\r\nsecond\n\r\n"
                )
            self.asked.release()
            with contextlib.suppress(ConnectionResetError):
                assert not connection.recv(1)
            self.closed.release()


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.socket.close()


@pytest.fixture(scope="module")
def server(peer: Peer) -> Iterator[Server]:
    with serving(str(peer.port), script="libraries_server.py") as server:
        yield server
        server.alive()
        assert server.finish() == 0
        server.quiet()


HTTPX = ["httpx", "httpx2"] if find_spec("httpx2") else ["httpx"]
"""Those that are installed: `mcp` 2.x brings the second."""


@pytest.mark.parametrize(
    "tool", [*(f"{name}_{how}" for name in HTTPX for how in ("get", "kept")), "aiohttp_get", "streams"]
)
def test_k28_the_other_end_sees_the_socket_close(server: Server, peer: Peer, tool: str) -> None:
    for _ in range(3):
        id = server.id()
        server.write(call(id, tool, path="/never"))
        assert peer.asked.acquire(timeout=PATIENCE)
        assert not peer.closed.acquire(blocking=False)
        server.write(cancel(id))
        assert peer.closed.acquire(timeout=PATIENCE), "the socket is still open"
        server.silent(id)
    # No slot of a pool is taken by what was cancelled.
    assert "short" in text(server.call(tool, path="/short"))


@pytest.mark.parametrize("tool", [*(f"{name}_stream" for name in HTTPX), "aiohttp_stream"])
def test_k28_a_stream_stops_and_its_socket_closes(server: Server, peer: Peer, tool: str) -> None:
    id = server.id()
    server.lines.clear()
    server.write(call(id, tool, path="/endless"))
    server.mark("line second")
    server.write(cancel(id))
    assert peer.closed.acquire(timeout=PATIENCE), "the socket is still open"
    assert peer.asked.acquire(timeout=PATIENCE)
    server.silent(id)


def test_k28_a_query_stops(server: Server) -> None:
    id = server.id()
    server.write(call(id, "sqlite", tag="query"))
    server.mark("start query")
    server.write(cancel(id))
    server.mark("free query")
    server.silent(id)
