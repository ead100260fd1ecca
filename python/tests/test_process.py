"""Process trees away from any server: asyncio and trio."""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from countermand import Cancelled, Connection, Process, Token
from trees import gone, tree, until

CALL = b'{"jsonrpc":"2.0","id":"7","method":"tools/call"}'
Runner = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def token(connection: Connection) -> Token:
    (verdict,) = connection.receive(CALL, 0.0)
    return Token(connection, verdict["generation"])


@pytest.fixture(params=["asyncio", "trio"])
def loop(request: pytest.FixtureRequest) -> Runner:
    """Runs an async function."""
    return lambda function: anyio.run(function, backend=request.param)


def test_run_returns_what_was_written_and_the_exit_code(token: Token, loop: Runner) -> None:
    async def main() -> None:
        done = await token.run(["sh", "-c", "cat; echo oops >&2; exit 3"], input=b"hello")
        assert (done.returncode, done.stdout, done.stderr) == (3, b"hello", b"oops\n")
        done = await token.run(
            "echo $0 $MARK; pwd", cwd="/usr", env={"MARK": "here"}, stderr=subprocess.STDOUT
        )
        assert done.stdout == b"/bin/sh here\n/usr\n"
        assert done.stderr is None
        done = await token.run([sys.executable, "-c", "print(input())"], input=b"x" * 5_000_000)
        assert len(done.stdout) == 5_000_001
        done = await token.run("echo nowhere", stdout=subprocess.DEVNULL)
        assert (done.returncode, done.stdout) == (0, None)
        done = await token.run("kill -KILL $$")
        assert done.returncode == -signal.SIGKILL
        with pytest.raises(subprocess.CalledProcessError) as failed:
            await token.run("echo why; exit 4", check=True)
        assert (failed.value.returncode, failed.value.stdout) == (4, b"why\n")

    loop(main)


