# Everything that the targets need is installed into the checkout: .tools, python/.venvs, node_modules.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build build-python build-node demo bench test test-rust test-python test-node test-polyglot soak lint fmt clean
.PHONY: scenarios broken loom sim fuzz crossings bugs mutants

SEEDS ?= 100000
EXECUTIONS ?= 10000000

PYTHON ?= python3
ENVS := mcp1 mcp2 fastmcp3 fastmcp4
RUFF := .tools/venv/bin/ruff
PYRIGHT := .tools/venv/bin/pyright
# The bindings are libraries for a host to load: tested from its language, and no test binary of theirs links.
CRATES := --workspace --exclude countermand-python --exclude countermand-node --exclude polyglot-host \
	--features countermand-runtime/tokio
NEXTEST := .tools/cargo/bin/cargo-nextest nextest run
DENY := .tools/cargo/bin/cargo-deny
OWN_PYTHON := demo bench tests examples/polyglot-host

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Every situation on real servers, stock beside guarded, in one table
	@tools/step "building for Python" $(PYTHON) python/scripts/envs.py mcp1 mcp2
	@tools/step "building for Node" tools/node-build
	@tools/step "installing the demo's SDK" tools/npm-ci demo
	@$(PYTHON) demo/run.py

test: test-rust test-python test-node test-polyglot ## All tests of the three languages

test-rust: .tools/cargo/installed ## The core, the wire, the scenarios and the examples in the papers
	$(NEXTEST) $(CRATES)
	cargo test --doc $(CRATES)

test-python: build-python ## The Python package under four SDKs, the scenarios among it
	@for env in $(ENVS); do echo "== $$env"; (cd python && .venvs/$$env/bin/python -m pytest); done

test-node: build-node ## The Node package under its SDKs, the scenarios among it
	cd node && npm test

test-polyglot: ## One host in Rust over a Python and a Node server: one cancel ends all
	@tools/step "building for Python" $(PYTHON) python/scripts/envs.py mcp2
	@tools/step "building for Node" tools/node-build
	@tools/step "installing the host's SDK" tools/npm-ci examples/polyglot-host
	cargo test --quiet -p polyglot-host --test rounds -- --nocapture

soak: build .tools/cargo/installed ## The long runs, left out of `make test`
	$(NEXTEST) $(CRATES) --release --run-ignored only --no-tests pass
	@for env in $(ENVS); do echo "== $$env"; (cd python && .venvs/$$env/bin/python -m pytest -m long); done
	cd node && npm run test:long

scenarios: build ## Every scenario in each of the three languages, in one table
	@$(PYTHON) tests/scenarios.py

broken: build ## Lines broken on purpose, one at a time: their tests must notice (minutes)
	@$(PYTHON) tests/broken.py

loom: ## Every interleaving of the core's lock-free parts
	RUSTFLAGS="--cfg loom" cargo test -p countermand-core --test loom --target-dir target/loom

sim: ## Simulated worlds over the real core: make sim SEEDS=1000000
	cargo run --release --quiet -p countermand-sim -- --seeds $(SEEDS)

fuzz: ## The parser against serde_json: make fuzz EXECUTIONS=100000000
	cargo run --release --quiet -p countermand-sim --bin parser-fuzz -- --executions $(EXECUTIONS)

crossings: ## Every crossing of up to four requests, and of our own, exhaustively (minutes)
	cargo test --release -p countermand-sim --test crossings --test call_crossings -- --include-ignored --nocapture

bugs: ## Seeded bugs, one at a time: the simulator or the model must find each
	$(PYTHON) crates/sim/bugs.py

mutants: .tools/mutants/bin/cargo-mutants ## Mutants of the core, and what nobody notices (an hour)
	$(PYTHON) crates/sim/mutants.py --cargo-mutants $<

bench: build ## All benchmarks, printed and written to BENCHMARKS.md
	@tools/step "installing the SDKs" tools/npm-ci bench
	@tools/step "building the load" cargo build --release -p countermand-loadgen
	@tools/step "measuring the core" cargo bench -p countermand-core --bench core
	@$(PYTHON) bench/run.py

build: build-python build-node ## The two packages, and an environment for each Python SDK

build-python:
	@tools/step "building for Python" $(PYTHON) python/scripts/envs.py

build-node:
	@tools/step "building for Node" tools/node-build

lint: build .tools/cargo/installed ## Formatters, linters and type checkers of the three languages
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	$(DENY) --log-level error check bans licenses sources
	cd python && ../$(RUFF) check . && ../$(RUFF) format --check .
	$(RUFF) check $(OWN_PYTHON)
	$(RUFF) format --check $(OWN_PYTHON)
	cd python && ../$(PYRIGHT) --pythonpath .venvs/mcp2/bin/python
	cd node && npm run lint

fmt: build ## Format everything
	cargo fmt --all
	cd python && ../$(RUFF) format .
	$(RUFF) format $(OWN_PYTHON)
	cd node && npm run format

clean: ## Remove everything that was built or installed
	rm -rf target .tools python/.venvs python/dist */node_modules examples/polyglot-host/node_modules node/dist node/native

.tools/mutants/bin/cargo-mutants:
	cargo install cargo-mutants --locked --version 27.1.0 --root .tools/mutants

.tools/cargo/installed: tools/requirements.txt
	$(PYTHON) -m venv .tools/cargo
	.tools/cargo/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@
