"""A copy of the core and of its attackers, to be broken on purpose: what bugs.py and mutants.py share.

Shipped code holds no bug and no switch for one: the copy is in target/, and builds there.
"""

import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CRATES = ("core", "sim")
# A build that is quick to make, and quick enough to run.
PROFILE = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
    "CARGO_INCREMENTAL": "1",
    "RUST_BACKTRACE": "0",
}


class Workbench:
    """A workspace of just the two crates, and the scenarios that their tests read."""

    def __init__(self, name: str) -> None:
        self.folder = ROOT / "target" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        for crate in CRATES:
            shutil.rmtree(self.folder / "crates" / crate, ignore_errors=True)
            shutil.copytree(ROOT / "crates" / crate, self.folder / "crates" / crate)
        shutil.copytree(ROOT / "tests" / "scenarios", self.folder / "tests" / "scenarios", dirs_exist_ok=True)
        manifest = (ROOT / "Cargo.toml").read_text()
        members = re.compile(r"^members = .*$", re.MULTILINE)
        (self.folder / "Cargo.toml").write_text(
            members.sub('members = ["crates/core", "crates/sim"]', manifest)
        )
        shutil.copy(ROOT / "Cargo.lock", self.folder)

    def run(self, *command: str, seconds: float = 600) -> subprocess.CompletedProcess[str]:
        """Runs a command in the copy; one that hangs has failed."""
        environment = {**os.environ, **PROFILE, "CARGO_TARGET_DIR": str(self.folder / "target")}
        try:
            return subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", f"hung for {seconds} s")

    def built(self, *targets: str) -> subprocess.CompletedProcess[str]:
        return self.run("cargo", "build", "--release", "--quiet", "-p", "countermand-sim", *targets)

    def binary(self, name: str) -> str:
        return str(self.folder / "target" / "release" / name)
