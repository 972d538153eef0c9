# Every target sets up what it needs by itself, from a fresh clone.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEMO_STAMP := $(VENV)/.ready-demo
DATA := data
SCALE ?= 10
ROUNDS ?= 3
ROWS ?= 12000000
TESTS ?= tests
BASE ?= HEAD
VERSION ?= latest
QUICK := not slow and not thorough

.DEFAULT_GOAL := help
.PHONY: help demo test test-thorough check smoke test-full .tests lint wheel docs docs-site bench bench-real-life bench-short bench-skew bench-connectors bench-rebalance bench-state bench-streams bench-web bench-decide bench-served bench-connect bench-throughput bench-simulate clean

help:  ## Show this list.
	@echo "Penstock: make <target>"
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(STAMP): pyproject.toml tools/setup.sh
	@PYTHON=$(PYTHON) tools/setup.sh $(VENV) delta,dev,iceberg,kafka
	@touch $(STAMP) $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml tools/setup.sh
	@PYTHON=$(PYTHON) tools/setup.sh $(VENV)
	@touch $(DEMO_STAMP)

demo: $(DEMO_STAMP)  ## Compare Penstock with plain Spark, side by side, and print the decisions and their reasons.
	@$(BIN)/penstock demo --data $(DATA)/demo

test: $(STAMP)  ## Run the quick tests of all features (TESTS=tests/state runs a part).
	@$(MAKE) --no-print-directory .tests SELECTED="$(QUICK)"

test-thorough: $(STAMP)  ## Run the tests that make test skips, except slow tests; TEST_SECONDS=600 sets a time limit.
	@$(MAKE) --no-print-directory .tests SELECTED="thorough and not slow"

check: $(STAMP)  ## Lint, and run the quick tests that the changes since a commit affect (BASE=HEAD).
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory .tests SELECTED="$(QUICK)" TESTS="$$($(BIN)/python tools/affected_tests.py --base $(BASE) | tr '\n' ' ')"

.tests:
	@tools/services.sh & services=$$!; \
	  $(BIN)/python tools/make_data.py $(DATA) && $(BIN)/python -m tools.class_archive $(DATA) && wait $$services
	@tools/test.sh $(BIN)/python "$(SELECTED)" $(TESTS)

smoke: $(STAMP)  ## Run pipelines on each supported release of PySpark, and native execution on the oldest and newest DuckDB; downloads them once.
	@$(BIN)/python tools/spark_versions.py 4.0 4.1 4.2 4.3
	@$(BIN)/python tools/duckdb_versions.py 1.5.0 '2.0.*'

test-full: $(STAMP)  ## Run all tests, all 99 TPC-DS queries and the cluster among them (TESTS=tests/state runs a part).
	@$(MAKE) --no-print-directory .tests SELECTED="slow or not slow"

lint: $(STAMP)  ## Check style, types, the Java sources, the generated docs and the figures in them.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo 'Some files are not formatted: run $(BIN)/ruff format .'; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/python tools/java_classes.py
	@$(BIN)/python tools/make_docs.py --check

wheel: $(STAMP)  ## Build the wheel into dist, with the Java classes compiled.
	@$(BIN)/python tools/build_wheel.py dist

docs: $(STAMP)  ## Update the generated parts of the docs, with the figures from bench/results.
	@$(BIN)/python tools/make_docs.py

docs-site: $(STAMP)  ## Build the docs as a site with search in build/site (VERSION=v1.2.0 builds it beside other versions).
	@$(BIN)/python tools/docs_site.py build/site --version '$(VERSION)'

bench: $(STAMP)  ## Compare with Spark on TPC-H and TPC-DS, without and with DuckDB (SCALE=10 ROUNDS=3); writes bench/results and the figures in the docs.
	@$(BIN)/python tools/make_data.py $(DATA) --scale $(SCALE)
	@for tables in tpch tpcds; do \
	  $(BIN)/python bench/compare.py --data $(DATA)/$$tables-$(SCALE) --rounds $(ROUNDS) --option execution.native=false && \
	  $(BIN)/python bench/compare.py --data $(DATA)/$$tables-$(SCALE) --rounds $(ROUNDS) --output bench/results/native || exit 1; \
	done
	@$(BIN)/python tools/make_docs.py

bench-real-life: $(STAMP)  ## Compare with Spark on web analytics, groups, joins and JSON events, without and with DuckDB (ROWS=12000000 ROUNDS=3).
	@$(BIN)/python bench/real_life.py --rows $(ROWS) --rounds $(ROUNDS)
	@$(BIN)/python tools/make_docs.py

bench-short: $(STAMP)  ## Compare with Spark on 200 queries over at most 30 MB (ROUNDS=3).
	@$(BIN)/python bench/short_queries.py --rounds $(ROUNDS)

bench-skew: $(STAMP)  ## Compare with Spark's skew handling on a join and a distinct count with a hot key.
	@$(BIN)/python bench/skew.py

bench-connectors: $(STAMP)  ## Compare reads of databases, topics and Iceberg tables, and partitioned writes, with Spark's.
	@tools/services.sh
	@$(BIN)/python bench/connectors.py
	@$(BIN)/python bench/write.py

bench-rebalance: $(STAMP)  ## Compare the adaptive exchange with repartition, with slow and with equally fast consumers.
	@$(BIN)/python bench/rebalance.py

bench-state: $(STAMP)  ## Compare methods of changing key groups with Spark's own repartitioning.
	@$(BIN)/python bench/state.py

bench-streams: $(STAMP)  ## Compare fixed batch sizes of a stream with Penstock's, while the load jumps tenfold.
	@$(BIN)/python bench/streams.py

bench-web: $(STAMP)  ## Measure the overhead of the web interface for a job, and its response times.
	@$(BIN)/python bench/web.py

bench-decide: $(STAMP)  ## Measure the decisions about a graph of 10 000 vertices.
	@$(BIN)/python bench/decide.py

bench-served: $(STAMP)  ## Measure costs and gains of sessions that Penstock serves (penstock.enable).
	@$(BIN)/python tools/make_data.py $(DATA) --scale 1
	@$(BIN)/python bench/served.py --data $(DATA)/tpch-1 $(DATA)/tpcds-1

bench-connect: $(STAMP)  ## Compare Spark Connect servers with and without Penstock: 1, 4 and 16 thin clients, thousands of queries.
	@$(BIN)/python tools/make_data.py $(DATA) --scale 1
	@$(BIN)/python bench/connect.py

bench-throughput: $(STAMP)  ## Run TPC-H by 1, 4 and 8 concurrent users of an application, on Spark and on Penstock.
	@$(BIN)/python tools/make_data.py $(DATA) --scale 1
	@$(BIN)/python bench/throughput.py --data $(DATA)/tpch-1

bench-simulate: $(STAMP)  ## Replay the stages of TPC-H on a model of 100 and 1 000 executors (SCALE=10).
	@$(BIN)/python tools/make_data.py $(DATA) --scale $(SCALE)
	@$(BIN)/python bench/simulate.py --data $(DATA)/tpch-$(SCALE)

clean:  ## Remove all generated files.
	rm -rf $(VENV) $(DATA) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
