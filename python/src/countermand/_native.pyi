"""The engine: `bindings/python`."""

from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar

from typing_extensions import Self, Unpack

_P = ParamSpec("_P")
_R = TypeVar("_R")

_Cause = Literal["peer", "timeout", "disconnect", "shutdown", "local"]

class ConnectionOptions(TypedDict, total=False):
    wire: Literal["stdio", "http2025", "http2026"]
    id_match: Literal["strict", "lenient"]
    early_cancel: tuple[float, int] | None
    alias_beyond_f64: bool
    alias_falsy: bool
    max_in_flight: int
    max_retired: int
    retired_age: float
    max_reason_bytes: int
    max_id_bytes: int
    max_tasks: int
    max_outbound: int
    max_tombstones: int
    tombstone_age: float
    max_tools: int
    orphan_after: float

class Connection:
    """One ordered channel with one peer, and every decision about it, without any I/O.

    For transports of one's own: bytes of one message and a time in seconds go in, verdicts come out.
    """

    def __new__(cls, **options: Unpack[ConnectionOptions]) -> Self: ...
    def receive(self, frame: bytes, now: float) -> list[dict[str, Any]]:
        """What to do with a message of the peer's: one verdict, or one for each element of a batch.

        ``{"verdict": "deliver", "generation": int | None, "frame": bytes, "rewritten": bool,
        "slot": int | None, "serial": int | None}``,
        ``{"verdict": "cancelled", "generation": int, "silence": "nothing" | "close_stream" | bytes}``,
        ``{"verdict": "ignored", "reason": str}``, ``{"verdict": "reject", "reply": bytes, "reason": str}``,
        ``{"verdict": "settled", "call": int}`` or ``{"verdict": "progress", "call": int}``.
        """
    def start(self, request: int, now: float) -> bool:
        """A handler is about to start: False if it must not."""
    def finish(self, request: int, now: float) -> Literal["owed", "silent", "unknown"]:
        """A handler has exited, however it did: what is owed to the peer."""
    def discard(self, request: int) -> None:
        """Nothing will be sent for this request, and no handler will run."""
    def send(self, frame: bytes, now: float, within: Token | None = None) -> dict[str, Any]:
        """What to do with a message of ours; a request in it is made on behalf of the token.

        ``{"verdict": "write"}``, ``{"verdict": "rewrite", "frame": bytes}``,
        ``{"verdict": "request", "call": int, "frame": bytes, "rewritten": bool}``: ask :meth:`transmit` when
        its turn has come, ``{"verdict": "cancel", "frame": bytes, "rewritten": bool}``: it goes ahead of what
        waits, or ``{"verdict": "swallow", "reason": str}``.
        """
    def begin(
        self,
        method: str,
        params: str | None,
        now: float,
        *,
        within: Token | None = None,
        idle: float | None = None,
        total: float | None = None,
        progress: bool = False,
    ) -> dict[str, Any]:
        """Makes a request: ``{"call": int, "frame": bytes, "token": Token}``. ``params`` is JSON."""
    def transmit(self, call: int) -> bool:
        """A request of ours is about to be written: False if it must not. Then the frame must be whole."""
    def abandon(
        self, call: int, cause: _Cause, reason: str | None, now: float
    ) -> Literal["settled", "not_sent", "notified", "close_transport", "close_stream", "silent"]:
        """Nobody waits for a request of ours any more. What is to be done is among the outputs."""
    def outcome(self, call: int) -> Literal["not_sent", "cancelled", "completed", "unknown"] | None:
        """What is known of the effects of a request that was abandoned; None if that is forgotten."""
    def outputs(self) -> list[dict[str, Any]]:
        """What is to be done, in order.

        ``{"output": "abandoned", "call": int, "cause": str, "reason": str | None, "outcome": str}``,
        ``{"output": "cancel", "call": int, "frame": bytes}``, ``{"output": "deliver", "frame": bytes}``,
        ``{"output": "close_stream", "call": int}`` or ``{"output": "close_transport"}``.
        """
    def close(self, cause: _Cause, now: float) -> list[int]:
        """The connection is over: trips everything, returns the requests that this cancelled."""
    def handle_timeout(self, now: float) -> None:
        """Abandons the calls that are out of time, and lets go of what is only kept for a time."""
    def poll_timeout(self) -> float | None:
        """When `handle_timeout` next has something to do."""
    def stats(self, now: float | None = None) -> dict[str, Any]:
        """Counters and the sizes of the tables; with a time also `tools` and `orphans`, as they are then."""
    def reports(self) -> list[dict[str, Any]]:
        """The cancelled requests that were over since this was last asked.

        ``{"id": int | str, "method": str, "tool": str | None, "cause": str, "reason": str | None,
        "latency": float | None}``
        """
    def commit(self, request: int) -> bool:
        """This request has committed an effect that cannot be taken back; False if it is not in the table."""

class Working:
    """A thread or process that runs for a request, until it is closed or dropped."""

    def close(self) -> None: ...

