"""What a situation came to: a few words for the table, and whether that is what should happen.

Stock and guarded servers are judged by the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from .session import Call, Session

# How soon a handler that can stop has to have stopped. Generous: the table shows the real time.
PROMPT = 250_000_000
# How soon a process has to have ended after its stdin: an interpreter takes its time.
PROMPT_END = 1_500_000_000
# How long to listen for an answer that should not come.
QUIET = 0.15


@dataclass(frozen=True)
class Seen:
    text: str
    right: bool
    # What really came, for whoever has to find out why it was wrong.
    detail: str = ""


def duration(nanoseconds: int) -> str:
    milliseconds = nanoseconds / 1e6
    if milliseconds < 1:
        return "<1 ms"
    return f"{milliseconds:.0f} ms" if milliseconds < 99.5 else f"{milliseconds / 1e3:.1f} s"


def listen(session: Session, seconds: float = QUIET) -> None:
    session.wait(session.ended, seconds)


def broken(session: Session) -> Seen | None:
    """Whether the server is of no more use to anybody."""
    if session.ended() is None and session.answers():
        return None
    if session.wait(session.ended, 0.2):
        return Seen("server died", False, f"exit status {session.exit_status()}")
    return Seen("server hung", False, "the next call was not answered within 2 s")


def after_cancel(session: Session, call: Call, cancelled: int, patience: float, bound: int = PROMPT) -> Seen:
    """What became of a call after its cancel: it should end, and nothing should be sent for it."""
    session.wait(lambda: session.exited(call) or session.ended(), patience)
    listen(session)
    if seen := broken(session):
        return seen
    replies, exited = session.replies(call.id), session.exited(call)
    took = exited - cancelled if exited else None
    detail = f"{len(replies)} replies, handler's exit after {took} ns"
    right = not replies and took is not None and took < bound
    if len(replies) > 1:
        return Seen(f"{len(replies)} replies", right, detail)
    word = ("error" if replies[0].is_error else "reply") if replies else "quiet"
    return Seen(f"{word} {duration(took)}" if took is not None else "runs on", right, detail)
