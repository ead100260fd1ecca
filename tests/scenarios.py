"""One table: every scenario in each of the three languages.

    python3 tests/scenarios.py

Runs the three runners, which `make test` runs too; exits with 1 if a scenario fails in one, or is missing.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "scenarios"


def run(folder: str, *command: str) -> str:
    """What a runner printed, whether its tests passed or not."""
    return subprocess.run(command, cwd=ROOT / folder, capture_output=True, text=True).stdout


def rust() -> dict[str, bool]:
    """By the core's own test."""
    out = run(
        ".", "cargo", "test", "-q", "-p", "countermand-core", "--test", "scenarios", "--", "--nocapture"
    )
    return {name: verdict == "ok" for verdict, name in re.findall(r"^(ok|FAILED) (\w+)$", out, re.M)}


def python() -> dict[str, bool]:
    """By the Python package's tests."""
    out = run("python", ".venvs/mcp2/bin/python", "-m", "pytest", "-vv", "tests/test_scenarios.py")
    found = re.findall(r"test_scenario\[(\w+)\] (PASSED|FAILED|ERROR)", out)
    return {name: verdict == "PASSED" for name, verdict in found}


def node() -> dict[str, bool]:
    """By the npm package's tests."""
    out = run("node", "node", "--test", "--test-reporter=tap", "test/scenarios.test.mjs")
    return {name: verdict == "ok" for verdict, name in re.findall(r"^\s*(ok|not ok) \d+ - (\w+)", out, re.M)}


def main() -> None:
    """Prints the table."""
    files = sorted(FOLDER.glob("*.json"))
    columns = {"Rust": rust(), "Python": python(), "Node": node()}
    width = max(len(file.stem) for file in files)
    print(f"{'scenario':{width}}  invariants     {'  '.join(f'{name:6}' for name in columns)}")
    bad = 0
    for file in files:
        verdicts = [results.get(file.stem) for results in columns.values()]
        bad += sum(verdict is not True for verdict in verdicts)
        cells = "  ".join(
            f"{ {True: 'ok', False: 'FAILED', None: 'missing'}[verdict]:6}" for verdict in verdicts
        )
        invariants = " ".join(json.loads(file.read_text()).get("invariants", []))
        print(f"{file.stem:{width}}  {invariants:13}  {cells}")
    print(f"{len(files)} scenarios in {len(columns)} languages, {bad} not as they should be")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
