"""Installs the built wheel into an empty environment, uses it there, and has pyright check its types.

python3 python/scripts/check_wheel.py
"""

from __future__ import annotations

import subprocess
import tempfile
import venv
from pathlib import Path

from envs import PYTHON, TOOLS, environment, wheel

USE = """
import countermand

async def handler() -> str:
    token: countermand.Token = countermand.current()
    flag: bool = token.cancelled
    cause: str | None = token.cause
    reason: str | None = token.reason
    id: int | str | None = token.request_id
    take_back: countermand.Unregister = token.child().on_cancel(lambda: None)
    take_back()
    token.checkpoint()
    await token.wait()
    return f"{flag} {cause} {reason} {id}"

connection = countermand.Connection(wire="stdio", early_cancel=(1.0, 8))
(verdict,) = connection.receive(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', 0.0)
token = countermand.Token(connection, verdict["generation"])
assert not token.cancelled and token.request_id == 1
"""
MISUSE = "import countermand\ncountermand.current().cancelled = True\ncountermand.Connection(wire='pigeon')\n"


def main() -> None:
    environment(TOOLS, "tools")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel()], check=True
        )
        (folder / "use.py").write_text(USE)
        (folder / "misuse.py").write_text(MISUSE)
        (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
        subprocess.run([python, folder / "use.py"], check=True)
        pyright = [TOOLS / "bin" / "pyright", "--pythonpath", python]
        subprocess.run([*pyright, "use.py"], cwd=folder, check=True)
        misuse = subprocess.run([*pyright, "misuse.py"], cwd=folder, capture_output=True, text=True)
        assert misuse.stdout.count("- error:") >= 2, misuse.stdout
    print(f"{wheel().relative_to(PYTHON)} installs, runs and is typed")


if __name__ == "__main__":
    main()
