"""Puts the bugs of bugs.toml into a copy of the core, one at a time, and lets the attackers find each.

    python3 crates/sim/bugs.py [--only WORD] [--seeds N]

Prints a row for each bug: who found it, with which seed, as a breach of what. Exits with 1 if one was
not found.
"""

import argparse
import pathlib
import re
import sys
import tomllib

from workbench import Workbench


def put_in(bench: Workbench, edits: list[dict[str, str]]) -> dict[pathlib.Path, str]:
    """Edits the copy; returns what the files were."""
    before: dict[pathlib.Path, str] = {}
    for edit in edits:
        path = bench.folder / "crates" / "core" / "src" / edit["file"]
        text = path.read_text()
        if text.count(edit["old"]) != 1:
            sys.exit(f"{edit['file']}: not once in the file: {edit['old']!r}")
        before.setdefault(path, text)
        path.write_text(text.replace(edit["old"], edit["new"]))
    return before


def found_by_races(bench: Workbench) -> str | None:
    """Only real threads can show what happens between two locks."""
    for attempt in range(1, 21):
        done = bench.run(
            "cargo", "test", "--release", "--quiet", "-p", "countermand-core", "--test", "races", "i2_"
        )
        if "could not compile" in done.stderr:
            sys.exit(done.stderr)
        if done.returncode:
            failed = re.findall(r"^    (i2_[a-z_]+)$", done.stdout, re.MULTILINE)
            return f"`races`, run {attempt} | {', '.join(failed)}"
    return None


def found_by_fuzzer(bench: Workbench) -> str | None:
    done = bench.run(bench.binary("parser-fuzz"), "--threads", "1", "--executions", "200000")
    found = re.search(r"^(.*?): \"", done.stdout, re.MULTILINE)
    return f"parser-fuzz, seed 0 | {found[1]}" if done.returncode and found else None


def found_by_simulator(bench: Workbench, seeds: int) -> str | None:
    done = bench.run(bench.binary("countermand-sim"), "--threads", "1", "--seeds", str(seeds))
    found = re.search(
        r"^seed (\d+): (\S+) is broken: .*\n\d+ steps, shrunk to (\d+)", done.stdout, re.MULTILINE
    )
    return f"simulator, seed {found[1]} | {found[2]}, in {found[3]} steps" if found else None


def find(bench: Workbench, finder: str, seeds: int) -> str | None:
    if finder == "races":
        return found_by_races(bench)
    built = bench.built("--bins")
    if built.returncode:
        sys.exit(built.stderr)
    return found_by_fuzzer(bench) if finder == "fuzzer" else found_by_simulator(bench, seeds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=20_000)
    options = parser.parse_args()
    bugs = tomllib.loads((pathlib.Path(__file__).parent / "bugs.toml").read_text())["bug"]
    bench = Workbench("bugs")
    missed = 0
    print("| bug | found by | as |\n| --- | --- | --- |")
    for bug in bugs:
        if options.only not in bug["name"]:
            continue
        before = put_in(bench, bug["edits"])
        found = find(bench, bug.get("finder", "simulator"), options.seeds)
        missed += found is None
        print(f"| {bug['name']} | {found or 'NOBODY | '} |", flush=True)
        for path, text in before.items():
            path.write_text(text)
    sys.exit(1 if missed else 0)


main()
