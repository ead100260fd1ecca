"""Commands that die with their request, and everything that they start with them. `mcp` 2.x."""

import countermand
from mcp.server.mcpserver import MCPServer

server = MCPServer("example")


@server.tool()
async def build(target: str = "all") -> str:
    """Runs a command to its end. Cancelled, or the host killed, `make` is gone, with all its compilers."""
    done = await countermand.current().run(["make", "-j4", target], cwd="/tmp")
    return (done.stdout + done.stderr).decode(errors="replace")


@server.tool()
async def watch(lines: int = 10) -> str:
    """Reads along with a command that does not end by itself."""
    text = b""
    async with countermand.current().spawn("vmstat 1 & ps aux; wait") as process:
        assert process.stdout is not None
        while text.count(b"\n") < lines:
            text += await process.stdout.receive()
    # Here it has ended: the shell, `vmstat`, and whatever else.
    return text.decode(errors="replace")


if __name__ == "__main__":
    countermand.run(server)
