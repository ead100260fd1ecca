"""Breaks the lines of broken.toml one at a time, in a copy of the project, and sees their tests fail.

    python3 tests/broken.py [--suite rust|loom|python|node] [--only WORD]
    python3 tests/broken.py --table        writes the table of tests/README.md, and breaks nothing

Prints a row for each line; exits with 1 if a line could be broken without a test noticing. A test that
does not compile, or cannot be found, is no test that noticed: the untouched copy must pass first.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "target" / "broken"
SKIP = shutil.ignore_patterns("target", "fuzz", ".*", "node_modules", "native", "__pycache__", "*.so")


def copy_changed(source: str, target: str) -> None:
    """Copies without the times: cargo must see a file that was broken and mended as new."""
    there = pathlib.Path(target)
    data = pathlib.Path(source).read_bytes()
    if not there.exists() or there.read_bytes() != data:
        there.write_bytes(data)


HUNG = 124


def run(command: list[str], limit: float = 600) -> subprocess.CompletedProcess[str]:
    """Runs a command in the copy, at most so many seconds: a test that hangs has noticed too."""
    process = subprocess.Popen(
        command, cwd=COPY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return subprocess.CompletedProcess(command, HUNG, "", f"hung for {limit} s")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class Rust:
    """Runs with cargo-nextest where it is installed, else with cargo."""

    packages = ("-p", "countermand-core", "-p", "countermand-runtime")

    def build(self) -> str | None:
        built = run(["cargo", "test", "--quiet", "--no-run", *self.packages])
        return built.stderr if built.returncode else None

    def passes(self, test: str) -> bool:
        done = run(["cargo", "test", "--quiet", *self.packages, "--tests", "--lib", test], limit=30)
        ran = sum(int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("running "))
        if not ran and done.returncode != HUNG:
            sys.exit(f"no such test: {test}\n{done.stderr}")
        return done.returncode == 0


class Peer(Rust):
    """The runtime with what hosts and servers in Rust have."""

    packages = ("-p", "countermand-runtime", "--features", "tokio")


class Rmcp(Rust):
    """The adapter under rmcp."""

    packages = ("-p", "countermand-rmcp")


class Loom(Rust):
    """Explores every interleaving of the core's lock-free parts."""

    loom = ("env", "RUSTFLAGS=--cfg loom", "cargo", "test", "--quiet", "-p", "countermand-core")
    target = ("--test", "loom", "--target-dir", str(ROOT / "target" / "loom"))

    def build(self) -> str | None:
        built = run([*self.loom, *self.target, "--no-run"])
        return built.stderr if built.returncode else None

    def passes(self, test: str) -> bool:
        done = run([*self.loom, *self.target, test], limit=60)
        if "running 0 tests" in done.stdout:
            sys.exit(f"no such test: {test}")
        return done.returncode == 0


class Python:
    """Runs the package of the copy, with the engine that is installed, in one of the environments."""

    environment = "fastmcp3"

    def build(self) -> str | None:
        package = COPY / "python" / "src" / "countermand"
        installed = next(
            (ROOT / "python" / ".venvs" / self.environment / "lib").glob("*/site-packages/countermand")
        )
        shutil.copy(next(installed.glob("_native*.so")), package)
        link = COPY / "python" / "tests" / "countermand"
        if not link.is_symlink():
            link.symlink_to(package)
        return None

    def passes(self, test: str) -> bool:
        python = ROOT / "python" / ".venvs" / self.environment / "bin" / "python"
        command = [str(python), "-m", "pytest", "-x", "-k", test, "python/tests", "--rootdir", "python"]
        done = run(["env", "PYTHONPATH=python/tests", *command], limit=120)
        if done.returncode == 5:
            sys.exit(f"no such test: {test}")
        return done.returncode == 0