def test_run_writes_to_a_file(token: Token, loop: Runner, tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        with (tmp_path / "out").open("wb") as file:
            await token.run("echo to a file", stdout=file)

    loop(main)
    assert (tmp_path / "out").read_text() == "to a file\n"


def test_what_cannot_be_started_says_why(token: Token, loop: Runner) -> None:
    async def main() -> None:
        with pytest.raises(FileNotFoundError) as missing:
            await token.run(["no-such-program"])
        assert (missing.value.filename, missing.value.strerror) == (
            "no-such-program",
            "No such file or directory",
        )
        with pytest.raises(PermissionError):
            token.spawn(["/etc/passwd"])
        with pytest.raises(FileNotFoundError, match="/no/such/folder"):
            token.spawn("true", cwd="/no/such/folder")
        with pytest.raises(ValueError, match="NUL"):
            token.spawn(["a\0b"])
        with pytest.raises(ValueError, match="empty"):
            token.spawn([])
        with pytest.raises(OSError, match="Bad file descriptor"):
            token.spawn("true", stdin=999)

    loop(main)


def test_k27_a_tripped_token_starts_nothing(token: Token, loop: Runner, tmp_path: pathlib.Path) -> None:
    token.cancel("no more")

    async def main() -> None:
        with pytest.raises(Cancelled, match="no more"):
            await token.run(["touch", str(tmp_path / "started")])
        with pytest.raises(Cancelled):
            token.spawn(["touch", str(tmp_path / "started")])

    loop(main)
    assert not (tmp_path / "started").exists()


def test_i11_nothing_left_when_run_returns_after_a_trip(token: Token, loop: Runner) -> None:
    async def main(stubborn: Any) -> None:
        async def trip() -> None:
            pids.extend(await anyio.to_thread.run_sync(stubborn.ready))
            token.cancel("enough")

        async with anyio.create_task_group() as group:
            group.start_soon(trip)
            with pytest.raises(Cancelled, match="enough"):
                await token.run(stubborn.command, grace=0.1)
            assert not [pid for pid in pids if pathlib.Path(f"/proc/{pid}/cmdline").exists()]

    pids: list[int] = []
    with tree() as stubborn:
        loop(lambda: main(stubborn))
    assert len(pids) == 5


def test_i11_nothing_left_when_the_caller_of_run_is_cancelled(token: Token, loop: Runner) -> None:
    async def main(stubborn: Any) -> None:
        async def stop() -> None:
            pids.extend(await anyio.to_thread.run_sync(stubborn.ready))
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            with anyio.CancelScope() as scope:
                await token.run(stubborn.command, grace=0.1)
            assert scope.cancelled_caught
            assert not [pid for pid in pids if pathlib.Path(f"/proc/{pid}/cmdline").exists()]

    pids: list[int] = []
    with tree() as stubborn:
        loop(lambda: main(stubborn))
    assert not token.cancelled
    assert len(pids) == 5


def test_spawn_has_streams(token: Token, loop: Runner) -> None:
    async def main() -> None:
        async with token.spawn(["cat"]) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.returncode is None
            await process.stdin.send(b"one")
            assert await process.stdout.receive() == b"one"
            async with anyio.create_task_group() as group:
                group.start_soon(process.stdin.send, b"x" * 1_000_000)
                received = 0
                while received < 1_000_000:
                    received += len(await process.stdout.receive())
            await process.stdin.aclose()
            with pytest.raises(anyio.ClosedResourceError):
                await process.stdin.send(b"more")
            with pytest.raises(anyio.EndOfStream):
                await process.stdout.receive()
            assert await process.wait() == 0
            assert process.returncode == 0
        with pytest.raises(anyio.ClosedResourceError):
            await process.stdout.receive()
        async with token.spawn("exec <&-; echo closed; exec sleep 1000") as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert await process.stdout.receive() == b"closed\n"
            with pytest.raises(anyio.BrokenResourceError):
                await process.stdin.send(b"nobody")
        async with token.spawn(
            "exit 5", stdin=subprocess.DEVNULL, stdout=None, stderr=subprocess.STDOUT
        ) as process:
            assert (process.stdin, process.stdout, process.stderr) == (None, None, None)
            assert await process.wait() == 5

    loop(main)


def test_i11_nothing_left_after_stop_and_after_the_block(token: Token, loop: Runner) -> None:
    async def main() -> None:
        for how in ("stop", "block", "trip", "let go"):
            with tree() as stubborn:
                child = token.child()
                process: Process | None = child.spawn(stubborn.command, grace=0.05)
                assert process is not None
                pids = await anyio.to_thread.run_sync(stubborn.ready)
                assert pids[0] == process.pid
                if how == "stop":
                    assert await process.stop() == -signal.SIGTERM
                elif how == "block":
                    async with process:
                        pass
                elif how == "trip":
                    child.cancel()
                    assert await process.wait() == -signal.SIGTERM
                else:
                    process = None
                    gc.collect()
                await anyio.to_thread.run_sync(gone, pids)

    loop(main)


def test_k04_the_grace_period_is_there_for_those_who_use_it(token: Token, loop: Runner) -> None:
    async def main() -> None:
        script = "trap 'sleep 0.3; echo cleaned; exit 9' TERM; echo up; while :; do sleep 0.01; done"
        process = token.spawn(script)
        assert process.stdout is not None
        assert await process.stdout.receive() == b"up\n"
        assert await process.stop() == 9
        assert await process.stdout.receive() == b"cleaned\n"
        assert process.left == 0
        await process.aclose()

    loop(main)


def test_k04_children_of_the_hosts_own_keep_their_exit_status(token: Token) -> None:
    """Nothing here may reap what asyncio or `subprocess` wait for, nor be reaped by them."""

    async def own(code: int) -> None:
        process = await asyncio.create_subprocess_exec("sh", "-c", f"sleep 0.0{code % 10}; exit {code}")
        assert await process.wait() == code

    async def ours(code: int) -> None:
        assert (await token.run(f"sleep 0.0{code % 10}; exit {code}")).returncode == code

    async def threads(code: int) -> None:
        done = await anyio.to_thread.run_sync(
            lambda: subprocess.run(["sh", "-c", f"exit {code}"], check=False)
        )
        assert done.returncode == code

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for code in range(60):
                group.start_soon((own, ours, threads)[code % 3], code)

    anyio.run(main)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_i11_nothing_left_of_300_spawns_and_trips(connection: Connection, token: Token, loop: Runner) -> None:
    loop(lambda: leaves_nothing(connection, token, 300))


@pytest.mark.long
def test_i11_nothing_left_of_10_000_spawns_and_trips(
    connection: Connection, token: Token, loop: Runner
) -> None:
    loop(lambda: leaves_nothing(connection, token, 10_000))


async def leaves_nothing(connection: Connection, token: Token, count: int) -> None:
    """Starts and trips so many, and compares what this process had before and has after."""

    async def one(number: int) -> None:
        child = token.child()
        if number % 2:
            async with child.spawn(["sleep", "1000"]):
                child.cancel()
        else:
            async with anyio.create_task_group() as group:
                group.start_soon(cancelled, child)
                await anyio.lowlevel.checkpoint()
                child.cancel()

    async def cancelled(child: Token) -> None:
        with pytest.raises(Cancelled):
            await child.run("sleep 1000 & sleep 1000")

    def held() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count() + len(os.listdir("/proc/self/task"))

    for number in range(4):
        await one(number)
    before = held()
    for number in range(count):
        await one(number)
    # Fewer where a thread of an earlier test had not quite ended.
    assert all(now <= then for now, then in zip(held(), before, strict=True))
    assert connection.stats()["watches"] == 0
    assert connection.stats()["tokens"] == 1
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG | 0x40000000)  # __WALL: keepers too.


HOST = """
import os, sys, time
from countermand import Connection, Token
connection = Connection()
(verdict,) = connection.receive(b'{"jsonrpc":"2.0","id":1,"method":"x"}', 0.0)
token = Token(connection, verdict["generation"])
process = token.spawn(sys.argv[1:], grace=60)
if os.fork() == 0:
    del process  # A copy: ends nothing.
    time.sleep(3600)
time.sleep(3600)
"""


def test_i11_nothing_left_when_a_host_is_killed_that_has_forked() -> None:
    """A fork of the host, as of `multiprocessing`, has everything open that the host has."""
    with tree() as stubborn:
        host = subprocess.Popen([sys.executable, "-c", HOST, *stubborn.command], start_new_session=True)
        try:
            pids = stubborn.ready()
            host.kill()
            killed = time.monotonic()
            gone(pids)
            # The promise is two seconds.
            assert time.monotonic() - killed < 2
        finally:
            os.killpg(host.pid, signal.SIGKILL)
            host.wait()


def test_k04_a_fork_of_the_host_ends_no_tree(token: Token) -> None:
    with tree() as stubborn:
        process = token.spawn(stubborn.command, grace=0)
        pids = stubborn.ready()
        forked = os.fork()
        if forked == 0:
            process._tree.stop()  # type: ignore[attr-defined]
            os._exit(0)
        os.waitpid(forked, 0)
        assert subprocess.run(["kill", "-0", *map(str, pids)], check=False).returncode == 0
        del process
        until(lambda: not os.path.exists(f"/proc/{pids[0]}/cmdline"), "the tree ends with its handle")
