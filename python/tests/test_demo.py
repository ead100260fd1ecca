"""What the demo's harness needs to know about the servers that it drives."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo"

# Answers whatever has an id. After the end of its stdin it goes on until it is killed.
LINGERING = """
import json, signal, sys
for line in sys.stdin:
    id = json.loads(line).get("id")
    if id is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}), flush=True)
signal.pause()
"""


def test_k16_a_server_that_lingers_after_its_stdin_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DEMO))
    from harness.servers import Server
    from harness.session import Session

    server = Server("lingering", (sys.executable, "-c", LINGERING), threads=True)
    session = Session(server, guarded=False, log=subprocess.DEVNULL)
    try:
        assert session.idle()
        session.close_stdin()
        assert session.ended() is None
        assert not session.idle()
    finally:
        session.kill()
