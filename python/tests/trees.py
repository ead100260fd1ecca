"""The tree of `tests/tree/tree.sh`, and who of it is still there."""

from __future__ import annotations

import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "tree" / "tree.sh"
PATIENCE = 30.0


class Tree:
    """One run of the script."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.command = ["sh", str(SCRIPT), folder]

    def up(self) -> bool:
        return (pathlib.Path(self.folder) / "ready").exists()

    def pids(self) -> list[int]:
        names = ("wrapper", "server", "grandchild", "session", "daemon")
        return [int((pathlib.Path(self.folder) / name).read_text()) for name in names]

    def ready(self) -> list[int]:
        """Waits until every process of it is there."""
        until(self.up, "the tree is up")
        pids = self.pids()
        assert len(alive(pids)) == 5
        return pids


@contextmanager
def tree() -> Iterator[Tree]:
    with tempfile.TemporaryDirectory() as folder:
        stubborn = Tree(folder)
        try:
            yield stubborn
        finally:
            # Where a test has failed, some are there.
            if stubborn.up():
                for pid in alive(stubborn.pids()):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def alive(pids: list[int]) -> list[int]:
    """Those of them that are there and are no zombies."""
    return [pid for pid in pids if _state(pid) not in ("", "Z", "X")]


def gone(pids: list[int]) -> None:
    """Waits until none of them is there."""
    until(lambda: not alive(pids), f"the tree is gone: {pids}")


def until(so: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.002)


def _state(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return ""
