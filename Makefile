# Bare `make` lists the recipes. Each one makes .venv by itself when it is missing or older than what it is made from.
# `make PYTHON=python3.12 ...` chooses the interpreter, ARGS="..." is passed on to the command that a recipe runs.

PYTHON ?=
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready
# Put before a command that starts Spark: stops with one message if there is no fitting Java.
WITH_JAVA := JAVA_HOME=$$(scripts/java.sh) && export JAVA_HOME &&

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup dist dist-all lowest demo test test-all test-services soak soak-server unit fuzz causes verify bench bench-esl bench-ffp grid grid-spark ui lint types format docs examples doctor clean

help: ## list the recipes
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## make .venv, and see that there is a Java
	@scripts/java.sh >/dev/null

$(READY): pyproject.toml $(wildcard packages/*/pyproject.toml) constraints.txt scripts/venv.sh
	@PYTHON="$(PYTHON)" scripts/venv.sh

demo: $(READY) ## see Headrace at work: late events, corrected answers
	@$(WITH_JAVA) $(BIN)/headrace demo $(ARGS)

test: $(READY) ## lint, types, documentation and the tests: before a change is handed in, 13 minutes
	@$(WITH_JAVA) scripts/test.sh $(ARGS)

test-all: $(READY) ## the same with more examples and volume: what CI runs, 30 minutes
	@$(WITH_JAVA) scripts/test.sh --all $(ARGS)

test-services: $(READY) ## the tests with Kafka and PostgreSQL, which it fetches and starts: in CI too, under 15 minutes
	@$(WITH_JAVA) $(BIN)/python -m tests.services.kafka_jars
	@$(BIN)/python -m tests.services.browser.chromium >/dev/null
	@$(WITH_JAVA) scripts/services.sh $(ARGS)

soak: $(READY) ## a query under load that is killed, for half an hour: fails if anything grows; ARGS="--minutes 3", --overload
	@$(WITH_JAVA) $(BIN)/python -m tests.soak $(ARGS)

soak-server: $(READY) ## twenty clients of a server that is killed three times, for ten minutes; a minute of it is in CI
	@$(BIN)/python -m tests.services.server.soak $(ARGS)

unit: $(READY) ## the quick unit tests: no Spark, about a minute
	@HYPOTHESIS_PROFILE=unit $(BIN)/pytest -q -n 2 --dist worksteal -m "not (spark or slow or volume)" tests/unit $(ARGS)

fuzz: $(READY) ## the unit tests with other examples, a thousand of each; ARGS chooses tests
	@HYPOTHESIS_PROFILE=fuzz $(BIN)/pytest -q -n 2 -m "not spark" $(if $(ARGS),$(ARGS),tests/unit tests/properties)

.PHONY: simulate
simulate: $(READY) ## 100,000 simulated runs of the commit protocol, with crashes, rivals, upgrades and rescaling; ARGS="--minutes 15"
	@nice $(BIN)/python -m tests.unit.store.many $(ARGS)

causes: $(READY) ## whether traces name the causes of answers and of missing ones, on 2,000 random cases; ARGS="--cases 200"
	@$(BIN)/python -m tests.verification.causes $(ARGS)

verify: $(READY) ## the long run: 20 000 generated queries and streams, 300 on Spark, and the planted faults
	@$(WITH_JAVA) $(BIN)/headrace verify --seeds 20000 --spark 300 --failures 10 $(ARGS)
	@$(BIN)/python -m tests.verification.catch

bench: $(READY) ## measure throughput and latency
	@$(WITH_JAVA) $(BIN)/python -m benchmarks $(ARGS)

bench-esl: $(READY) ## aggregates in SQL: the experiments of Stream Mill, with pictures
	@$(WITH_JAVA) $(BIN)/python -m benchmarks --only esl --plots docs/pictures $(ARGS)

bench-ffp: $(READY) ## progress of loops: the evaluation of flying fixed-point, with pictures
	@$(BIN)/python -m benchmarks --only ffp --plots docs/pictures $(ARGS)

grid: $(READY) ## the fault grid: every feature with every disruption; ARGS="--services", ARGS="--features window --seed 7"
	@$(BIN)/python -m tests.grid $(ARGS)

grid-spark: $(READY) ## a sample of the fault grid on Spark: 150 cells; ARGS="--seed 7" draws others
	@$(WITH_JAVA) $(BIN)/python -m tests.grid --spark --cells 150 --report build/fault_grid_spark.json $(ARGS)

ui: ## build the dashboard from ui/ into src/headrace/dashboard/static; needs Node 18 or newer
	@command -v npm >/dev/null || { echo "the dashboard is built with Node: install Node 18 or newer (Debian: apt-get install nodejs npm)" >&2; exit 1; }
	@cd ui && npm ci --no-audit --no-fund && node build.mjs

lint: $(READY) ## ruff: rules and format, nothing is changed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict
	@$(BIN)/mypy

format: $(READY) ## ruff: format, and mend what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(READY) ## build the documentation into build/site; warnings are errors
	@$(BIN)/python docs/site.py

examples: $(READY) ## run every example of the README, the docs and the docstrings
	@$(WITH_JAVA) $(BIN)/pytest -q tests/docs $(ARGS)

doctor: $(READY) ## check Python, Java, packages, memory and disk
	@$(BIN)/headrace doctor $(ARGS)

dist: $(READY) ## build the wheels and source archives into dist/, twice each, check them, and write the bill of materials
	@$(BIN)/python -m tests.dist.build dist
	@$(BIN)/python -m tests.dist.materials dist/headrace-$$($(BIN)/python -c "from headrace.version import VERSION; print(VERSION)").cdx.json
	@$(BIN)/python -m tests.dist.install --borrow

dist-all: $(READY) ## install the wheels into empty environments of each Python (PYTHONS="python3.12 ..."), and try them, also on Spark
	@$(WITH_JAVA) $(BIN)/python -m tests.dist.install --spark $(or $(PYTHONS),python3.11 python3.12 python3.13)

lowest: $(READY) ## the same with the lowest versions of dependencies that pyproject.toml allows, and with the newest ones
	@$(WITH_JAVA) $(BIN)/python -m tests.dist.install --lowest --spark
	@$(WITH_JAVA) $(BIN)/python -m tests.dist.install --newest --spark

clean: ## remove .venv, caches and what Spark left behind
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db derby.log artifacts
	find src tests packages -name __pycache__ -type d -prune -exec rm -rf {} +
