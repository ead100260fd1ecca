"""What blocks a handler, in every way that handlers block. Importable, so that worker processes find it."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time

from report import report


def block(kind: str, tag: str) -> str:
    """Blocks for longer than any test lasts."""
    try:
        report(f"start {tag}")
        if kind == "sleep":
            time.sleep(3600)
        elif kind == "loop":
            while True:
                pass
        elif kind == "recv":
            here, there = socket.socketpair()
            here.recv(1)
            there.close()
        elif kind == "subprocess":
            subprocess.run(["sleep", "3600"], check=False)
        elif kind == "lock":
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        elif kind.startswith("/"):
            while os.path.exists(kind):
                time.sleep(0.001)
    except BaseException as error:
        report(f"{type(error).__name__} {tag}")
        raise
    report(f"end {tag}")
    return tag


def crash(code: int) -> None:
    os._exit(code)


def pid() -> int:
    return os.getpid()


def fails(text: str) -> None:
    raise LookupError(text)


class Unreadable(Exception):
    """Pickles, and cannot be read back."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fails_unreadably() -> None:
    raise Unreadable(1, 2)


def unpicklable() -> object:
    return lambda: None


def family(tag: str) -> None:
    """Starts a child that ignores SIGTERM, says who they are, and waits for ever."""
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 3600; done"])
    report(f"family {tag} {os.getpid()} {child.pid}")
    time.sleep(3600)
