"""The servers of the demo: three SDKs, one file each, the same file for stock and guarded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "demo" / "servers"


@dataclass(frozen=True)
class Server:
    name: str
    command: tuple[str, ...]
    # Whether its SDK has threads to run blocking tools in.
    threads: bool


def _python(sdk: str, label: str) -> Server:
    interpreter = ROOT / "python" / ".venvs" / sdk / "bin" / "python"
    return Server(label, (str(interpreter), str(FOLDER / f"python_{sdk}.py")), threads=True)


SERVERS = (
    _python("mcp2", "Python mcp"),
    _python("mcp1", "Python mcp"),
    Server("Node server", ("node", str(FOLDER / "node_server2.mjs")), threads=False),
)
