"""Each example that the installed SDK can run: its tools, cancelled before they start and while they run."""

from __future__ import annotations

import importlib
import os
import pathlib
import re
from typing import Any

import pytest

from driver import TESTS, call, cancel, request, serving

EXAMPLES = TESTS.parents[1] / "examples" / "python"

ARGUMENTS: dict[str, Any] = {
    "command": "exec sleep 60",
    "limit": 10**12,
    "lines": 10**6,
    "power": 10**9,
    "rows": 10**12,
    "seconds": 3600,
    "target": "all",
    "text": "a",
    "zeros": 40,
}
"""What keeps a tool at work until it is cancelled, by the name of the parameter."""


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
def test_k25_the_example_stops_when_it_is_cancelled(example: pathlib.Path) -> None:
    if not runs_here(example):
        pytest.skip("for another SDK")
    os.environ["METRICS_PORT"] = "0"
    with serving(script=str(example)) as server:
        server.write(request("tools", "tools/list"))
        tools = server.answer("tools")["result"]["tools"]
        assert tools
        for number, tool in enumerate(tools):
            arguments = {name: ARGUMENTS[name] for name in tool["inputSchema"]["properties"]}
            for turn in "early", "later":
                id = f"{turn} {number}"
                server.write(call(id, tool["name"], **arguments))
                if turn == "later":
                    server.write(request(f"between {number}", "ping"))
                    if example.stem != "interrupt":  # Its tools block the loop.
                        assert "result" in server.answer(f"between {number}")
                server.write(cancel(id), request(f"after {id}", "ping"))
                assert "result" in server.answer(f"after {id}")
        assert server.finish() == 0
        server.quiet()
        for number in range(len(tools)):
            assert server.answers(f"early {number}") == server.answers(f"later {number}") == []
