"""The settings of a wire, by the names of the keyword arguments that take them."""

from __future__ import annotations

from typing import Literal, TypedDict


class Options(TypedDict, total=False):
    """What :func:`guard`, :func:`run` and :func:`stdio_server` may be told. Every one has a default."""

    grace: float
    """Seconds that handlers may take to unwind after end of input or a signal; then the process ends. 2."""
    exit_process: bool
    """Whether the process is ended when that time has passed. True; False where the program goes on."""
    id_match: Literal["strict", "lenient"]
    """``lenient``: ``"7"`` may cancel ``7`` where only that fits. ``strict``."""
    early_cancel: tuple[float, int] | None
    """Remembers cancels that overtook their request: for so many seconds, so many of them. None."""
    max_in_flight: int
    """Requests in flight; one more is rejected with -32000. 16,384."""
    max_frame: int
    """Bytes of the longest message; a longer one is rejected with -32600. 64 MiB."""
    max_queued: int
    """Bytes queued each way before reading, or sending, waits. 64 MiB."""
    max_reason_bytes: int
    """Bytes of a cancel's reason that are kept. 1,024."""
    max_id_bytes: int
    """Bytes of an id; a longer one is rejected with -32600. 4,096."""
    max_tools: int
    """Methods and tools that :func:`stats` tells apart; what comes after these counts together. 256."""
    orphan_after: float
    """Seconds after its cancel from which a request that runs on is an orphan. 2."""


class ClientOptions(TypedDict, total=False):
    """What :func:`stdio_client` may be told. Every one has a default."""

    id_match: Literal["strict", "lenient"]
    """``lenient``: a response under ``"7"`` may be that to ``7`` where only that fits. ``strict``."""
    max_frame: int
    """Bytes of the longest message; a longer one is skipped. 64 MiB."""
    max_queued: int
    """Bytes queued each way before reading, or sending, waits. 64 MiB."""
    max_outbound: int
    """Calls that wait for their response; one more is an error. 16,384."""
    max_tombstones: int
    """Abandoned requests that are remembered, to tell what became of them. 1,024."""
    tombstone_age: float
    """Seconds for which they are. 60."""