class Token:
    """What `countermand.Token` is made of."""

    def __new__(cls, source: Token | Connection, generation: int | None = None) -> Self: ...
    @property
    def cancelled(self) -> bool:
        """Whether it has tripped: one atomic load."""
    @property
    def cause(self) -> _Cause | None:
        """Why it tripped; None while it has not."""
    @property
    def reason(self) -> str | None:
        """What the canceller gave as its reason, bounded. It is the peer's text: escape it for logs."""
    @property
    def request_id(self) -> int | str | None:
        """The id of the request, as the peer wrote it."""
    def checkpoint(self) -> None:
        """Raises `Cancelled` if it has tripped."""
    def commit(self) -> bool:
        """Says that its request has committed an effect that cannot be taken back, as a mail that was sent.

        If the request is cancelled, before or after, it counts as abandoned with effects in `stats`. False
        once the request has been answered.
        """
    def work(self, kind: Literal["thread", "process"], pid: int | None = None) -> Working | None:
        """A thread, or a process by its pid, begins to run for its request; None if that is over."""
    def give_way(self) -> None:
        """After a trip: leaves the GIL to another thread that polls, until it has seen it; 2 ms at most."""
    def cancel(self, reason: str | None = None) -> bool:
        """Trips it, and everything below it, with cause ``local``; False if it had tripped before."""
    def trip(self, cause: _Cause, reason: str | None = None) -> bool:
        """Trips it with any cause; False if it had tripped before."""

class Watch:
    @property
    def tripped(self) -> bool: ...
    def close(self) -> None: ...

class Callbacks:
    def __new__(cls) -> Self: ...
    def next(self) -> int | None: ...
    def watch(self, token: Token, key: int) -> Watch: ...

class Tree:
    """A command and everything that it starts. Ends when this is let go of."""

    def __new__(
        cls,
        token: Token,
        argv: list[str],
        env: list[tuple[str, str]],
        *,
        cwd: str | None,
        stdin: int,
        stdout: int,
        stderr: int,
        session: bool,
        grace: float,
        capture: bool,
        input: bytes | None = None,
    ) -> Self: ...
    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def ended(self) -> bool: ...
    @property
    def left(self) -> int: ...
    def stop(self) -> None: ...
    def pipes(self) -> tuple[int | None, int | None, int | None]: ...
    def output(self) -> tuple[bytes, bytes]: ...
    def notify_exited(self, queue: Callbacks, key: int) -> None: ...
    def notify_ended(self, queue: Callbacks, key: int) -> None: ...

class Follow:
    """Abandons a call when a token of another connection trips, until it is closed or dropped."""

    def close(self) -> None: ...

class MainSection:
    """Stretches of one handler's code on the main thread: broken off once, when its token trips."""

    def __new__(cls, token: Token) -> Self: ...
    def run(self, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def close(self) -> None: ...
    @staticmethod
    def wanted() -> bool:
        """Whether the code that runs on the main thread now is to be broken off."""
    @staticmethod
    def claim() -> tuple[_Cause, str | None] | None:
        """Who is told a cause must raise at once, and is told once."""

class ThreadSection:
    """One call of a function that may be broken off, in a thread other than the main one."""

    def __new__(cls, exception: type[BaseException]) -> Self: ...
    def run(self, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def break_off(self) -> bool: ...

def die_with(fd: int) -> None:
    """Kills this process's group, from a thread without the GIL, when ``fd`` can be read or is hung up."""

class Wire:
    def __new__(
        cls,
        *,
        fds: tuple[int, int] | None = None,
        grace: float | None = None,
        exit_process: bool = True,
        max_frame: int | None = None,
        max_queued: int | None = None,
        **options: Unpack[ConnectionOptions],
    ) -> Self: ...
    def fileno(self) -> int: ...
    @property
    def connection(self) -> Connection: ...
    @staticmethod
    def spawn(
        argv: list[str],
        env: list[tuple[str, str]],
        *,
        cwd: str | None,
        stderr: int,
        grace: float,
        close_wait: float,
        max_frame: int | None = None,
        max_queued: int | None = None,
        **options: Unpack[ConnectionOptions],
    ) -> Wire: ...
    def drain(self, limit: int) -> tuple[list[tuple[int, int, Any]], bool]: ...
    def send(self, frames: list[tuple[str, Token | None]]) -> bool: ...
    def call(
        self,
        method: str,
        params: str | None,
        *,
        within: Token | None = None,
        idle: float | None = None,
        total: float | None = None,
        progress: bool = False,
    ) -> tuple[int, Follow | None]: ...
    def abandon(self, call: int, cause: _Cause, reason: str | None = None) -> str: ...
    def outcome(self, call: int) -> Literal["not_sent", "cancelled", "completed", "unknown"] | None: ...
    def sent(self, call: int) -> bool | None: ...
    @property
    def pid(self) -> int | None: ...
    def start(self, generation: int) -> bool: ...
    def finish(self, generation: int) -> Literal["owed", "silent", "unknown"]: ...
    def discard(self, generation: int) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def prometheus(self) -> str: ...
    def close(self, cause: _Cause) -> None: ...
    def exit_code(self) -> int | None: ...
    def flush(self, timeout: float) -> bool: ...
