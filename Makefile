# What one does with a clone of Klamm. Another Python: make PYTHON=python3.12 up
.POSIX:

PYTHON = python3
BIN = .venv/bin
INSTALLED = .venv/.installed
PIP_INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check
PYTEST = $(BIN)/python -m pytest -q
# Tests that start servers or take seconds run one after the other: they judge times.
ALONE = java or slow or docker or chromium or maven

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

up: $(INSTALLED) ## a cluster on this machine: a real ZooKeeper and three brokers
	@$(BIN)/klamm up

down: ## end it; data and logs stay under var/
	@if [ -x $(BIN)/klamm ]; then $(BIN)/klamm down; else echo "nothing runs: there is no .venv yet"; fi

test: $(INSTALLED) ## every test that fits into ten minutes together
	@KLAMM_HYPOTHESIS=full $(PYTEST) -n 2 --dist worksteal -m "not ($(ALONE))"
	@KLAMM_HYPOTHESIS=full $(PYTEST) -m "java or slow or chromium"

test-all: $(INSTALLED) ## all tests, as CI runs them; KLAMM_REQUIRE=docker,chromium,java,maven allows no skip
	@KLAMM_HYPOTHESIS=full $(PYTEST) -n 2 --dist worksteal -m "not ($(ALONE))"
	@KLAMM_HYPOTHESIS=full $(PYTEST) -m "$(ALONE)"

lint: $(INSTALLED) ## format, lint and types
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary

check: lint ## format, lint, types and the fast tests, in a minute
	@$(PYTEST) -n 2 --dist worksteal -m "not ($(ALONE))"

tables: $(INSTALLED) ## the state tables into controller/DESIGN.md
	@$(BIN)/python -m tests.tables

$(INSTALLED): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Klamm needs Python 3.11 or newer, and there is no $(PYTHON)." \
		"Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Klamm needs Python 3.11 or newer," \
		"and $(PYTHON) is $$($(PYTHON) --version). Name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing into .venv: a minute or two, once ..."
	@$(PYTHON) -m venv .venv
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(PIP_INSTALL) --no-deps -e .
	@touch $(INSTALLED)

.PHONY: help up down test test-all lint check tables
