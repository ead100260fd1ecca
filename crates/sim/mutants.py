"""Breaks crates/core everywhere that cargo-mutants knows to, and counts what nobody notices.

    python3 crates/sim/mutants.py [--cargo-mutants PATH] [--only WORD] [--sample N] [--seconds N]

cargo-mutants only lists the mutants here; a copy of the two crates is all that is built for each. First
a short run of the simulator and of the parser's fuzzer, then, for what survives that, the tests of the
core, the model and a longer run. `--sample` takes so many of them, drawn by a fixed seed; `--seconds`
stops in time. Prints the survivors and the share that was caught; exits with 1 below 90 %.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import time

from workbench import ROOT, Workbench

TESTS = [
    "--lib",
    "--test",
    "invariants",
    "--test",
    "scenarios",
    "--test",
    "races",
    "--test",
    "signals",
    "--test",
    "model",
    "--test",
    "parser",
]
ENOUGH = 0.9


def listed(tool: str) -> list[dict]:
    command = [tool, "mutants", "--list", "--json", "-p", "countermand-core"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def replaced(text: str, mutant: dict) -> str:
    """The text with the mutant's span replaced; lines and columns begin at 1."""
    lines = text.splitlines(keepends=True)

    def offset(place: dict) -> int:
        return sum(len(line) for line in lines[: place["line"] - 1]) + place["column"] - 1

    start, end = offset(mutant["span"]["start"]), offset(mutant["span"]["end"])
    return text[:start] + mutant["replacement"] + text[end:]


def noticed(bench: Workbench) -> str:
    """What became of the mutant that is in the copy now."""
    if bench.built("--bins").returncode:
        return "unviable"
    quick = [("countermand-sim", "--seeds", "400"), ("parser-fuzz", "--executions", "4000")]
    for name, option, count in quick:
        if bench.run(bench.binary(name), "--threads", "1", option, count, seconds=30).returncode:
            return "caught"
    long = ("--threads", "1", "--seeds", "6000")
    if bench.run(bench.binary("countermand-sim"), *long, seconds=120).returncode:
        return "caught"
    command = [
        "cargo",
        "test",
        "--release",
        "--quiet",
        "-p",
        "countermand-core",
        "-p",
        "countermand-sim",
        *TESTS,
    ]
    if bench.run(*command, "--no-run", seconds=1_800).returncode:
        return "unviable"
    return "caught" if bench.run(*command, seconds=120).returncode else "survived"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cargo-mutants", default="cargo-mutants")
    parser.add_argument("--only", default="", help="mutants whose name holds this")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    begun = time.monotonic()
    mutants = listed(options.cargo_mutants)
    total = len(mutants)
    random.Random(1).shuffle(mutants)
    # What is only compiled for loom cannot be noticed by anything else.
    mutants = [
        mutant for mutant in mutants if options.only in mutant["name"] and "explored::" not in mutant["name"]
    ]
    bench = Workbench("mutants")
    if noticed(bench) != "survived":
        sys.exit("the untouched copy does not pass")
    counts = {"caught": 0, "survived": 0, "unviable": 0}
    for mutant in mutants[: options.sample]:
        if time.monotonic() - begun > options.seconds:
            break
        path = bench.folder / pathlib.Path(mutant["file"])
        before = path.read_text()
        path.write_text(replaced(before, mutant))
        verdict = noticed(bench)
        path.write_text(before)
        counts[verdict] += 1
        if verdict == "survived":
            print(f"survived: {mutant['name']}", flush=True)
    viable = counts["caught"] + counts["survived"]
    share = counts["caught"] / viable if viable else 0.0
    print(
        f"{total} mutants, {sum(counts.values())} tried: {counts}; {share:.1%} of {viable} viable ones caught"
    )
    sys.exit(0 if share >= ENOUGH else 1)


main()
