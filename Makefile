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
.PHONY: help setup demo test test-all test-services soak-server unit fuzz verify bench bench-esl bench-ffp lint types format docs examples doctor clean

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
	@$(WITH_JAVA) scripts/services.sh $(ARGS)

soak-server: $(READY) ## twenty clients of a server that is killed three times, for ten minutes; a minute of it is in CI
	@$(BIN)/python -m tests.services.server.soak $(ARGS)

unit: $(READY) ## the quick unit tests: no Spark, about a minute
	@HYPOTHESIS_PROFILE=unit $(BIN)/pytest -q -n 2 --dist worksteal -m "not (spark or slow or volume)" tests/unit $(ARGS)

fuzz: $(READY) ## the unit tests with other examples, a thousand of each; ARGS chooses tests
	@HYPOTHESIS_PROFILE=fuzz $(BIN)/pytest -q -n 2 -m "not spark" $(if $(ARGS),$(ARGS),tests/unit tests/properties)

verify: $(READY) ## the long run: 20 000 generated queries and streams, 300 on Spark, and the planted faults
	@$(WITH_JAVA) $(BIN)/headrace verify --seeds 20000 --spark 300 --failures 10 $(ARGS)
	@$(BIN)/python -m tests.verification.catch

bench: $(READY) ## measure throughput and latency
	@$(WITH_JAVA) $(BIN)/python -m benchmarks $(ARGS)

bench-esl: $(READY) ## aggregates in SQL: the experiments of Stream Mill, with pictures
	@$(WITH_JAVA) $(BIN)/python -m benchmarks --only esl --plots docs/pictures $(ARGS)

bench-ffp: $(READY) ## progress of loops: the evaluation of flying fixed-point, with pictures
	@$(BIN)/python -m benchmarks --only ffp --plots docs/pictures $(ARGS)

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

clean: ## remove .venv, caches and what Spark left behind
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db derby.log artifacts
	find src tests packages -name __pycache__ -type d -prune -exec rm -rf {} +
