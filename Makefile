# Everything lives in .venv; the two commands that matter are `make reproduce` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help reproduce test lint bench clean

help:
	@echo "make reproduce   set up, run every study at the quick scale, print the ledger, write the site"
	@echo "make test        set up, then everything that CI runs: ruff, pyright, pytest"
	@echo "make bench       against PyTorch, on this machine; writes BENCHMARKS.md (about 25 minutes)"
	@echo "make clean       remove the environment (the store of runs stays)"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Mnemoscope needs Python 3.11 or later, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

reproduce: $(VENV)/.installed
	$(BIN)/mnemoscope run all --scale quick
	$(BIN)/mnemoscope site

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	@sh tests/browser.sh
	$(BIN)/python -m pytest -n 2

bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/bench.py

clean:
	rm -rf $(VENV)
