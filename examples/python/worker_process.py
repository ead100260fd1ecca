"""Blocking code in a worker process, which a cancel kills with all that it started. `mcp` 2.x."""

import subprocess

import countermand
from mcp.server.mcpserver import MCPServer

server = MCPServer("example")


@server.tool()
async def digits(power: int) -> int:
    """One long operation in C: no thread could be interrupted in it."""
    return await countermand.to_process(count, power)


def count(power: int) -> int:
    """At the top level of a module, so that the worker finds it."""
    return (3**power).bit_length()


@server.tool()
@countermand.in_process
def shell(command: str) -> str:
    """A sync tool, as it was, but for the line above it."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


# A worker imports this module too: it must not serve.
if __name__ == "__main__":
    countermand.run(server)
