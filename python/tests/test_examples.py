"""The examples: each is served as it is, by the SDK that it is written for."""

from __future__ import annotations

import ast
import pathlib
import time
from importlib.util import find_spec
from typing import Any

import pytest

from driver import call, cancel, request, serving

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"

BLOCKED: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "thread": [("wait", {"seconds": 60}), ("mine", {"text": "a", "zeros": 40})],
    "process": [("digits", {"power": 10**9}), ("shell", {"command": "sleep 60"})],
    "interrupt": [
        ("pause", {"seconds": 60}),
        ("shell", {"command": "exec sleep 60"}),
        ("count", {"limit": 10**12}),
    ],
    "cleanup": [("transfer", {"seconds": 60}), ("checked", {"rows": 10**12})],
}
"""What the tools of an example are given, to be cancelled in."""


def installed(file: pathlib.Path) -> bool:
    """Whether all that an example imports is there."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            try:
                if find_spec(name) is None:
                    return False
            except ModuleNotFoundError:
                return False
    return True


@pytest.mark.parametrize("name", sorted(file.stem for file in EXAMPLES.glob("*.py")))
def test_k25_an_example_serves(name: str) -> None:
    file = EXAMPLES / f"{name}.py"
    if not installed(file):
        pytest.skip("written for another SDK")
    with serving(script=str(file)) as server:
        for number, (tool, arguments) in enumerate(BLOCKED.get(name, [])):
            server.write(call(number, tool, **arguments))
            # Most times it has begun by then; what is tested holds either way.
            time.sleep(0.2)
            server.write(cancel(number))
        server.write(request("tools", "tools/list"))
        assert server.answer("tools")["result"]["tools"]
        assert not any(server.answers(number) for number in range(9))
        assert server.finish() == 0
        server.quiet()
