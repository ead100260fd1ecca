"""A token in threads: one that polls it, one that is told. `mcp` 2.x."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import countermand
from mcp.server.mcpserver import MCPServer

server = MCPServer("example")
pool = ThreadPoolExecutor()


@server.tool()
def primes(limit: int) -> int:
    """A sync tool: it runs in a thread that inherits the request's context."""
    token = countermand.current()
    found = 0
    for number in range(2, limit):
        token.checkpoint()
        found += all(number % divisor for divisor in range(2, int(number**0.5) + 1))
    return found


@server.tool()
def parts(count: int) -> int:
    """A bare thread starts with an empty context: it is handed the token."""
    token = countermand.current()
    done = threading.Event()

    def work() -> int:
        while not token.cancelled and not done.wait(0.01):
            pass
        return 1

    futures = [pool.submit(work) for _ in range(count)]
    done.set()
    return sum(future.result() for future in futures)


@server.tool()
def query(statement: str) -> str:
    """A call that cannot poll is interrupted by a callback."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    token = countermand.current()
    unregister = token.on_cancel(connection.interrupt)
    try:
        return str(connection.execute(statement).fetchall())
    except sqlite3.OperationalError:
        # Interrupted: a cancel, and no error of the tool's.
        token.checkpoint()
        raise
    finally:
        unregister()


if __name__ == "__main__":
    countermand.run(server)
