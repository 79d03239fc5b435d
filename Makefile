# Everything runs in .venv, which the first target that needs it builds from requirements-dev.lock.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
# The tests start the sidecar some hundred times, a third quicker if it is not compiled anew each time.
export PYTHONDONTWRITEBYTECODE =
# Tests mostly wait for a broker or a backoff, so more workers than cores; each has its own broker.
WORKERS ?= 3
CHAOS_ARGS ?=
FUZZ_ARGS ?=
SOAK_ARGS ?=
SEEDS ?= 20000
SIMULATE_ARGS ?=

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(STAMP) ## Run everything in one process: broker, toy application, load
	$(BIN)/sidecar demo

.PHONY: check
check: lint test ## Lint, then test

.PHONY: test
test: $(STAMP) ## Run all tests (real broker: Java + Maven, Docker, or KAFKA_BOOTSTRAP_SERVERS)
	@$(BIN)/python -m tests.rig
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --max-worker-restart 0 $(PYTEST_ARGS)

.PHONY: lint
lint: $(STAMP) ## Check style, format, types, the direction of imports, the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

.PHONY: format
format: $(STAMP) ## Format, and fix what can be fixed by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: chaos
chaos: $(STAMP) ## Long runs with brokers, applications and sidecars killed under load
	@$(BIN)/python -m tests.rig
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

.PHONY: soak
soak: $(STAMP) ## An hour at half load with rebalances, restarts and resizes: nothing may grow
	@$(BIN)/python -m tests.rig
	$(BIN)/python -m tests.soak $(SOAK_ARGS)

.PHONY: simulate
simulate: $(STAMP) ## Whole groups of engines in random schedules, on a simulated clock (SEEDS=N; goes on)
	$(BIN)/python -m tests.simulate --seeds $(SEEDS) $(SIMULATE_ARGS)

.PHONY: fuzz
fuzz: $(STAMP) ## Feed whatever reads what others write, ten minutes each kind (FUZZ_ARGS="records …")
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

.PHONY: fuzz-api
fuzz-api: $(STAMP) ## Feed the admin API of a running sidecar with what its description allows, and not
	SCHEMATHESIS_EXAMPLES=200 $(BIN)/pytest -o faulthandler_timeout=0 tests/broker/test_admin_described.py

.PHONY: bench
bench: $(STAMP) ## Measure cost per message, latency, head of line, isolation, memory, start
	$(BIN)/python -m bench

.PHONY: image-test
image-test: $(STAMP) ## Build the image and run it as a kubelet would (Docker; or buildah, podman)
	IMAGE_TEST=1 $(BIN)/pytest tests/image -o faulthandler_timeout=0 $(PYTEST_ARGS)

.PHONY: inject-sweep
inject-sweep: $(STAMP) ## Run sidecar inject over every manifest in a directory (DIR=…)
	$(BIN)/python -m tests.inject_sweep $(DIR)

CHECKOV := .cache/checkov
.PHONY: chart-scan
chart-scan: $(STAMP) ## Scan what the chart renders with checkov (its own environment, 290 MB)
	@test -x $(CHECKOV)/bin/checkov || $(PYTHON) -m venv $(CHECKOV)
	@test -x $(CHECKOV)/bin/checkov || $(CHECKOV)/bin/pip install -q --disable-pip-version-check checkov==3.3.30
	$(BIN)/python -m tests.chart.scan $(CHECKOV)/bin/checkov

.PHONY: venv
venv: $(STAMP) ## Build or update .venv

.PHONY: lock
lock: ## Pin the dependencies anew (needs uv; UPGRADE=--upgrade for newer ones)
	$(UV_COMPILE) --all-extras pyproject.toml -o requirements.lock
	$(UV_COMPILE) --all-extras pyproject.toml --group dev -c requirements.lock -o requirements-dev.lock
	$(UV_COMPILE) --group build -c requirements-dev.lock -o requirements-build.lock

.PHONY: clean
clean: ## Remove .venv and every cache of the tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

# Universal: one file for every supported Python, Linux and macOS, x86-64 and ARM; with hashes.
# With the extras: what is shipped as a whole, in an image, has them.
UV_COMPILE := uv pip compile -q --universal --generate-hashes --python-version 3.11 \
	--custom-compile-command "make lock" --no-annotate $(UPGRADE)

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: Python 3.11 or newer is needed; choose one: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "make: this Python cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "building $(VENV); the first time this takes a minute or two"
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
