# Everything a developer does with this repository. `make` lists it.

VENV       ?= .venv
PYTHON     ?= python3
# Weights run on CPU kernels of our own; any build of this torch will do. To take a CPU-only or another build from an
# index of your choice:  make setup TORCH_ARGS='--index-url URL'   (TORCH_SPEC changes the version, for experiments)
TORCH_SPEC ?= torch==2.13.0
TORCH_ARGS ?=
# Options for every pip install, such as a mirror or a constraints file.
PIP_ARGS   ?=
# Configuration of up, down, status and models: empty for the built-in defaults.
CONFIG     ?=
# What to test:  make test TESTS=tests/cli ARGS='-k redis -x'
TESTS      ?= tests
ARGS       ?=
URL        ?= http://127.0.0.1:8080

BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check
TREADLE := $(BIN)/treadle
FILE    := $(if $(CONFIG),-f $(CONFIG))
RUNTIME := $(VENV)/.runtime-installed
DEV     := $(VENV)/.dev-installed

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev models up down status bench gpu-check check format test size clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

setup: $(RUNTIME) ## Create .venv with what the cluster needs to run

setup-dev: $(DEV) ## ... and with what check and test need

# The stamps are older than pyproject.toml when dependencies may have changed, and only then is anything installed.
$(RUNTIME): pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Treadle needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(PIP_ARGS) 'pip>=25.1'
	$(PIP) install --quiet $(PIP_ARGS) $(TORCH_ARGS) '$(TORCH_SPEC)'
	$(PIP) install --quiet $(PIP_ARGS) -e '.[local]'
	$(BIN)/python -m gpu_node.kernels.cpu
	@touch $@

$(DEV): $(RUNTIME)
	$(PIP) install --quiet $(PIP_ARGS) --group dev
	@touch $@

models: setup ## Fetch the configured models
	@$(TREADLE) models pull $(FILE)

up: setup ## Start the cluster and wait until it serves
	@$(TREADLE) up $(FILE)

down: setup ## Stop the cluster
	@$(TREADLE) down $(FILE)

status: setup ## Show the processes of the cluster
	@$(TREADLE) status $(FILE)

bench: setup ## Measure the running cluster with 1 and with 16 clients
	@$(TREADLE) bench serve --url $(URL) --requests 8 --concurrency 1 $(ARGS)
	@$(TREADLE) bench serve --url $(URL) --requests 64 --concurrency 16 $(ARGS)

gpu-check: ## Check and measure the CUDA kernels on this machine's GPU (ARGS=--interpret: check them without one)
	@PYTHONPATH=.:gpu-node $(or $(wildcard $(BIN)/python),$(PYTHON)) benchmarks/gpu/check.py $(ARGS)

check: setup-dev ## Lint, format, types and import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev ## Format the code and put right what the linter can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: setup-dev ## Run the tests (TESTS=path, ARGS='pytest options')
	@$(TREADLE) models pull
	@TREADLE_REQUIRE_MODEL=1 $(BIN)/python -m pytest $(TESTS) $(ARGS)

size: ## Lines of each source file, and of each folder
	@git ls-files --cached --others --exclude-standard -- '*.py' '*.cpp' '*.cu' '*.h' '*.lua' | sort | xargs wc -l | awk \
		'$$2 != "total" { print; n = split($$2, part, "/"); folder[n > 1 ? part[1] : "."] += $$1; all += $$1 } \
		END { print ""; for (f in folder) printf "%7d %s/\n", folder[f], f | "sort -k2"; close("sort -k2"); \
		printf "%7d in all\n", all }'

clean: ## Remove caches and builds; .venv and the cluster's data stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +
