"""Which of the four SDKs this environment has, and what is named differently in each."""

from importlib.util import find_spec

GENERATION = 2 if find_spec("mcp_types") is not None else 1
FASTMCP = find_spec("fastmcp") is not None
NAME = ("fastmcp3", "fastmcp4")[GENERATION - 1] if FASTMCP else f"mcp{GENERATION}"

if FASTMCP:
    from fastmcp import Context, FastMCP
elif GENERATION == 2:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as FastMCP
else:
    from mcp.server.fastmcp import Context, FastMCP

__all__ = ["FASTMCP", "GENERATION", "NAME", "Context", "FastMCP"]
