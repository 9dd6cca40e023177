# Headwater's targets. `make` alone lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.8
DIST ?= dist
ROOMS := benchmarks cdc client connectors console deploy docs examples operations sinks spark tests truth
# What `make wheels` makes in that folder, of any version; whatever else is in it is somebody's own.
BUILT = "$(DIST)"/headwater-*.whl "$(DIST)"/headwater_client-*.whl "$(DIST)"/headwater-*.tar.gz "$(DIST)"/headwater_client-*.tar.gz

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-unit test-slow test-schema test-bank test-rebuild-kill test-ryw test-as-of test-failover test-cluster test-alerts test-dbt chaos test-compose test-containers images wheels release lint format bench bench-upkeep lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(VENV)/ready: requirements.lock pyproject.toml client/pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
# One without pip is half made: this was killed, or begun without python3-venv. (uv makes such ones too; the lock would have
# emptied those.)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing the locked Python packages into $(VENV) (a minute the first time)"
	@$(BIN)/python -m pip install -q "uv==$(UV_VERSION)"
	@$(BIN)/uv pip sync -q --require-hashes --compile-bytecode --python $(BIN)/python requirements.lock
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --editable . --editable client
# With PYTHONDONTWRITEBYTECODE set, as in many images, every command would compile all that it imports anew: half of what
# `check` took. Code of others beside ours (an environment called venv) may be for another Python, and not compile at all.
	@$(BIN)/python -m compileall -q -j 0 $(ROOMS)
	@touch $@

setup: $(VENV)/ready ## install everything Python needs, from the lock file

demo: setup ## start real servers, capture the flights database, fill three sinks, show it live
	@$(BIN)/python -m examples.flights.demo

test: setup ## run the whole test suite against real servers (starts what is missing)
	@$(BIN)/python -m tests

test-unit: setup ## run the tests that need no server
	@$(BIN)/python -m pytest tests/unit tests/property

test-slow: setup ## the proofs that take minutes each: generations, gaps, kills, zombies, repairs (an hour and more)
	@$(BIN)/python -m pytest -m 'slow or sampled'

test-schema: setup ## every migration of docs/schema-changes.md under a writer, in both formats, on the local stack
	@$(BIN)/python -m pytest -m "" tests/integration/test_schema_*.py

test-bank: setup ## 20 seeds of transfers between banks with kill -9 in the middle (half an hour)
	@HEADWATER_BANK_SEEDS=20 $(BIN)/python -m pytest tests/faults/test_bank_invariant.py

test-rebuild-kill: setup ## a rebuild is killed at 10 random moments (ten minutes)
	@HEADWATER_REBUILD_KILLS=10 $(BIN)/python -m pytest -m '' tests/faults/test_rebuild_kill.py

test-as-of: setup ## 500 cuts through a history under load and kills, counted by three engines (half an hour)
	@HEADWATER_AS_OF_CUTS=500 HEADWATER_AS_OF_RESULTS=1 $(BIN)/python -m pytest -m '' -s tests/faults/test_as_of.py

test-ryw: setup ## applications wait for 10,000 writes of theirs while everything is killed (half an hour)
	@HEADWATER_RYW_WAITS=10000 $(BIN)/python -m pytest -m '' -s tests/faults/test_read_your_writes.py

images: setup ## build the container images of Headwater and every server (IMAGES=name … BASE=image)
	@$(BIN)/python -m deploy.images $(IMAGES) $(if $(BASE),--base $(BASE))

wheels: setup ## wheels and source archives of Headwater and its client into dist/ (DIST=folder)
	@rm -f -- $(BUILT)
	@$(BIN)/uv build -q --out-dir "$(DIST)" . && $(BIN)/uv build -q --out-dir "$(DIST)" client && ls -- $(BUILT)

release: wheels images ## what is handed out: dist/ and the container images, all of the version in pyproject.toml

test-compose: setup ## images, docker-compose.yml, the flights example, kills under load (15 minutes; needs Docker, or root to install it)
	@$(BIN)/python -m deploy.compose.proof

test-containers: setup ## integration tests on containers made from our images (needs Docker, or root to install it)
	@$(BIN)/python -m tests.containers

test-failover: setup ## a primary is killed under load and its standby promoted: followed, or refused where that would lose something
	@$(BIN)/python -m pytest -m '' tests/faults/test_promoted_standby.py

test-cluster: setup ## joined views, windows and matches on a Spark master with two workers and a Redis Cluster, workers killed and paused (a quarter of an hour)
	@$(BIN)/python -m pytest -m '' tests/faults/test_spark_cluster.py tests/faults/test_spark_cluster_state.py tests/integration/test_spark_cluster_checks.py tests/integration/test_spark_cluster_reading.py

test-alerts: setup ## the alert rules by promtool, which is built first if it is not there (minutes, once; needs Go)
	@$(BIN)/python -m tests.support.promtool
	@$(BIN)/python -m pytest tests/unit/deploy/test_monitoring.py

test-dbt: setup ## the example of dbt over a warehouse under load, each model beside plain SQL; makes dbt an environment of its own
	@$(BIN)/python -m pytest -m '' tests/integration/test_dbt.py

chaos: setup ## a shop and a bank under load while everything is killed, frozen and cut (CHAOS_MINUTES=20 CHAOS_SEED=1)
	@$(BIN)/python -m tests.chaos

lint: setup ## ruff, mypy --strict, import directions
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/mypy --config-file tests/mypy.ini tests && $(BIN)/lint-imports

format: setup ## put the code into the house's form
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: setup ## measure latency and load rates; writes benchmarks/results/latest.json
	@$(BIN)/python -m benchmarks.run

bench-upkeep: setup ## reads of a warehouse's table after 10,000 merges, beside one that was just written (hours)
	@$(BIN)/python -m benchmarks.run upkeep_10k

lock: setup ## compute requirements.lock anew from pyproject.toml
	@$(BIN)/uv pip compile -q pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate -o requirements.lock

clean: ## stop our servers and remove everything made here (not the download cache)
	@test ! -x $(BIN)/headwater || $(BIN)/headwater down --wipe --yes
	@rm -rf $(VENV) dist .headwater .pytest_cache .mypy_cache .ruff_cache
