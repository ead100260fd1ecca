"""Each example that the installed SDK can run, stopped by a cancel."""

from __future__ import annotations

import importlib
import os
import pathlib
import re

import pytest

from driver import TESTS, call, cancel, request, serving

EXAMPLES = TESTS.parents[1] / "examples" / "python"
ARGUMENTS = {"seconds": 3600, "limit": 10**12}


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
def test_the_example_stops_when_it_is_cancelled(example: pathlib.Path) -> None:
    if not runs_here(example):
        pytest.skip("for another SDK")
    os.environ["METRICS_PORT"] = "0"
    with serving(script=str(example)) as server:
        server.write(request("tools", "tools/list"))
        (tool, *_) = server.answer("tools")["result"]["tools"]
        arguments = {name: ARGUMENTS[name] for name in tool["inputSchema"]["properties"]}
        server.write(call(1, tool["name"], **arguments), cancel(1), request(2, "ping"))
        assert "result" in server.answer(2)
        server.write(call(3, tool["name"], **arguments), request(4, "ping"))
        assert "result" in server.answer(4)
        server.write(cancel(3), request(5, "ping"))
        assert "result" in server.answer(5)
        assert server.finish() == 0
        assert server.answers(1) == server.answers(3) == []
