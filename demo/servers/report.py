"""The side channel by which a tool tells the harness when it started and when it has really ended.

It is a pipe beside the wire, so that nothing on the wire has to be believed: a line an event, with the
system's monotonic clock, which the harness reads too.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_FD = int(os.environ["DEMO_REPORT_FD"])
_TREE = Path(__file__).resolve().parents[2] / "tests" / "tree" / "tree.sh"


def report(event: str, what: str) -> None:
    # One short write to a pipe is atomic, whatever thread it comes from.
    os.write(_FD, f"{event} {what} {time.monotonic_ns()}\n".encode())


@contextlib.contextmanager
def reported(tag: str) -> Iterator[None]:
    report("start", tag)
    try:
        yield
    finally:
        report("exit", tag)


def fresh_tree(tag: str) -> list[str]:
    """The command of a process tree; its processes write their numbers to a folder that is reported."""
    folder = tempfile.mkdtemp(prefix="countermand-demo-")
    report("tree", f"{tag}:{folder}")
    return ["sh", str(_TREE), folder]
