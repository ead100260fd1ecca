"""A peer that speaks raw JSON lines to a real server process, and waits for what happens, never for a time.

What lives here: starting a server, writing bytes, collecting every frame and every mark. What does not: any
opinion about them (that is the tests').
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

TESTS = pathlib.Path(__file__).resolve().parent
PATIENCE = 30.0
"""Seconds after which what should have happened is taken not to happen: only seen by a failure."""

Message = dict[str, Any]
INITIALIZE: Message = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "driver", "version": "1"},
}


def request(id: Any, method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id: Any, tool: str, **arguments: Any) -> Message:
    """A tool call; ``progress=`` gives it a progress token."""
    progress = arguments.pop("progress", None)
    params: Message = {"name": tool, "arguments": arguments}
    if progress is not None:
        params["_meta"] = {"progressToken": progress}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def cancel(id: Any, reason: Any = "the user pressed stop") -> Message:
    return note("notifications/cancelled", requestId=id, reason=reason)


def note(method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def text(answer: Message) -> str:
    """What a tool returned."""
    assert "result" in answer, answer
    return answer["result"]["content"][0]["text"]


class Server:
    """A server process and all that it has said."""

    def __init__(self, *arguments: str, script: str = "server.py") -> None:
        command = [sys.executable, str(TESTS / script), *arguments]
        environment = {**os.environ, "FASTMCP_SHOW_SERVER_BANNER": "false", "PYTHONPATH": str(TESTS)}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            bufsize=0,
            # Whatever a handler starts can be ended with the test.
            start_new_session=True,
        )
        self.frames: list[bytes] = []
        """Every line that came over the wire, without its newline."""
        self.messages: list[Message] = []
        """The same, read."""
        self._answers: dict[tuple[type, Any], list[Message]] = {}
        self.lines: list[str] = []
        """Every line of stderr: what handlers marked, and what would be noise."""
        self._changed = threading.Condition()
        self._reading = threading.Event()
        self._reading.set()
        self._ids = itertools.count(1)
        self._silenced: list[tuple[Any, int]] = []
        self._deaf = False
        self._open = 2
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._frame), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self._line), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _frame(self, frame: bytes) -> None:
        if self._deaf:
            return  # What was cut off by us says nothing about the server.
        self.frames.append(frame)
        message = json.loads(frame)
        self.messages.append(message)
        if "method" not in message:
            # The type counts: 7 is not "7", and True is not 1.
            key = (type(message.get("id")), message.get("id"))
            self._answers.setdefault(key, []).append(message)

    def _line(self, line: bytes) -> None:
        self.lines.append(line.decode(errors="replace"))

    def _read(self, pipe: Any, take: Callable[[bytes], None]) -> None:
        rest: list[bytes] = []
        try:
            while data := os.read(pipe.fileno(), 1 << 20):
                first, *lines = data.split(b"\n")
                rest.append(first)
                if not lines:
                    continue
                lines.insert(0, b"".join(rest))
                rest = [lines.pop()]
                if pipe is self.process.stdout:
                    self._reading.wait()
                with self._changed:
                    for line in lines:
                        take(line)
                    self._changed.notify_all()
        except (OSError, ValueError):
            pass  # Closed by a test.
        with self._changed:
            if last := b"".join(rest):
                take(last)
            self._open -= 1
            self._changed.notify_all()

    # What a test does.

    def write(self, *messages: Message | bytes) -> None:
        """Everything in one write, so that the server may read it as one chunk."""
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        data = memoryview(b"".join(line + b"\n" for line in lines))
        assert self.process.stdin is not None
        while data:
            data = data[os.write(self.process.stdin.fileno(), data) :]

    def initialize(self) -> Server:
        self.write(request("init", "initialize", **INITIALIZE))
        assert "result" in self.answer("init")
        self.write(note("notifications/initialized"))
        return self

    def id(self) -> int:
        """A request id that this server has not seen."""
        return next(self._ids)

    def call(self, tool: str, **arguments: Any) -> Message:
        """Calls a tool under an id of its own, and waits for the answer."""
        id = self.id()
        self.write(call(id, tool, **arguments))
        return self.answer(id)

    def alive(self) -> None:
        """The next call is answered."""
        assert text(self.call("echo", text="still here")) == "still here"

    def stats(self) -> Message:
        return json.loads(text(self.call("stats")))

    def settled(self, **expected: int) -> Message:
        """Asks for the counters until they are these: an exit may be told a few turns after its mark."""
        for _ in range(200):
            stats = self.stats()
            if all(stats[name] == value for name, value in expected.items()):
                return stats
        raise AssertionError(f"expected {expected}: {stats}")

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close_stdout(self) -> None:
        """The client stops reading, for good: what is written from now on has no reader."""
        assert self.process.stdout is not None
        self._deaf = True
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, self.process.stdout.fileno())
        os.close(null)

    @contextmanager
    def not_reading(self) -> Iterator[None]:
        """The client is too busy to read while the block runs."""
        self._reading.clear()
        try:
            yield
        finally:
            self._reading.set()

    # What a test waits for.

    def until(self, happened: Callable[[], Any], what: str) -> Any:
        with self._changed:
            result: Any = None

            def look() -> bool:
                nonlocal result
                result = happened()
                return bool(result) or self._open == 0

            if self._changed.wait_for(look, PATIENCE) and result:
                return result
        self.kill()
        log = "\n".join(self.lines[-60:])
        raise AssertionError(
            f"never happened: {what}\nframes: {[frame[:200] for frame in self.frames[-10:]]}\nstderr:\n{log}"
        )

    def answer(self, id: Any) -> Message:
        """The first answer to a request."""
        return self.until(lambda: next(iter(self.answers(id)), None), f"an answer for {id!r}")

    def mark(self, what: str) -> None:
        """A handler said that it was there: see ``report`` in the servers."""
        self.until(lambda: self.marked(what), f"the mark {what!r}")

    def silent(self, id: Any, answers: int = 0) -> None:
        """Nothing is ever sent for this request: looked at now, and once more when all has been said.

        ``answers``: how many other requests with this id were answered.
        """
        self._silenced.append((id, answers))
        self.alive()
        assert len(self.answers(id)) == answers

    def exit(self) -> int:
        """Waits for the end of the process, and of all that it wrote."""
        code = self.process.wait(PATIENCE)
        # Children that a handler left behind hold stderr open.
        self.kill()
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def finish(self) -> int:
        """The client leaves: from here on :attr:`frames` is complete."""
        self.close_stdin()
        code = self.exit()
        for id, answers in self._silenced:
            assert len(self.answers(id)) == answers, f"something was sent for {id!r}, which was cancelled"
        return code

    # What a test looks at.

    def answers(self, id: Any) -> list[Message]:
        """All answers to a request so far."""
        return self._answers.get((type(id), id), [])

    def marked(self, what: str) -> bool:
        return f"@{what}" in self.lines

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def quiet(self) -> None:
        """Nothing on stderr looks like a failure."""
        assert "Traceback" not in self.log, self.log
        assert "panicked" not in self.log, self.log

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@contextmanager
def serving(*arguments: str, script: str = "server.py", initialize: bool = True) -> Iterator[Server]:
    """A server process, ended with the block whatever happens in it."""
    server = Server(*arguments, script=script)
    try:
        yield server.initialize() if initialize else server
    finally:
        server.kill()
        server.process.wait(PATIENCE)
        for pipe in (server.process.stdin, server.process.stdout, server.process.stderr):
            if pipe is not None:
                pipe.close()
