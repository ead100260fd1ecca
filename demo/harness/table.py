"""The table: plain text, at most 100 columns, colour only on a terminal that wants it."""

from __future__ import annotations

import os
from typing import TextIO

from .seen import Seen

_LABEL = 21
_CELL = 13

LEGEND = """\
The time is from the cancel's last byte to the end of the handler (stdin closed: of the process).
quiet: nothing was sent for the cancelled request        reply, error: it was answered all the same
left: how many of a tree's five processes run on         answer: how long the next call waited
-: this SDK runs no tool in a thread                     !: not what should happen"""


class Table:
    """Prints itself row by row, as the cells come in."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._colour = out.isatty() and not os.environ.get("NO_COLOR")

    def head(self, servers: list[str]) -> None:
        kinds = ("stock", "guarded") * len(servers)
        self._line("".join(f" {name:<{2 * _CELL - 1}}" for name in servers))
        self._line("".join(f" {kind:<{_CELL - 1}}" for kind in kinds), "situation")
        self._line("-" * (_CELL * 2 * len(servers)), "-" * _LABEL)

    def row(self, name: str, cells: list[Seen | None]) -> None:
        self._line("".join(map(self._cell, cells)), name)

    def _line(self, rest: str, label: str = "") -> None:
        print(f"{label:<{_LABEL}}{rest}".rstrip(), file=self._out, flush=True)

    def _cell(self, seen: Seen | None) -> str:
        if seen is None:
            return f" {'-':<{_CELL - 1}}"
        text = f"{' ' if seen.right else '!'}{seen.text:<{_CELL - 1}}"
        if not self._colour:
            return text
        return f"\x1b[{32 if seen.right else 31}m{text}\x1b[0m"
