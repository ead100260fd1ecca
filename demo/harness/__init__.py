"""Drives real MCP servers, stock and guarded, with raw JSON lines. Needs Python's standard library only."""
