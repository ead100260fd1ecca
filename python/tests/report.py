"""What a handler tells the test, on stderr, where the wire is not."""

import os


def report(what: str) -> None:
    """One write of one line: whole, also from many threads."""
    os.write(2, f"@{what}\n".encode())
