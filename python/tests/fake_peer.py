"""A server that answers as none should: late, twice, never, under other ids, with progress after the end.

The name of the tool says how. `log` gives every frame that was read so far.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

TOOLS = ("echo", "late", "never", "twice", "wrong_id")
"""Those that an SDK calls, which looks for them here."""

log: list[Any] = []
late: dict[Any, Any] = {}


def write(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(id: Any, text: Any = "done") -> None:
    content = [{"type": "text", "text": text if isinstance(text, str) else json.dumps(text)}]
    write(id=id, result={"content": content, "isError": False})


def progress(token: Any, number: float) -> None:
    write(method="notifications/progress", params={"progressToken": token, "progress": number})


def tool(id: Any, name: str, params: dict[str, Any]) -> None:
    token = params.get("_meta", {}).get("progressToken")
    if name == "echo":
        answer(id)
    elif name == "log":
        answer(id, log)
    elif name == "pid":
        answer(id, os.getpid())
    elif name == "late":
        late[id] = "late"
    elif name == "twice":
        answer(id)
        answer(id, "again")
    elif name == "wrong_id":
        answer(999_999)
        answer(str(id), "of the wrong type")
        answer(id)
    elif name == "progress":
        for number in range(3):
            progress(token, number)
        answer(id)
        progress(token, 99)
    elif name == "pulse":
        for number in range(int(params["arguments"]["count"])):
            progress(token, number)
            time.sleep(params["arguments"]["every"])
    elif name == "deaf":
        time.sleep(params["arguments"]["seconds"])
    elif name == "error":
        write(id=id, error={"code": -32050, "message": "no", "data": [1]})


def main() -> None:
    if "--mute" in sys.argv:
        sys.stdin.read()
        return
    for line in sys.stdin:
        message = json.loads(line)
        log.append(message)
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "initialize":
            write(
                id=id,
                result={
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fake", "version": "1"},
                },
            )
        elif method == "tools/list":
            schema = {"type": "object"}
            write(id=id, result={"tools": [{"name": name, "inputSchema": schema} for name in TOOLS]})
        elif method == "tools/call":
            tool(id, params["name"], params)
        elif method == "notifications/cancelled" and params["requestId"] in late:
            answer(params["requestId"], late.pop(params["requestId"]))
        elif id is not None:
            write(id=id, result={})


main()
