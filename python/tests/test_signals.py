"""What is counted, against the script's own count: as plain data, and through each exporter."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from driver import Server, call, cancel, note, serving, text

CANCELS = 1_000
MALFORMED = note("notifications/cancelled", requestId=1.5)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving("2", script="measured.py") as server:
        yield server


def signals(server: Server) -> dict[str, Any]:
    return json.loads(text(server.call("signals")))


def settled(server: Server, **running: int) -> dict[str, Any]:
    """Asks until nothing but this many of each tool is left."""
    for _ in range(400):
        seen = signals(server)
        rows = {row["tool"]: row for row in seen["stats"]["tools"]}
        others = [tool for tool in ("wait", "linger", "mail") if tool in rows]
        if all(rows[tool]["in_flight"] == running.get(tool, 0) for tool in others):
            return seen
    raise AssertionError(f"still in flight: {rows}")


def day(server: Server) -> tuple[Counter[str], Counter[str]]:
    """Sends a thousand cancels of every kind; returns how many requests of each tool were cancelled, and what
    the cancels hit."""
    tools: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    rng = random.Random(7)
    sent = 0
    while sent < CANCELS:
        kind = rng.choice(["wait"] * 6 + ["mail", "late", "unknown", "malformed", "repeated"])
        id = server.id()
        if kind in ("wait", "mail", "repeated"):
            tool = "mail" if kind == "mail" else "wait"
            server.write(call(id, tool, tag=f"{id}"))
            server.mark(f"start {id}")
            if kind == "repeated":  # In one chunk, so that the handler cannot be gone in between.
                server.write(cancel(id), cancel(id))
                hits["repeated"] += 1
                sent += 1
            else:
                server.write(cancel(id, reason='said "no"\nand left'))
            tools[tool] += 1
            hits["live"] += 1
        elif kind == "late":
            server.write(call(id, "echo", text="x"))
            server.answer(id)
            server.write(cancel(id))
            hits["late"] += 1
        elif kind == "unknown":
            server.write(cancel(f"never was {id}"))
            hits["unknown"] += 1
        else:
            server.write(MALFORMED)
            hits["malformed"] += 1
        sent += 1
    return tools, hits


def test_k25_a_scripted_day_is_counted_exactly(server: Server) -> None:
    tools, hits = day(server)
    seen = settled(server)
    stats = seen["stats"]
    rows = {row["tool"]: row for row in stats["tools"]}
    assert {hit: count for hit, count in stats["cancels"].items() if count} == dict(hits)
    assert stats["cancelled"] == {**dict.fromkeys(stats["cancelled"], 0), "peer": hits["live"]}
    for tool in ("wait", "mail"):
        assert rows[tool]["cancelled"]["peer"] == tools[tool] == rows[tool]["requests"]
        assert rows[tool]["latency"]["count"] == tools[tool]
        assert rows[tool]["orphans"] == rows[tool]["orphaned"] == 0
    assert rows["mail"]["abandoned_with_effects"] == tools["mail"]
    assert rows["wait"]["abandoned_with_effects"] == 0
    assert stats["orphans"] == []

    families = {family.name: family for family in text_string_to_metric_families(seen["prometheus"])}

    def scraped(name: str, sample: str, **labels: str) -> float:
        return sum(
            found.value
            for found in families[name].samples
            if found.name == sample and labels.items() <= found.labels.items()
        )

    assert scraped("countermand_cancelled", "countermand_cancelled_total", cause="peer") == hits["live"]
    for hit, count in hits.items():
        assert scraped("countermand_cancels", "countermand_cancels_total", hit=hit) == count
    latency = "countermand_cancel_latency_seconds"
    assert scraped(latency, f"{latency}_count", tool="wait") == tools["wait"]
    assert scraped(latency, f"{latency}_sum", tool="wait") == pytest.approx(rows["wait"]["latency"]["total"])
    assert scraped(latency, f"{latency}_bucket", tool="wait", le="+Inf") == tools["wait"]

    exported = {
        metric["name"]: metric["data"]["data_points"]
        for resource in seen["opentelemetry"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
    }

    def observed(name: str, key: str = "value", **attributes: str) -> float:
        wanted = {name.replace("_", "."): value for name, value in attributes.items()}
        points = [it for it in exported[name] if wanted.items() <= it["attributes"].items()]
        return sum(point[key] for point in points)

    assert observed("countermand.cancelled", countermand_cause="peer") == hits["live"]
    for hit, count in hits.items():
        assert observed("countermand.cancels", countermand_hit=hit) == count
    recorded = [it for it in exported["countermand.cancel.latency"] if "wait" in it["attributes"].values()]
    assert sum(point["count"] for point in recorded) == tools["wait"]
    assert sum(point["sum"] for point in recorded) == pytest.approx(rows["wait"]["latency"]["total"])

    lines = [line for line in server.lines if line.startswith("log countermand INFO cancelled ")]
    assert len(lines) == hits["live"]
    assert all(" ms" in line and "cause=peer" in line for line in lines)
    assert any(r'reason="said \"no\"\nand left"' in line for line in lines), (
        "what a peer says stays in its line"
    )


def test_k08_what_outlives_its_grace_is_an_orphan_and_listed(server: Server) -> None:
    stuck, brief = server.id(), server.id()
    server.write(
        call(stuck, "linger", tag="stuck", seconds=3600), call(brief, "linger", tag="brief", seconds=0.4)
    )
    server.mark("start stuck")
    server.mark("start brief")
    server.write(cancel(stuck, reason="enough"), cancel(brief))
    seen = settled(server, linger=1)
    while not seen["stats"]["orphans"]:
        seen = signals(server)
    (orphan,) = seen["stats"]["orphans"]
    assert (orphan["id"], orphan["tool"], orphan["cause"]) == (stuck, "linger", "peer")
    assert orphan["work"] == ["handler"]
    assert orphan["age"] >= 0.2
    (row,) = [row for row in seen["stats"]["tools"] if row["tool"] == "linger"]
    assert (row["orphans"], row["orphaned"], row["cancelled"]["peer"]) == (1, 1, 2)
    assert 0.39 <= row["latency"]["max"] < 30


def test_k08_a_thread_and_a_process_that_run_on_are_listed(server: Server, tmp_path: pathlib.Path) -> None:
    thread, process = server.id(), server.id()
    file = tmp_path / "go on"
    file.touch()
    server.write(call(thread, "thread", tag="thread", file=str(file)))
    server.write(call(process, "process", tag="process"))
    server.mark("start thread")
    server.mark("start process")
    server.write(cancel(thread), cancel(process))
    seen = signals(server)
    while len(seen["stats"]["orphans"]) < 2:
        seen = signals(server)
    work = {orphan["id"]: orphan["work"] for orphan in seen["stats"]["orphans"]}
    assert work[thread] == ["thread"], "its handler has left it behind"
    handler, left = work[process]
    assert handler == "handler"
    assert left.startswith("process ")
    file.unlink()
    os.kill(int(left.removeprefix("process ")), signal.SIGKILL)
    while seen["stats"]["orphans"]:
        seen = signals(server)
    assert seen["stats"]["works"] == 0
