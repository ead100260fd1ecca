"""All benchmarks in one run: the core beside the usual designs, and each SDK stock beside guarded.

Prints the tables and writes them to BENCHMARKS.md. `make bench` builds what this needs.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 6
IN_FLIGHT = 64
SECONDS = 1.0


class Sdk(NamedTuple):
    name: str
    stock: list[str]
    guarded: list[str]
    # What a tool of it can do with its token: a thread that polls one needs threads.
    phases: tuple[str, ...]
    # What guarded echo throughput has to be, against stock.
    goal: float


def _python(name: str, sdk: str, *more: str) -> Sdk:
    interpreter = ROOT / "python" / ".venvs" / sdk / "bin" / "python"
    stock = [str(interpreter), str(ROOT / "bench" / "servers" / "python_server.py"), sdk, *more]
    return Sdk(name, stock, [*stock, "guarded"], ("flag_idle", "flag_loaded", "cost"), 2.0)


def _node(name: str, way: str) -> Sdk:
    server = [str(ROOT / "bench" / "servers" / "node_server.mjs"), way]
    if way == "fastmcp":
        guarded = ["node", "--import", "countermand/register", *server]
    else:
        guarded = ["node", *server, "guarded"]
    return Sdk(name, ["node", *server], guarded, ("flag_idle", "cost"), 1.0)


SDKS = (
    _python("Python mcp 1.30.0", "mcp1"),
    # Three fifths of its time go into checking the result's schema, on both sides.
    _python("Python mcp 1.30.0, structured", "mcp1", "structured"),
    _python("Python fastmcp 3.4.11", "fastmcp3"),
    _python("Python mcp 2.3.0", "mcp2"),
    _python("Python fastmcp 4.2.3", "fastmcp4"),
    _node("Node sdk 1.32.2", "sdk1"),
    _node("Node server 2.4.0, connect", "connect"),
    _node("Node server 2.4.0, serveStdio", "serveStdio"),
    _node("Node fastmcp 4.20.0", "fastmcp"),
)

Row = tuple[str, ...]


def measure(sdk: Sdk) -> dict[str, dict[str, Any]]:
    job = {
        "rounds": ROUNDS,
        "in_flight": IN_FLIGHT,
        "seconds": SECONDS,
        "sides": {
            "stock": {"command": sdk.stock},
            "guarded": {"command": sdk.guarded, "token": sdk.phases},
        },
    }
    loadgen = ROOT / "target" / "release" / "countermand-loadgen"
    done = subprocess.run(
        [loadgen],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        # `countermand/register` is looked up from here.
        cwd=ROOT / "bench",
        check=False,
    )
    if done.returncode:
        sys.exit(f"{sdk.name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f}"


def pair(value: dict[str, float] | None) -> str:
    return f"{number(value['p50'])} / {number(value['p99'])}" if value else "-"


def ratio(more: float, less: float) -> str:
    return f"{more / less:.2f}x" if less else "-"


def core_rows(file: Path) -> list[Row]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        (
            line["name"],
            line["note"],
            f"{number(line['theirs'])} {line['unit']}",
            f"{number(line['ours'])} {line['unit']}",
            f"{line['ratio']:.2f}x",
            f"{line['goal']:.2f}x" if line.get("goal") else "-",
        )
        for line in lines
    ]


def main() -> int:
    core = core_rows(ROOT / "target" / "bench" / "core.jsonl")
    throughput: list[Row] = []
    cancels: list[Row] = []
    tokens: list[Row] = []
    for sdk in SDKS:
        print(f"measuring {sdk.name} ...", file=sys.stderr, flush=True)
        sides = measure(sdk)
        stock, guarded = sides["stock"], sides["guarded"]
        throughput.append(
            (
                sdk.name,
                number(stock["per_second"]),
                number(guarded["per_second"]),
                ratio(guarded["per_second"], stock["per_second"]),
                f"{sdk.goal:.2f}x",
                pair(stock["echo_ms"]),
                pair(guarded["echo_ms"]),
            )
        )
        for load in ("idle", "loaded"):
            key = f"cancel_{load}_ms"
            cancels.append(
                (
                    f"{sdk.name}, {load}",
                    pair(stock[key]),
                    pair(guarded[key]),
                    ratio(stock[key]["p50"], guarded[key]["p50"]),
                )
            )
        tokens.append(
            (
                sdk.name,
                pair(guarded["flag_idle_ms"]),
                pair(guarded["flag_loaded_ms"]),
                number(guarded["read_ns"]),
            )
        )
    report = "\n".join(
        [
            *section(
                "The core beside the usual designs",
                "A request's token is what each design gives a handler. More is better in the ratio.",
                ("what", "beside", "theirs", "ours", "ratio", "goal"),
                core,
            ),
            *section(
                f"Echo through each SDK, {IN_FLIGHT} in flight",
                "Requests per second, median of the rounds; latency p50 / p99 in ms.",
                ("SDK", "stock req/s", "guarded", "ratio", "goal", "stock ms", "guarded ms"),
                throughput,
            ),
            *section(
                "Cancel latency",
                "From the cancel's last byte to the handler's exit, p50 / p99 in ms, idle and while "
                f"{IN_FLIGHT} echo calls are kept in flight. The ratio is that of the p50.",
                ("SDK", "stock", "guarded", "ratio"),
                cancels,
            ),
            *section(
                "The flag",
                "From the cancel's last byte to when code that polls `token.cancelled` has seen it: a "
                "thread in Python, a handler that blocks the event loop in Node (so not under load). "
                "p50 / p99 in ms. Last, one read of `cancelled` with the loop around it.",
                ("SDK", "idle", f"{IN_FLIGHT} in flight", "one read, ns"),
                tokens,
            ),
        ]
    )
    print(report)
    (ROOT / "BENCHMARKS.md").write_text(f"{preface()}\n{report}", encoding="utf-8")
    return 0


def section(title: str, text: str, head: Row, rows: list[Row]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [
        "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [head, *rows]
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return [f"## {title}", "", text, "", *lines, ""]


def preface() -> str:
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True)
    return f"""# Benchmarks

Written by `make bench`: one run, everything side by side and in turns ({ROUNDS} rounds of {SECONDS:g} s a
phase), so that whatever disturbs the machine disturbs both sides. Trust the ratios more than the figures.

{os.cpu_count()} cores, {platform.system()} {platform.machine()}; Python {platform.python_version()}, \
Node {node.stdout.strip()[1:]}, {rustc.stdout.split(" (")[0]}.
"""


if __name__ == "__main__":
    sys.exit(main())
