"""Plays every situation on every server, stock and guarded, and prints one table.

The exit status is 1 if a guarded cell is not what should happen. `make demo` builds what this needs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from harness.seen import Seen
from harness.servers import ROOT, SERVERS, Server
from harness.session import Session
from harness.situations import SITUATIONS, Situation
from harness.table import LEGEND, Table

# What the servers say on stderr.
LOG = ROOT / "target" / "demo.log"


class Column:
    """One server, stock or guarded. A session goes on from situation to situation while it is unharmed."""

    def __init__(self, server: Server, guarded: bool, log: TextIO) -> None:
        self.server, self.guarded = server, guarded
        self.sdk = ""
        self._log = log
        self._session: Session | None = None

    def play(self, situation: Situation) -> Seen | None:
        if situation.threads and not self.server.threads:
            return None
        with self._ready(situation.handshake) as session:
            seen = situation.play(session)
            self.sdk = session.sdk()
            return seen

    def close(self) -> None:
        if self._session:
            self._session.kill()
        self._session = None

    @contextmanager
    def _ready(self, handshake: bool) -> Iterator[Session]:
        if not handshake:
            self.close()
        if self._session is None:
            self._session = Session(self.server, self.guarded, self._log.fileno(), handshake)
        try:
            yield self._session
        finally:
            if not self._session.idle():
                self.close()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--details", action="store_true", help="explain every cell marked with !")
    options = arguments.parse_args()
    wrong = []
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w", encoding="utf-8") as log:
        columns = [Column(server, guarded, log) for server in SERVERS for guarded in (False, True)]
        table = Table(sys.stdout)
        for situation in SITUATIONS:
            cells = [column.play(situation) for column in columns]
            if situation is SITUATIONS[0]:
                table.head([f"{column.server.name} {column.sdk}" for column in columns[::2]])
            table.row(situation.name, cells)
            for column, seen in zip(columns, cells, strict=True):
                if seen and not seen.right and (column.guarded or options.details):
                    wrong.append((column, situation, seen))
        for column in columns:
            column.close()
    print(f"\n{LEGEND}")
    for column, situation, seen in wrong:
        kind = "guarded" if column.guarded else "stock"
        name = f"{column.server.name} {kind}, {situation.name}"
        print(f"WRONG: {name}: {seen.text} ({seen.detail})")
    return any(column.guarded for column, _, _ in wrong)


if __name__ == "__main__":
    sys.exit(main())
