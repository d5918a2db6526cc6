# Two commands matter: `make demo` and `make test`. Both set up all they need in .venv.
PYTHON ?= $(shell command -v python3.12 >/dev/null 2>&1 && python3.12 -c '' >/dev/null 2>&1 && echo python3.12 || (command -v python3.11 >/dev/null 2>&1 && echo python3.11) || echo python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints-ci.txt
PYTEST := $(BIN)/python -m pytest
FAST := not slow and not torch and not service and not browser

.PHONY: help test demo lint types test-slow test-torch test-service test-browser test-all torch browser clean

help:
	@echo "make demo        fit, search and evaluate on a small data set"
	@echo "make test        the default test suite (under three minutes on two cores)"
	@echo "make lint types  ruff, mypy --strict"
	@echo "make test-slow test-torch test-service test-browser    the marked tiers;  make test-all    everything"
	@echo "make browser     install Debian's chromium, which the browser tests drive"

$(VENV)/.base: pyproject.toml constraints-ci.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[demo,features,plot]'
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.torch: $(VENV)/.dev
	$(PIP) -e '.[dev,torch]' triton  # its interpreter runs the GPU's passes on a CPU, for the tests
	touch $@

torch: $(VENV)/.torch

test: $(VENV)/.dev
	$(PYTEST) -n 2 -q -m "$(FAST)"

demo: $(VENV)/.base
	$(BIN)/modalhash demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

test-slow: $(VENV)/.dev
	$(PYTEST) -q -m "slow and not torch and not service and not browser"

test-torch: $(VENV)/.torch
	$(PYTEST) -q -m "torch and not service and not browser"

test-service: $(VENV)/.torch
	$(PYTEST) -q -m "service and not browser"

browser:
	command -v chromium >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; }

test-browser: $(VENV)/.dev browser
	$(PYTEST) -q -m "browser"

test-all: test test-slow test-torch test-service test-browser

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
