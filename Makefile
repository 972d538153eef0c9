# Every target sets up what it needs by itself, from a fresh clone.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DATA := data

.DEFAULT_GOAL := help
.PHONY: help demo test test-full lint docs bench bench-decide clean

help:  ## Show this list.
	@echo "Penstock: make <target>"
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(STAMP): pyproject.toml tools/setup.sh
	@PYTHON=$(PYTHON) tools/setup.sh $(VENV)
	@touch $(STAMP)

demo: $(STAMP)  ## Run a pipeline on real data and print what was decided, and why.
	@$(BIN)/penstock demo

test: $(STAMP)  ## Run the tests that are quick enough for every change (under 20 minutes).
	@$(BIN)/python tools/make_data.py $(DATA)
	@$(BIN)/python -m pytest -m "not slow"

test-full: $(STAMP)  ## Run all tests, all 99 TPC-DS queries and the cluster among them.
	@$(BIN)/python tools/make_data.py $(DATA)
	@$(BIN)/python -m pytest

lint: $(STAMP)  ## Check style, types and the generated docs.
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python tools/make_docs.py --check

docs: $(STAMP)  ## Make the generated parts of the docs anew.
	@$(BIN)/python tools/make_docs.py

bench: $(STAMP)  ## Compare with plain Spark on TPC-H, side by side; writes bench/results.
	@$(BIN)/python tools/make_data.py $(DATA) --scale 1
	@$(BIN)/python bench/tpch.py --data $(DATA)/tpch-1

bench-decide: $(STAMP)  ## Time the decisions of a graph of 10 000 vertices.
	@$(BIN)/python bench/decide.py

clean:  ## Remove everything that was made.
	rm -rf $(VENV) $(DATA) .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
