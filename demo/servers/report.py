"""The side channel by which a tool tells the harness when it started and when it has really ended.

It is a pipe beside the wire, so that nothing on the wire has to be believed: a line an event, with the
system's monotonic clock, which the harness reads too.
"""

import contextlib
import os
import time
from collections.abc import Iterator

_FD = int(os.environ["DEMO_REPORT_FD"])


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
