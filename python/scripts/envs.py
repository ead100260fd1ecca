"""Builds the wheel and installs it in an environment for each SDK. Fast where nothing changed.

    python3 python/scripts/envs.py [NAME ...]

Environments stand in python/.venvs, tools in .tools/venv, the wheel in python/dist.
"""

from __future__ import annotations

import hashlib
import pathlib
import subprocess
import sys
import venv

PYTHON = pathlib.Path(__file__).resolve().parent.parent
ROOT = PYTHON.parent
TOOLS = ROOT / ".tools" / "venv"
NAMES = ("mcp1", "mcp2", "fastmcp3", "fastmcp4")


def run(*command: str | pathlib.Path) -> None:
    subprocess.run([str(part) for part in command], cwd=PYTHON, check=True)


def environment(folder: pathlib.Path, *requirements: str) -> None:
    """Makes a venv with what these files ask for, unless that is what it has."""
    files = [PYTHON / "requirements" / f"{name}.txt" for name in requirements]
    wanted = "".join(file.read_text() for file in files)
    stamp = folder / "requirements.stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"making {folder.relative_to(ROOT)}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    arguments = [part for file in files for part in ("-r", str(file))]
    run(folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments)
    stamp.write_text(wanted)


def sources() -> str:
    """A digest of everything that the wheel is made of."""
    digest = hashlib.sha256()
    folders = (ROOT / "crates" / "core" / "src", ROOT / "crates" / "runtime" / "src", PYTHON / "src")
    files = [ROOT / "Cargo.lock", PYTHON / "pyproject.toml", *(ROOT / "bindings" / "python").rglob("*")]
    for folder in folders:
        files += folder.rglob("*")
    for file in sorted(files):
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".so":
            digest.update(str(file.relative_to(ROOT)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def wheel() -> pathlib.Path:
    """Builds the wheel, unless the one that is there is of the same sources."""
    dist = PYTHON / "dist"
    stamp = dist / "sources.stamp"
    wanted = sources()
    built = sorted(dist.glob("countermand-*.whl"))
    if not built or not stamp.exists() or stamp.read_text() != wanted:
        for old in built:
            old.unlink()
        maturin = TOOLS / "bin" / "maturin"
        run(maturin, "build", "--release", "--out", dist, "--interpreter", sys.executable)
        built = sorted(dist.glob("countermand-*.whl"))
        stamp.write_text(wanted)
    return built[0]


def main(names: list[str]) -> None:
    environment(TOOLS, "tools")
    file = wheel()
    wanted = (PYTHON / "dist" / "sources.stamp").read_text()
    for name in names or NAMES:
        folder = PYTHON / ".venvs" / name
        environment(folder, name, "test")
        stamp = folder / "wheel.stamp"
        if not stamp.exists() or stamp.read_text() != wanted:
            run(
                folder / "bin" / "python",
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                "--force-reinstall",
                "--no-deps",
                file,
            )
            stamp.write_text(wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
