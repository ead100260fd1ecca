"""The situations about process trees: who of one is left when its request or its server is over."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .seen import Seen
from .session import Call, Session

# A tree gets this long after its end. It is given 0.3 s between SIGTERM and SIGKILL where it is ended at all.
PATIENCE = 1.5
PROCESSES = ("wrapper", "server", "grandchild", "session", "daemon")


def tree(end: Callable[[Session, Call], object], session: Session) -> Seen:
    """`tests/tree/tree.sh`: a wrapper, a server, and three that ignore SIGTERM, two outside the group."""
    call = session.start("tree")
    session.wait(lambda: session.tree(call), 5)
    folder = Path(session.tree(call) or "")
    _until(lambda: (folder / "ready").exists(), 5)
    pids = {name: int((folder / name).read_text()) for name in PROCESSES}
    end(session, call)
    _until(lambda: not any(map(_alive, pids.values())), PATIENCE)
    left = [name for name, pid in pids.items() if _alive(pid)]
    for name in left:
        with suppress(ProcessLookupError):
            os.kill(pids[name], signal.SIGKILL)
    shutil.rmtree(folder)
    return Seen(f"{len(left)} left", not left, f"left: {', '.join(left) or 'none'}")


def _until(so: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not so() and time.monotonic() < end:
        time.sleep(0.005)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
