#!/usr/bin/env bash
# What a bare Debian needs beside Rust (cargo, clippy, rustfmt; see rust-version in Cargo.toml), Node 20
# with npm, and Python 3.11. Run as root. Everything else is installed into the checkout by make.
set -euo pipefail

apt-get install --yes --no-install-recommends build-essential ca-certificates git python3-venv
