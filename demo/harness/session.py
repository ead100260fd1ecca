"""One server process, driven with raw JSON lines, and everything that it says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO, Any, NamedTuple

from .servers import Server

PROTOCOL = "2025-11-25"


class Reply(NamedTuple):
    at: int
    message: dict[str, Any]

    @property
    def is_error(self) -> bool:
        return "error" in self.message or bool(self.message.get("result", {}).get("isError"))

    @property
    def text(self) -> str:
        """The tag that the tool answered with, or the error's code."""
        if "error" in self.message:
            return str(self.message["error"].get("code"))
        content = self.message.get("result", {}).get("content") or [{}]
        return str(content[0].get("text"))


class Call(NamedTuple):
    id: Any
    tag: str


class Session:
    """A running server. Times are the system's monotonic clock in nanoseconds, in both processes."""

    def __init__(self, server: Server, guarded: bool, log: int, handshake: bool = True) -> None:
        self.server = server
        report_read, report_write = os.pipe()
        self._process = subprocess.Popen(
            [*server.command, *(["guarded"] if guarded else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=[report_write],
            env={**os.environ, "DEMO_REPORT_FD": str(report_write)},
        )
        os.close(report_write)
        assert self._process.stdin and self._process.stdout
        self._stdin = self._process.stdin
        self._changed = threading.Condition()
        self._replies: list[Reply] = []
        self._events: dict[tuple[str, str], int] = {}
        self._ids = 100
        self._tags = 0
        self._read_lines(self._process.stdout, self._on_message)
        self._read_lines(os.fdopen(report_read, "rb"), self._on_report)
        self._ended: int | None = None
        threading.Thread(target=self._reap, daemon=True).start()
        if handshake:
            self.initialize("hello")
            self.wait(lambda: self.replies("hello") or self.ended(), 20)
            if not self.replies("hello"):
                self.kill()
                raise RuntimeError(f"{server.command[-1]} did not come up: see target/demo.log")
            self.initialized()

    # Reading

    def _read_lines(self, pipe: IO[bytes], take: Callable[[int, bytes], None]) -> None:
        def loop() -> None:
            rest = b""
            with pipe:
                while chunk := os.read(pipe.fileno(), 1 << 16):
                    now = time.monotonic_ns()
                    *lines, rest = (rest + chunk).split(b"\n")
                    with self._changed:
                        for line in filter(None, lines):
                            take(now, line)
                        self._changed.notify_all()
            with self._changed:
                self._changed.notify_all()

        threading.Thread(target=loop, daemon=True).start()

    def _reap(self) -> None:
        self._process.wait()
        with self._changed:
            self._ended = time.monotonic_ns()
            self._changed.notify_all()

    def _on_message(self, now: int, line: bytes) -> None:
        message = json.loads(line)
        if "method" not in message:
            self._replies.append(Reply(now, message))

    def _on_report(self, _now: int, line: bytes) -> None:
        event, what, at = line.decode().rsplit(" ", 2)
        self._events[event, what] = int(at)

    # Writing

    def write(self, *messages: dict[str, Any]) -> int:
        """Writes the messages in one write. Returns when their last byte was written."""
        data = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        # Where the server is dead, what follows finds that out.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._stdin.fileno(), data)
        return time.monotonic_ns()

    def fresh_id(self) -> int:
        self._ids += 1
        return self._ids

    def request(self, tool: str, seconds: float = 0, id: Any = None) -> tuple[dict[str, Any], Call]:
        self._tags += 1
        call = Call(self.fresh_id() if id is None else id, f"{tool}-{self._tags}")
        arguments: dict[str, Any] = {"tag": call.tag}
        if seconds:
            arguments["seconds"] = seconds
        params = {"name": tool, "arguments": arguments}
        return {"jsonrpc": "2.0", "id": call.id, "method": "tools/call", "params": params}, call

    def call(self, tool: str, seconds: float = 0, id: Any = None) -> Call:
        message, call = self.request(tool, seconds, id)
        self.write(message)
        return call

    def start(self, tool: str, seconds: float = 0, id: Any = None) -> Call:
        """Calls a tool and waits until its handler has started."""
        call = self.call(tool, seconds, id)
        self.wait(lambda: self.started(call), 5)
        return call

    def cancel(self, id: Any, **more: Any) -> int:
        return self.write(cancelled({"requestId": id, **more}))

    def initialize(self, id: Any, *then: dict[str, Any]) -> int:
        client = {"name": "demo", "version": "1"}
        params = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
        message = {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}
        return self.write(message, *then)

    def initialized(self) -> None:
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.answers()  # The first call of a process is slow in every language.

    def signal(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        return time.monotonic_ns()

    def close_stdin(self) -> int:
        self._stdin.close()
        return time.monotonic_ns()

    # Looking

    def wait(self, until: Callable[[], Any], seconds: float) -> bool:
        """Waits until something is so; gives up when the time is over."""
        with self._changed:
            return bool(self._changed.wait_for(until, seconds))

    def replies(self, id: Any) -> list[Reply]:
        """What came for exactly this id: `7` is not `"7"`."""
        return [
            reply
            for reply in self._replies
            if type(reply.message.get("id")) is type(id) and reply.message.get("id") == id
        ]

    def stray_replies(self) -> list[Reply]:
        """Answers to nothing: their id is null, or there is none."""
        return [reply for reply in self._replies if reply.message.get("id") is None]

    def started(self, call: Call) -> int | None:
        return self._events.get(("start", call.tag))

    def exited(self, call: Call) -> int | None:
        return self._events.get(("exit", call.tag))

    def tree(self, call: Call) -> str | None:
        """The folder of the process tree that a call has started."""
        start = f"{call.tag}:"
        folders = (what for event, what in self._events if event == "tree" and what.startswith(start))
        return next((what.removeprefix(start) for what in folders), None)

    def sdk(self) -> str:
        """The version of its SDK; empty before it is up."""
        return next((what for event, what in self._events if event == "sdk"), "")

    def answers(self, seconds: float = 2) -> bool:
        """Whether the next call is answered."""
        call = self.call("echo")
        self.wait(lambda: self.replies(call.id) or self.ended(), seconds)
        return bool(self.replies(call.id))

    def ended(self) -> int | None:
        """When the process had ended, if it has."""
        return self._ended

    def exit_status(self) -> int | None:
        return self._process.returncode

    def idle(self) -> bool:
        """Whether the server lives, can be asked, and every handler that started has ended."""
        # Its stdin may be closed well before it has ended: it ends its trees, and then its interpreter.
        if self._stdin.closed:
            return False
        with self._changed:
            tags = [tag for event, tag in self._events if event == "start"]
            done = all(("exit", tag) in self._events for tag in tags)
        return done and self.ended() is None and self.answers()

    def kill(self) -> None:
        self._process.kill()
        self.wait(self.ended, 5)
        self._stdin.close()


def cancelled(params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