class Node:
    """Runs the package of the copy, compiled anew, with the engine that is built."""

    def build(self) -> str | None:
        for name in ("node_modules", "native"):
            link = COPY / "node" / name
            if not link.is_symlink():
                link.symlink_to(ROOT / "node" / name)
        built = run(["npm", "--prefix", "node", "run", "build:ts"])
        return built.stdout if built.returncode else None

    def passes(self, test: str) -> bool:
        files = [str(file) for file in sorted((COPY / "node" / "test").glob("*.test.mjs"))]
        done = run(
            ["node", "--test", "--test-concurrency=1", f"--test-name-pattern={test}", *files], limit=300
        )
        ran = [line for line in done.stdout.splitlines() if line.split()[1:2] == ["tests"]]
        if ran and ran[-1].split()[2] == "0":
            sys.exit(f"no such test: {test}")
        return done.returncode == 0


SUITES = {"rust": Rust(), "peer": Peer(), "rmcp": Rmcp(), "loom": Loom(), "python": Python(), "node": Node()}


def check(line: dict) -> list[str]:
    """Breaks one line; returns the tests that did not notice."""
    path = COPY / line["file"]
    text = path.read_text()
    if text.count(line["old"]) != 1:
        sys.exit(f"{line['file']}: not there exactly once: {line['old']}")
    suite = SUITES[line["suite"]]
    path.write_text(text.replace(line["old"], line["new"]))
    try:
        failed = suite.build()
        if failed:
            sys.exit(f"{line['what']}: does not build broken:\n{failed}")
        return [test for test in line["tests"] if suite.passes(test)]
    finally:
        path.write_text(text)


def write_table(lines: list[dict]) -> None:
    """Puts the table of lines and tests between the marks in tests/README.md."""
    rows = ["| | the line | where | tests that fail without it |", "|---|---|---|---|"]
    for line in sorted(lines, key=lambda line: int(line["invariant"][1:])):
        tests = ", ".join(f"`{test}`" for test in line["tests"])
        rows.append(f"| {line['invariant']} | {line['what']} | `{line['file']}` | {tests} |")
    page = ROOT / "tests" / "README.md"
    before, _, rest = page.read_text().partition("<!-- table -->")
    _, _, after = rest.partition("<!-- end -->")
    page.write_text(f"{before}<!-- table -->\n{chr(10).join(rows)}\n<!-- end -->{after}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--suite", choices=SUITES)
    arguments.add_argument("--only", default="", help="lines whose description holds this word")
    arguments.add_argument("--table", action="store_true", help="write the table of README.md")
    options = arguments.parse_args()
    lines = tomllib.loads((ROOT / "tests" / "broken.toml").read_text())["line"]
    if options.table:
        write_table(lines)
        return
    lines = [line for line in lines if options.only in line["what"]]
    lines = [line for line in lines if options.suite in (None, line["suite"])]
    for folder in COPY.glob("crates/*"):
        # What was renamed or deleted since would be built too; the rest is only written where it differs.
        for file in folder.rglob("*"):
            if file.is_file() and not (ROOT / file.relative_to(COPY)).exists():
                file.unlink()
    shutil.copytree(ROOT, COPY, ignore=SKIP, dirs_exist_ok=True, copy_function=copy_changed)
    for name in {line["suite"] for line in lines}:
        suite = SUITES[name]
        if failed := suite.build():
            sys.exit(f"the untouched copy does not build:\n{failed}")
        for test in sorted({test for line in lines if line["suite"] == name for test in line["tests"]}):
            if not suite.passes(test):
                sys.exit(f"{test} fails in the untouched copy")
    unnoticed = 0
    for line in lines:
        blind = check(line)
        unnoticed += bool(blind)
        verdict = f"NOT NOTICED by {', '.join(blind)}" if blind else f"noticed by {', '.join(line['tests'])}"
        print(f"{line['invariant']:4} {line['what']}: {verdict}", flush=True)
    print(f"{len(lines)} lines broken, {len(lines) - unnoticed} noticed")
    sys.exit(1 if unnoticed else 0)


if __name__ == "__main__":
    main()
