"""Clients on :func:`countermand.stdio_client`: the SDKs' sessions, and calls of one's own, before a peer that
behaves badly, under asyncio and trio."""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters

import countermand
import sdk
from countermand._client import StdioClient
from driver import TESTS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PEER = StdioServerParameters(command=sys.executable, args=[str(TESTS / "fake_peer.py")])


def tree(*, ignore: str = "") -> StdioServerParameters:
    """A wrapper around the peer, as npx is, with a grandchild beside it."""
    script = f'{ignore}sleep 1000 & "{sys.executable}" "{TESTS / "fake_peer.py"}"; true'
    return StdioServerParameters(command="sh", args=["-c", script])


@asynccontextmanager
async def session(params: StdioServerParameters = PEER, **options: Any) -> AsyncIterator[ClientSession]:
    """A guarded session of the SDK's."""
    async with (
        countermand.stdio_client(params, **options) as (read, write),
        ClientSession(read, write) as session,  # type: ignore[arg-type]
    ):
        countermand.guard(session)
        await session.initialize()
        yield session


async def use(client: Any, name: str, **arguments: Any) -> Any:
    """A call of the fake peer's tool, through the SDK."""
    result = await client.call_tool(name, arguments)
    return result.content[0].text


def call(client: Any, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> countermand.Call:
    """The same as a call of one's own."""
    params = {"name": name, "arguments": arguments or {}}
    return countermand.call(client, "tools/call", params, **options)


async def sent(made: countermand.Call) -> countermand.Call:
    """A call, once it is on the wire."""
    while made.state == "queued":
        await anyio.lowlevel.checkpoint()
    return made


async def log(client: Any) -> list[dict[str, Any]]:
    """Every frame that the peer has read."""
    result = await call(client, "log")
    return json.loads(result["content"][0]["text"])


async def cancels(client: Any) -> list[Any]:
    """The ids that were cancelled, as the peer has read them."""
    frames = await log(client)
    return [f["params"]["requestId"] for f in frames if f.get("method") == "notifications/cancelled"]


def stats(client: Any) -> dict[str, Any]:
    link = countermand._call.link_of(client)
    assert link is not None
    return link.wire.stats()


async def test_i6_late_is_quiet_what_the_sdk_must_not_see_it_does_not(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mcp"):
        async with session() as client:
            for name in ("twice", "wrong_id", "echo"):
                assert await use(client, name) == "done"
            with anyio.move_on_after(0.05):
                await use(client, "late")
            assert await use(client, "echo") == "done"
            counted = stats(client)
            assert counted["late_responses"] == 1
            assert counted["duplicate_responses"] == 1
            assert counted["unknown_responses"] == 1
            assert counted["wrong_type_responses"] == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_k01_a_session_that_waits_no_more_cancels_once(anyio_backend: str) -> None:
    async with session() as client:
        with anyio.move_on_after(0.05):
            await use(client, "never")
        cancelled = await cancels(client)
        frames = await log(client)
        never = [f["id"] for f in frames if f.get("params", {}).get("name") == "never"]
        assert cancelled == never
        assert await use(client, "echo") == "done"
        assert await cancels(client) == never


async def test_k25_the_ends_of_a_call_are_different(anyio_backend: str) -> None:
    async with session() as client:
        done = call(client, "echo")
        assert (await done)["content"]
        assert (done.state, done.outcome) == ("done", "completed")
        failed = call(client, "error")
        with pytest.raises(countermand.RpcError) as rpc:
            await failed
        assert (rpc.value.code, rpc.value.message, rpc.value.data) == (-32050, "no", [1])
        assert (failed.state, failed.outcome) == ("failed", "completed")
        timed = call(client, "never", total=0.05)
        with pytest.raises(TimeoutError):
            await timed
        assert (timed.state, timed.outcome) == ("timed_out", "unknown")
        cancelled = call(client, "never")
        assert cancelled.cancel("enough")
        assert not cancelled.cancel()
        with pytest.raises(countermand.Cancelled) as why:
            await cancelled
        assert (why.value.cause, why.value.reason) == ("local", "enough")
        runtimes = anyio.get_cancelled_exc_class()
        assert anyio_backend == "trio" or isinstance(why.value, runtimes)
        assert cancelled.state == "cancelled"
        left = call(client, "never")
    with pytest.raises(ConnectionError):
        await left
    assert left.state == "disconnected"
    with pytest.raises(ConnectionError):
        call(client, "echo")


async def test_k20_a_late_response_tells_the_outcome(anyio_backend: str) -> None:
    async with session() as client:
        late = await sent(call(client, "late"))
        late.cancel()
        await call(client, "echo")
        assert late.outcome == "completed"


async def test_i5_prompt_settle_cancel_from_a_thread_while_a_task_awaits(anyio_backend: str) -> None:
    async with session() as client:
        waiting = call(client, "never")
        threading.Thread(target=waiting.cancel, args=("from a thread",)).start()
        with pytest.raises(countermand.Cancelled, match="from a thread"):
            await waiting
        assert await cancels(client) == [waiting.id]


async def test_k01_a_task_that_is_cancelled_cancels_what_it_awaits(anyio_backend: str) -> None:
    async with session() as client:
        waiting = call(client, "never")
        with anyio.move_on_after(0.05):
            await waiting
        assert not waiting.cancel()
        async with call(client, "never") as dropped:
            await sent(dropped)
        assert sorted(await cancels(client)) == [waiting.id, dropped.id]


async def test_k22_progress_ends_with_the_call(anyio_backend: str) -> None:
    async with session() as client:
        watched = call(client, "progress", progress=True)
        seen = [step["progress"] async for step in watched.progress]
        assert seen == [0, 1, 2]
        await watched
        assert [step async for step in watched.progress] == []
        await call(client, "echo")
        assert stats(client)["late_progress"] == 1


async def test_k21_idle_and_total(anyio_backend: str) -> None:
    async with session() as client:
        pulse = {"count": 8, "every": 0.05}
        with pytest.raises(TimeoutError):
            await call(client, "pulse", pulse, progress=True, idle=0.2, total=0.3)
        silent = call(client, "never", idle=0.1, total=100)
        with pytest.raises(TimeoutError):
            await silent
        assert len(await cancels(client)) == 2


async def test_i9_handshake_an_initialize_that_is_given_up_leaves_no_cancel_and_no_process(
    anyio_backend: str,
) -> None:
    mute = StdioServerParameters(command=sys.executable, args=[str(TESTS / "fake_peer.py"), "--mute"])
    async with (
        countermand.stdio_client(mute) as (read, write),
        ClientSession(read, write) as client,  # type: ignore[arg-type]
    ):
        countermand.guard(client)
        with anyio.move_on_after(0.05):
            await client.initialize()
        link = write.link
        pid = link.wire.pid
        assert stats(client)["outbound"] == 0
        assert not link.read.ended or link.wire.exit_code() is not None
    assert pid is not None
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("ignore", ["", "trap '' TERM HUP; "])
async def test_k04_nothing_of_a_wrapped_server_is_left(anyio_backend: str, ignore: str) -> None:
    async with session(tree(ignore=ignore), grace=0.2, close_wait=0.2) as client:
        group = os.getpgid(countermand._call.link_of(client).wire.pid)  # type: ignore[union-attr]
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


async def test_k15_connections_opened_and_closed_in_different_tasks_in_any_order(anyio_backend: str) -> None:
    clients: list[StdioClient] = [countermand.stdio_client(PEER) for _ in range(3)]
    streams: dict[int, Any] = {}

    async def enter(number: int) -> None:
        streams[number] = await clients[number].__aenter__()

    async def leave(number: int) -> None:
        await clients[number].__aexit__(None, None, None)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(enter, number)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave, 1)
    assert (await call(streams[0], "echo"))["content"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave, 0)
        tasks.start_soon(leave, 2)
    with pytest.raises(RuntimeError, match="opened before"):
        await clients[0].__aenter__()


async def test_k18_gather_cancels_the_rest(anyio_backend: str) -> None:
    async with session() as client:
        assert len(await countermand.gather(call(client, "echo"), call(client, "twice"))) == 2
        never = call(client, "never")
        with pytest.raises(countermand.RpcError):
            await countermand.gather(never, call(client, "error"), call(client, "echo"))
        assert never.state == "cancelled"
        assert never.id in await cancels(client)


async def test_k14_calls_abandoned_at_random_moments_leave_nothing(anyio_backend: str) -> None:
    await abandon_at_random(2_000)


@pytest.mark.long
async def test_k14_a_hundred_thousand_calls_abandoned_leave_nothing(anyio_backend: str) -> None:
    await abandon_at_random(100_000)


async def abandon_at_random(count: int) -> None:
    chosen = random.Random(count)
    async with session() as client:

        async def some(number: int) -> None:
            for _ in range(number):
                made = call(client, chosen.choice(["echo", "late", "twice", "never"]))
                with anyio.move_on_after(chosen.random() / 500):
                    await made
                made.cancel()

        async with anyio.create_task_group() as tasks:
            for _ in range(64):
                tasks.start_soon(some, count // 64)
        await call(client, "echo")
        counted = stats(client)
        assert (counted["outbound"], counted["watches"]) == (0, 0)
        assert counted["tokens"] == 0
        assert counted["settled"] + sum(counted["abandoned"].values()) == counted["calls"]
        link = countermand._call.link_of(client)
        assert link is not None
        assert link.calls == {}


async def test_the_command_that_cannot_be_started_says_so(anyio_backend: str) -> None:
    params = StdioServerParameters(command="no-such-command", args=[])
    with pytest.raises(FileNotFoundError, match="no-such-command"):
        async with countermand.stdio_client(params):
            pass
    with pytest.raises(TypeError, match="stdio_client"):
        countermand.call(object(), "ping")


@pytest.mark.skipif(sdk.GENERATION == 1, reason="mcp.Client came with 2.x")
async def test_k01_the_client_of_mcp_2_cancels_what_times_out(anyio_backend: str) -> None:
    from mcp import Client  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]

    async with Client(countermand.stdio_client(PEER)) as client:
        assert await use(client, "echo") == "done"
        with anyio.move_on_after(0.05):
            await use(client, "never")
        frames = await log(client)
        never = [f["id"] for f in frames if f.get("params", {}).get("name") == "never"]
        assert len(never) == 1
        assert await cancels(client) == never


@pytest.mark.skipif(not sdk.FASTMCP, reason="for fastmcp's client")
async def test_k01_the_client_of_fastmcp_cancels_what_times_out(anyio_backend: str) -> None:
    if anyio_backend == "trio":
        pytest.skip("fastmcp's client runs on asyncio")
    import fastmcp  # pyright: ignore[reportMissingImports]

    async with fastmcp.Client(countermand.stdio_client(PEER)) as client:
        with anyio.move_on_after(0.05):
            await client.call_tool("never")
        frames = await log(client)
        never = [f["id"] for f in frames if f.get("params", {}).get("name") == "never"]
        assert len(never) == 1
        assert await cancels(client) == never
        assert (await client.call_tool("echo")).content[0].text == "done"
