"""Each example that the installed SDK can run: its tools, cancelled before they start and while they run."""

from __future__ import annotations

import importlib
import os
import pathlib
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest

from driver import TESTS, call, cancel, request, serving

EXAMPLES = TESTS.parents[1] / "examples" / "python"

ARGUMENTS: dict[str, Any] = {
    "command": "exec sleep 60",
    "count": 8,
    "limit": 10**12,
    "lines": 10**6,
    "power": 10**9,
    "rows": 10**12,
    "seconds": 3600,
    "statement": "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    "target": "all",
    "text": "a",
    "zeros": 40,
}
"""What keeps a tool at work until it is cancelled, by the name of the parameter; `url` is :func:`endless`."""

BLOCKING = {
    ("cleanup", "checked"),
    ("fastmcp_server", "count"),
    ("interrupt", "count"),
    ("interrupt", "pause"),
    ("interrupt", "shell"),
    ("sdk1", "count"),
    ("sdk2", "count"),
}
"""Tools that block the event loop, with their example: nothing is answered meanwhile."""

BRIEF = {"build", "parts"}
"""Tools that may have ended by themselves before their cancel."""


@pytest.fixture(scope="module")
def endless() -> Iterator[str]:
    """The address of a server that sends a line and no end."""
    done = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"line\n")
            done.wait()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        done.set()
        server.shutdown()


def runs_here(example: pathlib.Path) -> bool:
    """Whether this environment has what the example imports."""
    text = example.read_text()
    imports = re.findall(r"^from (\S+) import (\w+)", text, re.MULTILINE)
    if "`mcp` 1.x" in text:
        imports.append(("mcp.server.fastmcp", "FastMCP"))
    for module, name in imports:
        try:
            if not hasattr(importlib.import_module(module), name):
                return False
        except ImportError:
            return False
    return True


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_k25_the_example_stops_when_it_is_cancelled(example: pathlib.Path, endless: str) -> None:
    if not runs_here(example):
        pytest.skip("for another SDK")
    os.environ["METRICS_PORT"] = "0"
    values = {**ARGUMENTS, "url": endless}
    with serving(script=str(example)) as server:
        server.write(request("tools", "tools/list"))
        tools = server.answer("tools")["result"]["tools"]
        assert tools
        for number, tool in enumerate(tools):
            arguments = {name: values[name] for name in tool["inputSchema"]["properties"]}
            for turn in "early", "later":
                id = f"{turn} {number}"
                server.write(call(id, tool["name"], **arguments))
                if turn == "later":
                    server.write(request(f"between {number}", "ping"))
                    if (example.stem, tool["name"]) not in BLOCKING:
                        assert "result" in server.answer(f"between {number}")
                server.write(cancel(id), request(f"after {id}", "ping"))
                assert "result" in server.answer(f"after {id}")
        assert server.finish() == 0, server.log
        server.quiet()
        for number, tool in enumerate(tools):
            assert server.answers(f"early {number}") == []
            assert len(server.answers(f"later {number}")) <= (tool["name"] in BRIEF)
